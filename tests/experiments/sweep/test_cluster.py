"""A sweep on a real Ray cluster: a node dies, and nothing is lost or done twice."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dbq.cli.main import app
from dbq.experiments.sweep.sweep import load_sweep
from dbq.training.record.rundir import RunDir
from tests.experiments.sweep.small import (
    holders,
    in_the_middle,
    same_run,
    start,
)

pytest.importorskip("ray")
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster whose head trains nothing and whose two nodes train one run at a time each."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # as Ray itself does where nothing is set
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        for _ in range(2):
            made.add_node(num_cpus=1)
    try:
        yield made
    finally:
        made.shutdown()


def stamps(out: Path) -> dict[Path, tuple[int, int]]:
    """Inode and time of what a run writes once: when it starts, and when it is finished."""
    files = [*out.glob("*/run.json"), *out.glob("*/result.json")]
    return {file: (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}


def test_stopped_with_ctrl_c(short: Path, tmp_path: Path, nodes: Any) -> None:
    out = tmp_path / "out"
    names = [run.name for run in load_sweep(short).runs(out)]
    process = start(short, out, "--ray", nodes.address)
    stopped = in_the_middle(out, names, dead=set())
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert f"--ray {nodes.address}" in errors, "how to continue"
    with RunDir(out / stopped).lock():  # nobody is training there
        assert not RunDir(out / stopped).error()


def test_a_node_dies(short: Path, plain: Path, tmp_path: Path, nodes: Any) -> None:
    out = tmp_path / "out"
    names = [run.name for run in load_sweep(short).runs(out)]
    process = start(short, out, "--ray", nodes.address, "--json")
    victim = in_the_middle(out, names, dead=set())
    kill_node_of(nodes, holders(out / victim)[-1])
    assert not RunDir(out / victim).is_finished, "killed too late to show anything"
    before = stamps(out)
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert [row["name"] for row in json.loads(output)["rows"]] == names
    for name in names:
        same_run(out / name, plain / name)
    after = stamps(out)
    assert {file: after[file] for file in before} == before, "began or finished twice"
    counts = {name: len(holders(out / name)) for name in names}
    assert counts[victim] == 2, "resumed once, by another process"
    assert sum(counts.values()) == len(names) + 1, "nothing else was taken up again"


def kill_node_of(nodes: Any, trainer: int) -> None:
    """A machine loses power: the raylet and the process that trains are gone at once."""
    parent = int(Path(f"/proc/{trainer}/stat").read_text().rpartition(")")[2].split()[1])
    (node,) = [n for n in nodes.worker_nodes if n.all_processes["raylet"][0].process.pid == parent]
    os.kill(parent, signal.SIGKILL)
    os.kill(trainer, signal.SIGKILL)
    nodes.remove_node(node, allow_graceful=False)


def test_without_ray_it_says_what_to_install(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for options, named in (
        (["--ray", "auto"], "pip install ray"),
        (["--ray", "auto", "--workers", "2"], "--workers"),
    ):
        shown = CliRunner().invoke(app, ["sweep", str(short), "--out", str(tmp_path), *options])
        assert shown.exit_code == 2
        assert named in shown.output
