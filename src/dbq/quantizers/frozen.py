"""What a quantized layer is once its weights no longer change: the three results of `freeze`.

Each has `weight`, the value the layer computes with in eval(), bit for bit, and `used`, which says for
each partial sum of a dot product ([branches, *weight.shape]) which weights take part in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dbq.quantizers.tensors import along_kernels, per_kernel, sum_branches


@dataclass(frozen=True)
class Branches:
    """A sum of scaled ternary (or binary) tensors, with K output kernels.

    `codes` is int8 [J, *weight.shape] in {-1, 0, 1}; `scales` is float >= 0, [K, J], for method dbq
    largest first. J is the number of branches times `planes`: a branch has two planes if its positive
    and its negative weights have scales of their own. No weight is in both.

    >>> import torch
    >>> Branches(torch.tensor([[[1, 0, -1]], [[1, 1, 0]]]), torch.tensor([[3.0, 2.0]])).weight
    tensor([[ 5.,  2., -3.]])
    """

    codes: Tensor
    scales: Tensor
    planes: int = 1

    @property
    def weight(self) -> Tensor:
        """sum_j scales_j * codes_j."""
        rows = self.codes.flatten(2).to(self.scales)  # J x K x D
        return sum_branches(rows.unbind(0), self.scales).reshape(self.codes.shape[1:])

    @property
    def used(self) -> Tensor:
        return (self.codes != 0).reshape(-1, self.planes, *self.codes.shape[1:]).any(1)

    @property
    def sparsity(self) -> list[float]:
        """Share of zeros in each plane of codes."""
        return [float((plane == 0).float().mean()) for plane in self.codes]

    @property
    def ratios(self) -> Tensor:
        """alpha_j / alpha_{j+1} of each kernel, [K, J-1]; infinite where the smaller one is 0."""
        return self.scales[:, :-1] / self.scales[:, 1:]


@dataclass(frozen=True)
class FixedPoint:
    """scale * (code - zero), with a scale for each of K kernels.

    `codes` is int8 in the shape of the weight, `scales` float >= 0 [K]. `zeros` holds the zero point
    of each kernel, int8 [K], or is None if the grid is symmetric.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor | None = None

    @property
    def weight(self) -> Tensor:
        scales = along_kernels(self.scales, self.codes)
        scaled = self.codes.to(scales.dtype) * scales
        return scaled if self.zeros is None else scaled - along_kernels(self.zeros, scaled) * scales

    @property
    def used(self) -> Tensor:
        return (self.weight != 0).unsqueeze(0)


@dataclass(frozen=True)
class Levels:
    """Entries of a table of levels that are not multiples of a step.

    `codes` is uint8 in the shape of the weight; `levels` is [K, N], ascending, N <= 2^bits. Such
    weights can be trained, tested and counted. The engine, which adds and subtracts, has no kernel for
    them.
    """

    codes: Tensor
    levels: Tensor

    @property
    def weight(self) -> Tensor:
        return self.levels.gather(1, per_kernel(self.codes).long()).reshape(self.codes.shape)

    @property
    def used(self) -> Tensor:
        return (self.weight != 0).unsqueeze(0)


Frozen = Branches | FixedPoint | Levels
