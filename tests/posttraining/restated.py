"""A layer's output error, from outputs instead of sums."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BATCH = 8  # images of a pass


def counts_of(got: Tensor, wanted: Tensor) -> Tensor:
    """How much each pixel counts: less, the more the float weight is off there."""
    parts = []
    for a, b in zip(torch.split(got, BATCH), torch.split(wanted, BATCH), strict=True):
        deviation = b.std([0, *range(2, b.ndim)], correction=0, keepdim=True)
        r = ((a - b) / deviation).square().mean(1)
        ninth = r.flatten().sort().values[max(0, round(0.9 * r.numel()) - 1)]  # of ten
        usual = max(9 * float(r.median()), float(ninth))
        parts.append(torch.where(r > 0, usual / (usual + r), 1.0))
    return torch.cat(parts)


def output_error(got: Tensor, wanted: Tensor, counts: Tensor, together: Tensor) -> float:
    """But for the means, which a batch norm or bias takes care of."""

    def effect(y: Tensor) -> float:
        rows, weight = y.movedim(1, -1).reshape(-1, y.shape[1]).double(), counts.reshape(-1, 1)
        mean = (weight * rows).sum(0) / weight.sum()
        of_rows = torch.einsum("sk,kl,sl->s", rows - mean, together, rows - mean)
        return float((weight[:, 0] * of_rows).sum() / weight.sum())

    return effect(got - wanted) / effect(wanted)


@torch.enable_grad()
def importance_of(
    net: nn.Module, name: str, images: Tensor, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """How places count, and channels together: by gradients of one random direction of the outputs.

    By an offset that is added to the layer's output.
    """
    generator, parts, products = torch.Generator().manual_seed(seed), [], []
    offsets: list[Tensor] = []

    def add(module: nn.Module, args: object, output: Tensor) -> Tensor:
        offsets[:] = [torch.zeros_like(output, requires_grad=True)]
        return output + offsets[0]

    for x in torch.split(images, BATCH):
        handle = net.get_submodule(name).register_forward_hook(add)
        logits = net(x)
        handle.remove()
        v = torch.randn(logits.shape, generator=generator)
        if logits.ndim == 2:  # classes: the root of the covariance of their probabilities
            p = logits.detach().softmax(1)
            root = torch.stack([q.sqrt().diag() - q.outer(q.sqrt()) for q in p])
            v = (root @ v.unsqueeze(2)).squeeze(2)
        (gradient,) = torch.autograd.grad((v * logits).sum(), offsets)
        for g in gradient.double().flatten(2 if gradient.ndim == 4 else 1):
            g = g.reshape(gradient.shape[1], -1)
            products.append(g @ g.T / g.square().sum())
        squares = gradient.square().sum(1)
        if squares.ndim == 1:
            parts.append(torch.ones_like(squares))
            continue
        share = (squares / squares.mean([1, 2], keepdim=True)).clamp(max=20)
        parts.append(0.1 + 0.9 * share / share.mean([1, 2], keepdim=True))
    total = torch.stack(products).sum(0)
    identity = torch.eye(len(total)).double()
    layer = net.get_submodule(name)
    if getattr(layer, "groups", 1) > 1:  # fitted all at once
        return torch.cat(parts), identity
    return torch.cat(parts), total / total.diagonal().mean() + 0.1 * identity
