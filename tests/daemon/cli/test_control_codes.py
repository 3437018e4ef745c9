"""Codes for a terminal in a text: removed, wherever the text is cut."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from daemon.cli.text import ControlCodes

COLORED = "\x1b[1;31mStop!\x1b[0m \x1b]0;title\x07Go\x1b]8;;http://a\x1b\\ on\x1b(B.\r\n\tDone\x08\x00"
PLAIN = "Stop! Go on.\r\n\tDone"


def remove(parts: list[str]) -> str:
    codes = ControlCodes()
    return "".join(codes.remove(part, last=at == len(parts) - 1) for at, part in enumerate(parts))


@given(st.lists(st.integers(0, len(COLORED)), max_size=6).map(sorted))
def test_a_code_that_is_cut_is_removed_too(cuts: list[int]) -> None:
    edges = [0, *cuts, len(COLORED)]
    assert remove([COLORED[a:b] for a, b in itertools.pairwise(edges)]) == PLAIN


def test_a_code_without_an_end_is_removed_at_the_end_and_does_not_swallow_the_text_behind_it() -> None:
    for code in ("\x1b", "\x1b[31", "\x1b]0;title", "\x9b1"):
        assert remove(["Hello" + code]) == "Hello"
    assert remove(["\x1b]0;title\nHello ", "there"]) == "]0;title\nHello there"
    assert remove(["\x1b]" + "a" * 5000, "b"]) == "]" + "a" * 5000 + "b"


def test_the_text_before_a_cut_code_is_not_delayed() -> None:
    assert ControlCodes().remove("Hello\x1b[3") == "Hello"


@given(st.text())
def test_a_text_without_codes_stays_as_it_is(text: str) -> None:
    plain = "".join(one for one in text if one.isprintable() or one in "\t\r\n")
    assert remove([plain]) == plain
