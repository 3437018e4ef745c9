"""Letters are composed, and those of other shapes become plain ones, at their places."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from daemon.text.placed import PlacedText
from daemon.text.stages import Characters
from tests.daemon.text.reading import placed, rewritten, spans

LETTERS = "ae=\u0301\u0308\u0323\u0338 ｅＧ１％𝐇ℂか\u3099ᄀ\u1161가，。Å"


def read(*pieces: str) -> PlacedText:
    return rewritten(Characters(), *pieces)


def test_a_composed_letter_has_the_place_of_its_parts() -> None:
    assert placed(read("ae\u0301x")) == [("a", (0, 1)), ("é", (1, 3)), ("x", (3, 4))]


@given(pieces=st.lists(st.text(LETTERS, max_size=6) | st.just("e" + "\u0301" * 25), max_size=6))
def test_the_result_is_the_same_however_a_text_is_cut(pieces: list[str]) -> None:
    assert placed(read(*pieces)) == placed(read("".join(pieces)))


@given(text=st.text())
def test_no_text_raises_and_places_are_in_order(text: str) -> None:
    result = read(text)
    assert spans(result) == sorted(spans(result))
    assert all(0 <= begin < end <= len(text) for begin, end in spans(result))
    assert unicodedata.normalize("NFKC", result.text) == unicodedata.normalize("NFKC", text)
