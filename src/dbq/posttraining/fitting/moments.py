"""What a layer's inputs and wanted outputs have in common: the sums from which it is fitted.

    H = E[x x'],  C = E[y x'],  Y = E[y y'],  E[x],  E[y]

x are the inputs that the quantized prefix gives (patches of them, for a convolution) and y the
outputs of the float network for the same images. Sums are float64; pixels are added batch by batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dbq.posttraining.fitting.products import operand
from dbq.posttraining.fitting.trust import trust
from dbq.quantizers.fitting.output_error import grouped
from dbq.quantizers.tensors import per_kernel

SAMPLES_PER_WEIGHT, FEWEST_SAMPLES = 100, 10_000
# Of the mean diagonal: what is added to H, to keep the target near the float weight where the samples
# do not say better.
DAMPINGS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def patches(layer: nn.Module, x: Tensor, every: int = 1) -> Tensor:
    """The inputs of a layer's dot products, [G, samples, D], groups of a convolution first.

    Of a convolution's output pixels, those in every n-th row and column.
    """
    if isinstance(layer, nn.Linear):
        return x.reshape(1, -1, x.shape[-1])
    read = operand(layer, x)
    stride = every * read.stride[0], every * read.stride[1]
    if read.kernel == (1, 1):
        x = read.x[:, :, :: stride[0], :: stride[1]].flatten(2)
    else:
        x = F.unfold(read.x, read.kernel, read.dilation, 0, stride)
    images, _, pixels = x.shape
    if read.flipped:
        x = x.reshape(images, -1, math.prod(read.kernel), pixels).flip(2)
    x = x.reshape(images, read.groups, -1, pixels).permute(1, 0, 3, 2)
    return x.reshape(read.groups, images * pixels, -1)


def outputs(layer: nn.Module, y: Tensor, every: int = 1) -> Tensor:
    """Outputs without their bias, [G, samples, K / G], in the order of `patches`."""
    if isinstance(layer, nn.Linear):
        y, groups = y.reshape(1, -1, y.shape[-1]), 1
    else:
        assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
        y, groups = y[:, :, ::every, ::every], layer.groups
        y = y.reshape(len(y), groups, y.shape[1] // groups, -1).permute(1, 0, 3, 2)
        y = y.reshape(groups, -1, y.shape[-1])
    return y if layer.bias is None else y - layer.bias.reshape(groups, 1, -1)


def trusted(layer: nn.Module, x: Tensor, y: Tensor, every: int = 1) -> Tensor:
    """How much each sample counts, [samples], in the order of `patches`: y are the wanted outputs."""
    channels = -1 if isinstance(layer, nn.Linear) else 1
    return at_samples(layer, trust(layer(x), y, channels), every)


def at_samples(layer: nn.Module, places: Tensor, every: int = 1) -> Tensor:
    """A number for each place of a layer's output, in the order of `patches`."""
    return (places if isinstance(layer, nn.Linear) else places[:, ::every, ::every]).flatten()


def thinning(kernel: int, pixels: int, images: int) -> int:
    """The n for `patches`: the sums need some hundred samples for each of a kernel's weights, not more.

    >>> thinning(kernel=9, pixels=112 * 112, images=64), thinning(kernel=960, pixels=49, images=512)
    (8, 1)
    """
    return max(1, math.isqrt(pixels * images // (SAMPLES_PER_WEIGHT * kernel + FEWEST_SAMPLES)))


SMALLEST = 1e-12  # added even where an input is always 0


@dataclass
class Moments:
    """Sums over samples. With `centred`, the error that a shift of the output can undo is left out."""

    count: float  # the sum of their weights
    xx: Tensor  # G x D x D
    yx: Tensor  # G x K x D
    x: Tensor  # G x D
    y: Tensor  # G x K
    yy: Tensor  # G x K x K

    @classmethod
    def nothing(cls) -> Moments:
        """No samples; it takes the shape of what is added."""
        zero = torch.zeros((), dtype=torch.float64)
        return cls(0, zero, zero, zero, zero, zero)

    @classmethod
    def of(cls, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Moments:
        """The sums of one batch: x [G, S, D], y [G, S, K], and how much each sample counts, [S]."""
        weight = x.new_ones(x.shape[1]) if weight is None else weight
        wx, wy = (weight.unsqueeze(1) * z for z in (x, y))
        return cls(
            float(weight.sum()), (wx.mT @ x).double(), (wy.mT @ x).double(),
            wx.sum(1, dtype=torch.float64), wy.sum(1, dtype=torch.float64),
            (wy.mT @ y).double(),
        )  # fmt: skip

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            *(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True))
        )

    @property
    def uncertainty(self) -> float:
        """How much to damp the moments themselves: more, the fewer samples there are for an input."""
        return max(DAMPINGS[0], self.x.shape[-1] / self.count)

    def problem(self, weight: Tensor, centred: bool, damping: float) -> Problem:
        """The fit of `weight`; `damping` draws it to the weight itself."""
        n = self.count
        H, C, Y = self.xx / n, self.yx / n, self.yy / n
        if centred:
            mx, my = self.x / n, self.y / n
            H = H - mx.unsqueeze(2) * mx.unsqueeze(1)
            C = C - my.unsqueeze(2) * mx.unsqueeze(1)
            Y = Y - my.unsqueeze(2) * my.unsqueeze(1)
        diagonal = H.diagonal(dim1=1, dim2=2)
        added = damping * diagonal.mean(1) + SMALLEST
        H = H + torch.diag_embed(added.unsqueeze(1).expand_as(diagonal))
        rows = grouped(per_kernel(weight.detach()).double(), H)
        C = C + added[:, None, None] * rows
        Y = Y + added[:, None, None] * rows @ rows.mT
        return Problem(H, C, Y, weight)

    def shift(self, weight: Tensor) -> Tensor:
        """The bias with which the mean output of `weight` is the wanted one, one for each kernel."""
        rows = grouped(per_kernel(weight.detach()).double(), self.xx)
        mean = (rows @ self.x.unsqueeze(2)).squeeze(2)
        return ((self.y - mean) / self.count).flatten()


@dataclass(frozen=True)
class Problem:
    """min over Q of  tr(G (Q H Q' - 2 C Q' + Y)),  G being the identity or what an error is told."""

    H: Tensor
    C: Tensor
    Y: Tensor
    weight: Tensor

    def target(self) -> Tensor:
        """The float weight that would be best, in the shape and type of the layer's."""
        solved: Tensor = torch.linalg.solve(self.H, self.C.mT).mT
        return solved.reshape(self.weight.shape).to(self.weight.dtype)

    def error(self, weight: Tensor, together: Tensor | None = None) -> float:
        """The mean squared error of the outputs, or what the errors of all kernels do together."""
        rows = grouped(per_kernel(weight.detach()).double(), self.H)
        weighed = rows if together is None else together @ rows
        return float((weighed * (rows @ self.H - 2 * self.C)).sum()) + self._power(together)

    def relative_error(self, weight: Tensor, together: Tensor | None = None) -> float:
        """The same, relative to wanted outputs in place of errors."""
        return self.error(weight, together) / max(self._power(together), 1e-30)

    def _power(self, together: Tensor | None) -> float:
        if together is None:
            return float(self.Y.diagonal(dim1=1, dim2=2).sum())
        return float((together * self.Y).sum())


def best_damping(halves: tuple[Moments, Moments], weight: Tensor, centred: bool) -> float:
    """The damping whose target, from one half of the images, has the least error on the other half.

    A classifier has more inputs than there are images: undamped, its target would fit them and
    nothing else.
    """
    if not all(half.count for half in halves):
        return DAMPINGS[-1]
    tests = [half.problem(weight, centred, 0.0) for half in halves]
    errors = []
    for damping in DAMPINGS:
        targets = [half.problem(weight, centred, damping).target() for half in halves]
        errors.append(sum(tests[i].error(targets[1 - i]) for i in (0, 1)))
        if len(errors) > 1 and errors[-1] > errors[-2]:
            break
    return DAMPINGS[errors.index(min(errors))]
