"""Every run of a sweep is trained once, whatever happens to the workers."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dbq.cli.main import app
from dbq.errors import DataError, LockedError
from dbq.experiments.sweep import runner
from dbq.experiments.sweep.runner import Task, run_sweep, work
from dbq.experiments.sweep.sweep import load_sweep
from dbq.training.recipe import Recipe
from dbq.training.record.rundir import RunDir
from dbq.training.run import train
from tests.experiments.sweep.small import (
    LONGER,
    SWEEP,
    holders,
    in_the_middle,
    same_run,
    start,
    write,
)
from tests.runs import single_thread

pytestmark = pytest.mark.process


class Here:
    """A crew of one: this process, at once."""

    def __init__(self, tasks: list[Task]) -> None:
        with single_thread():
            work(tasks)

    def is_at_work(self) -> bool:
        return False

    def stop(self) -> None: ...


class Trainer:
    """In the place of `train`: notes what it is asked for, and finishes all but what is to fail."""

    def __init__(self, *failures: str, error: Exception | None = None) -> None:
        self.names: list[str] = []
        self.failures, self.error = failures, error or DataError("broken")

    def __call__(self, recipe: Recipe, out: Path, resume: bool) -> None:
        assert resume
        self.names.append(out.name)
        if any(part in out.name for part in self.failures):
            raise self.error
        out.mkdir(parents=True)
        (out / "result.json").touch()


def tasks_of(folder: Path, sweep: str = SWEEP) -> list[Task]:
    file = write(folder, sweep)
    return [Task.of(run, folder / "out") for run in load_sweep(file).runs(folder / "out")]


def test_baselines_come_first_and_everything_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, trainer = tasks_of(tmp_path), Trainer()
    monkeypatch.setattr(runner, "train", trainer)
    work(tasks)
    work(tasks)
    assert trainer.names == [task.name for task in tasks]
    assert [name.startswith("float") for name in trainer.names] == [True] * 2 + [False] * 4


def test_without_its_baseline_a_run_fails_and_the_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, trainer = tasks_of(tmp_path), Trainer("float,width=0.125")
    monkeypatch.setattr(runner, "train", trainer)
    work(tasks)
    assert [task.name for task in tasks if task.error] == [tasks[i].name for i in (0, 2, 3)]
    assert {task.end for task in tasks if not task.error} == {"finished"}
    assert tasks[0].error == "broken"
    assert tasks[0].name in tasks[2].error
    assert trainer.names == [tasks[i].name for i in (0, 1, 4, 5)]
    work(tasks)
    assert len(trainer.names) == 4, "what failed is left alone until the next call of the command"


def test_a_fault_of_ours_is_one_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "train", Trainer("", error=IndexError("out of range")))
    tasks = tasks_of(tmp_path)
    work(tasks)
    assert all(task.error for task in tasks)
    assert tasks[0].error.startswith("IndexError: out of range")
    assert "in __call__" in (Path(tasks[0].directory) / "error.txt").read_text()


def test_what_fails_is_reported_and_tried_again(tmp_path: Path) -> None:
    grid = SWEEP.replace("model.width = [0.125, 0.25]", "data.image_size = [9, 8]")
    grid = grid.replace('"quantize.precision" = ["8b", "1T"]', "train.batch = [2000, 360]")
    sweep = load_sweep(write(tmp_path, grid), ["model.width=0.125", "train.epochs=1"])
    for _ in range(2):
        found = run_sweep(sweep, tmp_path / "out", Here)  # type: ignore[arg-type]
    assert [row.name for row in found.rows] == [
        "float,image_size=8,seed=0", "image_size=8,batch=360,seed=0",
    ]  # fmt: skip
    assert not found.unfinished
    assert len(found.failed) == 4
    assert "float,image_size=9,seed=0" in found.failed["image_size=9,batch=360,seed=0"]
    broken = found.failed["image_size=8,batch=2000,seed=0"]
    assert "train.batch" in broken
    assert f"image_size=8,batch=2000,seed=0 failed: {broken[:20]}" in str(found)
    assert len(holders(tmp_path / "out" / "float,image_size=9,seed=0")) == 2, "once in each call"
    assert len(holders(tmp_path / "out" / "image_size=8,batch=360,seed=0")) == 1


HOLDER = """
import sys
from pathlib import Path
from dbq.training.record.rundir import RunDir

with RunDir(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_whoever_holds_the_directory_trains_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that another process trains is waited for, and taken over if that process dies."""
    tasks = tasks_of(tmp_path, 'recipe = "tiny.toml"\n')
    directory = Path(tasks[0].directory)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"

    def sleep(seconds: float) -> None:
        assert not (directory / "run.json").exists(), "two in one directory"
        holder.kill()
        holder.communicate()

    monkeypatch.setattr(runner, "time", SimpleNamespace(sleep=sleep))
    with single_thread():
        work(tasks)
    assert holder.returncode == -signal.SIGKILL, "the run was waited for"
    assert RunDir(directory).is_finished
    assert holders(directory) == [holder.pid, os.getpid()]


# The command


def test_workers_killed_and_stopped(short: Path, plain: Path, tmp_path: Path) -> None:
    """Two killed with kill -9, one stopped with Ctrl-C; nothing is lost, and nothing done twice."""
    out = tmp_path / "out"
    names = [run.name for run in load_sweep(short).runs(out)]
    killed: set[int] = set()
    begun: dict[str, int] = {}

    first = start(short, out, "--workers", "2")
    while len(killed) < 2:
        name = in_the_middle(out, names, killed)
        pid = holders(out / name)[-1]
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)
        assert not RunDir(out / name).is_finished, "killed too late to show anything"
        begun.setdefault(name, (out / name / "run.json").stat().st_mtime_ns)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 1, errors
    assert "dbq sweep" in errors, "how to continue"

    second = start(short, out)
    stopped = in_the_middle(out, names, killed)
    second.send_signal(signal.SIGINT)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 130, errors
    assert "dbq sweep" in errors
    assert "Traceback" not in errors
    begun.setdefault(stopped, (out / stopped / "run.json").stat().st_mtime_ns)

    third = start(short, out, "--workers", "2", "--json")
    output, errors = third.communicate(timeout=120)
    assert third.returncode == 0, errors
    assert [row["name"] for row in json.loads(output)["rows"]] == names
    for name in names:
        same_run(out / name, plain / name)
        trained_by = holders(out / name)
        assert len(trained_by) == len(set(trained_by))
    for name, then in begun.items():
        assert (out / name / "run.json").stat().st_mtime_ns == then, f"{name} began twice"


def test_finished_runs_are_taken_as_they_are(short: Path, plain: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in plain.glob("*/*")}
    command = ["sweep", str(short), "--out", str(plain), "--workers", "2", "--set", LONGER]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert {path: path.stat().st_mtime_ns for path in plain.glob("*/*")} == before
    rows = json.loads((plain / "sweep.json").read_text())["rows"]
    for row in rows:
        result = RunDir(plain / row["name"]).result()
        assert (row["top1"], row["cost"]["C_M"]) == (result.top1, result.cost.C_M)
        assert row["run"] == str(plain / row["name"])
    picture = (plain / "sweep.svg").read_text()
    assert {">width</text>", ">0.25</text>"} <= set(re.findall(r">[^<]+</text>", picture))
    assert rows[-1]["name"] in (plain / "report.html").read_text()
    assert rows[-1]["values"] == {"model.width": 0.25, "quantize.precision": "1T"}
    assert rows[-1]["baseline"] == "float,width=0.25,seed=0"
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert [line[:3] for line in lines[4:7]] == [
        ["0.125", "float", "0"], ["0.25", "float", "0"], ["0.125", "1T", "0"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "options", [("--workers", "3"), ("--ray", "10.0.0.1:6379", "--json")], ids=["here", "ray"]
)
def test_the_command_to_continue_has_every_option(
    short: Path, tmp_path: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_sweep", interrupted)
    typed = ["dbq", "sweep", str(short), "--out", str(tmp_path / "two words"), *options,
             "--set", "train.epochs=1", "--set", "train.momentum=0.8"]  # fmt: skip
    shown = CliRunner().invoke(app, typed[1:])
    assert shown.exit_code == 130
    (line,) = [line for line in shown.stderr.splitlines() if "dbq sweep" in line]
    again = shlex.split(line[line.index("dbq sweep") :])
    assert sorted(again) == sorted(typed)


def test_the_test_above_gives_every_option() -> None:
    """An option that is added must be added there."""
    known = {name for p in get_command(app).commands["sweep"].params for name in p.opts}  # type: ignore[attr-defined]
    assert known == {"sweep", "--out", "--workers", "--ray", "--json", "--set"}


def test_two_trainings_in_one_directory(short: Path, tmp_path: Path) -> None:
    """The second is refused, and told who is there."""
    recipe = load_sweep(short).runs(tmp_path)[0].recipe
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(LockedError, match=str(holder.pid)):
        train(recipe, tmp_path)
    holder.communicate(b"")
