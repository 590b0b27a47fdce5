"""Two processes do what one does; one that dies is replaced; another number of them goes on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from dbq.quantizers.inputs import RunningClip
from dbq.training.processes.sync_bn import synchronise_batch_norms
from dbq.training.record.rundir import RunDir
from dbq.training.record.saved import evaluate_file
from dbq.training.run import train
from tests.runs import (
    dbq_train,
    environment,
    finished,
    single_thread,
    tiny_recipe,
    torchrun,
    wait_for_checkpoint,
)

pytestmark = pytest.mark.process
SYNC = ("--set", "machine.sync_bn=true", "--set", "machine.checkpoint_minutes=0")
EPSILON = torch.finfo(torch.float32).eps


def distance(one: Path, other: Path) -> float:
    """Largest difference of a tensor, relative to its largest value."""
    a, b = (load_file(run / "model.safetensors") for run in (one, other))
    assert a.keys() == b.keys()
    return max(
        float(
            (a[key].double() - b[key].double()).abs().max() / (a[key].double().abs().max() + 1e-12)
        )
        for key in a
    )


def test_two_processes_match_one(tiny: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(tiny, "machine.sync_bn=true", "machine.checkpoint_minutes=0")
    with single_thread():
        train(recipe, tmp_path / "one")
    finished(torchrun(2, dbq_train(tiny, tmp_path / "two", *SYNC)))
    # The two differ by the order of float32 sums: a sum of n terms errs by up to sqrt(n) eps of its
    # size in practice; batch-norm sums here have n = 360 * 64, so about 150 eps = 2e-5. Six steps of
    # a rate <= 0.02 carry that into the weights, and the steps' own curvature may double it each
    # time: 2e-5 * 0.02 * 2^6 = 2e-5 for weights, 2e-5 itself for statistics. Forty times that is
    # still forty times below what a wrong scale or a missing synchronisation does (measured: 0.03).
    assert distance(tmp_path / "one", tmp_path / "two") < 40 * 150 * EPSILON


def test_without_synchronised_batch_norm_they_do_not(tiny: Path, tmp_path: Path) -> None:
    """The test above can fail: statistics of half a batch are other statistics."""
    with single_thread():
        train(tiny_recipe(tiny), tmp_path / "one")
    finished(torchrun(2, dbq_train(tiny, tmp_path / "two")))
    assert distance(tmp_path / "one", tmp_path / "two") > 10 * 40 * 150 * EPSILON
    # Statistics differ between the processes; the accuracy must be that of the network kept.
    said = json.loads((tmp_path / "two" / "result.json").read_text())
    with single_thread():
        found = evaluate_file(tmp_path / "two")
    assert found["top1"] == said["top1"]
    assert found["top5"] == said["top5"]


def test_a_method_that_freezes_layers_while_it_trains(tiny: Path, tmp_path: Path) -> None:
    """UNIQ's frozen layers have no gradient any more, which must not make the processes part."""
    uniq = ("--set", "quantize.method=uniq", "--set", "quantize.precision=4b")
    finished(torchrun(2, dbq_train(tiny, tmp_path, *SYNC, *uniq)))
    said = json.loads((tmp_path / "result.json").read_text())
    with single_thread():
        found = evaluate_file(tmp_path)
    # Each process counted half of the images: the same sum only if both have the network kept here.
    assert (found["top1"], found["top5"]) == (said["top1"], said["top5"])


def test_resumed_by_another_number_of_processes(tiny: Path, tmp_path: Path) -> None:
    with single_thread():
        recipe = tiny_recipe(tiny, "machine.sync_bn=true", "machine.checkpoint_minutes=0")
        train(recipe, tmp_path / "one")
    out = tmp_path / "resumed"
    process = subprocess.Popen(
        torchrun(2, dbq_train(tiny, out, *SYNC)), env=environment(), stderr=subprocess.DEVNULL
    )
    wait_for_checkpoint(out, process, epoch=0, step=2)
    process.send_signal(signal.SIGTERM)  # torchrun passes it on; the run saves and ends
    process.wait(timeout=60)
    assert not (out / "result.json").exists()
    with single_thread():
        train(recipe, out, resume=True)
    assert distance(tmp_path / "one", out) < 40 * 150 * EPSILON  # as above


def test_a_killed_rank_is_replaced(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "survivor"
    longer = (*SYNC, "--set", "train.epochs=4")
    command = torchrun(2, dbq_train(tiny, out, *longer), "--max-restarts=1")
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
    wait_for_checkpoint(out, process, epoch=1, step=1)
    os.kill(worker_of(process.pid), signal.SIGKILL)
    _, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors[-3000:]
    assert "resumed at epoch" in errors, "the group began anew"
    with single_thread():
        recipe = tiny_recipe(
            tiny, "machine.sync_bn=true", "machine.checkpoint_minutes=0", "train.epochs=4"
        )
        train(recipe, tmp_path / "undisturbed")
    # twice the steps of the tests above
    assert distance(tmp_path / "undisturbed", out) < 2 * 40 * 150 * EPSILON


def worker_of(launcher: int) -> int:
    """One of the processes torchrun started, and not the first, which writes."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if b"RANK=1" in variables:
            return int(child)
    raise AssertionError(f"no process of rank 1 among {children}")


IMAGES = torch.randn(8, 4, 5, 5, generator=torch.Generator().manual_seed(4), dtype=torch.double)


def batch_norm() -> nn.BatchNorm2d:
    torch.manual_seed(7)
    norm = nn.BatchNorm2d(4, momentum=0.3).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def weighted(output: Tensor, first: int) -> Tensor:
    """A loss in which no two values count alike."""
    weights = torch.arange(IMAGES.numel(), dtype=torch.double).reshape(IMAGES.shape).sin()
    return (output * weights[first : first + len(output)]).square().sum()


def normalise_half(rank: int, folder: str) -> None:
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    norm, clip = batch_norm(), RunningClip()
    model = nn.Sequential(norm)
    synchronise_batch_norms(model)
    half = IMAGES[rank * 4 : rank * 4 + 4].clone().requires_grad_()
    output = model.train()(half)
    weighted(output, rank * 4).backward()
    for parameter in norm.parameters():
        dist.all_reduce(parameter.grad)
    clip.observe(half.float(), momentum=0.1)
    state = {"output": output.detach(), "input": half.grad, "weight": norm.weight.grad,
             "bias": norm.bias.grad, "mean": norm.running_mean, "var": norm.running_var,
             "limit": clip.limit}  # fmt: skip
    torch.save(state, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_synchronised_batch_norm_is_that_of_the_whole_batch(tmp_path: Path) -> None:
    spawn(normalise_half, args=(str(tmp_path),), nprocs=2)
    halves = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    norm, images = batch_norm().train(), IMAGES.clone().requires_grad_()
    output = norm(images)
    weighted(output, 0).backward()
    whole = {"output": output.detach(), "input": images.grad, "weight": norm.weight.grad,
             "bias": norm.bias.grad, "mean": norm.running_mean, "var": norm.running_var}  # fmt: skip
    for key, expected in whole.items():
        parts = [half[key] for half in halves]
        found = torch.cat(parts) if key in ("output", "input") else parts[0]
        # doubles: sums of 200 values in another order, and a cancellation of O(10) in the gradient
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        if key not in ("output", "input"):
            torch.testing.assert_close(parts[0], parts[1], rtol=0, atol=0)
    assert halves[0]["limit"] == halves[1]["limit"] == IMAGES.abs().max().float()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_directory_in_use_is_named(tiny: Path, tmp_path: Path, processes: int) -> None:
    """None may blame the others for dying, when the first one finds the directory locked."""
    out = tmp_path / "run"
    command = dbq_train(tiny, out)
    with RunDir(out).lock():
        done = subprocess.run(
            torchrun(processes, command) if processes > 1 else command,
            env=environment(), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    complaint = f"error: {out} is in use by process {os.getpid()} on {socket.gethostname()}\n"
    assert complaint in done.stderr, done.stderr
    assert "has died" not in done.stderr, done.stderr
    assert os.listdir(out) == ["lock"]
