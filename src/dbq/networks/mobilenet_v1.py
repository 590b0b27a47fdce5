"""MobileNetV1: depthwise separable convolutions.

Howard et al.: MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications,
arXiv 1704.04861. 4,231,976 parameters at width 1.0 with 1000 classes.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from torch import Tensor, nn

from dbq.errors import DbqError

# Output channels and stride of each block. The paper's table prints stride 2 for the last block,
# but its 7x7 output there, and its operation count, are those of stride 1.
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5,
          (1024, 2), (1024, 1))  # fmt: skip
FIRST_STRIDED = next(i for i, (_, stride) in enumerate(BLOCKS) if stride == 2)
MIN_CHANNELS = 8  # very thin networks keep this many, as in the authors' code
PADDINGS = ("symmetric", "same")
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "relu6": nn.ReLU6}


class MobileNetV1(nn.Module):
    """A 3x3 convolution, 13 depthwise separable blocks, and a linear classifier.

    Every channel count c becomes int(c * width), but no less than 8. `small_input` is for 32-pixel
    images: the first convolution and the first strided block keep the resolution.
    `quantization_friendly` is the separable convolution of Sheng et al. 2018 (QSM): no batch norm and
    no ReLU between depthwise and pointwise layer. A batch norm there multiplies channels that are
    almost constant by large factors, and one 8-bit range for the folded layer then loses the others.

    Weights that TensorFlow published need `padding="same"`, its rule: a strided 3x3 convolution of an
    even size pads below and on the right only. (An image whose side is a multiple of 32 has even sizes
    before every stride; TensorFlow pads odd ones on both sides, which this network never does.) They
    may need `activation="relu6"`, too.

    >>> sum(p.numel() for p in MobileNetV1().parameters())
    4231976
    """

    input_size = 224

    def __init__(
        self, num_classes: int = 1000, width: float = 1.0, *,
        small_input: bool = False, quantization_friendly: bool = False,
        padding: str = "symmetric", activation: str = "relu",
    ) -> None:  # fmt: skip
        super().__init__()
        for option, value, known in (
            ("padding", padding, PADDINGS), ("activation", activation, tuple(ACTIVATIONS)),
        ):  # fmt: skip
            if value not in known:
                raise DbqError(f"mobilenet_v1: {option} = {value!r}; expected {' or '.join(known)}")
        layer = partial(conv_bn_relu, same=padding == "same", activation=ACTIVATIONS[activation])
        if small_input:
            self.input_size = 32
        channels = scaled(32, width)
        self.stem = layer(3, channels, 3, stride=1 if small_input else 2)
        blocks = []
        for i, (base, stride) in enumerate(BLOCKS):
            out_channels = scaled(base, width)
            stride = 1 if small_input and i == FIRST_STRIDED else stride
            depthwise = layer(channels, channels, 3, stride, groups=channels)
            if quantization_friendly:
                del depthwise.bn, depthwise.relu
            pointwise = layer(channels, out_channels, 1)
            both = OrderedDict[str, nn.Module](depthwise=depthwise, pointwise=pointwise)
            blocks.append(nn.Sequential(both))
            channels = out_channels
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        x = self.pool(x).flatten(1)  # [N, C, 1, 1] -> [N, C]
        logits: Tensor = self.fc(x)
        return logits


def scaled(channels: int, width: float) -> int:
    """Channels of a network `width` times as wide.

    >>> scaled(64, 0.75), scaled(32, 0.1)
    (48, 8)
    """
    return max(MIN_CHANNELS, int(channels * width))


def conv_bn_relu(
    in_channels: int, out_channels: int, kernel: int, stride: int = 1, groups: int = 1, *,
    same: bool = False, activation: type[nn.Module] = nn.ReLU,
) -> nn.Sequential:  # fmt: skip
    """A convolution that keeps the size (but for its stride), batch norm, ReLU.

    With `same`, what a strided convolution adds to an even size is on the right and below.
    """
    shifted = same and stride == 2
    conv = nn.Conv2d(
        in_channels, out_channels, kernel, stride,
        padding=0 if shifted else kernel // 2, groups=groups, bias=False,
    )  # fmt: skip
    layers = OrderedDict[str, nn.Module]()
    if shifted:
        layers["pad"] = nn.ZeroPad2d((0, 1, 0, 1))
    layers.update(conv=conv, bn=nn.BatchNorm2d(out_channels), relu=activation())
    return nn.Sequential(layers)
