"""dbq.quantize: what it promises, on small networks."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dbq
from dbq.errors import DataError, DbqError, WeightsError
from dbq.model.layers import QuantLayer
from dbq.plans.shipped import uniform_plan
from dbq.posttraining.agreement import agreement
from dbq.posttraining.changes import changed_copies
from dbq.posttraining.distillation import distill, hard_forward
from dbq.posttraining.fitting.layerwise import Choices, fit_layers
from dbq.posttraining.fitting.residuals import blocks
from dbq.posttraining.quantize import quantize
from tests.posttraining.restated import counts_of, importance_of, output_error


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.last_norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.depthwise(x)))
        return x + self.last_norm(self.pointwise(y))


class Small(nn.Module):
    """A few blocks with statistics that fit its weights, as a trained network has."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.classifier = nn.Linear(16, 5)
        with torch.no_grad():
            self.classifier.weight *= 10  # classes that differ
        dbq.calibrate(self, [images(64)], statistics="estimate")
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x)).mean((2, 3))
        logits: Tensor = self.classifier(x)
        return logits


def images(count: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(
        count, 3, 5, 5, generator=generator
    )  # neighbours are alike, as in pictures
    return F.interpolate(coarse, scale_factor=2, mode="bilinear")


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(model.state_dict())


def assert_same_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    assert model.state_dict().keys() == state.keys()
    for key, value in model.state_dict().items():
        assert torch.equal(value, state[key]), key


def split(count: int, seed: int = 0) -> Tensor:
    """The order of the images; the last fifth is held out."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def input_of(model: nn.Module, name: str, x: Tensor) -> Tensor:
    """What a module of the network gets."""
    found: list[Tensor] = []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda _, a: found.append(a[0]))
    model.eval()(x)
    hook.remove()
    return found[0]


@torch.no_grad()
def distance(float_net: nn.Module, net: nn.Module, x: Tensor) -> float:
    return agreement([float_net(x)], [net.eval()(x)]).distance


@pytest.mark.parametrize("plan", ["dbq-2t-4", "dbq-1t-a8", "fx8-3", "dbq-2t-1"])
def test_nearer_to_the_float_network_than_prepare_on_unseen_images(plan: str) -> None:
    float_net, prepared, net = Small(), Small(), Small()
    dbq.prepare(prepared, plan, images(1))
    dbq.calibrate(prepared, [images(60)])
    summary = quantize(net, plan, images(60))
    assert (summary.images, summary.held_out) == (48, 12)
    unseen = images(100, seed=9)
    bound = 1.05 if plan == "fx8-3" else 0.8  # eight bits leave little to gain
    assert distance(float_net, net, unseen) < bound * distance(float_net, prepared, unseen)


def test_the_result_deploys_and_trains() -> None:
    net = Small()
    quantize(net, "dbq-2t-4", images(40))
    assert dbq.lower(net, images(4)).operations
    assert any("weight_quantizer" in key for key in net.state_dict())
    net.train()
    net(images(4)).sum().backward()
    assert all(p.grad is not None for p in net.parameters() if p.requires_grad)


class TestSummary:
    """All numbers recomputed from the networks, without the sums they were made of."""

    # Four bits, not eight: those leave too little to gain for the fit to be kept on every machine.
    @pytest.mark.parametrize("plan", ["dbq-2t-1", "dbq-2t-4", uniform_plan("fx4", 4, 8)], ids=str)
    @torch.no_grad()
    def test_layers(self, plan: str | dbq.Plan) -> None:
        float_net, net, prepared = Small(), Small(), Small()
        dbq.prepare(prepared, plan, images(1))
        summary = quantize(net, plan, images(40))
        x = images(40)[split(40)[: summary.images]]
        assert [row.name for row in summary.layers] == [
            name for name, m in net.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)
        ]
        for row in summary.layers:
            layer, float_layer = net.get_submodule(row.name), float_net.get_submodule(row.name)
            weight = float_layer.get_parameter("weight")
            if not isinstance(layer, QuantLayer):
                assert (row.weight_error, row.error) == (None, None)
                continue
            difference = layer.quantized_weight() - weight
            assert row.weight_error == pytest.approx(float(difference.norm() / weight.norm()), 1e-5)
            limit = layer.input_quantizer and layer.input_quantizer.grid()
            assert row.range == (limit.clip if limit else None)
            assert (row.images, row.seconds > 0) == (summary.images, True)
            wanted = self.wanted(float_net, net, row.name, x)
            before = copy.deepcopy(layer)
            unfitted = prepared.get_submodule(row.name)
            assert isinstance(unfitted, QuantLayer)
            before.weight.data.copy_(unfitted.weight)
            assert before.weight_quantizer is not None
            assert unfitted.weight_quantizer is not None
            before.weight_quantizer.load_state_dict(unfitted.weight_quantizer.state_dict())
            given = input_of(net, row.name, x)
            counts = counts_of(float_layer(layer.quantized_input(given)), wanted)
            places, together = importance_of(float_net, row.name, x)
            counts = counts * places
            # Float sums over pixels cancel where the error is small.
            error = output_error(layer(given), wanted, counts, together)
            assert row.error == pytest.approx(error, 1e-3, 1e-6)
            error = output_error(before(given), wanted, counts, together)
            assert row.error_before == pytest.approx(error, 1e-3, 1e-6)
            assert row.error <= row.error_before

    @staticmethod
    @torch.no_grad()
    def wanted(float_net: nn.Module, net: nn.Module, name: str, x: Tensor) -> Tensor:
        """The float layer's output; for the last of a block, what the shortcut lacks as well."""
        y: Tensor = float_net.get_submodule(name)(input_of(float_net, name, x))
        if not name.endswith("pointwise"):
            return y
        block = name.removesuffix(".pointwise")
        missing = input_of(float_net, block, x) - input_of(net, block, x)
        norm = float_net.get_submodule(block).last_norm
        assert isinstance(norm, nn.BatchNorm2d)
        factor = (norm.running_var + norm.eps).sqrt() / norm.weight
        return y + missing * factor.reshape(-1, 1, 1)

    @pytest.mark.parametrize("plan", ["dbq-2t-4", "dbq-1t-a8"])
    @pytest.mark.parametrize("seed", [0, 1])
    @torch.no_grad()
    def test_stages(self, plan: str, seed: int) -> None:
        """A stage that was kept came nearer; one that was undone has left no trace."""
        float_net, net = Small(), Small()
        with torch.enable_grad():
            summary = quantize(net, plan, images(40), seed=seed, steps=2)
        held_out = images(40)[split(40, seed)[summary.images :]]
        assert (summary.images, len(held_out), summary.held_out) == (32, 8, 8)
        held_out = changed_copies(held_out, 16, seed)
        same = (net(held_out).argmax(1) == float_net(held_out).argmax(1)).float().mean()
        theirs, ours = (F.log_softmax(m(held_out), 1) for m in (float_net, net))
        kl = (theirs.exp() * (theirs - ours)).sum(1).mean()
        assert summary.agreement.same == pytest.approx(float(same))
        assert summary.agreement.distance == pytest.approx(float(kl), rel=1e-3, abs=1e-7)
        best = summary.stages[0].before
        for stage in summary.stages:
            assert stage.before == best
            assert stage.kept == (stage.after.distance < stage.before.distance)
            best = stage.after if stage.kept else best
        assert summary.agreement == best
        assert summary.to_json()["layers"][0]["name"] == "stem.0"
        assert "blocks.0.pointwise" in str(summary)


def test_the_same_seed_gives_the_same_network() -> None:
    nets = [Small() for _ in range(3)]
    for net, seed in zip(nets, (3, 3, 4), strict=True):
        quantize(net, "dbq-2t-4", images(40), seed=seed, steps=3)
    first, second, third = (state_of(net) for net in nets)
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], third[key]) for key in first)


def test_a_network_without_quantized_layers_keeps_its_bits() -> None:
    float_net, net = Small(), Small()
    fit_layers(float_net, net, images(20))
    assert_same_state(net, state_of(float_net))


@pytest.mark.parametrize("what", ["layers", "distillation"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_leaves_the_model_as_it_was(what: str, error: type[BaseException]) -> None:
    net = Small().train()
    before, kinds = state_of(net), [type(module) for module in net.modules()]

    def progress(stage: str, done: int, total: int) -> None:
        if stage == what and done == total // 2:
            raise error

    with pytest.raises(error):
        quantize(net, "dbq-2t-4", images(20), steps=4, progress=progress)
    assert_same_state(net, before)
    assert [type(module) for module in net.modules()] == kinds
    assert all(module.training for module in net.modules())


def test_a_stage_that_does_not_help_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(teacher: nn.Module, student: nn.Module, *_: object, **__: object) -> None:
        with torch.no_grad():
            for parameter in student.parameters():
                parameter.mul_(-1)

    first, second = Small(), Small()
    quantize(first, "dbq-2t-4", images(40))
    monkeypatch.setattr("dbq.posttraining.quantize.distill", spoil)
    summary = quantize(second, "dbq-2t-4", images(40), steps=5)
    assert summary.stages[0].kept
    assert (summary.stages[-1].name, summary.stages[-1].kept) == ("distillation", False)
    assert_same_state(second, state_of(first))


def test_distillation_starts_from_the_hard_network_and_never_harms() -> None:
    net = Small()
    quantize(net, "dbq-1t-a8", images(40))
    x = images(4)
    with torch.no_grad():
        hard = net.eval()(x)
    with hard_forward(net):
        output = net(x)
        output.sum().backward()
    assert torch.equal(output.detach(), hard)
    assert net.blocks[0].pointwise.weight.grad is not None
    assert blocks(net) == ["blocks.0", "blocks.1"]

    start, distilled = Small(), Small()
    without = quantize(start, "dbq-1t-a8", images(100))
    summary = quantize(distilled, "dbq-1t-a8", images(100), steps=20)
    assert summary.stages[-1].name == "distillation"
    assert summary.agreement.distance <= without.agreement.distance


class TestOddNetworks:
    def test_without_batch_norm(self) -> None:
        torch.manual_seed(0)
        make = lambda: nn.Sequential(  # noqa: E731
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.ReLU(),
            nn.Conv2d(8, 8, 1, bias=False), nn.Flatten(), nn.Linear(8 * 64, 4),
        )  # fmt: skip
        net = make().eval()
        with torch.no_grad():
            net.get_parameter("6.weight").mul_(50)
        prepared, float_net = copy.deepcopy(net), copy.deepcopy(net)
        dbq.prepare(prepared, "dbq-1t-a8", images(1))
        dbq.calibrate(prepared, [images(200)])
        quantize(net, "dbq-1t-a8", images(200))
        unseen = images(50, seed=5)
        assert distance(float_net, net, unseen) < distance(float_net, prepared, unseen)

    def test_dead_channels(self) -> None:
        net = Small()
        with torch.no_grad():
            net.stem[0].weight[3] = 0
            net.stem[1].bias[3] = -1
            net.blocks[0].pointwise.weight[2] = 0
        summary = quantize(net, "dbq-2t-4", images(40))
        assert all(torch.isfinite(value).all() for value in net.state_dict().values())
        assert summary.stages[0].kept

    @pytest.mark.parametrize("dead", ["weights", "inputs"])
    def test_dead_layers(self, dead: str) -> None:
        """A layer without weights, or that no input reaches: its block is a shortcut and no more."""
        net = Small()
        with torch.no_grad():
            if dead == "weights":
                net.blocks[0].pointwise.weight.zero_()
            else:
                net.blocks[0].norm.bias.fill_(-100)
        float_net = copy.deepcopy(net)
        summary = quantize(net, "dbq-2t-4", images(40))
        assert all(torch.isfinite(value).all() for value in net.state_dict().values())
        assert distance(float_net, net, images(40, seed=3)) < 0.05
        assert all(row.error is None or row.error >= 0 for row in summary.layers)

    def test_a_layer_that_runs_twice_stays_as_prepared(self) -> None:
        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.shared = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1)
                self.last = nn.Linear(8, 3)

            def forward(self, x: Tensor) -> Tensor:
                x = self.shared(torch.relu(self.first(x)))
                return self.last(self.shared(torch.relu(x)).mean((2, 3)))

        torch.manual_seed(0)
        summary = quantize(Twice().eval(), "dbq-2t-4", images(40))
        fitted = {row.name: row.error is not None for row in summary.layers}
        assert fitted == {"first": True, "shared": False, "last": True}

    def test_several_outputs(self) -> None:
        class Two(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body, self.a, self.b = (
                    nn.Conv2d(3, 8, 3),
                    nn.Conv2d(8, 2, 1),
                    nn.Conv2d(8, 4, 1),
                )

            def forward(self, x: Tensor) -> dict[str, Tensor]:
                x = torch.relu(self.body(x))
                return {"a": self.a(x), "b": self.b(x)}

        torch.manual_seed(0)
        summary = quantize(Two().eval(), "fx8-3", images(40), steps=2)
        assert summary.agreement.same is None
        assert summary.agreement.distance < 0.01


class TestBadInput:
    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            (torch.randint(0, 5, (40,)), "labels"),
            ([(torch.randint(0, 5, (40,)), images(40))], "labels"),
            (torch.zeros(40, 3, 10, 10, dtype=torch.uint8), "uint8"),
            (torch.zeros(40, 3, 10, 10), "same value"),
            (images(4), "too few"),
            ([], "no batches"),
            ("photographs", "read_images"),
            ([{"x": 1}], "dict"),
            ([images(10), images(10)[:, :, :8]], "one size"),
            (torch.full((40, 3, 10, 10), float("nan")), "not finite"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_images(self, given: object, problem: str) -> None:
        net = Small()
        before = state_of(net)
        with pytest.raises(DataError, match=problem):
            quantize(net, "dbq-2t-4", given)
        assert_same_state(net, before)

    @pytest.mark.parametrize("shape", [(1, 10, 10), (3, 12, 10), (5,)], ids=str)
    def test_images_of_a_size_the_network_does_not_take(self, shape: tuple[int, ...]) -> None:
        """One channel, another side, probabilities of classes."""
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 5)).eval()
        before = state_of(net)
        with pytest.raises(DbqError, match="does not run"):
            quantize(net, "dbq-2t-4", torch.randn(40, *shape))
        assert_same_state(net, before)

    def test_labels_beside_images_are_ignored(self) -> None:
        first, second = Small(), Small()
        quantize(first, "dbq-2t-4", [(images(40), torch.zeros(40))])
        quantize(second, "dbq-2t-4", images(40))
        assert_same_state(first, state_of(second))

    def test_broken_weights_budgets_and_plans(self) -> None:
        net = Small()
        with pytest.raises(DbqError, match="budget"):
            quantize(net, "dbq-2t-4", images(40), budget="slow")  # type: ignore[arg-type]
        with pytest.raises(DbqError, match="plan"):
            quantize(net, "no-such-plan", images(40))
        with torch.no_grad():
            net.blocks[0].pointwise.weight[0, 0] = float("nan")
        with pytest.raises(WeightsError, match=r"blocks.0.pointwise.*NaN"):
            quantize(net, "dbq-2t-4", images(40))
        net = Small()
        net.blocks[0].norm.running_var[0] = float("nan")
        before = state_of(net)
        with pytest.raises(DbqError, match="not finite"):
            quantize(net, "dbq-2t-4", images(40))
        assert net.state_dict().keys() == before.keys()

    def test_a_quantized_network(self) -> None:
        net = Small()
        quantize(net, "dbq-2t-4", images(40))
        with pytest.raises(DbqError, match="quantized already"):
            quantize(net, "dbq-2t-4", images(40))


@pytest.mark.parametrize(
    "choices", [Choices(target=False), Choices(norms=False), Choices(codes=False)]
)
def test_parts_can_be_left_out(choices: Choices) -> None:
    summary = quantize(Small(), "dbq-2t-4", images(40), choices=choices)
    for row in summary.layers:
        assert row.error is not None
        assert row.error_before is not None
        assert row.error <= row.error_before


def test_ctrl_c_in_the_last_moment_waits_for_the_model(
    monkeypatch: pytest.MonkeyPatch, heard: None
) -> None:
    """Neither half prepared nor prepared without its state."""
    net, whole = Small(), Small()
    quantize(whole, "dbq-2t-4", images(20))
    load = nn.Module.load_state_dict

    def interrupted(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if self is net:
            os.kill(os.getpid(), signal.SIGINT)
        return load(self, *args, **kwargs)

    monkeypatch.setattr(nn.Module, "load_state_dict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        quantize(net, "dbq-2t-4", images(20))
    assert_same_state(net, state_of(whole))


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.1, 0.2, 0.4])
def test_ctrl_c_at_any_time(seconds: float, heard: None) -> None:
    """The model is float as it was or wholly quantized, whatever was going on; no thread waits on."""
    net, whole = Small(), Small()
    before, threads = state_of(net), set(threading.enumerate())
    quantize(whole, "dbq-2t-4", images(20), steps=4)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        quantize(net, "dbq-2t-4", images(20), steps=4)
        timer.join()
        time.sleep(1)  # for the signal to arrive, if the work was done before it came
    except KeyboardInterrupt:
        pass
    after = state_of(whole) if any("quantizer" in key for key in net.state_dict()) else before
    assert_same_state(net, after)
    timer.join()
    assert set(threading.enumerate()) == threads


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    """In another process as well, where sets have another order."""
    files = [tmp_path / "first.dbq", tmp_path / "second.dbq"]
    for order, file in enumerate(files):
        environment = {**os.environ, "PYTHONHASHSEED": str(order + 1)}
        script = (
            "import sys, dbq; from tests.posttraining.test_quantize import Small, images; "
            "net = Small(); dbq.quantize(net, 'dbq-2t-4', images(40), seed=3, steps=3); "
            "dbq.save(dbq.lower(net, images(8)), sys.argv[1])"
        )
        subprocess.run(
            [sys.executable, "-c", script, file], env=environment, check=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
    assert files[0].read_bytes() == files[1].read_bytes()


def test_networks_of_one_input_size_are_not_given_cut_images() -> None:
    """Large images are cut to a part for distillation; a Flatten takes one size only."""
    seen = set()

    class Sized(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            seen.add(tuple(x.shape[2:]))
            y: Tensor = super().forward(x)
            return y

    layers = [nn.Conv2d(3, 4, 3, stride=8), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=4)]
    large = F.interpolate(images(20), size=(128, 160))
    distill_on = partial(distill, steps=2)
    for tail, sizes in (
        ([nn.Flatten(), nn.Linear(4 * 4 * 5, 3)], {(128, 160)}),
        ([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)], {(96, 128)}),
    ):
        teacher = Sized(*layers, *tail).eval()
        student = copy.deepcopy(teacher)
        dbq.prepare(student, "fx8-3", large[:1])
        seen.clear()
        distill_on(teacher, student, large)
        assert seen - {(96, 128)} == sizes - {(96, 128)}
        assert sizes <= seen
