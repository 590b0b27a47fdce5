"""Tables and counts as plain text."""

from __future__ import annotations

from dbq.support.text import as_text, counted, plain_table


def test_text_is_folded_and_numbers_are_not() -> None:
    table = plain_table(["method", "what it is", "bits"], left=2)
    table.add_row("twn", "ternary weights with one threshold", "1,000")
    table.add_section()
    table.add_row("averyveryverylongname", "short", "2")
    text = as_text("title", table, "a note that is folded as well", width=28)
    assert text.splitlines() == [
        "title",
        "",
        " method    what it    bits",
        "           is",
        " ──────────────────────────",
        " twn       ternary   1,000",
        "           weights",
        "           with one",
        "           threshol",
        "           d",
        "",
        " averyver  short         2",
        " yverylon",
        " gname",
        "",
        "a note that is folded as",
        "well",
    ]
    assert max(map(len, text.splitlines())) <= 28


def test_a_table_without_rows() -> None:
    assert as_text(plain_table(["layer", "bits"])).splitlines()[0] == " layer  bits"


def test_only_one_is_singular() -> None:
    assert [counted(number, "image") for number in (0, 1, 2)] == ["0 images", "1 image", "2 images"]
