"""An ONNX graph under construction: nodes, constants, unique names. Knows nothing about networks."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from dbq.deploy.tensors import Array
from dbq.errors import DbqError

if TYPE_CHECKING:
    import onnx

OPSET = 13  # the oldest with per-channel QuantizeLinear, so that old runtimes read it as well
IR_VERSION = 7  # the one released with it

Port = tuple[str, Sequence[int | str]]  # name and shape of an input or output


def import_onnx() -> Any:
    """Import onnx, or say how to install it."""
    try:
        return import_module("onnx")
    except ImportError:
        advice = "pip install 'dbq[onnx]' (or: pip install onnx)"
        raise DbqError(f"writing ONNX needs the onnx package: {advice}") from None


class Graph:
    """Nodes in order. A value is known by its name, which `add` and `constant` return."""

    def __init__(self) -> None:
        self._onnx = import_onnx()
        self._nodes: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._initializers: list[Any] = []
        self._used: set[str] = set()

    def add(self, operator: str, *inputs: str, label: str, **attributes: Any) -> str:
        """Append a node with one output; `label` is the part of the network it belongs to."""
        output, make = self._fresh(f"{label}/{operator}"), self._onnx.helper.make_node
        self._nodes.append(make(operator, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, value: Array | float | Sequence[int], label: str = "constant") -> str:
        """An initializer; equal ones are shared. Plain numbers are float32, lists int64."""
        array = np.asarray(value)
        if not isinstance(value, np.ndarray):
            array = array.astype(np.float32 if isinstance(value, float) else np.int64)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self._fresh(label)
            self._initializers.append(self._onnx.numpy_helper.from_array(array, name))
        return self._constants[key]

    def reserve(self, name: str) -> str:
        """`name`, or one like it that is not in use; `add` and `constant` will not use it."""
        return self._fresh(name)

    def rename(self, value: str, name: str) -> None:
        """Give the output of the node that was added last a name that was reserved."""
        assert self._nodes[-1].output[0] == value
        self._nodes[-1].output[0] = name

    def model(
        self, name: str, input: Port, outputs: Sequence[Port], version: str
    ) -> onnx.ModelProto:
        """The checked model: one uint8 input, float outputs."""
        helper, types = self._onnx.helper, self._onnx.TensorProto
        inputs = [helper.make_tensor_value_info(input[0], types.UINT8, input[1])]
        ports = [helper.make_tensor_value_info(port, types.FLOAT, size) for port, size in outputs]
        graph = helper.make_graph(self._nodes, name, inputs, ports, self._initializers)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
            producer_name="dbq", producer_version=version,
        )  # fmt: skip
        self._onnx.checker.check_model(model, full_check=True)
        return model  # type: ignore[no-any-return]

    def _fresh(self, label: str) -> str:
        name, count = label, 1
        while name in self._used:
            count += 1
            name = f"{label}_{count}"
        self._used.add(name)
        return name
