"""Counts of things."""

from __future__ import annotations

from dbq.support.text import counted


def test_only_one_is_singular() -> None:
    assert [counted(number, "image") for number in (0, 1, 2)] == ["0 images", "1 image", "2 images"]
