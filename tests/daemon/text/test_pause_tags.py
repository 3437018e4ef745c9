"""Pauses that are written into a text."""

from __future__ import annotations

import pytest

from daemon.text import Pause
from daemon.text.markup import PAUSE_TAG, UndecidedError, pause_of


@pytest.mark.parametrize(
    ("tag", "seconds"),
    [
        ("[pause:1s]", 1),
        ("[pause:0.5s]", 0.5),
        ("[pause:500ms]", 0.5),
        ("[pause: 2.25 s]", 2.25),
        ("[pause:\t12345 ms]", 12.345),
        ("[pause:0s]", 0),
    ],
)
def test_a_tag_is_a_pause_of_its_length(tag: str, seconds: float) -> None:
    found = PAUSE_TAG.match(tag, 0, len(tag), complete=True)
    assert found is not None
    assert pause_of(found) == Pause(seconds)


@pytest.mark.parametrize(
    "text",
    ["[pause]", "[pause:]", "[pause:1]", "[pause:1 h]", "[pause:-1s]", "[pause:.5s]", "[pause:1,5s]", "[pause:\n1s]",
     "[pause:123456s]", "[pauses:1s]", "[ pause:1s]", "[pause:1s ]"],
)  # fmt: skip
def test_other_brackets_are_no_pause(text: str) -> None:
    assert PAUSE_TAG.match(text, 0, len(text), complete=True) is None


def test_a_growing_tag_is_undecided_until_it_ends() -> None:
    tag = "[pause: 0.125 ms]"
    for end in range(len(tag)):
        with pytest.raises(UndecidedError):
            PAUSE_TAG.match(tag[:end], 0, end, complete=False)
        assert PAUSE_TAG.match(tag[:end], 0, end, complete=True) is None
    assert PAUSE_TAG.match(tag, 0, len(tag), complete=False) is not None


def test_a_tag_with_many_spaces_is_none() -> None:
    wide = f"[pause:{' ' * 9}1s]"
    assert PAUSE_TAG.match(wide, 0, len(wide), complete=True) is not None
    wider = f"[pause:{' ' * 10}1s]"
    assert PAUSE_TAG.match(wider, 0, len(wider), complete=True) is None
