"""load_weights: the formats it takes, and every way in which a file can be wrong."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from dbq.errors import WeightsError
from dbq.networks.table import create_model
from dbq.networks.weights import load_weights, put_state, put_weights

State = dict[str, Tensor]


def net(seed: int, classes: int = 4) -> nn.Module:
    torch.manual_seed(seed)
    body = [nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, classes)]
    return nn.Sequential(*body)


@pytest.fixture
def state() -> State:
    return net(seed=1).state_dict()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "net.pth"


def same(model: nn.Module, state: State) -> bool:
    own = model.state_dict()
    return own.keys() == state.keys() and all(torch.equal(own[key], state[key]) for key in own)


def complaint(path: Path, model: nn.Module | None = None) -> str:
    """The message load_weights raises with; checks that it is one line and changed nothing."""
    model = model or net(seed=0)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(WeightsError) as caught:
        load_weights(model, path)
    assert same(model, before)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


WRAPPINGS: dict[str, Callable[[State], Any]] = {
    "plain": lambda s: s,
    "state_dict": lambda s: {"state_dict": s, "epoch": 3},
    "model": lambda s: {"model": s, "optimizer": {"lr": 0.1}},
    "ddp": lambda s: {"state_dict": {f"module.{key}": value for key, value in s.items()}},
    "compiled ddp": lambda s: {f"_orig_mod.module.{key}": value for key, value in s.items()},
    "ddp, no counters": lambda s: {
        f"module.{key}": value for key, value in s.items() if "num_batches" not in key
    },
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("zipped", [True, False])
def test_torch_files(state: State, file: Path, wrapping: str, zipped: bool) -> None:
    torch.save(WRAPPINGS[wrapping](state), file, _use_new_zipfile_serialization=zipped)
    model = net(seed=0)
    assert not same(model, state)
    load_weights(model, file)
    assert same(model, state)


@pytest.mark.parametrize("name", ["net.safetensors", "NET.SAFETENSORS"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_safetensors_files(state: State, tmp_path: Path, name: str, prefix: str) -> None:
    kept = {prefix + key: value for key, value in state.items() if "num_batches" not in key}
    save_file(kept, tmp_path / name)
    model = net(seed=0)
    load_weights(model, str(tmp_path / name))
    assert same(model, state)


def test_half_precision_is_widened(state: State, file: Path) -> None:
    half = {key: v.half() if v.is_floating_point() else v for key, v in state.items()}
    torch.save(half, file)
    model = net(seed=0)
    load_weights(model, file)
    assert same(model, {key: half[key].to(value.dtype) for key, value in state.items()})


def test_a_wrapped_model_keeps_its_prefix(state: State, file: Path) -> None:
    torch.save({f"module.{key}": value for key, value in state.items()}, file)
    wrapped = nn.Module()
    wrapped.module = net(seed=0)
    load_weights(wrapped, file)
    assert same(wrapped.module, state)


def test_missing_unexpected_and_reshaped_keys(state: State, file: Path) -> None:
    del state["0.bias"]
    state["0.weight"] = torch.zeros(3, 1, 5, 5)
    state["extra.gamma"] = torch.zeros(7)
    torch.save(state, file)
    assert complaint(file) == (
        " does not fit Sequential: 1 missing (0.bias [3]); 1 unexpected (extra.gamma [7]); "
        "1 different (0.weight [3, 1, 5, 5] not [3, 1, 3, 3]); "
        "use the network, width and options the file was saved from"
    )


def test_names_three_keys_and_counts_the_rest(file: Path) -> None:
    torch.save({f"k{i}": torch.zeros(i) for i in range(20)}, file)
    message = complaint(file)
    assert "20 unexpected (k0 [0], k1 [1], k2 [2], ...)" in message
    # The model's batch counter is not missed: it may be absent.
    assert "8 missing (0.weight [3, 1, 3, 3], 0.bias [3], 1.weight [3], ...)" in message


def test_empty_state(file: Path) -> None:
    torch.save({}, file)
    assert "8 missing" in complaint(file)


def test_integer_codes_are_not_weights(state: State, file: Path) -> None:
    state["3.weight"] = state["3.weight"].to(torch.int8)
    torch.save(state, file)
    assert "1 different (3.weight int8 [4, 12] not [4, 12])" in complaint(file)
    state["3.bias"] = state["3.bias"].to(torch.int32)
    torch.save(state, file)
    assert "3.bias int32 [4] not [4])" in complaint(file)


def test_other_number_of_classes(file: Path) -> None:
    torch.save(net(seed=1, classes=9).state_dict(), file)
    assert complaint(file) == (
        " does not fit Sequential: the file has 9 classes, the model 4; pass num_classes=9"
    )


@pytest.mark.parametrize("name", ["resnet20", "mobilenet_v1", "mobilenet_v2", "shufflenet_v2"])
def test_other_number_of_classes_in_every_network(name: str, file: Path) -> None:
    torch.save(create_model(name, num_classes=3, width=0.5).state_dict(), file)
    assert "pass num_classes=3" in complaint(file, create_model(name, num_classes=2, width=0.5))


@pytest.mark.parametrize(
    ("key", "shape"),
    [("3.weight", (9, 13)), ("3.weight", (9, 12)), ("0.bias", (9,)), ("3.bias", ())],
)
def test_not_only_the_number_of_classes(
    state: State, file: Path, key: str, shape: tuple[int, ...]
) -> None:
    other = net(seed=1, classes=9).state_dict() if key != "0.bias" else state
    other[key] = torch.zeros(shape)
    if shape == (9, 12):  # nine classes in the weight, five in the bias
        other["3.bias"] = torch.zeros(5)
    torch.save(other, file)
    message = complaint(file)
    assert "num_classes" not in message
    assert f"{key} {list(shape)} not" in message


def test_other_classes_and_another_network(file: Path) -> None:
    other = net(seed=1, classes=9).state_dict()
    other["0.bias"] = torch.zeros(5)
    torch.save(other, file)
    assert "3 different (0.bias [5] not [3], 3.weight" in complaint(file)


def test_absent_file_and_directory(tmp_path: Path) -> None:
    assert complaint(tmp_path / "none.pth").startswith(": no such file; expected weights")
    assert complaint(tmp_path).startswith(": not a regular file; expected weights")


@pytest.mark.parametrize("kept", [0, 7, 100, 0.5, 0.99])
@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_truncated_file(state: State, tmp_path: Path, kind: str, kept: float) -> None:
    path = tmp_path / ("net.safetensors" if kind == "safetensors" else "net.pth")
    if kind == "safetensors":
        save_file(state, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=kind == "zip")
    content = path.read_bytes()
    path.write_bytes(content[: int(kept if kept > 1 else kept * len(content))])
    message = complaint(path)
    assert message.startswith((": not a whole", ": refused"))
    assert "again" in message or "save model.state_dict()" in message


def test_text_file(file: Path) -> None:
    file.write_text("these are not the weights you are looking for\n")
    assert complaint(file).startswith(": not a whole file of tensors written by torch.save")


@pytest.mark.parametrize(
    ("content", "summary"),
    [
        ([1, 2], "a list"),
        (torch.zeros(2), "a Tensor"),
        ({"net": {"a": torch.zeros(1)}, "epoch": 1}, "a dict of net, epoch"),
        ({"state_dict": {"a": 1}}, "a dict of state_dict"),
        ({i: torch.zeros(1) for i in range(5)}, "a dict of 0, 1, 2, ..."),
        ({"a": torch.eye(2).to_sparse()}, "a dict of a"),
    ],
)
def test_not_a_state_dict(file: Path, content: Any, summary: str) -> None:
    torch.save(content, file)
    assert complaint(file) == (
        f": found {summary}, expected a state dict (names and dense tensors), "
        "or one under 'state_dict' or 'model'; save model.state_dict()"
    )


class Malicious:
    """Unpickling it makes a directory."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def plant(content: Any, path: Path, kind: str) -> None:
    if kind.startswith("pickle"):
        path.write_bytes(pickle.dumps(content, protocol=int(kind[-1])))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=kind == "zip")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("kind", ["zip", "legacy", "pickle 2", "pickle 4"])
def test_code_in_a_file_is_never_run(
    state: State, file: Path, kind: str, forced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = file.with_name("marker")
    plant({"state_dict": state, "args": Malicious(marker)}, file, kind)
    if forced:  # torch's switch for old scripts must not reach us
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    message = complaint(file)
    assert not marker.exists()
    if kind in ("zip", "legacy"):  # a bare pickle is refused at its first tensor
        assert message.startswith(
            (": refused, it asks for posix.mkdir", ": refused, it asks for nt.mkdir")
        )
    # The file is armed: an ordinary unpickler does run it.
    with suppress(pickle.UnpicklingError, RuntimeError):
        torch.load(file, weights_only=False)
    assert marker.exists()


def test_whole_pickled_model_is_refused(file: Path) -> None:
    torch.save(net(seed=0), file)
    message = complaint(file)
    assert message.startswith(": refused, it asks for torch.nn.modules.")
    assert message.endswith("save model.state_dict() alone, best as .safetensors")


@pytest.mark.parametrize("key", ["0.weight", "1.running_var", "3.bias"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["net.pth", "net.safetensors"])
def test_numbers_that_are_none(
    state: State, tmp_path: Path, key: str, value: float, name: str
) -> None:
    state[key] = state[key].clone()
    state[key].view(-1)[-1] = value
    if name.endswith("pth"):
        torch.save(state, tmp_path / name)
    else:
        save_file(state, tmp_path / name)
    assert key in complaint(tmp_path / name)
    with pytest.raises(WeightsError, match=key):
        put_state(net(seed=0), state, "a file")


def test_paths_that_no_file_can_have() -> None:
    for name in ("nul\0.pth", "nul\0.safetensors", "x" * 300 + ".pth"):
        assert complaint(Path(name))


def test_a_new_classifier_for_other_classes(state: State) -> None:
    model = net(seed=0, classes=7)
    own = model.state_dict()
    own = {key: own[key].clone() for key in ("3.weight", "3.bias")}
    put_weights(model, state, "a file", new_classifier=True)
    assert same(model, state | own)
    put_weights(model, {k: v for k, v in state.items() if k not in own}, "b", new_classifier=True)
    assert same(model, state | own)


def test_a_new_classifier_needs_a_linear_layer(state: State) -> None:
    with pytest.raises(WeightsError, match="Conv2d has no linear layer"):
        put_weights(nn.Conv2d(1, 3, 3), state, "a file", new_classifier=True)
