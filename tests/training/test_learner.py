"""One step of training: its loss, its parts, its precision, what it averages."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

import dbq
from dbq.data.split import Batch
from dbq.errors import RecipeError, TrainingError, WeightsError
from dbq.model.layers import QuantConv2d, QuantLinear
from dbq.model.schedule import cosine_rate
from dbq.training.guards import stop_if_broken
from dbq.training.learner import Learner
from dbq.training.networks import quantized_network, teacher_network
from dbq.training.processes.world import World, choose_device
from dbq.training.recipe import Recipe, load_recipe

CPU = World(0, 1, torch.device("cpu"))
BATCH = Batch(
    torch.randn(12, 3, 8, 8, generator=torch.Generator().manual_seed(3)), torch.arange(12) % 4
)


def recipe(*overrides: str) -> Recipe:
    fixed = [
        "extra.distill=0",
        "train.rate=0.1",
        "temperature.start=20",
        "temperature.increment=20",
    ]
    return load_recipe("digits-2t", [*fixed, *overrides])


def network(norm: bool = True, plan: dbq.Plan | str = "dbq-2t-1") -> nn.Sequential:
    torch.manual_seed(8)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8) if norm else nn.Identity(), nn.ReLU(),
        nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4),
    )  # fmt: skip
    dbq.prepare(net, plan, BATCH.images[:1])
    return net


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_a_step_is_sgd_on_the_stated_loss() -> None:
    """Against the update written out: v = g + decay w, w -= rate v; quantizers are not decayed."""
    chosen = recipe("train.weight_decay=0.01", "extra.distill=0.25", "extra.label_smoothing=0.1",
                    "extra.distill_temperature=3")  # fmt: skip
    teacher, model = network(plan="fp"), network()
    before = copy.deepcopy(model)
    learner = Learner(chosen, model, teacher.eval(), CPU)
    learner.move_to(0, resolution=1)
    sums = learner.step(BATCH, 0)

    twin = before.train()
    dbq.TemperatureSchedule(twin, start=20, increment=20)
    logits = twin(BATCH.images)
    with torch.no_grad():
        lesson = teacher(BATCH.images)
    one_hot = F.one_hot(BATCH.labels, 4).float()
    smooth = 0.9 * one_hot + 0.1 / 4
    hard = -(smooth * logits.log_softmax(1)).sum(1).mean()
    soft = -((lesson / 3).softmax(1) * (logits / 3).log_softmax(1)).sum(1).mean() * 9
    loss = 0.75 * hard + 0.25 * soft
    loss.backward()
    assert float(sums[0]) == pytest.approx(12 * loss.item(), rel=1e-5)
    assert sums[1:].tolist() == [float((logits.argmax(1) == BATCH.labels).sum()), 12]
    for (name, new), old in zip(model.named_parameters(), twin.parameters(), strict=True):
        decay = 0.0 if "weight_quantizer" in name else 0.01
        expected = old - 0.1 * (old.grad + decay * old)
        torch.testing.assert_close(new, expected, rtol=1e-5, atol=1e-6)  # float32, one step


def in_blocks(plan: str = "dbq-2t-1") -> nn.Sequential:
    """A network with two blocks, "0" and "2"."""
    torch.manual_seed(9)
    block = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 3, 1), nn.BatchNorm2d(3)
    )
    net = nn.Sequential(block(), nn.ReLU(), block(), nn.Flatten(), nn.Linear(192, 4))
    dbq.prepare(net, plan, BATCH.images[:1])
    return net


def test_features_of_blocks() -> None:
    """The loss is the plain one plus the relative squared error of each block's output."""
    losses, teacher = {}, in_blocks("fp").eval()
    for features in (0.0, 0.5):
        chosen = recipe(f"extra.features={features}", "extra.distill=0.25")
        learner = Learner(chosen, in_blocks(), teacher, CPU)
        learner.move_to(0, 1)
        losses[features] = float(learner.step(BATCH, 0)[0]) / 12

    twin = in_blocks().train()
    dbq.TemperatureSchedule(twin, start=20, increment=20)
    with torch.no_grad():
        first, wanted = twin[0](BATCH.images), teacher[0](BATCH.images)
        second, wanted_2 = twin[2](first.relu()), teacher[2](wanted.relu())
        errors = [
            ((a - b) ** 2).sum() / (b**2).sum() for a, b in ((first, wanted), (second, wanted_2))
        ]
    # float32 sums of a few hundred numbers, in another order
    assert losses[0.5] - losses[0.0] == pytest.approx(0.5 * float(sum(errors)), rel=1e-4)


def test_features_are_not_compiled() -> None:
    chosen = recipe("extra.features=1", "machine.compile=true")
    with pytest.raises(RecipeError, match=r"extra\.features.*machine\.compile"):
        Learner(chosen, in_blocks(), in_blocks("fp").eval(), CPU)


def test_norms_stand_still_at_the_end() -> None:
    model = network()
    learner = Learner(recipe("extra.still_norms=0.25", "train.epochs=4"), model, None, CPU)
    means = [model[1].running_mean.clone()]
    for epoch in range(4):
        learner.move_to(epoch, 1)
        learner.step(BATCH, epoch)
        means.append(model[1].running_mean.clone())
    moved = [not torch.equal(a, b) for a, b in pairwise(means)]
    assert moved == [True, True, True, False]
    scale = parameters(model)["1.weight"]
    learner.step(BATCH, 4)
    assert not torch.equal(scale, parameters(model)["1.weight"]), "they go on learning"


def test_temperature_rises_to_the_end_that_was_asked_for() -> None:
    learner = Learner(recipe("temperature.end=320", "train.epochs=4"), network(), None, CPU)
    found = []
    for epoch in range(5):
        learner.move_to(epoch, 1)
        found.append(learner.temperature)
    assert found == pytest.approx([20, 40, 80, 160, 320])


def test_a_start_by_output_error() -> None:
    """With images, the network begins as dbq.quantize leaves it."""
    chosen = load_recipe("digits-2t", ["model.weights=", "model.weights_from=", "quantize.fit=64"])
    images = torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    prepared, fitted = quantized_network(chosen, 10), quantized_network(chosen, 10, images)
    torch.manual_seed(0)
    twin = quantized_network(load_recipe(
        "digits-2t", ["model.weights=", "model.weights_from=", "quantize.plan=fp"]), 10)  # fmt: skip
    dbq.quantize(twin, chosen.plan, images, steps=0, seed=chosen.train.seed)
    keys = [key for key in fitted.state_dict() if key.endswith("weight_quantizer.alpha")]
    assert keys
    for key in keys:
        assert torch.equal(fitted.state_dict()[key], twin.state_dict()[key])
    assert any(not torch.equal(fitted.state_dict()[k], prepared.state_dict()[k]) for k in keys)


def test_accumulation_gives_the_gradient_of_the_whole_batch() -> None:
    """Without batch norm, that is; uneven parts count by their size."""
    models = []
    for parts in (1, 5):
        model = network(norm=False)
        learner = Learner(recipe(f"train.accumulate={parts}"), model, None, CPU)
        learner.move_to(0, 1)
        for number in range(3):
            learner.step(BATCH, number)
        models.append(parameters(model))
    for name, whole in models[0].items():
        # three float32 steps whose sums are in another order
        torch.testing.assert_close(models[1][name], whole, rtol=1e-4, atol=1e-6)


def test_average_of_the_weights() -> None:
    model = network()
    learner = Learner(recipe("extra.ema=0.75"), model, None, CPU)
    assert learner.network is not model
    learner.move_to(0, 1)
    expected: dict[str, Tensor] = {}
    for number in range(3):
        learner.step(BATCH, number)
        now = parameters(model)
        expected = {n: 0.75 * expected[n] + 0.25 * now[n] if expected else now[n] for n in now}
    for name, value in parameters(learner.network).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-7)
    statistics = learner.network.get_buffer("1.running_mean")
    assert torch.equal(statistics, model.get_buffer("1.running_mean")), "statistics are copied"


@pytest.mark.slow
@pytest.mark.parametrize(
    "option",
    ["precision=bf16", "precision=fp16", "channels_last=true", "compile=true", "sync_bn=true"],
)
def test_machine_options_train_the_same_network(option: str) -> None:
    """Four steps, against plain float32; half precision has 8 (bf16) or 11 bits."""
    plain, other = network(), network()
    learners = [Learner(recipe(), plain, None, CPU),
                Learner(recipe(f"machine.{option}"), other, None, CPU)]  # fmt: skip
    losses = []
    for learner in learners:
        learner.move_to(0, 1)
        losses.append([float(learner.step(BATCH, n)[0]) / 12 for n in range(4)])
    half = {"precision=bf16": 2**-8, "precision=fp16": 2**-11}
    # A logit of O(3) sums roundings of its layers: some 8 units; float32 in another order, 1e-4.
    tolerance = 8 * 3 * half[option] if option in half else 1e-4
    assert losses[1] == pytest.approx(losses[0], abs=tolerance)
    assert losses[0][3] < losses[0][0], "it learns"


def test_state_brings_back_everything_the_next_step_needs(tmp_path: Path) -> None:
    chosen = recipe("extra.ema=0.9", "machine.precision=fp16")
    learner = Learner(chosen, network(), None, CPU)
    learner.move_to(0, 1)
    for number in range(2):
        learner.step(BATCH, number)
    state = {key: value.clone() for key, value in learner.state().items()}
    fresh = Learner(chosen, network(), None, CPU)
    fresh.load_state(state)
    for each in (learner, fresh):
        each.move_to(1, 1)
        each.step(BATCH, 2)
    for key, value in learner.state().items():
        assert torch.equal(fresh.state()[key], value), key
    del state["model.0.weight"]
    with pytest.raises(WeightsError, match=r'"0\.weight"'):
        fresh.load_state(state)


def test_rate_follows_the_supplement() -> None:
    import math

    found = [cosine_rate(e, epochs=150, rate=0.1, warmup=5) for e in range(150)]
    for e, rate in enumerate(found):
        paper = (e + 1) * 0.1 / 5 if e < 5 else 0.1 / 2 * (1 + math.cos(e / 150 * math.pi))
        assert rate == pytest.approx(paper, rel=1e-12)
    assert cosine_rate(4.9, 150, 0.1, warmup=5, resolution=0.1) == pytest.approx(0.1)


class Explosive(nn.Module):
    """Finite parameters, but an output that is not."""

    def forward(self, x: Tensor) -> Tensor:
        return x / 0


def test_a_statistic_that_is_no_number_is_named() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3))
    model[0].get_buffer("running_var").fill_(float("inf"))
    with pytest.raises(TrainingError, match=r"0\.running_var"):
        stop_if_broken(model, "epoch 1")


def test_a_loss_that_is_no_number_names_the_layer() -> None:
    model = network()
    stop_if_broken(model, "epoch 1")
    with torch.no_grad():
        model[3].weight[0, 0] = float("nan")
    with pytest.raises(TrainingError, match=r"3\.weight"):
        stop_if_broken(model, "epoch 1")
    with pytest.raises(TrainingError, match=r"3\.weight"):
        Learner(recipe(), model, None, CPU).step(BATCH, 0)
    model = network()
    model[4] = Explosive()
    with pytest.raises(TrainingError, match=r"\b4\b"):
        Learner(recipe(), model, None, CPU).step(BATCH, 0)
    assert all(torch.isfinite(p).all() for p in model.parameters()), "stopped before the update"


def test_more_parts_than_images() -> None:
    learner = Learner(recipe("train.accumulate=20"), network(), None, CPU)
    learner.move_to(0, 1)
    sums = learner.step(Batch(BATCH.images[:3], BATCH.labels[:3]), 0)
    assert torch.isfinite(sums).all()
    assert sums[2] == 3


def test_distillation_needs_a_teacher(tmp_path: Path) -> None:
    quantized = tmp_path / "quantized.safetensors"
    save_file(network().state_dict(), quantized)
    with pytest.raises(RecipeError, match=r"extra\.teacher"):
        teacher_network(recipe("extra.distill=0.5", f"model.weights={quantized}"), classes=4)
    with pytest.raises(RecipeError, match=r"extra\.distill"):
        teacher_network(recipe("extra.distill=0.5"), classes=10)


def test_devices() -> None:
    assert choose_device("auto").type in ("cpu", "cuda")
    for wrong in ("abacus", "meta", "cpu:", "cuda:x"):
        with pytest.raises(RecipeError, match=r"machine\.device"):
            choose_device(wrong)
    if not torch.cuda.is_available():
        with pytest.raises(RecipeError, match=r"machine\.device"):
            choose_device("cuda")


MIXED = dbq.Plan("mixed", default=dbq.LayerPlan.of(8, method="mixed"))


def test_a_limit_on_size_is_part_of_the_loss() -> None:
    """Learned precisions shrink to the limit; without one they stay where they started, at 4 bits."""

    def mean_bits(*overrides: str) -> float:
        model = network(plan=MIXED)
        learner = Learner(recipe("train.rate=0.0001", *overrides), model, None, CPU)
        learner.move_to(0, resolution=1)
        for number in range(40):
            learner.step(BATCH, number)
        layers = [(m.weight.numel(), m.weight_quantizer.precision.size)
                  for m in model if isinstance(m, QuantConv2d | QuantLinear)]  # fmt: skip
        return sum(n * bits for n, bits in layers) / sum(n for n, _ in layers)

    assert mean_bits("extra.size=3", "extra.size_penalty=0.5") <= 3.0 < mean_bits() == 4.0
    with pytest.raises(RecipeError, match=r"extra\.size"):
        Learner(recipe("extra.size=3"), network(), None, CPU)


def test_the_loss_has_the_penalty_as_stated() -> None:
    chosen, plain = recipe("extra.size=2", "extra.size_penalty=0.25"), recipe()
    losses = [float(Learner(r, network(plan=MIXED), None, CPU).step(BATCH, 0)[0]) / len(BATCH.labels)
              for r in (chosen, plain)]  # fmt: skip
    # every layer starts with 4 bits, two too many: 0.25 * 2^2; float32 sums of 12 losses of about 1.5
    assert losses[0] - losses[1] == pytest.approx(1.0, abs=1e-5)
