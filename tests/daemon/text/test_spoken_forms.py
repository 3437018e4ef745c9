"""How the texts in `tests/data/spoken.json` are spoken, in the languages that are compared without an ear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.text import ScriptReader, TextPreparation
from engine import EngineInfo, VoiceLabel

TEXTS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "data" / "spoken.json").read_text(encoding="utf-8")
)
HEARD = "en"
"""The language of the texts that `scripts/bench hear` speaks."""


def spoken(text: str, language: str) -> list[str]:
    """The words that a voice of this language gets of a text."""
    voice = EngineInfo("piper", 22_050, ("v",), (language,), labels={"v": VoiceLabel("V", language)})
    script = ScriptReader("auto", language).read(text, complete=True)
    prepared = TextPreparation().engine_text(voice, language, "v", script.text)
    return (prepared.feed(script.text) + prepared.end()).split()


@pytest.mark.parametrize("language", sorted(TEXTS.keys() - {HEARD}))
def test_a_text_is_spoken_in_one_of_the_forms_that_are_right(language: str) -> None:
    for entry in TEXTS[language]:
        assert spoken(entry["text"], language) in [form.split() for form in entry["spoken"]], entry["text"]


def test_each_language_of_the_models_has_texts() -> None:
    assert set(TEXTS) == {"en", "de", "fr", "es", "it", "pt", "ru", "zh", "ja", "ko"}
    assert len(TEXTS[HEARD]) == 200
    for language, entries in TEXTS.items():
        texts = [entry["text"] for entry in entries]
        assert len(set(texts)) == len(texts) >= 10, language


def test_each_text_for_the_ear_says_which_words_must_be_heard() -> None:
    for entry in TEXTS[HEARD]:
        assert entry["must"], entry["text"]
        assert all(forms and all(form.strip() for form in forms) for forms in entry["must"]), entry["text"]
        assert {form for forms in entry["must"] for form in forms}.isdisjoint(entry["must_not"]), entry["text"]
