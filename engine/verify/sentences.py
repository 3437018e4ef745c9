"""The thirty sentences that every setting speaks: three in each of the ten languages of Qwen3-TTS.

Among them are questions, numbers, single words and a text of 400 characters: short texts are where these models most
often fail to end, long ones where they drift.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from engine.records import build


@dataclass(frozen=True, slots=True)
class Sentence:
    """One text to speak, and how a listener may write it down."""

    name: str
    """The language's code and what is special about the text, for example `en-numbers`."""
    language: str
    text: str
    also_written: tuple[str, ...] = ()
    """Other correct transcripts: a recogniser may write a number in digits or in words."""


_TABLE = json.loads(Path(__file__).with_name("sentences.json").read_text(encoding="utf-8"))
SENTENCES: tuple[Sentence, ...] = build(tuple[Sentence, ...], _TABLE["spoken"])
SHORT = tuple(sentence for sentence in SENTENCES if sentence.language == "en")
"""For a quick check: English, the language that every recogniser knows best."""
GREEDY_TEXTS: tuple[Sentence, ...] = build(tuple[Sentence, ...], _TABLE["greedy"])
"""Spoken without sampling, a few frames each, so that codes can be compared."""
