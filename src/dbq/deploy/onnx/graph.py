"""An ONNX graph under construction: nodes, constants, unique names. Knows nothing about networks."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dbq.deploy.tensors import Array
from dbq.errors import DbqError

if TYPE_CHECKING:
    import onnx

# Opset and version of the file, by the narrowest integers of a graph: the oldest that know them, so that
# old runtimes read what they can. 13 is the first with per-channel QuantizeLinear.
VERSIONS = {8: (13, 7), 4: (21, 10), 2: (25, 13)}

Bits = Literal[2, 4, 8]
Port = tuple[str, Sequence[int | str]]  # name and shape of an input or output


def import_onnx() -> Any:
    """Import onnx, or say how to install it."""
    try:
        return import_module("onnx")
    except ImportError:
        advice = "pip install 'dbq[train]' (or: pip install onnx)"
        raise DbqError(f"writing ONNX needs the onnx package: {advice}") from None


class Graph:
    """Nodes in order. A value is known by its name, which `add` and `constant` return.

    Nodes are called by the part of the network they belong to. Values are numbered: their names are
    repeated wherever they are read, and would be a tenth of a file with packed weights.
    """

    def __init__(self) -> None:
        self._onnx = import_onnx()
        self._nodes: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.initializers: list[Any] = []  # the constants
        self._used: set[str] = set()
        self._values = 0
        self._narrowest = 8

    def add(self, operator: str, *inputs: str, label: str = "", **attributes: Any) -> str:
        """Append a node with one output; `label` is the part of the network it belongs to.

        A step on the way to a node that has a name may have none.
        """
        output, name = self._number(), label and self._fresh(f"{label}/{operator}")
        make = self._onnx.helper.make_node
        self._nodes.append(make(operator, list(inputs), [output], name=name, **attributes))
        return output

    def constant(self, value: Array | float | Sequence[int]) -> str:
        """An initializer; equal ones are shared. Plain numbers are float32, lists int64."""
        array = np.asarray(value)
        if not isinstance(value, np.ndarray):
            array = array.astype(np.float32 if isinstance(value, float) else np.int64)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self._number()
            self.initializers.append(self._onnx.numpy_helper.from_array(array, name))
        return self._constants[key]

    def packed(self, codes: npt.NDArray[np.int8], bits: Bits) -> str:
        """An initializer of INT2, INT4 or INT8; the first element is in the lowest bits of a byte."""
        if bits == 8:
            return self.constant(codes)
        self._narrowest = min(self._narrowest, bits)
        each = 8 // bits
        fields = codes.ravel().view(np.uint8) & (2**bits - 1)
        fields = np.pad(fields, (0, -len(fields) % each)).reshape(-1, each)
        content = (fields << np.arange(0, 8, bits, dtype=np.uint8)).sum(axis=1).astype(np.uint8)
        type, name = getattr(self._onnx.TensorProto, f"INT{bits}"), self._number()
        make = self._onnx.helper.make_tensor
        self.initializers.append(make(name, type, codes.shape, content.tobytes(), raw=True))
        return name

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
        graph = helper.make_graph(self._nodes, name, inputs, ports, self.initializers)
        opset, file = VERSIONS[self._narrowest]
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=file,
            producer_name="dbq", producer_version=version,
        )  # fmt: skip
        self._onnx.checker.check_model(model, full_check=True)
        return model  # type: ignore[no-any-return]

    def _number(self) -> str:
        self._values += 1
        return self._fresh(str(self._values))

    def _fresh(self, label: str) -> str:
        name, count = label, 1
        while name in self._used:
            count += 1
            name = f"{label}_{count}"
        self._used.add(name)
        return name
