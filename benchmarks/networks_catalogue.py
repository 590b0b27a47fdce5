"""Networks that others wrote: the catalogue of benchmarks/networks.py, and how one is built.

A network is named `package:NAME`, or `package:NAME@PIXELS` where the images are not of 96 x 96. Families
are represented by a small member. Weights are random but seeded, and batch norms are made to differ from
the identity, so that an operation that gets lost shows in the outputs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

PIXELS = 96

TORCHVISION = """
    mobilenet_v2 mobilenet_v3_small mobilenet_v3_large mnasnet0_5 efficientnet_b0 efficientnet_v2_s
    shufflenet_v2_x0_5 shufflenet_v2_x1_0 regnet_x_400mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d
    densenet121 googlenet inception_v3@128 squeezenet1_1 alexnet@224 convnext_tiny@64
    lraspp_mobilenet_v3_large@128 deeplabv3_mobilenet_v3_large fcn_resnet50@64 ssdlite320@160
    fasterrcnn_fpn@128
"""
TIMM = """
    mobilenetv1_100 mobilenetv2_035 mobilenetv3_small_050 mobilenetv3_large_075
    tf_mobilenetv3_small_075 tf_mobilenetv3_small_minimal_100 mobilenetv4_conv_small
    mobilenetv4_conv_small_050 mobilenet_edgetpu_v2_xs efficientnet_lite0 tf_efficientnet_lite0
    efficientnet_b0 tf_efficientnet_b0 efficientnet_es ghostnet_050 ghostnetv2_100 ghostnetv3_050
    mobileone_s0 repvgg_a0 fbnetc_100 fbnetv3_b hardcorenas_a mixnet_s tf_mixnet_s tinynet_e lcnet_050
    lcnetv2_small mnasnet_small semnasnet_075 spnasnet_100 hrnet_w18_small hgnetv2_b0 hgnet_tiny
    ese_vovnet19b_slim ese_vovnet19b_slim_dw repghostnet_050 starnet_s050 starnet_s1 darknet17
    cspdarknet53 dla34 dla46_c regnetx_002 regnety_002 regnetz_005 resnet10t resnet18d skresnet18
    res2net50_14w_8s selecsls42b rexnet_100 gernet_s ecaresnet26t dpn48b xception41 nf_regnet_b0
    repvit_m0_9 inception_v4@128 densenet121 cspresnet50 convnext_atto@64 efficientnet_b0_gn@64
    mobilevit_xxs
"""
PYTORCHCV = """
    mobilenet_wd4@224 mobilenetb_wd4@224 fdmobilenet_wd4@224 mobilenetv2_wd4@224 mobilenetv2b_wd4@224
    mobilenetv3_small_w7d20@224 mobilenetv3_large_w7d20@224 igcv3_wd4@224 mnasnet_b1@224 mnasnet_a1@224
    mnasnet_small@224 squeezenet_v1_1@224 squeezeresnet_v1_1@224 sqnxt23_w1@224 sqnxt23v5_w1@224
    shufflenet_g1_wd4@224 shufflenet_g3_wd4@224 shufflenetv2_wd2@224 shufflenetv2b_wd2@224
    menet108_8x1_g3@224 efficientnet_b0@224 efficientnet_b0b@224 efficientnet_edge_small_b@224
    ghostnet@224 darknet_tiny@224 darknet_ref@224 peleenet@224 mixnet_s@224 spnasnet@224
    proxylessnas_cpu@224 fbnet_cb@224 hrnet_w18_small_v1@224 hardnet39ds@224 espnetv2_wd2@224
    dicenet_wd5@224 condensenet74_c4_g4@224 resnet10@224 resnet18_wd4@224 resnet20_cifar10@32
    preresnet18_wd4@224 preresnet20_cifar10@32 seresnet20_cifar10@32 dla46c@224 vovnet27s@224
    selecsls42@224 bninception@224 densenet40_k12_cifar10@32 nin_cifar10@32 enet_cityscapes@128
    erfnet_cityscapes@128 fastscnn_cityscapes@192 dabnet_cityscapes@128 edanet_cityscapes@128
    unet_cityscapes@64 lwopenpose2d_mobilenet_cmupan_coco@128 simplepose_mobile_mobilenet_w1_coco@128
"""
SMP = """
    Unet-mobilenet_v2 Unet-resnet18 FPN-mobilenet_v2 Linknet-mobilenet_v2 DeepLabV3-mobilenet_v2
    DeepLabV3Plus-mobilenet_v2 PAN-mobilenet_v2@128 UnetPlusPlus-mobilenet_v2 PSPNet-mobilenet_v2
    Unet-efficientnet-b0
"""
LITE = "efficientnet-lite0"

CATALOGUE = [
    f"{package}:{name}"
    for package, names in (
        ("torchvision", TORCHVISION), ("timm", TIMM), ("pytorchcv", PYTORCHCV),
        ("segmentation_models_pytorch", SMP), ("efficientnet_lite_pytorch", LITE),
    )
    for name in names.split()
]  # fmt: skip


def build(name: str) -> tuple[nn.Module, int]:
    """The network of the catalogue, and the height and width of its images."""
    package, _, member = name.partition(":")
    member, _, pixels = member.partition("@")
    torch.manual_seed(0)
    size = int(pixels or PIXELS)
    model: nn.Module = BUILDERS[package](member, size)
    disturb(model)
    return model.train(), size


@torch.no_grad()
def disturb(model: nn.Module) -> None:
    """Let no factor be 1 and no offset 0, as fresh networks have them: nothing would show their loss."""
    for module in model.modules():
        if isinstance(getattr(module, "running_var", None), Tensor):
            _draw(module, 0.5, 1.5, "running_var", "weight")
            _draw(module, -0.2, 0.2, "running_mean", "bias")
    for parameter in model.parameters():
        vector = parameter.numel() == max(parameter.shape, default=1)
        if vector and (value := float(parameter.amin())) == parameter.amax():
            low, high = (0.5 * value, 1.5 * value) if value else (-0.1, 0.1)
            parameter.uniform_(min(low, high), max(low, high))


def _draw(module: nn.Module, low: float, high: float, *names: str) -> None:
    for name in names:
        if isinstance(vector := getattr(module, name, None), Tensor):
            vector.uniform_(low, high)


def import_torchvision() -> Any:
    """torchvision, also beside a torch for which its compiled operators do not load.

    Its own import then fails for two of them. Declared, they satisfy it; no network calls them.
    """
    try:
        return import_module("torchvision")
    except RuntimeError:
        for operator in ("nms", "qnms"):
            boxes = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{operator}", boxes)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # what the first attempt left behind
        return import_module("torchvision")


def _torchvision(name: str, size: int) -> Any:
    models = import_torchvision().models
    if name == "ssdlite320":
        whole = models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
        return _Heads(whole.backbone, whole.head)
    if name == "fasterrcnn_fpn":
        return models.detection.fasterrcnn_mobilenet_v3_large_fpn(
            weights=None, weights_backbone=None
        ).backbone
    options: dict[str, Any] = {"weights": None}
    if re.match("lraspp|deeplab|fcn", name):
        options["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": False}
    return models.get_model(name, **options)


class _Heads(nn.Module):
    """A detector up to its last convolutions, without the anchors and boxes around it."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, x: Tensor) -> Any:
        return self.head(list(self.backbone(x).values()))


def _timm(name: str, size: int) -> Any:
    import_torchvision()
    import timm

    return timm.create_model(name, pretrained=False)


def _pytorchcv(name: str, size: int) -> Any:
    from pytorchcv.model_provider import get_model

    options = {"return_heatmap": True} if "simplepose" in name else {}
    return get_model(name, pretrained=False, in_size=(size, size), **options)


def _smp(name: str, size: int) -> Any:
    import_torchvision()
    import segmentation_models_pytorch as smp

    decoder, _, encoder = name.partition("-")
    return getattr(smp, decoder)(encoder, encoder_weights=None, classes=4)


def _lite(name: str, size: int) -> Any:
    from efficientnet_lite_pytorch import EfficientNet

    return EfficientNet.from_name(name)


BUILDERS: dict[str, Callable[[str, int], Any]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "pytorchcv": _pytorchcv,
    "segmentation_models_pytorch": _smp,
    "efficientnet_lite_pytorch": _lite,
}
