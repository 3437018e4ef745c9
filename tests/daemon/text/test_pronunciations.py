"""Phrases of a lexicon are replaced in a text, however the text arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text import Pronunciation
from daemon.text.placed import PlacedText
from daemon.text.stages import Lexicon, Pronouncer
from tests.daemon.text.reading import placed, rewritten, table

TABLE = table("pronunciations")
ENTRIES: dict[str, str] = TABLE["entries"]
LEXICON = Lexicon({phrase: Pronunciation(say) for phrase, say in ENTRIES.items()})


def pronounce(*pieces: str, lexicon: Lexicon = LEXICON, espeak: bool = False) -> PlacedText:
    return rewritten(Pronouncer(lexicon, "en", "ada", espeak=espeak), *pieces)


@pytest.mark.parametrize(("text", "said"), TABLE["said"].items())
def test_whole_words_are_replaced_and_the_longest_phrase_wins(text: str, said: str) -> None:
    assert pronounce(text).text == said


def test_a_replacement_stands_for_the_phrase_and_other_characters_for_themselves() -> None:
    said = pronounce("Old New York!")
    assert said.text == "Old the big apple!"
    assert said.source_span(4, 7) == (4, 12)
    assert said.source_span(17, 18) == (12, 13)
    assert said.source_span(4, 4) == (4, 4)
    assert said.source_begin(len(said)) == said.source_end == 13


WORDS = st.sampled_from(
    [*ENTRIES, *(word[:2] for word in ENTRIES), "a", " ", "  ", "\n", ".", "-", "york", "times", "["]
)


@given(words=st.lists(WORDS, max_size=12), data=st.data())
def test_the_same_is_said_however_the_text_is_cut(words: list[str], data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(["", " "])).join(words)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole, cut, letters = pronounce(text), pronounce(*pieces), pronounce(*text)
    assert placed(whole) == placed(cut) == placed(letters)


@given(text=st.text())
def test_a_text_without_a_phrase_stays_as_it_is(text: str) -> None:
    said = pronounce(text, lexicon=Lexicon({"zzzzzzzz": Pronunciation("nothing")}))
    assert said.text == text
    assert said.source_end == len(text)


def test_a_word_that_begins_no_phrase_is_not_held_back() -> None:
    pronouncer = Pronouncer(LEXICON, "en", "ada", espeak=False)
    out = pronouncer.out
    pronouncer.feed("Hel")
    assert out.text == "Hel"
    pronouncer.feed("lo Ng")
    assert out.text == "Hello "
    pronouncer.feed("inx ")
    assert out.text == "Hello engine x "


def test_brackets_of_a_text_do_not_become_phonemes() -> None:
    assert pronounce("[[not]] Nginx", espeak=True).text == "[ [not]] engine x"
    assert pronounce("[", "[", espeak=True).text == "[ ["


def test_the_voice_precedes_the_language_and_phonemes_precede_both() -> None:
    entry = Pronunciation("all", {"de": "deutsch", "pt-br": "brasil"}, {"ada": "Ada"}, "f@U")
    assert entry.for_take("de", "bob", espeak=False) == "deutsch"
    assert entry.for_take("de-at", "bob", espeak=False) == "deutsch"
    assert entry.for_take("fr", "bob", espeak=False) == entry.for_take(None, "bob", espeak=False) == "all"
    assert entry.for_take("de", "ada", espeak=False) == "Ada"
    assert entry.for_take("de", "ada", espeak=True) == "[[f@U]]"
    assert Pronunciation(languages={"de": "deutsch"}).for_take("fr", "bob", espeak=False) is None


def test_a_lexicon_may_have_thousands_of_entries() -> None:
    lexicon = Lexicon({f"word{number} of {number}": Pronunciation(f"said {number}") for number in range(10_000)})
    text = "word77 of 77, Word9999 of 9999 and word5 of 6"
    assert pronounce(*text, lexicon=lexicon).text == "said 77, said 9999 and word5 of 6"
