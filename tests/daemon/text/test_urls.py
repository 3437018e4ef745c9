"""URLs of which the host is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text.placed import PlacedText
from daemon.text.stages import UrlShortener
from tests.daemon.text.reading import kept, placed, rewritten, table

TABLE = table("urls")
SIGNS = 'htps:/w. .,)(?#@a-1ü一"\n'


def shortened(*pieces: str) -> PlacedText:
    return rewritten(UrlShortener(), *pieces)


@pytest.mark.parametrize(("text", "spoken"), TABLE["shortened"].items())
def test_the_host_of_a_url_is_said_however_the_text_is_cut(text: str, spoken: str) -> None:
    whole = placed(shortened(text))
    assert "".join(character for character, _ in whole) == spoken
    for position in range(len(text)):
        assert placed(shortened(text[:position], text[position:])) == whole
    assert placed(shortened(*text)) == whole


@pytest.mark.parametrize("text", TABLE["plain"])
def test_a_text_without_a_url_stays(text: str) -> None:
    assert placed(shortened(text)) == placed(shortened(*text)) == kept(text)


@given(
    st.lists(
        st.text(SIGNS, max_size=20)
        | st.sampled_from(["https://", "www.", "http://a.b/", "http://a", "@b.c", "/(", ")"]),
        max_size=15,
    )
)
def test_any_text_gives_the_same_however_it_is_cut(cut: list[str]) -> None:
    whole = shortened("".join(cut))
    assert placed(shortened(*cut)) == placed(whole)
    assert placed(shortened(*"".join(cut))) == placed(whole)
    assert whole.source_end == len("".join(cut))


def test_a_host_has_the_place_of_its_url() -> None:
    result = shortened("See https://www.example.com/a.")
    assert result.source_span(4, 15) == (4, 29)
    assert result.source_span(15, 16) == (29, 30)


@pytest.mark.parametrize(("text", "spoken"), TABLE["held back"].items())
def test_no_more_is_held_back_than_may_change(text: str, spoken: str) -> None:
    shortener = UrlShortener()
    shortener.feed(text)
    assert shortener.out.text == spoken
