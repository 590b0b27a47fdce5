"""ResNet-20 for 32-pixel images.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2.
269,722 parameters at width 1.0 with 10 classes.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

BLOCKS_PER_STAGE = 3  # depth 20 = 6 * 3 + 2


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut without parameters (the paper's option A)."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        extra = out_channels - in_channels
        self.stride = stride
        self.channel_padding = (0, 0, 0, 0, extra // 2, extra - extra // 2)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return functional.relu(y + self.shortcut(x))

    def shortcut(self, x: Tensor) -> Tensor:
        """The input, or every second pixel of it with zero channels added on both sides."""
        if self.stride == 1:
            return x
        return functional.pad(x[:, :, :: self.stride, :: self.stride], self.channel_padding)


class ResNet20(nn.Module):
    """Three stages of 16, 32 and 64 channels, each times `width` (at least 1 in the first).

    >>> sum(p.numel() for p in ResNet20().parameters())
    269722
    """

    input_size = 32

    def __init__(self, num_classes: int = 10, width: float = 1.0) -> None:
        super().__init__()
        channels = max(1, round(16 * width))
        self.conv1 = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.layer1 = stage(channels, channels, stride=1)
        self.layer2 = stage(channels, 2 * channels, stride=2)
        self.layer3 = stage(2 * channels, 4 * channels, stride=2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(4 * channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        x = self.pool(x).flatten(1)  # [N, C, 1, 1] -> [N, C]
        logits: Tensor = self.linear(x)
        return logits


def stage(in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
    """Blocks of one resolution; the first one changes it."""
    rest = [BasicBlock(out_channels, out_channels, 1) for _ in range(BLOCKS_PER_STAGE - 1)]
    return nn.Sequential(BasicBlock(in_channels, out_channels, stride), *rest)
