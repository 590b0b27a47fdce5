"""save_pretrained and from_pretrained: the same network, without code, and by the hub's conventions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import dbq
from dbq.errors import DbqError, WeightsError

SEED, IMAGES = 3, 50
OPTIONS = {"num_classes": 7, "width": 0.25, "small_input": True}
CASES = [
    ("resnet20", {"width": 0.5}, "resnet-2t"),
    ("resnet20", {"width": 0.5}, "resnet-1t-a8"),
    ("mobilenet_v1", OPTIONS, "dbq-2t-4"),
    ("mobilenet_v1", OPTIONS, "fp"),
]


def quantized(network: str, options: dict[str, Any], plan: dbq.Plan | str) -> nn.Module:
    torch.manual_seed(SEED)
    model, images = dbq.create_model(network, **options), pictures(8)
    dbq.prepare(model, plan, images)
    dbq.calibrate(model, [images], statistics="estimate")
    return model.eval()


def pictures(count: int) -> Tensor:
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(SEED))


def keep(model: nn.Module, folder: Path, plan: dbq.Plan | str, **given: Any) -> Path:
    origin = {"network": "mobilenet_v1", "options": OPTIONS, "plan": plan, **given}
    return dbq.save_pretrained(model, folder, example_input=pictures(2), **origin)


@pytest.mark.parametrize(("network", "options", "plan"), CASES)
@torch.no_grad()
def test_the_network_comes_back_to_the_bit(
    network: str, options: dict[str, Any], plan: str, tmp_path: Path
) -> None:
    model = quantized(network, options, plan)
    folder = keep(model, tmp_path, plan, network=network, options=options)
    again = dbq.from_pretrained(folder)
    assert not again.training
    assert torch.equal(again(pictures(IMAGES)), model(pictures(IMAGES)))
    stored = load_file(folder / "model.safetensors")  # another reader than ours
    assert stored.keys() == model.state_dict().keys()


READER = """
import pickle, sys
for room in ("training", "posttraining", "experiments", "lowering", "data"):
    sys.modules[f"dbq.{room}"] = None  # importing it raises
import torch
pickle.load = pickle.loads = pickle.Unpickler = torch.load = None
import dbq
from safetensors.torch import load_file, save_file
model = dbq.from_pretrained(sys.argv[1])
with torch.no_grad():
    save_file({"logits": model(load_file(sys.argv[2])["images"])}, sys.argv[3])
"""


@pytest.mark.process
@torch.no_grad()
def test_another_process_reads_it_without_what_trains_or_unpickles(tmp_path: Path) -> None:
    """benchmarks/pretrained.py does this with 10,000 images of CIFAR-10."""
    model = quantized("resnet20", {"width": 0.25}, "resnet-2t")
    folder = keep(model, tmp_path, "resnet-2t", network="resnet20", options={"width": 0.25})
    save_file({"images": pictures(IMAGES)}, tmp_path / "images")
    files = [str(tmp_path / "images"), str(tmp_path / "logits")]
    command = [sys.executable, "-c", READER, str(folder), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert torch.equal(load_file(files[1])["logits"], model(pictures(IMAGES)))


def test_it_can_be_trained_on(tmp_path: Path) -> None:
    model = quantized("mobilenet_v1", OPTIONS, "dbq-2t-4")
    again = dbq.from_pretrained(keep(model, tmp_path, "dbq-2t-4"))
    again.train()(pictures(4)).sum().backward()
    assert all(p.grad is not None for p in again.parameters() if p.requires_grad)


def test_a_plan_of_ones_own_travels_along(tmp_path: Path) -> None:
    plan = dbq.Plan("mine", dbq.LayerPlan.of(8, 8), names={"fc": dbq.LayerPlan.of("2T", 8)}, k=4.5)
    model = quantized("mobilenet_v1", OPTIONS, plan)
    again = dbq.from_pretrained(keep(model, tmp_path, plan))
    assert torch.equal(again(pictures(4)), model(pictures(4)))


def test_what_the_folder_says(tmp_path: Path) -> None:
    model = quantized("mobilenet_v1", OPTIONS, "dbq-2t-4")
    classes, measured = list("abcdefg"), {"top-1, my test": "63.6 %"}
    given: dict[str, Any] = {"mean": (0.5,) * 3, "std": (0.25,) * 3}
    folder = keep(model, tmp_path, "dbq-2t-4", classes=classes, measured=measured, **given)
    names = {"README.md", "config.json", "model.safetensors", "preprocessor_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    pixels = json.loads((folder / "preprocessor_config.json").read_text())
    assert (pixels["image_mean"], pixels["image_std"]) == ([0.5] * 3, [0.25] * 3)
    assert pixels["size"] == {"height": 32, "width": 32}
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"]["6"] == "g"
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: dbq\n")
    assert "| top-1, my test | 63.6 % |" in card
    assert "(C_C)" in card


def test_a_wrong_origin_is_noticed(tmp_path: Path) -> None:
    model = quantized("mobilenet_v1", OPTIONS, "dbq-2t-4")
    with pytest.raises(WeightsError, match="does not fit"):
        keep(model, tmp_path, "fx8-3")
    same = {**OPTIONS, "padding": "same"}  # the same keys, another function
    with pytest.raises(DbqError, match="gives other outputs"):
        keep(model, tmp_path, "dbq-2t-4", options=same)
    with pytest.raises(DbqError, match="std has 1 numbers"):
        keep(model, tmp_path, "dbq-2t-4", mean=(0.5,) * 3, std=(1.0,))
    with pytest.raises(DbqError, match="both or none"):
        keep(model, tmp_path, "dbq-2t-4", mean=(0.5,) * 3)


HOSTILE: dict[str, Any] = {
    "library_name": "transformers", "format": 2, "network": 3, "options": [], "plan": "fp",
    "image": [3, 32, 10**9],
}  # fmt: skip


@pytest.mark.parametrize("key", list(HOSTILE))
def test_a_config_of_others_is_refused_by_name(key: str, tmp_path: Path) -> None:
    folder = keep(quantized("mobilenet_v1", OPTIONS, "dbq-2t-4"), tmp_path, "dbq-2t-4")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: HOSTILE[key]}))
    with pytest.raises(WeightsError, match=r"config\.json"):
        dbq.from_pretrained(folder)


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    folder = keep(quantized("mobilenet_v1", OPTIONS, "dbq-2t-4"), tmp_path, "dbq-2t-4")
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-7])
    with pytest.raises(WeightsError, match=r"model\.safetensors"):
        dbq.from_pretrained(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(WeightsError, match="not JSON"):
        dbq.from_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"no config\.json"):
        dbq.from_pretrained(folder)


def test_code_is_announced_before_it_is_imported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = {"network": "dbq.networks.mobilenet_v1:MobileNetV1", "options": OPTIONS}
    folder = keep(quantized("mobilenet_v1", OPTIONS, "dbq-2t-4"), tmp_path, "dbq-2t-4", **given)
    dbq.from_pretrained(folder)
    assert "dbq.networks.mobilenet_v1:MobileNetV1" in capfd.readouterr().err


def test_the_hubs_own_conventions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved, loaded and pushed by the mixin; the hub is a folder here."""
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    from dbq.experiments.bridges.hub import HubNetwork

    model = quantized("mobilenet_v1", OPTIONS, "dbq-2t-4")
    origin = {"network": "mobilenet_v1", "options": OPTIONS, "plan": "dbq-2t-4"}
    network = HubNetwork(model, **origin, example_input=pictures(2))
    network.save_pretrained(tmp_path / "saved")
    expected = model(pictures(4))
    again = HubNetwork.from_pretrained(str(tmp_path / "saved")).model
    assert torch.equal(again(pictures(4)), expected)

    def upload(self: Any, *, folder_path: Any, repo_id: str, **_: Any) -> str:
        shutil.copytree(folder_path, tmp_path / repo_id)
        return repo_id

    def create(self: Any, repo_id: str, **_: Any) -> Any:
        return type("Url", (), {"repo_id": repo_id})

    monkeypatch.setattr(hub.HfApi, "upload_folder", upload)
    monkeypatch.setattr(hub.HfApi, "create_repo", create)
    network.push_to_hub("me/net")

    def download(repo_id: str, filename: str = "", **_: Any) -> str:
        return str(tmp_path / repo_id / filename)

    monkeypatch.setattr("dbq.experiments.bridges.hub.snapshot_download", download)
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", download)
    again = HubNetwork.from_pretrained("me/net").model
    assert torch.equal(again(pictures(4)), expected)
