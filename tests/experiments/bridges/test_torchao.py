"""`quantize_` of the real torchao with a plan of ours."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dbq
from dbq.errors import LayerError
from tests.experiments.bridges.networks import images, network

torchao = pytest.importorskip("torchao.quantization", reason="torchao is not installed")


def test_a_network_is_quantized_as_by_dbq() -> None:
    from dbq.experiments.bridges.torchao import DbqConfig, whole_model

    config, model, expected = DbqConfig("dbq-2t-4", images()), network(), network()
    torchao.quantize_(model, config, whole_model)
    dbq.quantize(expected, "dbq-2t-4", images())
    assert torch.equal(model.eval()(images()), expected.eval()(images()))
    assert config.done is not None
    assert [layer.weight for layer in config.done.layers] == ["8b", "2T", "8b"]


def test_a_layer_alone_is_refused_with_the_remedy() -> None:
    from dbq.experiments.bridges.torchao import DbqConfig

    model = network()
    before = model(images())
    with pytest.raises(LayerError, match=r"single Linear.*whole_model"):
        torchao.quantize_(model, DbqConfig("dbq-2t-4", images()))
    assert torch.equal(model(images()), before)
    assert isinstance(model, nn.Module)
