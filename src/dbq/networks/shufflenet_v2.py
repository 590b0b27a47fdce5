"""ShuffleNetV2: half of the channels pass through, the other half is convolved, then shuffled.

Ma, Zhang, Zheng, Sun: ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design,
ECCV 2018. 2,278,604 parameters at width 1.0 with 1000 classes. State-dict keys and outputs are
torchvision's, so its published weights load.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dbq.errors import DbqError

# The paper's table 5: channels of stages 2, 3, 4 and of the last convolution.
WIDTHS = {
    0.5: (48, 96, 192, 1024),
    1.0: (116, 232, 464, 1024),
    1.5: (176, 352, 704, 1024),
    2.0: (244, 488, 976, 2048),
}
STEM_CHANNELS = 24
UNITS_PER_STAGE = (4, 8, 4)


class ShuffleUnit(nn.Module):
    """Two branches side by side, their channels interleaved.

    With stride 1 each branch takes half of the channels, and the first passes them on as they are.
    With stride 2 both read all channels.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        half = out_channels // 2
        self.splits = stride == 1
        self.branch1 = nn.Sequential()
        if not self.splits:
            self.branch1 = nn.Sequential(
                *depthwise_bn(in_channels, stride), *pointwise_bn_relu(in_channels, half)
            )
        self.branch2 = nn.Sequential(
            *pointwise_bn_relu(half if self.splits else in_channels, half),
            *depthwise_bn(half, stride),
            *pointwise_bn_relu(half, half),
        )
        self.shuffle = nn.ChannelShuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1) if self.splits else (x, x)
        both = torch.cat((self.branch1(left), self.branch2(right)), dim=1)
        shuffled: Tensor = self.shuffle(both)
        return shuffled


class ShuffleNetV2(nn.Module):
    """Two strided layers, three stages of shuffle units, a 1x1 convolution, a linear classifier.

    `width` is one of 0.5, 1.0, 1.5 and 2.0; the paper gives the channels for these only. `small_input`
    is for 32-pixel images: the first convolution keeps the resolution, and there is no max pooling.

    >>> sum(p.numel() for p in ShuffleNetV2().parameters())
    2278604
    """

    input_size = 224

    def __init__(
        self, num_classes: int = 1000, width: float = 1.0, *, small_input: bool = False
    ) -> None:
        super().__init__()
        if small_input:
            self.input_size = 32
        if width not in WIDTHS:
            raise DbqError(f"shufflenet_v2 of width {width}: expected one of {sorted(WIDTHS)}")
        *stages, last = WIDTHS[width]
        self.conv1 = nn.Sequential(
            nn.Conv2d(3, STEM_CHANNELS, 3, 1 if small_input else 2, padding=1, bias=False),
            nn.BatchNorm2d(STEM_CHANNELS),
            nn.ReLU(),
        )
        pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.maxpool = nn.Identity() if small_input else pool
        inputs = (STEM_CHANNELS, *stages[:-1])
        self.stage2, self.stage3, self.stage4 = map(stage, inputs, stages, UNITS_PER_STAGE)
        self.conv5 = nn.Sequential(*pointwise_bn_relu(stages[-1], last))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(last, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.conv1(x))
        x = self.stage4(self.stage3(self.stage2(x)))
        x = self.pool(self.conv5(x)).flatten(1)  # [N, C, 1, 1] -> [N, C]
        logits: Tensor = self.fc(x)
        return logits


def stage(in_channels: int, out_channels: int, units: int) -> nn.Sequential:
    """Units of one resolution; the first one halves it."""
    rest = [ShuffleUnit(out_channels, out_channels, 1) for _ in range(units - 1)]
    return nn.Sequential(ShuffleUnit(in_channels, out_channels, 2), *rest)


def depthwise_bn(channels: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(channels, channels, 3, stride, padding=1, groups=channels, bias=False)
    return [conv, nn.BatchNorm2d(channels)]


def pointwise_bn_relu(in_channels: int, out_channels: int) -> list[nn.Module]:
    conv = nn.Conv2d(in_channels, out_channels, 1, bias=False)
    return [conv, nn.BatchNorm2d(out_channels), nn.ReLU()]
