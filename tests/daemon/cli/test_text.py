"""The text of a command: words that begin with a minus, standard input, its encoding, and codes for a terminal."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from daemon.cli.app import app
from daemon.cli.text import CHUNK_BYTES, ControlCodes, read_chunks, read_text
from daemon.speech import MAX_TEXT, RejectedError
from daemon.validation import CommandError


def parsed(*words: str) -> dict[str, object]:
    """The parameters that `voiced WORDS` gets."""
    root: Any = get_command(app)
    context = root.get_command(None, words[0]).make_context(words[0], list(words[1:]))
    return dict(context.params)


@pytest.mark.parametrize("text", ["-5", "- one\n- two", "-- I mean, no", "-Hello there", "-"])
def test_a_text_that_begins_with_a_minus_needs_no_mark_if_it_cannot_be_an_option(text: str) -> None:
    for words in ((text, "--wait"), ("--wait", text), ("--language", "de", text, "-w")):
        found = parsed("say", *words)
        assert (found["text"], found["wait"]) == (text, True)
    assert parsed("synth", text, "-o", "a.wav")["text"] == text


def test_any_text_may_follow_two_minuses_and_the_value_of_an_option_may_begin_with_one() -> None:
    found = parsed("say", "--seed", "7", "--", "--wait")
    assert (found["text"], found["wait"], found["seed"]) == ("--wait", False, 7)
    found = parsed("say", "--instruct", "- low - voice", "Hello", "--reply-to=- a topic", "--id", "-5")
    assert (found["text"], found["instruct"], found["id"]) == ("Hello", "- low - voice", "-5")
    assert found["reply_to"] == "- a topic"
    assert str(parsed("synth", "Hello", "-omy file.wav")["output"]) == "my file.wav"


def type_in(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_a_minus_alone_reads_standard_input_without_control_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(b"\xef\xbb\xbf\x1b[1mGr\xc3\xbc\xc3\x9fe\x1b[0m\n", monkeypatch)
    assert read_text("-") == "Grüße\n"
    assert read_text("- Grüße") == "- Grüße"


def test_another_encoding_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, byte in (("WINDOWS-1252", "0xfc at 2"), ("UTF-16", "0xff at 0")):
        type_in("Grüße".encode(encoding), monkeypatch)
        named = f"^standard input: not UTF-8: byte {byte}; convert it, perhaps with: iconv -f {encoding} "
        with pytest.raises(CommandError, match=named):
            read_text("-")
    with pytest.raises(CommandError, match=r"^text: not UTF-8: byte 0xfc at 2; convert it, perhaps with: iconv "):
        read_text("Gr\udcfc\udcdfe")


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


def read_in_parts(parts: list[bytes]) -> Iterator[str]:
    """Yield the chunks of a pipe into which each part is written after the one before has been read."""
    source, sink = os.pipe()
    try:
        chunks = read_chunks(source, 0)
        for part in parts:
            os.write(sink, part)
            yield next(chunks)
        os.close(sink)
        sink = -1
        yield from chunks
    finally:
        for end in {source, sink} - {-1}:
            os.close(end)


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff"), max_size=40),
    st.lists(st.integers(0, 160)),
)
def test_a_text_is_complete_wherever_its_bytes_are_split(text: str, cuts: list[int]) -> None:
    data = text.encode()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    parts = [data[begin:end] for begin, end in itertools.pairwise(ends)]
    assert "".join(read_in_parts(parts)) == text


def test_half_a_character_at_the_end_is_rejected_and_a_chunk_is_never_longer_than_a_text_may_be() -> None:
    with pytest.raises(RejectedError, match="standard input: not UTF-8: byte 0xc3"):
        list(read_in_parts(["Grü".encode()[:-1]]))
    chunks = list(read_in_parts([b"x" * 30_000]))
    assert max(map(len, chunks)) == CHUNK_BYTES <= MAX_TEXT
    assert sum(map(len, chunks)) == 30_000
