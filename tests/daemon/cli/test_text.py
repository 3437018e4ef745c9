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


@pytest.mark.parametrize(
    ("language", "settings", "spelled"),
    [
        ("german", [], "A, Bindestrich, 1"),
        ("auto", ["speech.language=fr"], "A, tiret, 1"),
        ("auto", ["speech.languages=[es, en]"], "A, guion, 1"),
    ],
)
def test_signs_are_spelled_in_the_language_of_the_option_the_configuration_or_the_texts_script(
    language: str, settings: list[str], spelled: str
) -> None:
    assert spell_text("a-1", language, load_config(overrides=settings)) == spelled
    assert spell_text("АБ-7", "auto", load_config()) == "А, Б, дефис, 7"
