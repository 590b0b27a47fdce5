"""Weights from a file into a model, without ever running code from the file.

A file is read whole and compared with the model first, so a model is either filled or untouched.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from dbq.errors import WeightsError
from dbq.networks.tensorfile import DAMAGES, read_tensors

State = dict[str, Tensor]

WRAPPERS = ("state_dict", "model")  # where training scripts put the state dict in a checkpoint
PREFIXES = ("module.", "_orig_mod.")  # what DDP and torch.compile put before every key
SHOWN = 3  # keys named in an error message; the rest are counted


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Fill `model` from a .safetensors file, or from a file written by `torch.save`.

    Every parameter and buffer must be there, with its shape; only the batch counters of batch
    norms may be absent. WeightsError says what does not fit, and leaves the model as it was.

    >>> from tempfile import TemporaryDirectory
    >>> saved, model = nn.Linear(2, 1), nn.Linear(2, 1)
    >>> with TemporaryDirectory() as folder:
    ...     torch.save({"state_dict": saved.state_dict()}, f"{folder}/linear.pth")
    ...     load_weights(model, f"{folder}/linear.pth")
    >>> torch.equal(saved.weight, model.weight)
    True
    """
    put_weights(model, read_weights(path), os.fspath(path))


def put_weights(
    model: nn.Module, state: State, source: str, *, new_classifier: bool = False
) -> None:
    """Fill `model` from a state dict that was read from `source`, as `load_weights` does.

    With `new_classifier`, the last linear layer stays as it is: the file may have other classes.
    """
    expected: State = model.state_dict()
    found = _without_prefixes(state, expected)
    if new_classifier:
        layer = _classifier(model)
        if layer is None:
            raise WeightsError(f"{type(model).__name__} has no linear layer: none can be new")
        found |= {key: expected[key] for key in expected if key.rpartition(".")[0] == layer}
    for key, tensor in expected.items():
        if key.endswith("num_batches_tracked"):
            found.setdefault(key, tensor)
    if problem := _mismatch(found, expected, _classifier(model)):
        raise WeightsError(f"{source} does not fit {type(model).__name__}: {problem}")
    refuse_broken(found, source)
    model.load_state_dict(found)


def put_state(model: nn.Module, state: State, source: str) -> None:
    """Fill `model`, quantizers included, by torch's own rules; WeightsError if it does not fit.

    >>> put_state(nn.Linear(2, 1), {}, "a file")
    Traceback (most recent call last):
    ...
    dbq.errors.WeightsError: a file does not fit Linear: Missing key(s) in state_dict: "weight", "bias".
    """
    refuse_broken(state, source)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        problems = " ".join(" ".join(str(error).split()).partition(":")[2].split()[:30])
        raise WeightsError(f"{source} does not fit {type(model).__name__}: {problems}") from None


def refuse_broken(state: State, source: str) -> None:
    """Raise WeightsError if a tensor holds NaN or infinity; it names the first, statistics included."""
    for key, tensor in state.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise WeightsError(
                f"{source}: {key} holds NaN or infinity; take an earlier network, or train again"
            )


def read_weights(path: str | os.PathLike[str]) -> State:
    """The state dict in a file, on the CPU, its keys as they are written there.

    >>> read_weights("absent.pth")
    Traceback (most recent call last):
    ...
    dbq.errors.WeightsError: absent.pth: no such file; expected weights as .safetensors or .pth
    """
    path = Path(path)
    if not os.path.isfile(path):  # unlike Path's, it is False for a name that is too long
        reason = "not a regular file" if os.path.exists(path) else "no such file"
        raise WeightsError(f"{path}: {reason}; expected weights as .safetensors or .pth")
    if path.suffix.lower() != ".safetensors":
        return _state_dict(_unpickle(path), path)
    try:
        return read_tensors(path)[0]
    except DAMAGES as error:
        raise WeightsError(
            f"{path}: not a whole safetensors file ({_one_line(error)}); download or save it again"
        ) from error


def _unpickle(path: Path) -> object:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged pickles raise whatever the damage happens to mean
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if isinstance(error, pickle.UnpicklingError) and refused:
            raise WeightsError(
                f"{path}: refused, it asks for {refused[1]} where only tensors are expected; "
                "save model.state_dict() alone, best as .safetensors"
            ) from error
        raise WeightsError(
            f"{path}: not a whole file of tensors written by torch.save ({_one_line(error)}); "
            "download it again, or save model.state_dict() as .safetensors"
        ) from error


def _state_dict(content: object, path: Path) -> State:
    """The state dict itself, out of what a checkpoint wraps around it."""
    inner = content
    if isinstance(content, Mapping):
        inner = next((content[key] for key in WRAPPERS if _is_state(content.get(key))), content)
    if not _is_state(inner):
        raise WeightsError(
            f"{path}: found {_summary(content)}, expected a state dict (names and dense tensors), "
            f"or one under {' or '.join(map(repr, WRAPPERS))}; save model.state_dict()"
        )
    assert isinstance(inner, Mapping)
    return dict(inner)


def _is_state(content: object) -> bool:
    return isinstance(content, Mapping) and all(
        isinstance(key, str) and isinstance(value, Tensor) and value.layout == torch.strided
        for key, value in content.items()
    )


def _without_prefixes(found: State, expected: State) -> State:
    """Keys without what a wrapper put before all of them, unless the model is wrapped too."""
    prefix = next((p for p in PREFIXES if found and all(key.startswith(p) for key in found)), None)
    if prefix is None or any(key.startswith(prefix) for key in expected):
        return dict(found)
    bare = {key.removeprefix(prefix): tensor for key, tensor in found.items()}
    return _without_prefixes(bare, expected)


def _mismatch(found: State, expected: State, classifier: str | None) -> str:
    """What keeps `found` out of a model of state `expected`, in one line; empty if nothing does."""
    missing = [key for key in expected if key not in found]
    unexpected = [key for key in found if key not in expected]
    differing = [key for key in expected if key in found and not _alike(found[key], expected[key])]
    classes = _other_classes(found, expected, differing, classifier)
    if classes and not missing and not unexpected:
        return (
            f"the file has {classes} classes, the model {len(expected[differing[0]])}; "
            f"pass num_classes={classes}"
        )
    lists = {
        "missing": [f"{key} {_form(expected[key])}" for key in missing],
        "unexpected": [f"{key} {_form(found[key])}" for key in unexpected],
        "different": [f"{k} {_form(found[k])} not {_form(expected[k])}" for k in differing],
    }
    text = "; ".join(f"{len(keys)} {what} ({_few(keys)})" for what, keys in lists.items() if keys)
    return text and f"{text}; use the network, width and options the file was saved from"


def _alike(found: Tensor, expected: Tensor) -> bool:
    """True if `found` can be copied as it is; half precision can, integer codes cannot."""
    same_kind = found.is_floating_point() == expected.is_floating_point()
    return found.shape == expected.shape and same_kind


def _other_classes(
    found: State, expected: State, differing: list[str], classifier: str | None
) -> int | None:
    """The file's number of classes, if that is all that differs."""
    rows = {key for key in (f"{classifier}.weight", f"{classifier}.bias") if key in expected}
    if set(differing) != rows or any(found[key].dim() != expected[key].dim() for key in rows):
        return None
    counts = {len(found[key]) for key in rows}
    same_inside = all(found[key].shape[1:] == expected[key].shape[1:] for key in rows)
    resized = all(len(found[key]) != len(expected[key]) for key in rows)
    return counts.pop() if same_inside and resized and len(counts) == 1 else None


def _classifier(model: nn.Module) -> str | None:
    """The name of the last linear layer."""
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return names[-1] if names else None


def _few(entries: Iterable[object]) -> str:
    shown = list(map(str, entries))
    return ", ".join(shown[:SHOWN] + ["..."] * (len(shown) > SHOWN))


def _form(tensor: Tensor) -> str:
    kind = "" if tensor.is_floating_point() else f"{tensor.dtype} ".removeprefix("torch.")
    return f"{kind}{list(tensor.shape)}"


def _summary(content: object) -> str:
    if isinstance(content, Mapping):
        return f"a dict of {_few(content)}"
    return f"a {type(content).__name__}"


def _one_line(error: Exception) -> str:
    """The first sentence of another library's message, or at least the kind of error."""
    first = str(error).strip().partition("\n")[0].partition(". ")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
