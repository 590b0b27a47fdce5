"""prepare: a float model and a plan become a quantized model, in place.

The model runs on the example input, twice: once to see which layers run on what, once recorded, which
shows what stands between them. Nothing is changed until every layer's quantizers are made, so an error
leaves the model as it was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dbq.errors import DbqError, LayerError, NoMatchError, closest
from dbq.model.layers import QuantLayer, quantize_layer, why_not_quantizable
from dbq.model.modes import evaluating
from dbq.model.reading.recording import Recording, record
from dbq.model.reading.sources import UNKNOWN, Source, batch_norms_behind, input_sources
from dbq.model.reading.subclasses import why_not_by_its_forward
from dbq.model.reading.work import macs
from dbq.model.roles import LayerCall, WeightLayer, kernels_of, layer_calls
from dbq.plans.plan import Plan, Role
from dbq.plans.precision import Precision
from dbq.plans.shipped import load_plan
from dbq.quantizers.contract import InputQuantizer, WeightQuantizer
from dbq.quantizers.inputs import BatchNormClip, Clip, ClippedInput, ConstantClip, RunningClip
from dbq.quantizers.table import INPUT_QUANTIZERS, weight_quantizer
from dbq.support.text import as_text, plain_table


@dataclass(frozen=True)
class PreparedLayer:
    """A row of the summary. `weight_error` is |w_q - w| / |w| of the hard weights as fitted."""

    name: str
    role: str
    shape: tuple[int, ...]
    weight: str
    input: str
    clip: str
    weight_error: float | None
    macs: int  # multiply-accumulates of one image


ENOUGH = 0.9  # of the multiply-accumulates; a network of which less is quantized gains little


@dataclass(frozen=True)
class Summary:
    """What `prepare` did; prints as a table, headed by the share of the work that was quantized."""

    plan: str
    macs: int  # of one image, in all layers and products, those that stay float included
    layers: tuple[PreparedLayer, ...]
    notes: tuple[str, ...]

    def shares(self) -> dict[str, float]:
        """The share of the multiply-accumulates that each precision of weights got, largest first."""
        sums: Counter[str] = Counter({"float": self.macs - sum(row.macs for row in self.layers)})
        for row in self.layers:
            sums[row.weight] += row.macs
        return {weight: count / max(self.macs, 1) for weight, count in sums.most_common() if count}

    def to_json(self) -> dict[str, Any]:
        """A dict of plain values: plan, macs, shares, layers (a row each), notes."""
        return {**asdict(self), "shares": self.shares()}

    def heading(self) -> list[str]:
        """How much of the network the plan reached; a warning comes first if that is not much."""
        shares = self.shares()
        quantized = 1 - shares.get("float", 0.0)
        parts = ", ".join(f"{100 * share:.1f} % {weight}" for weight, share in shares.items())
        lines = [f"plan {self.plan}: of {self.macs / 1e6:,.1f} M multiply-accumulates {parts}"]
        if quantized < ENOUGH and any(row.weight != "float" for row in self.layers):
            lines.insert(0, f"WARNING: only {100 * quantized:.1f} % of the work of this network has "
                            "quantized weights; the notes below say what stays float")  # fmt: skip
        return lines

    def __str__(self) -> str:
        table = plain_table(["layer", "role", "shape", "weight", "input", "clip", "error"], left=6)
        for row in self.layers:
            error = "" if row.weight_error is None else f"{row.weight_error:.3f}"
            shape = "x".join(map(str, row.shape))
            table.add_row(row.name, row.role, shape, row.weight, row.input, row.clip, error)
        return as_text(*self.heading(), table, *(f"note: {note}" for note in self.notes))


def prepare(
    model: nn.Module, plan: Plan | str | Path, example_input: Any, *, fit: bool = True
) -> Summary:
    """Quantize `model` in place by `plan`: a Plan, the name of a shipped one, or a .toml path.

    `example_input` is a tensor (or a tuple of them) the model runs on; it shows the order and
    shapes of the layers, nothing is fitted to it. Weight quantizers are fitted to the model's
    weights; with `fit=False` their parameters are undefined until a state dict is loaded.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
    ...                     nn.Conv2d(8, 8, 1), nn.Flatten(), nn.Linear(8 * 36, 10))
    >>> summary = prepare(net, "dbq-2t-4", torch.zeros(1, 3, 8, 8))
    >>> [(row.name, row.weight, row.input) for row in summary.layers]
    [('0', '8b', '8b'), ('3', '2T', '8b'), ('5', '8b', '8b')]
    """
    plan = load_plan(plan)
    if not isinstance(model, nn.Module):
        raise LayerError(f"a {type(model).__name__} is not a torch model")
    if any(parameter.is_meta for parameter in model.parameters()):
        raise LayerError("the model is on the meta device: load its weights first")
    notes: list[str] = []
    _check_names(model, plan)
    seen = layer_calls(model, example_input)
    recording = record(model, example_input)
    calls = _layers_to_prepare(model, plan, seen, recording, notes)
    sources, behind = input_sources(recording), batch_norms_behind(recording)
    work = Counter[str]()
    for recorded in recording.calls:
        work[recorded.path] += macs(recorded)

    rows, made = [], []
    for call in calls:
        chosen, weight = plan.choose(call.name, call.role), kernels_of(call.module).detach()
        source = sources.get(call.name, UNKNOWN)
        try:
            kernels = kernels_of(call.module)  # with its gradient: frozen layers stay frozen
            for_weight = weight_quantizer(chosen, kernels, behind.get(call.name), fit)
        except DbqError as error:
            raise type(error)(f"layer {call.name}: {error}") from None
        for_input = _input_quantizer(chosen.input, call.role, source, plan)
        if not chosen.is_float:
            made.append((call.module, for_weight, for_input))
        rows.append(
            PreparedLayer(
                name=call.name,
                role=call.role,
                shape=tuple(weight.shape),
                weight=f"{chosen.weight} {chosen.method}".rstrip(),
                input=str(chosen.input),
                clip=_clip_label(for_input, source),
                weight_error=weight_error(for_weight, weight) if fit and for_weight else None,
                macs=work[call.name],
            )
        )
    if not plan.is_float and not made:
        roles = sorted({call.role for call in calls})
        raise NoMatchError(
            f"plan {plan.name} quantizes no layer of this model, whose layers have the roles "
            f"{', '.join(roles) or 'none'}; it has rules for {', '.join(sorted(plan.roles)) or 'none'}"
            + (f" ({notes[0]})" if notes else "")
        )
    for module, for_weight, for_input in made:
        quantize_layer(module, for_weight, for_input)
    return Summary(plan.name, work.total(), tuple(rows), tuple(notes))


def _layers_to_prepare(
    model: nn.Module, plan: Plan, seen: list[LayerCall], recording: Recording, notes: list[str]
) -> list[LayerCall]:
    """The layers that can be quantized, each once, in execution order."""
    calls: dict[str, LayerCall] = {}
    for call in seen:
        calls.setdefault(call.name, call)
    for name, module in model.named_modules():
        reason = why_not_quantizable(module)
        if isinstance(module, QuantLayer):
            raise LayerError(f"layer {name}: {reason}")
        if name in calls:
            reason = reason or why_not_by_its_forward(module, recording)
        if reason is None and name not in calls:
            if name in plan.names:
                raise NoMatchError(f"plan {plan.name}: the example input does not reach {name!r}")
            notes.append(f"{name} stays float: the example input does not reach it")
        elif reason and (name in calls or isinstance(module, nn.modules.conv._ConvNd)):
            _refuse_named(plan, name, reason)
            notes.append(f"{name} stays float: {reason}")
            calls.pop(name, None)
    plan.check_patterns(calls)
    return list(calls.values())


def _refuse_named(plan: Plan, name: str, reason: str) -> None:
    """A layer that the plan names and that cannot be quantized is an error, not a note."""
    if name in plan.names and not plan.names[name].is_float:
        raise LayerError(f"plan {plan.name}: layer {name!r} cannot be quantized: {reason}")


def _check_names(model: nn.Module, plan: Plan) -> None:
    """Every layer the plan names must exist and be of a kind that the plan's rule can quantize."""
    modules = dict(model.named_modules())
    for name in plan.names:
        if name not in modules:
            layers = [n for n, m in modules.items() if isinstance(m, WeightLayer)]
            raise NoMatchError(f"plan {plan.name}: no layer {name!r}; {closest(name, layers)}")
        if reason := why_not_quantizable(modules[name]):
            _refuse_named(plan, name, reason)


def _input_quantizer(
    precision: Precision, role: Role, source: Source, plan: Plan
) -> InputQuantizer | None:
    if precision.is_float:
        return None
    if plan.clip in INPUT_QUANTIZERS and role != "first":
        return INPUT_QUANTIZERS[plan.clip](precision, source.signed)
    clip: Clip = RunningClip()
    if source.batch_norm is not None and plan.clip == "bn":
        clip = BatchNormClip(source.batch_norm[1], plan.k, source.signed, source.cap)
    elif source.batch_norm is not None and plan.clip == "relu6" and not source.signed:
        clip = ConstantClip(6.0)
    return ClippedInput(precision, source.signed, clip)


def _clip_label(quantizer: InputQuantizer | None, source: Source) -> str:
    if quantizer is None:
        return ""
    sign, norm = "±" if quantizer.signed else "", ""
    if source.batch_norm is not None and quantizer.rule == BatchNormClip.rule:
        norm = f" {source.batch_norm[0]}"
    return f"{sign}{quantizer.rule}{norm}"


@torch.no_grad()
def weight_error(quantizer: WeightQuantizer, weight: Tensor) -> float:
    """Relative error |w_q - w| / |w| of the hard-quantized weight; 0 for weights of zero."""
    with evaluating(quantizer):
        error = (quantizer(weight) - weight).norm()
    size = weight.norm()
    return float(error / size) if size > 0 else float(error)
