"""Recording: one run of a model as a list of calls, which is how its graph is read.

The model runs on real tensors while a `TorchFunctionMode` writes down every torch function, what it was
given and what it gave, and where in the model that was. Nothing is traced symbolically, so every forward
that runs can be read: checks of shapes, loops, dictionaries, autograd functions, layers of any class.

Two things are exact that a symbolic trace can only guess:
- *Writing in place.* Views share a version counter with the tensor they look into, so a tensor that was
  changed through another name is noticed when it is read again (`Overwritten`).
- *What depends on the input.* A tensor computed from parameters alone is a `Constant`; one that torch
  functions did not make, such as the result of a scripted function, is `Unseen`.

Quantizers are leaves: a call of one is a call of the recording, and what it computes inside is not.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter, tree_map_only

from dbq.model.roles import WeightLayer, run_once
from dbq.quantizers.contract import BatchNorm, InputQuantizer, WeightQuantizer

LEAVES = (InputQuantizer, WeightQuantizer)
QUANTIZE = "quantize"  # the op of a leaf's call

# Frames of these folders are not where a user wrote the operation.
_OUR_FOLDERS = tuple(str(Path(module.__file__).parent) for module in (torch, sys.modules["dbq"]))  # type: ignore[arg-type]
# Operators are methods under several names.
_ALIASES = {
    "iadd": "add", "radd": "add", "imul": "mul", "rmul": "mul", "multiply": "mul", "isub": "sub",
    "subtract": "sub", "truediv": "div", "itruediv": "div", "true_divide": "div", "divide": "div",
    "concat": "cat", "concatenate": "cat", "clip": "clamp", "swapaxes": "transpose",
    "swapdims": "transpose", "moveaxis": "movedim", "negative": "neg", "rtruediv": "reciprocal_of",
    "view_as": "reshape_as", "ipow": "pow",
}  # fmt: skip
# Functions that apply a weight.
WEIGHTED = frozenset({"conv2d", "linear", "conv_transpose2d"})
# These look at the values of a tensor, on which the course of the run may then depend.
LOOKING = frozenset(
    {"bool", "int", "float", "item", "tolist", "numpy", "array", "complex", "index"}
)
# These read only the shape and type of the tensor they are given.
SHAPE_ONLY = frozenset(
    {"zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "new_zeros",
     "new_ones", "new_full", "new_empty", "new_tensor"}
)  # fmt: skip


@dataclass(eq=False, repr=False)
class Recorded:
    """A tensor that depends on the input, as it is at one moment.

    `index` counts them in the order they are made; it is the same in every run that takes the same
    course. `tensor` is a copy, if the recording keeps them.
    """

    index: int
    shape: tuple[int, ...]
    peak: float  # the largest size of its elements
    call: Call | None  # what made it; None for an input of the model
    tensor: Tensor | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Constant:
    """A tensor that does not depend on the input: a parameter or buffer by its name, or computed.

    `quantized` is the call of the weight quantizer that made it, if one did.
    """

    tensor: Tensor
    name: str = ""
    quantized: Call | None = None


@dataclass(frozen=True, eq=False)
class Overwritten:
    """A tensor that was changed in place, through another view of it, after it was `value`."""

    value: Recorded | Constant


@dataclass(frozen=True, eq=False)
class Unseen:
    """A tensor that came out of no torch function, and is no attribute of the model."""


Argument = Recorded | Constant | Overwritten | Unseen


@dataclass(eq=False, repr=False)
class Call:
    """One torch function. Tensors in `args`, `kwargs` and `output` stand as what is known of them.

    `name` is unique: the path of the module, followed by the function unless the module is a layer whose
    one function it is. `line` is where a user's code calls it.
    """

    op: str
    function: Any  # a torch function, or the quantizer that was called
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    module: nn.Module
    path: str
    name: str
    line: str
    output: Any = None

    @property
    def place(self) -> str:
        """For messages: which function, in which module, on which line of the user's code."""
        return f"{self.name} ({self.op}, {self.line})" if self.line else f"{self.name} ({self.op})"

    def tensors(self) -> Iterator[Argument]:
        leaves = tree_iter((self.args, self.kwargs))
        return (leaf for leaf in leaves if isinstance(leaf, Argument))


@dataclass
class Recording:
    """The calls of a run in order, its inputs and what the model returned."""

    inputs: list[Recorded] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    output: Any = None

    def values(self) -> Iterator[Recorded]:
        """All values, in the order of their index."""
        made = (leaf for call in self.calls for leaf in tree_iter(call.output))
        yield from self.inputs
        yield from (leaf for leaf in made if isinstance(leaf, Recorded))


def record(model: nn.Module, example_input: Any, keep: bool = False) -> Recording:
    """Run `model` once in eval mode; `keep` keeps a copy of every tensor.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True))
    >>> [(call.op, call.name) for call in record(net, torch.zeros(1, 1, 4, 4)).calls]
    [('conv2d', '0'), ('batch_norm', '1'), ('relu', '2')]
    """
    recorder = _Recorder(model, example_input, keep)
    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue  # takes no hooks; what it gives is unseen
            enter = module.register_forward_pre_hook(recorder.enter, with_kwargs=True)
            leave = module.register_forward_hook(recorder.leave, always_call=True)
            hooks.callback(enter.remove)
            hooks.callback(leave.remove)
        run_once(_Returning(model, recorder), example_input)
    return recorder.recording


class _Returning(nn.Module):
    """Runs the model under the recorder and hands what it returns to it."""

    def __init__(self, model: nn.Module, recorder: _Recorder) -> None:
        super().__init__()
        self.model, self.recorder = model, recorder

    def forward(self, *inputs: Any) -> None:
        with self.recorder:
            output = self.model(*inputs)
        self.recorder.recording.output = self.recorder.arguments(output)


class _Recorder(TorchFunctionMode):
    def __init__(self, model: nn.Module, example_input: Any, keep: bool) -> None:
        super().__init__()
        self.recording, self.keep = Recording(), keep
        self.paths = {module: name for name, module in model.named_modules()}
        self.stack = [model]  # the modules that are being run
        self.leaf: nn.Module | None = None  # the quantizer that is being run, if one is,
        self.given: Any = None  # and its arguments
        self.count = 0  # of values
        self.names: Counter[str] = Counter()
        # By id: the tensor, its version when it was seen, and what it is. It is not kept alive, so a run
        # that is recorded takes no more memory; another tensor may then get the id of one that died.
        self.known: dict[int, tuple[weakref.ref[Tensor], int, Recorded | Constant]] = {}
        for name, tensor in _tensors_of(model):
            self._know(tensor, Constant(tensor, name))
        for leaf in tree_iter(example_input):
            if isinstance(leaf, Tensor):
                self.recording.inputs.append(self._new_value(leaf, None))

    # -- hooks of every module ------------------------------------------------------------------

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.stack.append(module)
        if isinstance(module, LEAVES) and self.leaf is None:
            with torch._C.DisableTorchFunction():
                self.leaf, self.given = module, self.arguments((args, kwargs))

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if module is self.leaf:
            self.leaf = None
            with torch._C.DisableTorchFunction():
                given, keywords = self.given
                self._called(QUANTIZE, module, given, keywords, output, "")
        self.stack.pop()

    # -- functions ------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.leaf is not None:
            return func(*args, **kwargs)
        given, keywords = self.arguments((args, kwargs))  # before the function writes into them
        result = func(*args, **kwargs)
        op = op_name(func)
        if op in LOOKING or any(isinstance(leaf, Tensor) for leaf in tree_iter(result)):
            self._called(op, func, given, keywords, result, _users_line())
        return result

    def arguments(self, tree: Any) -> Any:
        return tree_map_only(Tensor, self._argument, tree)

    def _argument(self, tensor: Tensor) -> Argument:
        found = self.known.get(id(tensor))
        if found is None or found[0]() is not tensor:
            return Unseen()
        _, version, operand = found
        return operand if version == version_of(tensor) else Overwritten(operand)

    def _called(
        self, op: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any,
        line: str,
    ) -> None:  # fmt: skip
        module = self.stack[-1]
        path = self.paths.get(module, "")
        call = Call(op, function, args, kwargs, module, path, "", line)
        if op in SHAPE_ONLY or all(isinstance(tensor, Constant) for tensor in call.tensors()):
            self._computed_constants(call, result)
            return
        call.name = self._unique_name(call)
        call.output = tree_map_only(Tensor, lambda tensor: self._new_value(tensor, call), result)
        self.recording.calls.append(call)

    def _computed_constants(self, call: Call, result: Any) -> None:
        quantized = None
        if call.op == QUANTIZE and isinstance(call.module, WeightQuantizer):
            quantized = call
        elif call.op in ("view", "transpose", "reshape", "contiguous"):
            # The kernels of a quantized weight may be put in another order.
            (source,) = call.tensors()
            quantized = source.quantized if isinstance(source, Constant) else None
        for leaf in tree_iter(result):
            if isinstance(leaf, Tensor):
                self._know(leaf, Constant(leaf, quantized=quantized))

    def _unique_name(self, call: Call) -> str:
        base = call.path if _is_main(call) else f"{call.path}.{call.op}".lstrip(".")
        self.names[base] += 1
        return base if self.names[base] == 1 else f"{base}_{self.names[base] - 1}"

    def _new_value(self, tensor: Tensor, call: Call | None) -> Recorded:
        # A later function may write into the tensor, hence the copy.
        kept = tensor.detach().clone() if self.keep else None
        is_number = tensor.is_floating_point() and tensor.numel()
        peak = max(map(abs, torch.stack(tensor.aminmax()).tolist())) if is_number else 0.0
        value = Recorded(self.count, tuple(tensor.shape), peak, call, kept)
        self.count += 1
        self._know(tensor, value)
        return value

    def _know(self, tensor: Tensor, operand: Recorded | Constant) -> None:
        self.known[id(tensor)] = weakref.ref(tensor), version_of(tensor), operand


def op_name(function: Callable[..., Any]) -> str:
    """One name for all the ways to write a function: operator, method, in place, of torch or of F.

    >>> import torch.nn.functional as F
    >>> [op_name(f) for f in (torch.add, Tensor.add_, Tensor.__iadd__, F.relu, Tensor.shape.__get__)]
    ['add', 'add', 'add', 'relu', 'shape']
    """
    name = getattr(function, "__name__", str(function))
    if name in ("__get__", "__set__", "__delete__"):
        name = getattr(function.__self__, "__name__", name)  # type: ignore[attr-defined]
    name = name.strip("_")
    return _ALIASES.get(name, name)


def _is_main(call: Call) -> bool:
    """Whether the call is what its module is there for, so that the module's path names it."""
    module = call.module
    if not call.path or not all(isinstance(child, LEAVES) for child in module.children()):
        return False
    weighted = isinstance(module, WeightLayer | BatchNorm)
    return not weighted or call.op in WEIGHTED or call.op == "batch_norm"


def version_of(tensor: Tensor) -> int:
    """Counts in-place changes; tensors made in inference mode do not count them."""
    return 0 if tensor.is_inference() else tensor._version


def _tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that is an attribute of a module, registered or not, with its name."""
    for path, module in model.named_modules():
        state = {**vars(module), **module._buffers, **module._parameters}
        for name, attribute in state.items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            for leaf in tree_iter(attribute):
                if isinstance(leaf, Tensor):
                    yield f"{path}.{name}".lstrip("."), leaf


def _users_line() -> str:
    """File and line of the innermost frame that is neither torch's nor ours."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OUR_FOLDERS) and not file.startswith("<"):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
