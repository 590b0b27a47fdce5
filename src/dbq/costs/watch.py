"""Watch one run of a model: which layers ran on what, and what else computed.

Forward hooks see the layers that the cost rules cover. Everything else, functional calls and layers
of other kinds included, passes through the dispatcher as an ATen operation: an average pooling, a batch
norm, one that the rules leave out (LEFT_OUT), or one that is noted as unknown.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from dbq.errors import LayerError
from dbq.model.reading.recording import version_of
from dbq.model.roles import WeightLayer, run_once

# Rule 6: activation functions, residual sums, max pooling, dropout.
ACTIVATIONS = frozenset(
    {"relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max", "threshold", "leaky_relu", "prelu",
     "_prelu_kernel", "rrelu_with_noise", "elu", "celu", "selu", "softplus", "mish", "silu", "gelu",
     "hardswish", "hardsigmoid", "sigmoid", "log_sigmoid", "log_sigmoid_forward", "tanh", "glu",
     "hardshrink", "softshrink", "_softmax", "_log_softmax", "_safe_softmax", "add", "max", "amax",
     "maximum", "min", "amin", "minimum", "max_pool2d", "max_pool2d_with_indices",
     "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d", "native_dropout",
     "dropout", "bernoulli"}
)  # fmt: skip
# Data movement; views and tensors made from nothing are recognised without a list.
MOVES = frozenset(
    {"cat", "stack", "clone", "copy", "_to_copy", "_unsafe_view", "constant_pad_nd",
     "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d", "index",
     "index_select", "index_put", "as_strided", "gather", "scatter", "take", "embedding", "roll",
     "flip", "repeat", "repeat_interleave", "im2col", "pixel_shuffle", "pixel_unshuffle",
     "channel_shuffle", "native_channel_shuffle", "upsample_nearest1d", "upsample_nearest2d",
     "upsample_nearest3d", "masked_fill", "where", "tril", "triu", "fill", "zero", "sort", "topk",
     "empty_like", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full",
     "new_empty", "rand_like", "randn_like"}
)  # fmt: skip
LEFT_OUT = ACTIVATIONS | MOVES
# Functional batch norm, by backend; all start with input, scale, shift and return a tuple.
BATCH_NORMS = (
    *("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"),
    *("cudnn_batch_norm", "miopen_batch_norm"),
)


@dataclass(frozen=True)
class Ran:
    """A weight layer or batch norm that ran; `layer` is None for a batch norm.

    `parameters` are those of a batch norm. `follows_layer`: its input is the unmodified output of a
    weight layer.
    """

    name: str
    layer: WeightLayer | None
    parameters: tuple[Tensor, ...]
    inputs: int
    outputs: int
    follows_layer: bool


@dataclass(frozen=True)
class PoolRow:
    """One average pooling."""

    name: str
    adds: int


@dataclass(frozen=True)
class ProductRow:
    """Elements multiplied and added outside of layers: gates, learned scales, bilinear resizing."""

    name: str
    mults: int
    adds: int


@dataclass
class Events:
    """A run in order of execution, and the operations without a rule, by module."""

    ran: list[Ran | PoolRow | ProductRow] = field(default_factory=list)
    unknown: dict[str, list[str]] = field(default_factory=dict)


def watch(model: nn.Module, example_input: Any) -> Events:
    """Run `model` on the first image of `example_input`; leave no trace in the model.

    A model that refuses a batch of one is run on the whole example, which then counts as one image.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(2, 8), nn.AdaptiveAvgPool2d(1))
    >>> events = watch(net, torch.zeros(4, 3, 5, 5))
    >>> events.ran[1], events.unknown
    (PoolRow(name='2', adds=192), {'1 (GroupNorm)': ['native_group_norm']})
    """
    if any(isinstance(p, nn.UninitializedParameter) for p in model.parameters()):
        raise LayerError("the model has lazy layers without shapes: run it once on an input first")
    one = _first_image(example_input)
    with _unchanged(model):
        try:
            return _run(model, one)
        except LayerError:
            if one is example_input:
                raise
            return _run(model, example_input)


def _run(model: nn.Module, example_input: Any) -> Events:
    watcher = _Watcher(model)
    with ExitStack() as hooks, watcher:
        for module in watcher.names:
            if isinstance(module, torch.jit.ScriptModule):
                continue  # takes no hooks; its operations are seen as its parent's
            hooks.enter_context(module.register_forward_pre_hook(watcher.enter))
            hooks.enter_context(module.register_forward_hook(watcher.leave, with_kwargs=True))
        run_once(model, example_input)
    return watcher.events


class _Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`enter` and `leave` are hooks of every module; operations arrive in __torch_dispatch__."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names = {module: name for name, module in model.named_modules()}
        self.events = Events()
        self.stack: list[nn.Module] = [model]
        self.inside = 0  # modules on the stack that are counted as a whole
        self.fresh: dict[int, tuple[weakref.ref[Tensor], int]] = {}  # outputs of weight layers

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False avoids importing the compiler, which takes seconds, for a run that is not compiled."""
        return False

    def enter(self, module: nn.Module, args: Any) -> None:
        self.stack.append(module)
        self.inside += _is_known(module)

    def leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self.stack.pop()
        if not _is_known(module):
            return
        self.inside -= 1
        source, result = _first_tensor((args, kwargs)), _first_tensor(output)
        if source is None or result is None:
            self._note("no tensor in or out", module)
        elif isinstance(module, WeightLayer):
            self._ran(self.names[module], module, (), source, result)
            self.fresh[id(result)] = weakref.ref(result), version_of(result)
        else:
            self._ran(self.names[module], None, tuple(module.parameters()), source, result)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if not self.inside:
            self._operation(func, args, output)
        return output

    def _operation(self, func: Any, args: Any, output: Any) -> None:
        op, module = func._schema.name.removeprefix("aten::").rstrip("_"), self.stack[-1]
        adds, products = pooling_adds(op, args, output), products_of(op, args, output)
        if adds is not None:
            self.events.ran.append(PoolRow(self.names[module] or "model", adds))
        elif products is not None:
            if sum(products):
                row = ProductRow(f"{self.names[module] or 'model'}: {op}", *products)
                self.events.ran.append(row)
        elif op in BATCH_NORMS and not _uses_batch_statistics(func, args):
            name = f"{self.names[module] or 'model'}: batch_norm"
            self._ran(name, None, tuple(_tensors(args[1:3])), args[0], output[0])
        elif op not in LEFT_OUT and _computes(func, args, output):
            self._note(op, module)

    def _ran(
        self, name: str, layer: WeightLayer | None, parameters: tuple[Tensor, ...],
        source: Tensor, result: Tensor,
    ) -> None:  # fmt: skip
        ref, version = self.fresh.get(id(source), (None, 0))
        follows = ref is not None and ref() is source and version_of(source) == version
        sizes = source.numel(), result.numel()
        self.events.ran.append(Ran(name, layer, parameters, *sizes, follows))

    def _note(self, what: str, module: nn.Module) -> None:
        where = f"{self.names[module] or 'model'} ({type(module).__name__})"
        whats = self.events.unknown.setdefault(where, [])
        if what not in whats:
            whats.append(what)


def pooling_adds(op: str, args: Any, output: Any) -> int | None:
    """Additions of an average pooling; None for any other operation.

    >>> pooling_adds("mean", [torch.zeros(1, 8, 7, 7)], torch.zeros(1, 8))
    384
    """
    if op == "mean":
        return int(args[0].numel() - output.numel())
    if op.startswith("avg_pool"):
        return int(output.numel() * (prod(args[1]) - 1))
    if op.startswith("_adaptive_avg_pool"):
        sides = int(op[-2])  # _adaptive_avg_pool2d, _adaptive_avg_pool3d
        pairs = zip(args[0].shape[-sides:], output.shape[-sides:], strict=True)
        windows = prod(_adaptive_windows(size, outputs) for size, outputs in pairs)
        return int(prod(output.shape[:-sides]) * windows - output.numel())
    return None


def products_of(op: str, args: Any, output: Any) -> tuple[int, int] | None:
    """Multiplications and additions of a product of tensors or a mixture of pixels, else None.

    A factor that is one number is part of a scale that somebody applies anyway. A mixture of four pixels
    is three of two, p + share * (q - p).

    >>> products_of("mul", [torch.zeros(1, 8, 7, 7), torch.zeros(1, 8, 1, 1)], torch.zeros(1, 8, 7, 7))
    (392, 0)
    """
    if op in ("mul", "div"):
        tensors = [tensor for tensor in _tensors(args) if tensor.numel() > 1]
        if op == "div" and len(tensors) > 1:
            return None
        return (int(output.numel()), 0) if len(tensors) > 1 else (0, 0)
    if op.startswith("upsample_bilinear2d"):
        return 3 * int(output.numel()), 6 * int(output.numel())
    return None


def _adaptive_windows(size: int, outputs: int) -> int:
    """Summed lengths of the windows along one side; they overlap where the sizes do not divide."""
    return sum(-(-(i + 1) * size // outputs) - i * size // outputs for i in range(outputs))


def _computes(func: Any, args: Any, output: Any) -> bool:
    """False for views, for tensors made from nothing, and where no floats come out."""
    if any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns):
        return False
    floats = [t.is_floating_point() or t.is_complex() for t in _tensors(output)]
    return any(floats) and bool(_tensors(args))


def _uses_batch_statistics(func: Any, args: Any) -> bool:
    """True for a normalization that measures its input first, as instance norm does."""
    names = [argument.name for argument in func._schema.arguments]
    return "training" in names and bool(args[names.index("training")])


def _is_known(module: nn.Module) -> bool:
    return isinstance(module, WeightLayer | _BatchNorm)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _first_tensor(tree: Any) -> Tensor | None:
    return next(iter(_tensors(tree)), None)


def _first_image(example_input: Any) -> Any:
    """The example cut down to a batch of one, or itself if it holds no more."""
    first = _first_tensor(example_input)
    if first is None or first.ndim < 2 or first.shape[0] < 2:
        return example_input
    batch = first.shape[0]

    def cut(tensor: Tensor) -> Tensor:
        return tensor[:1] if tensor.ndim and tensor.shape[0] == batch else tensor

    return tree_map_only(Tensor, cut, example_input)


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Restores buffers and the random state, for models that change them even in eval mode."""
    eager = [m for m in model.modules() if not isinstance(m, torch.jit.ScriptModule)]
    before = [(module, dict(module._buffers)) for module in eager]
    values = [(b, b.clone()) for b in model.buffers() if not b.is_meta]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, buffers in before:
            module._buffers.clear()
            module._buffers.update(buffers)
        with torch.no_grad():
            for buffer, value in values:  # a needless copy would invalidate what autograd saved
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
