"""A sweep: the runs it says, each trained once, whatever happens to the workers."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from optuna.trial import TrialState
from sqlalchemy import text
from typer.testing import CliRunner

from dbq.cli.main import app
from dbq.cli.sweep import complete_sweep
from dbq.errors import RecipeError, TrainingError
from dbq.experiments.sweep import worker as sweep_worker
from dbq.experiments.sweep.queue import Claim, Queue
from dbq.experiments.sweep.sweep import Sweep, load_sweep, sweep_names
from dbq.experiments.sweep.work import Job, outcome
from dbq.experiments.sweep.worker import work
from dbq.networks.weights import read_weights
from dbq.quantizers.fixed import FixedPointQuantizer
from dbq.training.networks import quantized_network
from dbq.training.record.checkpoint import read_checkpoint
from dbq.training.run import train
from tests.runs import TINY, environment, single_thread

FLOAT = 'extends = "tiny.toml"\n[quantize]\nplan = "fp"\n[train]\nrate = 0.1\n'
SWEEP = """
about = "tests"
recipe = "tiny.toml"
float = "float.toml"
[shared]
model.width = [0.125, 0.25]
[grid]
"quantize.precision" = ["8b", "1T"]
"""
EVERY_STEP = "machine.checkpoint_minutes=0"
LONGER = "train.epochs=3"  # 9 steps


def write(folder: Path, sweep: str = SWEEP) -> Path:
    (folder / "tiny.toml").write_text(TINY)
    (folder / "float.toml").write_text(FLOAT)
    (folder / "tiny-sweep.toml").write_text(sweep)
    return folder / "tiny-sweep.toml"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs, for the tests that train them all."""
    return write(tmp_path_factory.mktemp("short"), SWEEP.replace('"8b", "1T"', '"1T"'))


@pytest.fixture(scope="module")
def plain(short: Path) -> Path:
    """The same runs, one after the other by `train` alone: what a sweep must come to."""
    out = short.parent / "plain"
    with single_thread():
        for run in load_sweep(short, [EVERY_STEP, LONGER]).runs(out):
            train(run.recipe, out / run.name)
    return out


# What a sweep consists of


def test_the_grid_written_out(file: Path) -> None:
    sweep = load_sweep(file, ["train.momentum=0.8"])
    expected = [
        ("float,width=0.125,seed=0", 0.125, "", "fp"),
        ("float,width=0.25,seed=0", 0.25, "", "fp"),
    ]
    for width in (0.125, 0.25):
        for precision in ("8b", "1T"):
            name = f"width={width},precision={precision},seed=0"
            expected.append((name, width, precision, "resnet-2t"))
    runs = sweep.runs(Path("/out"))
    found = [(r.name, r.recipe.model.width, r.recipe.quantize.precision,
              r.recipe.quantize.plan.name)
             for r in runs]  # fmt: skip
    assert found == expected
    starts = [run.recipe.model.weights for run in runs]
    assert starts == ["", ""] + [f"/out/float,width={w},seed=0" for w in (0.125, 0.125, 0.25, 0.25)]
    assert {run.recipe.train.momentum for run in runs} == {0.8}
    assert {run.recipe.train.rate for run in runs[:2]} == {0.1}


def test_seeds_share_a_baseline() -> None:
    sweep = Sweep("s", "digits-2t", "digits-fp", (3, 4), grid={"train.rate": (0.1, 0.2)})
    runs = sweep.runs(Path("out"))
    assert [(run.seed, run.recipe.train.seed) for run in runs] == [(s, s) for s in (3, 3, 4, 3, 4)]
    assert {run.baseline for run in runs[1:]} == {"float,seed=3"}
    assert [run.name for run in runs[1:3]] == ["rate=0.1,seed=3", "rate=0.1,seed=4"]


def test_without_baselines_the_recipe_says_where_to_start() -> None:
    sweep = Sweep("s", "digits-2t", shared={"model.width": (0.5,)}, overrides=("model.weights=f",))
    assert [run.recipe.model.weights for run in sweep.runs(Path("out"))] == ["f"]


def test_bits_take_the_usual_method_of_their_kind(file: Path) -> None:
    run = load_sweep(file, ["model.weights_from="]).runs(Path("out"))[2]
    network = quantized_network(run.recipe, classes=10, start=False)
    quantizers = [m for m in network.modules() if isinstance(m, FixedPointQuantizer)]
    assert len(quantizers) == 18, "all convolutions but the first"


@pytest.mark.parametrize(
    ("name", "runs"), [("visual_wake_words", 4 + 36), ("cifar10-vehicles", 4 + 40)]
)
def test_shipped(name: str, runs: int) -> None:
    found = load_sweep(name).runs(Path("out"))
    assert len(found) == runs
    widths = {run.recipe.model.width for run in found if not run.baseline}
    assert widths == {0.125, 0.25, 0.375, 0.5}
    assert {run.recipe.plan.choose("x", "depthwise").weight.size for run in found[4:]} == {8}
    assert complete_sweep(name[:3]) == [name]
    assert name in sweep_names()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("about", "abuot"), "unknown key abuot; closest: about"),
        (("[shared]", "[share]"), "unknown key share; closest: shared"),
        (("model.width", "model.widht"), "unknown key model.widht; closest: width"),
        (("quantize.precision", "quantise.precision"), "unknown key quantise; closest: quantize"),
        (('["8b", "1T"]', '["9b"]'), "expected 2 to 8"),
        (('["8b", "1T"]', '"8b"'), "quantize.precision"),
        (("[0.125, 0.25]", "[0.125, 0.125]"), "float,width=0.125,seed=0 occurs 2 times"),
        (('recipe = "tiny.toml"', ""), "recipe is missing"),
        (('"quantize.precision"', "model.weights"), "model.weights in [grid] is decided by float"),
        (('"quantize.precision"', "model.width"), "model.width in [grid] is decided by [shared]"),
        (("[shared]", "seeds = [0.5]\n[shared]"), "seeds[0]"),
        (('recipe = "tiny.toml"', 'recipe = "float.toml"'), "no ternary layer"),
        (('recipe = "tiny.toml"', 'recipe = "tony.toml"'), "cannot read recipe"),
    ],
)
def test_mistakes_are_found_before_anything_starts(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    path = write(tmp_path, SWEEP.replace(*change))
    shown = CliRunner().invoke(app, ["sweep", str(path), "--out", str(tmp_path / "out")])
    assert shown.exit_code == 2
    assert message in shown.output
    assert not (tmp_path / "out").exists()


def test_a_key_is_decided_once(file: Path) -> None:
    with pytest.raises(RecipeError, match=r"model.width in --set is decided by \[shared\] already"):
        load_sweep(file, ["model.width=1"])
    with pytest.raises(RecipeError, match="no sweep named 'cifar10-vehicle'; closest: cifar10-veh"):
        load_sweep("cifar10-vehicle")


# The queue


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """The URL of a server of our own, where PostgreSQL is installed."""
    pytest.importorskip("psycopg")
    folders = [str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")]
    search = os.pathsep.join([os.environ["PATH"], *folders])
    initdb, pg_ctl = (shutil.which(name, path=search) for name in ("initdb", "pg_ctl"))
    if initdb is None or pg_ctl is None:
        pytest.skip("no PostgreSQL here")
    folder = Path(tempfile.mkdtemp(prefix="dbq-"))
    how: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "cwd": folder}
    if os.getuid() == 0:  # which the server refuses
        shutil.chown(folder, "postgres")
        how["user"] = "postgres"
    data = ["-D", str(folder / "data")]
    try:
        subprocess.run([initdb, *data, "-U", "tests", "-A", "trust", "--no-sync"], **how)
        quick = f"-k {folder} -c listen_addresses='' -c fsync=off"
        subprocess.run(
            [pg_ctl, *data, "-w", "-l", str(folder / "log"), "-o", quick, "start"], **how
        )
        yield f"postgresql+psycopg://tests@/postgres?host={folder}"
        subprocess.run([pg_ctl, *data, "-m", "immediate", "stop"], **how)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def job(request: pytest.FixtureRequest, file: Path, tmp_path: Path) -> Job:
    store = request.getfixturevalue("postgresql") if request.param == "postgresql" else ""
    return Job(load_sweep(file), tmp_path / "out", store)


def states(queue: Queue) -> list[str]:
    return [status.state for status in queue.status().values()]


def silence(queue: Queue) -> None:
    """As if no worker had given a sign of life for an hour."""
    with queue.storage.engine.begin() as connection:
        connection.execute(text("UPDATE trial_heartbeats SET heartbeat = '2000-01-01 00:00:00'"))


def finish(queue: Queue, claim: Claim | None) -> None:
    """As `train` would."""
    assert claim is not None
    (queue.out / claim.run.name).mkdir(exist_ok=True)
    (queue.out / claim.run.name / "result.json").write_text("{}")
    queue.finish(claim, 50.0)


def test_baselines_come_first_and_everything_once(job: Job) -> None:
    queue = job.queue()
    for _ in range(3):
        job.queue().mend(retry=True)
    assert len(queue.study.get_trials()) == 6
    first, second = queue.claim(), queue.claim()
    assert first is not None
    assert [c and c.run.name for c in (first, second)] == list(queue.runs)[:2]
    assert queue.claim() is None, "the others have nothing to start from yet"
    finish(queue, second)
    names = [claim.run.name for claim in iter(queue.claim, None)]
    assert names == ["width=0.25,precision=8b,seed=0", "width=0.25,precision=1T,seed=0"]
    assert states(queue) == ["running", "finished", "waiting", "waiting", "running", "running"]
    queue.fail(first, "broken")
    found = queue.status()
    assert str(found["float,width=0.125,seed=0"]) == "failed: broken"
    assert "its baseline float,width=0.125" in found["width=0.125,precision=1T,seed=0"].error
    job.queue().mend(retry=True)
    assert states(queue)[0] == "waiting"


def test_two_that_look_at_the_same_moment(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held between looking at a trial and changing it, the other one must not see it waiting."""
    queues = [job.queue(), job.queue()]
    queues[0].mend()
    both_look = threading.Barrier(2)
    trial = queues[0].study.get_trials()[0]._trial_id
    taken = []

    def claim(queue: Queue) -> None:
        def wait(trial_id: int, state: TrialState) -> None:
            check(trial_id, state)
            with suppress(threading.BrokenBarrierError):  # the other one is kept waiting
                both_look.wait(timeout=1)

        check = queue.storage.check_trial_is_updatable
        monkeypatch.setattr(queue.storage, "check_trial_is_updatable", wait)
        taken.append(queue.storage.set_trial_state_values(trial, TrialState.RUNNING))

    threads = [threading.Thread(target=claim, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [False, True]


def test_a_silent_worker_loses_its_run(job: Job) -> None:
    slow, quick = job.queue(), job.queue()
    slow.mend()
    claim = slow.claim()  # and dies, or is kept from giving even its first sign of life
    assert claim is not None
    quick.mend()
    assert states(quick)[0] == "running", "not so soon"
    silence(quick)
    quick.mend()
    assert states(quick)[0] == "waiting"
    names = [taken.run.name for taken in iter(quick.claim, None)]
    assert sorted(names) == sorted(list(quick.runs)[:2])
    slow.fail(claim, "too late to matter")
    assert states(quick)[0] == "running", "it is the other one's now"
    ends = [t.state for t in quick.study.get_trials() if t.user_attrs["run"] == claim.run.name]
    assert ends == [TrialState.FAIL, TrialState.RUNNING]


def test_heartbeats_keep_a_run(job: Job) -> None:
    queue = job.queue()
    queue.beat_every = 0.05  # type: ignore[assignment]
    queue.mend()
    claim = queue.claim()
    assert claim is not None
    with queue.beating(claim):
        silence(queue)
        time.sleep(0.5)
        queue.mend()
        assert states(queue)[0] == "running"


def test_told_to_stop_it_puts_its_run_back(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_worker, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        work(job.queue())
    assert set(states(job.queue())) == {"waiting"}


def test_stores_that_cannot_be_used(file: Path, tmp_path: Path) -> None:
    for store in ("nonsense", "mysql://user:secret@host/db", "postgresql+psycopg://u:secret@[/x"):
        with pytest.raises(TrainingError, match="cannot use the") as error:
            Job(load_sweep(file), tmp_path, store).queue()
        assert "secret" not in str(error.value)


def test_whoever_holds_the_directory_trains_in_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was slow, not dead: the one that took its run over waits until it is."""
    queue = Job(Sweep("s", str(file.parent / "tiny.toml")), tmp_path).queue()
    directory = tmp_path / "seed=0"
    directory.mkdir()
    program = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); "
    program += "print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(directory / "lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    killed = threading.Event()

    def kill() -> None:
        killed.set()
        holder.kill()

    def training(*arguments: object, **options: object) -> dict[str, float]:
        assert killed.is_set(), "two in one directory"
        (directory / "result.json").write_text("{}")
        return {"top1": 50.0}

    monkeypatch.setattr(sweep_worker, "train", training)
    threading.Timer(0.5, kill).start()
    work(queue)
    holder.communicate()
    assert states(queue) == ["finished"]


# All together


def start(file: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    """`dbq sweep`, as a process of its own."""
    sets = ("--set", EVERY_STEP, "--set", LONGER)
    return subprocess.Popen(
        [sys.executable, "-m", "dbq", "sweep", str(file), "--out", str(out), *sets, *options],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_until_in_the_middle(
    queue: Queue, process: subprocess.Popen[str], dead: set[int]
) -> tuple[str, int]:
    """A run with a checkpoint of its first epochs, and the process that is training it."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "over before it could be disturbed"
        for trial in queue.study.get_trials(states=(TrialState.RUNNING,)):
            name, worker = trial.user_attrs["run"], trial.user_attrs.get("worker")
            checkpoint = queue.out / name / "last.safetensors"
            if worker and int(worker.split()[1]) not in dead and checkpoint.exists():
                _, facts = read_checkpoint(checkpoint)
                if facts["position"]["epoch"] < 2:
                    return name, int(worker.split()[1])
        time.sleep(0.02)
    raise AssertionError("nothing was trained")


def test_workers_killed_and_stopped(short: Path, plain: Path, tmp_path: Path) -> None:
    """Two killed with kill -9, one stopped with Ctrl-C; nothing is lost, and nothing done twice."""
    out = tmp_path / "out"
    queue = Job(load_sweep(short, [EVERY_STEP, LONGER]), out).queue()
    killed: set[int] = set()
    begun: dict[str, int] = {}

    first = start(short, out, "--workers", "2")
    while len(killed) < 2:
        name, pid = wait_until_in_the_middle(queue, first, killed)
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)
        assert not queue.is_finished(name), "killed too late to show anything"
        begun[name] = (out / name / "run.json").stat().st_mtime_ns
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 1, errors
    assert "not finished; to go on with them: dbq sweep" in errors
    assert states(queue).count("running") == len(begun) == 2, "nobody has noticed yet"

    second = start(short, out, "--grace", "2")
    wait_until_in_the_middle(queue, second, killed)
    second.send_signal(signal.SIGINT)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 130, errors
    assert "all runs are saved, go on with: dbq sweep" in errors
    assert "running" not in states(queue), "put back, not left to the heartbeat"

    third = start(short, out, "--workers", "2", "--json")
    output, errors = third.communicate(timeout=120)
    assert third.returncode == 0, errors
    assert [row["name"] for row in json.loads(output)["rows"]] == list(queue.runs)
    for name in queue.runs:
        same_run(out / name, plain / name)
        claims = [t for t in queue.study.get_trials() if t.user_attrs["run"] == name]
        assert [t.state for t in claims].count(TrialState.COMPLETE) == 1
        for one, next_one in itertools.pairwise(claims):
            assert one.datetime_complete <= next_one.datetime_start, "two had it at once"
    for name, then in begun.items():
        assert (out / name / "run.json").stat().st_mtime_ns == then, f"{name} began twice"


def picture(out: Path) -> str:
    return (out / "sweep.svg").read_text()


def same_run(mine: Path, theirs: Path) -> None:
    for file in ("model.safetensors", "best.safetensors"):
        one, other = read_weights(mine / file), read_weights(theirs / file)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    rows = [json.loads(line) for line in (mine / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == list(range(3))


def test_finished_runs_are_taken_as_they_are(short: Path, plain: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in plain.glob("*/*.*")}
    command = ["sweep", str(short), "--out", str(plain), "--workers", "2", "--set", LONGER]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert {path: path.stat().st_mtime_ns for path in plain.glob("*/*.*")} == before
    rows = json.loads((plain / "sweep.json").read_text())["rows"]
    for row in rows:
        result = json.loads((plain / row["name"] / "result.json").read_text())
        assert (row["top1"], row["cost"]["C_M"]) == (result["top1"], result["cost"]["C_M"])
        assert row["run"] == str(plain / row["name"])
    assert {">width</text>", ">0.25</text>"} <= set(re.findall(r">[^<]+</text>", picture(plain)))
    assert rows[-1]["name"] in (plain / "report.html").read_text()
    assert rows[-1]["values"] == {"model.width": 0.25, "quantize.precision": "1T"}
    assert rows[-1]["baseline"] == "float,width=0.25,seed=0"
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert [line[:3] for line in lines[4:7]] == [
        ["0.125", "float", "0"], ["0.25", "float", "0"], ["0.125", "1T", "0"],
    ]  # fmt: skip


def test_what_fails_is_reported_and_the_rest_finishes(tmp_path: Path) -> None:
    grid = SWEEP.replace("model.width = [0.125, 0.25]", "data.image_size = [9, 8]")
    grid = grid.replace('"quantize.precision" = ["8b", "1T"]', "train.rate = [1e8, 0.02]")
    small = ["model.width=0.125", "train.epochs=1"]
    job = Job(load_sweep(write(tmp_path, grid), small), tmp_path / "out")
    queue = job.queue()
    with single_thread():
        work(queue)
    found = outcome(job, queue)
    assert [row.name for row in found.rows] == [
        "float,image_size=8,seed=0", "image_size=8,rate=0.02,seed=0",
    ]  # fmt: skip
    assert not found.unfinished
    assert len(found.failed) == 4
    assert "images of side 8" in found.failed["float,image_size=9,seed=0"]
    assert "its baseline" in found.failed["image_size=9,rate=0.02,seed=0"]
    broken = found.failed["image_size=8,rate=100000000.0,seed=0"]
    assert "not finite" in broken
    assert f"rate=100000000.0,seed=0 failed: {broken[:20]}" in str(found)


def test_a_fault_of_ours_is_one_failure(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*arguments: object, **options: object) -> None:
        raise IndexError("out of range")

    monkeypatch.setattr(sweep_worker, "train", faulty)
    queue = Job(load_sweep(file), tmp_path).queue()
    work(queue)
    assert set(states(queue)) == {"failed"}
    name = "float,width=0.125,seed=0"
    assert queue.status()[name].error.startswith("IndexError: out of range, see ")
    assert "in faulty" in (tmp_path / name / "error.txt").read_text()
