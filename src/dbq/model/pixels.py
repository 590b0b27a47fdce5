"""Pixels: uint8 images as the float tensors a network sees, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Images = np.ndarray[Any, np.dtype[np.uint8]]


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 images as float, per channel (x / 255 - mean) / std.

    >>> normalise(torch.tensor([[[255]], [[0]]], dtype=torch.uint8), (0.5, 0.5), (0.5, 0.25)).flatten()
    tensor([ 1., -2.])
    """
    shift, scale = (torch.tensor(v, device=images.device).view(-1, 1, 1) for v in (mean, std))
    return (images.float() / 255 - shift) / scale


def denormalise(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Images:
    """The uint8 images [N, H, W, C] whose normalised form is nearest to `x`."""
    shift, scale = (torch.tensor(v).view(-1, 1, 1) for v in (mean, std))
    pixels = ((x.detach().cpu().float() * scale + shift) * 255).round().clamp(0, 255)
    images: Images = pixels.to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    return images
