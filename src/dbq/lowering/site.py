"""Site: the place in the graph that is being read, which is what every handler of an operation gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from dbq.lowering.handlers.moving import settle
from dbq.lowering.values import WIDE, Anything, Reading, Value


@dataclass
class Site:
    """Where we are, by the name a user knows it by, and when."""

    name: str = ""
    clock: Iterator[int] = field(default_factory=count)

    def now(self) -> int:
        """A number for a new operation: operations run in the order they were made."""
        return next(self.clock)

    def settle(self, thing: Anything) -> Value:
        return settle(thing, self.name, self.clock)

    def wide(self, thing: Anything) -> Reading:
        return Reading(self.settle(thing), WIDE)
