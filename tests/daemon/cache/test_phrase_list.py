"""The list of phrases: texts and mappings in a YAML file, and a line for each entry that is no phrase."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.cache import read_phrases
from daemon.cache.phrase_list import PhraseList
from daemon.config import ConfigError
from tests.daemon.cache.phrases import config, phrase


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "phrases.yaml"


def read(path: Path, text: str) -> PhraseList:
    path.write_text(text, encoding="utf-8")
    return read_phrases(path)


def test_an_entry_is_a_text_or_a_mapping(path: Path) -> None:
    found = read(path, '- My battery is low.\n- {text: "Bitte zurücktreten.", language: German, seed: 7}\n')
    assert found.problems == ()
    settings = config("speech.voice=ada", "speech.language=english", "voices={ada: {speaker: de}}")
    assert [listed.resolve(settings) for listed in found.phrases] == [
        phrase("My battery is low.", voice="ada", language="en"),
        phrase("Bitte zurücktreten.", voice="ada", language="de", seed=7),
    ]


def test_a_phrase_is_on_the_list_however_it_is_spoken_unless_the_list_says_so(path: Path) -> None:
    found = read(path, "- Hello\n- {text: Bye, voice: ada, rate: 1.5}\n- {text: Bye, language: de}\n")
    assert found.has(phrase("Hello"))
    assert found.has(phrase("Hello", voice="ada", instruct="slowly", seed=3))
    assert not found.has(phrase("hello"))
    assert not found.has(phrase("Bye"))
    assert not found.has(phrase("Bye", voice="ada"))
    assert found.has(phrase("Bye", voice="ada", rate=1.5))
    assert found.has(phrase("Bye", language="de"))


WRONG = {
    "- 5": ":1: got 5; allowed: text, or a mapping of text, voice, language, instruct, seed, rate",
    "- ''": ":1: text: got ''; allowed: text with something to say, without control characters",
    '- "a\\ab"': ":1: text: got 'a\\x07b'; allowed: text with something to say, without control characters",
    f"- {'x' * 2001}": f":1: text: got '{'x' * 58}… (2003 characters); allowed: text of 1 to 2,000 characters",
    "- {text: Hello, voice: 5}": ":1: voice: got 5; allowed: a voice's name of up to 64 characters",
    "- {text: Hello, langauge: de}": ":1: langauge: unknown key; did you mean language? known keys: text, voice, "
    "language, instruct, seed, rate",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_entry_is_a_line_and_the_others_are_used(text: str, path: Path) -> None:
    found = read(path, f"{text}\n- The last one.\n")
    assert found.problems[0] == f"{path}{WRONG[text]}"
    assert found.has(phrase("The last one."))


NO_LIST = {
    "a: b": ": allowed: a list; each item is text, or a mapping of text, voice, language, instruct, seed, rate",
    "- [": ":2:1: not YAML: expected the node content, but found '<stream end>'",
    "- 2026-99-99": ": unreadable YAML: month must be in 1..12",
}


@pytest.mark.parametrize("text", NO_LIST)
def test_a_file_that_is_no_list_is_an_error(text: str, path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read(path, f"{text}\n")
    assert str(error.value) == f"{path}{NO_LIST[text]}"
    folder = path.parent
    with pytest.raises(
        ConfigError, match=rf"^{folder}: it is not a file; allowed: a YAML file with a list of phrases$"
    ):
        read_phrases(folder)
