"""Programs made by hand and by dice: every kind of operation, odd sizes, several results."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dbq.deploy.operations.add import Add
from dbq.deploy.operations.average_pool import AveragePool, MeanPool
from dbq.deploy.operations.bilinear import Bilinear
from dbq.deploy.operations.channels import ZEROS, Channels
from dbq.deploy.operations.convolution import LARGEST_FACTORS, Convolution, joined
from dbq.deploy.operations.curve import Curve
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.max_pool import MaxPool
from dbq.deploy.operations.multiply import Multiply
from dbq.deploy.operations.operation import Operation
from dbq.deploy.operations.pixels import NOTHING, Pixels
from dbq.deploy.operations.requantize import Requantize
from dbq.deploy.operations.table import OPERATIONS
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import CODE_RANGE, Result, Shape, Tensor, Type
from dbq.deploy.window import Window
from dbq.errors import LoweringError

T = TypeVar("T")

FIELDS = {"u32", "window", "results", "u8", "u16", "f32", "blend"}
# Operations made of fields that any may have need no generator of their own.
BY_LAYOUT = {op.kind: op for op in OPERATIONS if {type for type, _ in op.fields()} <= FIELDS}
KINDS = ("convolution", "depthwise", "channels", "gate", *BY_LAYOUT)
INTEGERS: tuple[Type, ...] = ("u8", "i8", "i32")


class Dice:
    """Grows a Program operation by operation; every choice comes from one seed."""

    def __init__(self, seed: int, image: Shape | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: list[Tensor] = []
        self.largest: list[int] = []  # no code of the tensor is larger in size
        self.operations: list[Operation] = []
        shape = image or Shape(self.pick(1, 2, 3, 5), self.between(1, 20), self.between(1, 20))
        first = self.tensor(self.pick("u8", "i8"), shape, 0.1)
        table = self.rng.integers(0, 256, (shape.channels, 256), np.uint8)
        self.operations.append(Lookup("image", first, table))

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self, *choices: T) -> T:
        return choices[self.between(0, len(choices) - 1)]

    def tensor(self, type: Type, shape: Shape, scale: float = 1.0, largest: int = 255) -> int:
        self.tensors.append(Tensor(type, shape, scale))
        self.largest.append(largest)
        return len(self.tensors) - 1

    def any_input(self, *types: Type) -> int:
        fitting = [i for i, tensor in enumerate(self.tensors) if tensor.type in types]
        return self.pick(*fitting)

    def results(
        self, shape: Shape, sums: int, typical: float, types: tuple[Type, ...] = ()
    ) -> tuple[Result, ...]:
        """One to three results, of scales that use the range of the type, and halves to round."""
        types = types or tuple(self.pick(*INTEGERS) for _ in range(self.between(1, 3)))
        return tuple(self.result(type, shape, sums, typical) for type in types)

    def result(self, type: Type, shape: Shape, sums: int, typical: float) -> Result:
        low, high = CODE_RANGE[type]
        if type in ("i32", "f32"):
            limit = self.pick(2**15, 2**20, 2**30)
            low, high = max(low, -limit), min(high, limit)
        low, high = (int(x) for x in sorted(self.rng.integers(low, high + 1, 2)))
        if type == "f32" and self.between(0, 1):
            low = high = 0  # no clamp
        if self.between(0, 3) == 0:
            scales = np.full((shape.channels, sums), 0.5, np.float32)
        else:
            spread = max(high - low, 1) / typical
            scales = self.rng.normal(0, spread, (shape.channels, sums)).astype(np.float32)
        offsets = (self.rng.integers(-20, 20, shape.channels) / 2).astype(np.float32)
        tensor = self.tensor(type, shape, largest=max(-low, high))
        return Result(tensor, low, high, scales, offsets)

    def window(self, shape: Shape, largest: int = 5, dilated: bool = False) -> tuple[Window, Shape]:
        """A window, and the size of an output whose windows all overlap the image."""
        rows, columns = (self.axis(size, largest, dilated) for size in shape[1:])
        kernel, stride, padding, dilation, out = zip(rows, columns, strict=True)
        return Window(kernel, stride, padding, dilation), Shape(shape.channels, *out)

    def axis(self, size: int, largest: int, dilated: bool) -> tuple[int, int, int, int, int]:
        """A window's kernel, stride, padding and dilation along one axis, and the output's size."""
        kernel, stride = self.between(1, largest), self.between(1, 3)
        dilation = self.between(1, 2) if dilated else 1
        padding = self.between(0, (kernel - 1) * dilation)
        out = self.between(1, (size - 1 + padding) // stride + 1)
        return kernel, stride, padding, dilation, out

    def codes(
        self, branches: int, kernels: int, channels: int, window: Window, bits: int | None
    ) -> npt.NDArray[np.int8]:
        limit = 1 if bits is None else 2 ** (bits - 1) - 1
        shape = (branches, kernels, channels, *window.kernel)
        return self.rng.integers(-limit, limit + 1, shape, np.int8)

    def add_convolution(
        self, input: int, window: Window, groups: int, out: Shape, types: tuple[Type, ...] = ()
    ) -> None:
        bits = self.pick(None, None, *range(2, 9))
        branches = self.between(1, 3) if bits is None else 1
        codes = self.codes(
            branches, out.channels, self.tensors[input].shape.channels // groups, window, bits
        )
        factors = (
            self.factors(out.channels, branches) if branches > 1 and self.between(0, 1) else None
        )
        sums, integers = branches, codes
        if factors is not None:
            sums, integers = 1, joined(codes, factors)
        typical = 100 * np.abs(integers).mean() * codes[0, 0].size ** 0.5 + 1
        results = self.results(out, sums, typical, types)
        name = f"convolution {len(self.operations)}"
        convolution = Convolution(name, results, input, window, groups, codes, bits, factors)
        self.operations.append(convolution)

    def factors(self, kernels: int, branches: int) -> npt.NDArray[np.uint8]:
        """Whole numbers of branches, all that are allowed."""
        largest = LARGEST_FACTORS[branches]
        totals = self.rng.integers(0, largest + 1, (kernels, 1))
        cuts = np.sort(self.rng.integers(0, totals + 1, (kernels, branches - 1)), axis=1)
        return np.diff(cuts, axis=1, prepend=0, append=totals).astype(np.uint8)

    def convolution(self) -> None:
        input = self.any_input("u8", "i8")
        shape = self.tensors[input].shape
        groups = self.pick(1, 1, *(g for g in (2, 3, 4) if shape.channels % g == 0))
        window, out = self.window(shape, dilated=True)
        self.add_convolution(
            input, window, groups, out._replace(channels=groups * self.between(1, 70 // groups))
        )

    def depthwise(self) -> None:
        input = self.any_input("u8", "i8")
        shape = self.tensors[input].shape
        window, out = self.window(shape, dilated=True)
        out = out._replace(channels=shape.channels * self.between(1, 2))
        self.add_convolution(input, window, shape.channels, out)

    def by_layout(self, operation: type[Operation]) -> None:
        """An operation of fields that any may have: random ones, until its own check accepts them."""
        known = len(self.tensors)
        while True:
            op = self.candidate(operation)
            try:
                op.check(self.tensors, dict(enumerate(self.largest)))
                break
            except LoweringError:
                del self.tensors[known:], self.largest[known:]
        for tensor, most in op.largest_codes(dict(enumerate(self.largest))).items():
            self.largest[tensor] = most
        self.operations.append(op)

    def candidate(self, operation: type[Operation]) -> Operation:
        """Inputs of one shape; an output of the same shape, or of another that its fields decide."""
        first = self.any_input(*INTEGERS)
        found = self.tensors[first]
        input = out = found.shape
        alike = [i for i, t in enumerate(self.tensors) if t.shape == out and t.type != "f32"]
        names = {name.partition("[")[0]: type for type, name in operation.fields()}
        if "rows" in names:
            out = Shape(out.channels, self.between(1, 20), self.between(1, 20))
        fields: dict[str, Any] = {}
        for name, type in names.items():
            match name:
                case "window":
                    fields[name], out = self.window(out, largest=9)
                case "results":
                    fields[name] = self.results(out, operation.sum_count, self.typical(fields))
                case "tensor":
                    fields[name] = self.tensor(found.type, out, found.scale)
                case "form":
                    fields[name] = self.between(0, 1)
                case "low" | "high":
                    fields[name] = float(self.rng.normal(0, 30 * found.scale))
                case "segments":  # as many as the knots are
                    count = self.pick(1, 2, 3, 7, 8, 9, 100) + 1
                case "knots":
                    fields[name] = self.rng.normal(0, 1, count).astype(np.float32)
                case "rows" | "columns":
                    sizes = (
                        (input.height, out.height) if name == "rows" else (input.width, out.width)
                    )
                    fields[name] = tuple(self.place(type, sizes[0]) for _ in range(sizes[1]))
                case _:
                    fields[name] = self.pick(*alike) if fields else first
        return operation(name=f"{operation.kind} {len(self.operations)}", **fields)

    def place(self, type: str, size: int) -> int | tuple[int, int, float]:
        """A row or column of an image: one, none, or two and the share of the second."""
        if type == "u16":
            return self.pick(NOTHING, *range(size))
        share = self.pick(0.0, 1.0, 0.5, float(np.float32(self.rng.random())))
        return self.between(0, size - 1), self.between(0, size - 1), share

    def typical(self, fields: dict[str, Any]) -> float:
        """What an operation with these fields makes of its inputs, roughly."""
        if "b" in fields:
            return 0.1 * self.largest[fields["a"]] * self.largest[fields["b"]] + 1
        if "knots" in fields:
            x = 0.3 * self.largest[fields["input"]] * self.tensors[fields["input"]].scale
            return x + 0.1 if fields["form"] else 0.5
        return 1000

    def gate(self) -> None:
        """A tensor times the means of its channels, or times a map of its pixels."""
        a = self.any_input(*INTEGERS)
        shape = self.tensors[a].shape
        known = len(self.tensors)
        if self.tensors[a].type == "i32" or self.between(0, 1):
            whole, one = Window((shape.height, shape.width)), Shape(shape.channels, 1, 1)
            # So few codes that sums fit, whatever the tensor's may be.
            self.operations.append(Requantize("small", self.results(shape, 1, 1000, ("i8",)), a))
            means = self.results(one, 1, 1000)
            self.operations.append(
                AveragePool("means", means, self.operations[-1].writes[0], whole)
            )
            known += 1
        else:
            self.add_convolution(a, Window((1, 1)), 1, shape._replace(channels=1))
        b = self.between(known, len(self.tensors) - 1)
        results = self.results(shape, 1, self.typical({"a": a, "b": b}))
        self.operations.append(Multiply(f"gate {len(self.operations)}", results, a, b))

    def channels(self) -> None:
        first = self.any_input(*INTEGERS)
        found = self.tensors[first]
        same = (found.type, found.scale, found.shape[1:])
        kin = [(t.type, t.scale, t.shape[1:]) == same for t in self.tensors]
        alike = [i for i, fits in enumerate(kin) if fits]
        sources = [(first, self.between(0, found.shape.channels - 1))]
        for _ in range(self.between(0, 40)):
            tensor = self.pick(ZEROS, *alike, *alike)
            limit = 0 if tensor == ZEROS else self.tensors[tensor].shape.channels - 1
            sources.append((tensor, self.between(0, limit)))
        order = self.rng.permutation(len(sources))
        largest = max(self.largest[tensor] for tensor, _ in sources if tensor != ZEROS)
        shape = found.shape._replace(channels=len(sources))
        output = self.tensor(found.type, shape, found.scale, largest)
        name = f"channels {len(self.operations)}"
        self.operations.append(Channels(name, output, tuple(sources[i] for i in order)))

    def finish(self, name: str = "dice", outputs: int = 1) -> Program:
        """The last operations: from some tensors to float numbers. The first output has no name."""
        named = tuple(Output(self.output(), f"output {i}" if i else "") for i in range(outputs))
        facts = {"made by": "dice"}
        return Program(name, tuple(self.tensors), tuple(self.operations), named, facts)

    def output(self) -> int:
        input = self.any_input("u8", "i8")
        shape = self.tensors[input].shape
        whole = Window((shape.height, shape.width))
        if self.between(0, 1):
            self.add_convolution(input, whole, 1, Shape(self.between(1, 20), 1, 1), ("f32",))
        else:
            window, out = self.window(shape)
            self.add_convolution(
                input, window, 1, out._replace(channels=self.between(1, 20)), ("f32",)
            )
        return len(self.tensors) - 1


def random_program(
    seed: int, kinds: tuple[str, ...] = KINDS, length: int = 8, outputs: int = 1
) -> Program:
    """A Program of `length` operations between image and results."""
    dice = Dice(seed)
    for _ in range(length):
        kind = dice.pick(*kinds)
        dice.by_layout(BY_LAYOUT[kind]) if kind in BY_LAYOUT else getattr(dice, kind)()
    return dice.finish(outputs=outputs)


def small_program() -> Program:
    """Every kind of operation in as few bytes as possible: for damage of all kinds."""
    dice = Dice(7, Shape(1, 3, 3))
    image = 0
    window = Window((2, 2), (1, 1), (1, 1))
    for bits, branches in ((None, 2), (3, 1)):
        codes = dice.codes(branches, 2, 1, window, bits)
        out = Shape(2, 3, 3)
        results = (dice.result("u8", out, branches, 200),)
        dice.operations.append(Convolution("c", results, image, window, 1, codes, bits))
    dice.operations.append(Add("a", (dice.result("i32", Shape(2, 3, 3), 2, 200),), 1, 2))
    dice.operations.append(Requantize("r", (dice.result("i8", Shape(2, 3, 3), 1, 200),), 3))
    pooled = dice.tensor("i8", Shape(2, 2, 2), 1.0)
    dice.operations.append(MaxPool("m", 4, Window((2, 2), (2, 2), (1, 1)), pooled))
    joined = dice.tensor("i8", Shape(3, 2, 2), 1.0)
    dice.operations.append(Channels("j", joined, ((pooled, 1), (ZEROS, 0), (pooled, 0))))
    knots = np.array([0.0, 0.25, 1.0], np.float32)
    bent = dice.result("i8", Shape(3, 2, 2), 1, 2)
    dice.operations.append(Curve("g", (bent,), joined, 1, -3.0, 3.0, knots))
    moved = dice.tensor("i8", Shape(3, 2, 3), 1.0)
    dice.operations.append(Pixels("x", bent.tensor, moved, (1, 0), (NOTHING, 1, 0)))
    grown = dice.result("i32", Shape(3, 2, 2), 1, 100)
    blends = ((0, 1, 0.25), (1, 1, 0.0))
    dice.operations.append(Bilinear("b", (grown,), moved, blends, blends))
    means = dice.result("i8", Shape(3, 1, 1), 1, 2**30)
    dice.operations.append(MeanPool("e", (means,), grown.tensor, Window((1, 1))))
    product = dice.result("i8", Shape(3, 2, 2), 1, 2**36)
    dice.operations.append(Multiply("t", (product,), grown.tensor, means.tensor))
    average = dice.result("f32", Shape(3, 1, 1), 1, 4)
    dice.operations.append(AveragePool("p", (average,), product.tensor, Window((2, 2))))
    second = dice.result("f32", Shape(3, 2, 2), 1, 4)
    dice.operations.append(Requantize("q", (second,), product.tensor))
    codes, factors = dice.codes(2, 2, 1, window, None), np.array([[3, 2], [4, 3]], np.uint8)
    whole = dice.result("u8", Shape(2, 3, 3), 1, 200)
    dice.operations.append(Convolution("w", (whole,), image, window, 1, codes, None, factors))
    outputs = (Output(average.tensor), Output(second.tensor, "map"))
    return Program("s", tuple(dice.tensors), tuple(dice.operations), outputs)


def one_convolution(image: Shape, kernels: int, bits: int | None = None) -> Program:
    """Image, 1x1 convolution with weights 0, float numbers. The weights are the end of the file."""
    table = np.zeros((image.channels, 256), np.uint8)
    codes = np.zeros((1, kernels, image.channels, 1, 1), np.int8)
    ones = np.ones((kernels, 1), np.float32)
    result = Result(1, 0, 0, ones, ones[:, 0])
    tensors = (Tensor("u8", image, 1.0), Tensor("f32", image._replace(channels=kernels), 1.0))
    convolution = Convolution("c", (result,), 0, Window((1, 1)), 1, codes, bits)
    return Program("one", tensors, (Lookup("image", 0, table), convolution), (Output(1),))


def tall_depthwise(width: int, tap: int) -> Program:
    """The first of 4 lines, times 3: a kernel of 255 rows, 255 rows apart, with one weight, at `tap`."""
    image = Shape(2, 4, width)
    table = np.arange(512, dtype=np.uint8).reshape(2, 256)
    codes = np.zeros((1, 2, 1, 255, 1), np.int8)
    codes[:, :, :, tap] = 3
    ones, none = np.ones((2, 1), np.float32), np.zeros(2, np.float32)
    window = Window((255, 1), (1, 1), (255 * tap, 0), (255, 1))
    tensors = (Tensor("u8", image, 1.0), Tensor("f32", Shape(2, 1, width), 1.0))
    convolution = Convolution("c", (Result(1, 0, 0, ones, none),), 0, window, 2, codes, 8)
    return Program("tall", tensors, (Lookup("image", 0, table), convolution), (Output(1),))


def one_average(largest: int) -> Program:
    """Image, codes up to `largest`, their average over 2 x 2 pixels."""
    one, none = np.ones((1, 1), np.float32), np.zeros(1, np.float32)
    shape = Shape(1, 2, 2)
    wide, average = Result(1, 0, largest, one, none), Result(2, 0, 0, one, none)
    tensors = (
        Tensor("u8", shape, 1.0),
        Tensor("i32", shape, 1.0),
        Tensor("f32", Shape(1, 1, 1), 1.0),
    )
    operations = (
        Lookup("image", 0, np.zeros((1, 256), np.uint8)),
        Requantize("wide", (wide,), 0),
        AveragePool("average", (average,), 1, Window((2, 2))),
    )
    return Program("average", tensors, operations, (Output(2),))


def images_for(program: Program, count: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    channels, height, width = program.input_shape
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, height, width, channels), np.uint8)
