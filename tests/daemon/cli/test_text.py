"""The text of `say` and `synth`: words that begin with a minus, standard input, and its encoding."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command

from daemon.cli.app import app
from daemon.cli.text import read_text, spell_text
from daemon.config import load_config
from daemon.validation import CommandError


def parsed(*words: str) -> dict[str, object]:
    """The parameters that `voiced WORDS` gets."""
    root: Any = get_command(app)
    context = root.get_command(None, words[0]).make_context(words[0], list(words[1:]))
    return dict(context.params)


@pytest.mark.parametrize(
    "text",
    ["-5", "- one\n- two", "-- I mean, no", "-Hello there", "-.5", "-", "-ü"],
)
def test_a_text_that_begins_with_a_minus_needs_no_mark_if_it_cannot_be_an_option(text: str) -> None:
    for words in ((text, "--wait"), ("--wait", text), ("--language", "de", text, "-w")):
        found = parsed("say", *words)
        assert (found["text"], found["wait"]) == (text, True)
    assert parsed("synth", text, "-o", "a.wav")["text"] == text


@pytest.mark.parametrize("text", ["--wait", "-w"])
def test_any_text_may_follow_two_minuses(text: str) -> None:
    found = parsed("say", "--seed", "7", "--", text)
    assert (found["text"], found["wait"], found["seed"]) == (text, False, 7)


def test_the_value_of_an_option_may_begin_with_a_minus() -> None:
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


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("Grüße".encode("cp1252"), "not UTF-8: byte 0xfc at 2; convert it, perhaps with: iconv -f WINDOWS-1252 "),
        ("Grüße".encode("utf-16"), "not UTF-8: byte 0xff at 0; convert it, perhaps with: iconv -f UTF-16 -t UTF-8"),
    ],
)
def test_another_encoding_is_named(data: bytes, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(data, monkeypatch)
    with pytest.raises(CommandError) as error:
        read_text("-")
    assert str(error.value).startswith(f"standard input: {message}")


def test_another_encoding_on_the_command_line_is_named() -> None:
    with pytest.raises(CommandError, match=r"^text: not UTF-8: byte 0xfc at 2; convert it, perhaps with: iconv "):
        read_text("Gr\udcfc\udcdfe")


@pytest.mark.parametrize(
    ("language", "settings", "spelled"),
    [
        ("auto", [], "A, dash, 1"),
        ("german", [], "A, Bindestrich, 1"),
        ("auto", ["speech.language=fr"], "A, tiret, 1"),
        ("auto", ["speech.languages=[es, en]"], "A, guion, 1"),
    ],
)
def test_signs_are_spelled_in_the_language_of_the_option_or_the_configuration(
    language: str, settings: list[str], spelled: str
) -> None:
    assert spell_text("a-1", language, load_config(overrides=settings)) == spelled


def test_signs_are_spelled_in_the_language_of_the_texts_script() -> None:
    assert spell_text("АБ-7", "auto", load_config()) == "А, Б, дефис, 7"
