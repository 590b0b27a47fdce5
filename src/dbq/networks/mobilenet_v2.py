"""MobileNetV2: inverted residuals with linear bottlenecks.

Sandler et al.: MobileNetV2: Inverted Residuals and Linear Bottlenecks, CVPR 2018.
3,504,872 parameters at width 1.0 with 1000 classes. State-dict keys and outputs are torchvision's,
so its published weights load.
"""

from __future__ import annotations

from torch import Tensor, nn

# The paper's table 2: expansion, output channels, repeats, stride of the first repeat.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
          (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip


class InvertedResidual(nn.Module):
    """Widen by `expansion`, filter each channel, narrow without a nonlinearity."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = in_channels * expansion
        widen = [conv_bn_relu6(in_channels, hidden, 1)] if expansion > 1 else []
        self.conv = nn.Sequential(
            *widen,
            conv_bn_relu6(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.has_shortcut = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.has_shortcut else y


class MobileNetV2(nn.Module):
    """A 3x3 convolution, 17 inverted residuals, a 1x1 convolution, and a linear classifier.

    Channels are multiplied by `width` and rounded to multiples of 8; the last convolution widens
    with the network but never gets narrower than 1280.

    >>> sum(p.numel() for p in MobileNetV2().parameters())
    3504872
    """

    input_size = 224

    def __init__(self, num_classes: int = 1000, width: float = 1.0) -> None:
        super().__init__()
        channels = scaled(32, width)
        features: list[nn.Module] = [conv_bn_relu6(3, channels, 3, stride=2)]
        for expansion, base, repeats, first_stride in STAGES:
            out_channels = scaled(base, width)
            for i in range(repeats):
                stride = first_stride if i == 0 else 1
                features.append(InvertedResidual(channels, out_channels, stride, expansion))
                channels = out_channels
        last_channels = scaled(1280, max(1.0, width))
        features.append(conv_bn_relu6(channels, last_channels, 1))
        self.features = nn.Sequential(*features)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last_channels, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.features(x)).flatten(1)  # [N, C, 1, 1] -> [N, C]
        logits: Tensor = self.classifier(x)
        return logits


def scaled(channels: int, width: float) -> int:
    """The multiple of 8 nearest to channels * width, but never less than 90 % of it.

    >>> scaled(32, 1.0), scaled(24, 0.5), scaled(16, 0.35), scaled(24, 0.75)
    (32, 16, 8, 24)
    """
    exact = channels * width
    nearest = max(8, int(exact + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * exact else nearest + 8


def conv_bn_relu6(
    in_channels: int, out_channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """A convolution that keeps the size (but for its stride), batch norm, ReLU clipped at 6."""
    sizes = in_channels, out_channels, kernel, stride, kernel // 2
    conv = nn.Conv2d(*sizes, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out_channels), nn.ReLU6())
