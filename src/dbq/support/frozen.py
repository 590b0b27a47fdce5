"""Read-only mappings that, unlike a bare `MappingProxyType`, can be pickled and deep-copied."""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def frozen(items: Mapping[Key, Value]) -> Mapping[Key, Value]:
    """A read-only copy of `items`.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(frozen({"k": 2})))
    mappingproxy({'k': 2})
    """
    return MappingProxyType(dict(items))


def _reduce(items: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return frozen, (dict(items),)


copyreg.pickle(MappingProxyType, _reduce)
