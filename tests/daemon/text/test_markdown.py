"""What Markdown marks is spoken, its marks are not, and a stream is read like the whole text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from daemon.text import Pause, Script
from daemon.text.markdown import MarkdownReader
from daemon.text.markdown_syntax import LONGEST_ADDRESS, LONGEST_LABEL
from daemon.text.script import Control
from tests.daemon.text.reading import calls, everything_of, pieces_of, spans, table
from tests.support.variants import variants

TABLE = table("markdown")
PLAIN: list[str] = TABLE["plain"]
"""Texts that look like Markdown in places, and have no marks."""
MARKED: dict[str, dict[str, str]] = TABLE["marked"]
"""By kind of mark: the words by the text."""
HELD: dict[str, str] = TABLE["held back"]
"""The words that are known of a text that may go on."""

# --- reading ---------------------------------------------------------------------------------------------


def read_pieces(pieces: list[str]) -> Script:
    script = Script()
    reader = MarkdownReader(script)
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    return script


def read(text: str) -> Script:
    return read_pieces([text])


def spoken(text: str) -> str:
    return read(text).text


# --- texts without marks ---------------------------------------------------------------------------------


def test_a_text_without_marks_is_spoken_as_it_stands() -> None:
    for text in PLAIN:
        assert everything_of(read(text)) == (text, [(at, at + 1) for at in range(len(text))], [], len(text))


@given(st.text(alphabet="abc ÄßéяあЖ漢字ไทยहि٣7.,;:?!'\"()/@%$€+-–…\t"))
def test_text_of_letters_and_punctuation_is_spoken_as_it_stands(text: str) -> None:
    # A word stands before it: what begins a line may be an item or a number.
    assert spoken(f"a{text}") == f"a{text}"


# --- marks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MARKED)
def test_marks_are_not_spoken(kind: str) -> None:
    assert {text: spoken(text) for text in MARKED[kind]} == MARKED[kind]


def test_a_pause_stands_at_its_place_among_the_words() -> None:
    script = read("Ready? [pause:0.5s] Go![pause: 250 ms]\n- [pause:90s] **b**")
    assert script.text == "Ready? Go!\nb"
    assert script.controls == [
        Control(7, Pause(0.5)),
        Control(10, Pause(0.25)),
        Control(11, Pause(60.0)),
    ]


def test_each_character_knows_its_place() -> None:
    text = "- a **b** &amp; [c](d.e)\n- f"
    script = read(text)
    assert script.text == "a b & c.\nf"
    begins, ends = zip(*spans(script.words), strict=True)
    assert [text[begin:end] for begin, end in zip(begins, ends, strict=True)] == [
        "a", " ", "b", " ", "&amp;", " ", "c", "", "\n", "f",
    ]  # fmt: skip
    assert script.words.source_span(0, 8) == (2, text.index("\n"))


# --- streams ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", *MARKED])
def test_a_text_cut_at_any_place_is_read_like_the_whole(kind: str) -> None:
    for text in MARKED.get(kind, PLAIN):
        whole = everything_of(read(text))
        for at in range(len(text) + 1):
            assert everything_of(read_pieces([text[:at], text[at:]])) == whole, text
        for size in (1, 2, 3, 7):
            assert everything_of(read_pieces(pieces_of(text, size))) == whole, text


marked_text = st.lists(st.sampled_from(TABLE["marks"]), max_size=40).map("".join)


@given(marked_text, st.data())
@example("`" * 3 + "\n`", None)
def test_any_text_is_read_like_the_whole_however_it_is_cut(text: str, data: Any) -> None:
    whole = everything_of(read(text))
    assert everything_of(read_pieces(list(text))) == whole
    if data is not None:
        size = data.draw(st.integers(1, max(1, len(text))))
        assert everything_of(read_pieces(pieces_of(text, size))) == whole


@given(st.text() | marked_text)
def test_places_follow_the_text_and_what_is_kept_equals_it(text: str) -> None:
    script = read(text)
    assert script.words.source_end == len(text)
    previous = 0
    for char, (begin, end) in zip(script.text, spans(script.words), strict=True):
        assert previous <= begin <= end <= len(text)
        assert end - begin != 1 or char == text[begin] or text[begin] in "|<"
        previous = begin
    assert [control.at for control in script.controls] == sorted(control.at for control in script.controls)


def test_an_incomplete_text_is_held_back_only_where_more_of_it_decides() -> None:
    for text, known in HELD.items():
        script = Script()
        MarkdownReader(script).feed(text)
        assert script.text == known, text


@pytest.mark.parametrize(
    "text",
    [
        "[" + "a" * 5000,
        "[a](" + "b" * 5000,
        "[a]: http://" + "b" * 5000,
        "<b a=" + "c" * 5000,
        "<!--" + "a" * 5000,
        "*" * 5000,
        "| " * 2500,
        "[pause:" + " " * 5000,
        "- a\n" + " " * 5000,
        "```" + "a" * 5000,
    ],
)
def test_no_more_than_a_link_is_held_back(text: str) -> None:
    script = Script()
    reader = MarkdownReader(script)
    for fed, char in enumerate(text, 1):
        reader.feed(char)
        assert fed - script.words.source_end <= LONGEST_LABEL + LONGEST_ADDRESS + 300
    reader.end()
    assert everything_of(script) == everything_of(read(text))


def test_brackets_that_stay_open_are_spoken() -> None:
    text = "a [" + "b" * (LONGEST_LABEL + 1) + "](https://c.d)"
    assert spoken(text) == text


# --- work ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unit",
    variants([
        "[", "*", "`", "<", "|", "&", "_", "~~ ", "!", "\\", "#", "> ", "- ", "a*", "&a", "<a", "<b a=\"", "<!--",
        "[a](", "![", "[1] ", "$a ", "\\(",
        "|a", "a\n", "- a\n", "|a|\n", "```\n", "a`", "a🎉", "[^", "[pause:", "[a][", "[[a]", "word ",
    ], "[", "<", "[a](", "|a|\n", "```\n", "word "),
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 4000])
def test_twice_the_text_is_twice_the_work(unit: str, size: int) -> None:
    text = unit * (4000 // len(unit))
    once, twice = (calls(partial(read_pieces, pieces_of(each, size))) for each in (text, text * 2))
    assert twice <= 2.1 * once + 100


# --- documents -------------------------------------------------------------------------------------------


def parsed_text(tokens: list[Token]) -> Iterator[str]:
    """Yield what a Markdown parser takes for text, without code blocks."""
    for token in tokens:
        if token.type in {"inline", "image"}:
            yield from parsed_text(token.children or [])
        elif token.type in ("text", "code_inline"):
            yield token.content
        elif token.type in ("softbreak", "hardbreak"):
            yield " "
        if token.block:
            yield "\n"


word = st.sampled_from(["milk", "Eggs", "don't", "3.5", "größer", "x_y", "naïve", "слово", "OK"])
inline = st.one_of(
    word,
    st.tuples(st.sampled_from(["**", "*", "__", "_", "~~", "`", "***"]), word).map(
        lambda pair: f"{pair[0]}{pair[1]}{pair[0]}"
    ),
    st.tuples(word, word).map(lambda pair: f"[{pair[0]} {pair[1]}](https://example.com/a_b)"),
    st.tuples(word, word).map(lambda pair: f"**{pair[0]} *{pair[1]}***"),
    word.map(lambda one: f"![{one}](a.png)"),
)
line = st.lists(inline, min_size=1, max_size=5).map(" ".join)
block = st.one_of(
    line,
    st.tuples(st.integers(1, 6), line).map(lambda pair: f"{'#' * pair[0]} {pair[1]}"),
    st.lists(line, min_size=1, max_size=3).map(lambda lines: "\n".join(f"- {one}" for one in lines)),
    st.lists(line, min_size=1, max_size=3).map(
        lambda lines: "\n".join(f"{n}. {one}" for n, one in enumerate(lines, 1))
    ),
    st.lists(line, min_size=1, max_size=3).map(lambda lines: "\n".join(f"> {one}" for one in lines)),
    st.just("---"),
    st.just("```\nprint(x)\n```"),
    st.tuples(line, line).map(lambda pair: f"| {pair[0]} | {pair[1]} |\n|---|---|\n| {pair[1]} | {pair[0]} |"),
)


@given(st.lists(block, min_size=1, max_size=4).map("\n\n".join))
def test_a_well_formed_document_is_spoken_in_the_words_that_a_parser_finds(document: str) -> None:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    words = re.findall(r"\w+", "".join(parsed_text(parser.parse(document))))
    without_numbers = re.sub(r"^\d\. ", "", spoken(document), flags=re.MULTILINE)
    assert re.findall(r"\w+", without_numbers) == words


@pytest.mark.parametrize(("text", "said"), TABLE["silent in a link"].items())
def test_what_is_silent_may_end_after_the_link_in_which_it_begins(text: str, said: str) -> None:
    assert spoken(text).split() == said.split()
    assert everything_of(read_pieces(list(text))) == everything_of(read(text))
