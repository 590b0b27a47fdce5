"""A recorded run to values: every call on which the output depends, with our values in place of tensors.

The functions that can be lowered are those in the tables of handlers/; for any other, the error names
the module, the function and the line of the user's code. Sizes and plain numbers are those of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from itertools import count
from typing import Any

from torch.utils._pytree import tree_iter, tree_map_only

from dbq.errors import LoweringError
from dbq.lowering.handlers import activations, arithmetic, moving, pooling, quantized
from dbq.lowering.operands import Operand, Site
from dbq.lowering.values import Image, Value
from dbq.model.reading.recording import (
    LOOKING,
    Argument,
    Call,
    Constant,
    Overwritten,
    Recorded,
    Recording,
)

HANDLERS: dict[str, Callable[..., Any]] = {
    **quantized.HANDLERS,
    **activations.HANDLERS,
    **arithmetic.HANDLERS,
    **pooling.HANDLERS,
    **moving.HANDLERS,
}
KNOWN = (
    "convolutions, linear layers, batch norm, the usual activations, sums and products, pooling, "
    "resizing, padding, concatenation, and moving channels, rows and columns"
)


def read(recording: Recording, image: Image, whole_ratios: bool = False) -> list[tuple[str, Value]]:
    """The values of the network's outputs, by name; a plain tensor has the name "".

    `whole_ratios`: branches become one integer, see ratios.py.
    """
    (given,) = recording.inputs
    found: dict[Recorded, Any] = {given: image}
    image.node = given
    site: Site | None = None
    for call in recording.calls:
        _refuse_looking(call)
    for call in _needed(recording):
        clock = count() if site is None else site.clock
        site = Site(call, given.shape[0], clock, whole_ratios)
        result = _apply(site, found)
        for recorded, operand in zip(tree_iter(call.output), _flat(result), strict=True):
            if operand.node is None:
                operand.node = recorded
            found[recorded] = operand
    return [(name, _output(recorded, found, site)) for name, recorded in _outputs(recording.output)]


def _needed(recording: Recording) -> list[Call]:
    """The calls on which the output depends, in order."""
    wanted = {id(leaf) for leaf in tree_iter(recording.output)}
    needed = []
    for call in reversed(recording.calls):
        if any(id(leaf) in wanted for leaf in tree_iter(call.output)):
            needed.append(call)
            wanted.update(id(tensor) for tensor in call.tensors())
    return needed[::-1]


def _refuse_looking(call: Call) -> None:
    if call.op in LOOKING:
        raise LoweringError(
            f"{call.place}: the network looks at the values of a tensor that depends on the image, so "
            "what it computes may differ from image to image: lowering needs one fixed course"
        )


def _apply(site: Site, found: dict[Recorded, Any]) -> Any:
    call = site.call

    def operand(argument: Argument) -> Any:
        if isinstance(argument, Constant):
            return argument
        if isinstance(argument, Recorded):
            return found[argument]
        if isinstance(argument, Overwritten):
            site.refuse(
                "reads a tensor that was changed in place under another name: write the change as "
                "a new tensor, such as y = torch.relu(x)"
            )
        return site.refuse(
            "reads a tensor that no torch function made, perhaps of a scripted function, or a constant "
            "that is no attribute of the model: use the plain function, or register a buffer"
        )

    args, kwargs = tree_map_only(Argument, operand, (call.args, call.kwargs))
    handler = HANDLERS.get(call.op)
    if handler is None:
        site.refuse(
            f"{call.op} cannot be lowered; known are {KNOWN}: replace it, or leave it out of the network"
        )
    kwargs.pop("inplace", None)
    if not args and "input" in kwargs:
        args = (kwargs.pop("input"),)
    try:
        signature(handler).bind(site, *args, **kwargs)
    except TypeError as error:
        site.refuse(f"{call.op} has arguments that lowering does not know ({error})")
    return handler(site, *args, **kwargs)


def _flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _outputs(output: Any, name: str = "") -> list[tuple[str, Any]]:
    """The tensors a network returns: one, or some in lists, tuples and dictionaries."""
    if isinstance(output, dict):
        parts = [_outputs(part, f"{name}.{key}".lstrip(".")) for key, part in output.items()]
    elif isinstance(output, list | tuple):
        parts = [_outputs(part, f"{name}.{i}".lstrip(".")) for i, part in enumerate(output)]
    elif output is None:
        parts = []
    else:
        return [(name, output)]
    return [pair for part in parts for pair in part]


def _output(recorded: Any, found: dict[Recorded, Any], site: Site | None) -> Value:
    operand = found.get(recorded)
    if site is None or not isinstance(operand, Operand):
        kind = type(recorded).__name__
        raise LoweringError(
            f"the network returns {kind}, expected tensors that depend on the image"
        )
    return site.resolve(operand)
