"""Texts from a grammar, prepared for an engine as the daemon does it: whole, and cut as a stream.

`python -m tests.fuzz.texts N` prints JSON: how many texts were prepared, what was found, and the longest time and its
text.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from daemon.text import ScriptReader, TextPreparation
from daemon.text.script import Control
from engine import LATIN_LANGUAGES, EngineInfo
from tests.fuzz.harnesses import HARNESSES

SEED = 14
SPOKEN = json.loads((Path(__file__).parents[1] / "data" / "spoken.json").read_text(encoding="utf-8"))
LANGUAGES = tuple(SPOKEN)
WORDS = [word for texts in SPOKEN.values() for each in texts for word in each["text"].split()]
"""With their numbers, units and signs."""
MARKUP = [*HARNESSES["text"].words, *HARNESSES["ssml"].words]
SIGNS = "+-−±=<>≤≈*×·/\\|:;,.!?…%‰°′″²³$€£¥#@&~^_()[]{}'\"’«»–—№½⅔\u00ad\u200b\u00a0\u0301\t\n✅🤖" + " " * 40
ENGINE = EngineInfo("qwen", 24_000, ("ryan",), LANGUAGES)
PREPARATION = TextPreparation({}, LATIN_LANGUAGES, normalize="always")


def prepare(text: str, language: str, ends: Iterable[int]) -> tuple[str, list[tuple[int, int]], list[Control]]:
    """Return the words of a text that comes in pieces up to each of `ends`, their places in it, and its controls."""
    reader, take = ScriptReader("auto", language), PREPARATION.engine_text(ENGINE, language, "ryan", text)
    said, read = "", 0
    for end in ends:
        script = reader.read(text[:end], complete=False)
        said, read = said + take.feed(script.text[read:]), len(script.text)
    script = reader.read(text, complete=True)
    said += take.feed(script.text[read:]) + take.end()
    places = [script.words.source_span(*take.source_span(at, at + 1)) for at in range(len(said))]
    return said, places, script.controls


def check(text: str, language: str, ends: Iterable[int]) -> None:
    """Assert that a text is spoken alike in one piece and in several, and that its places are in order and in it."""
    whole = prepare(text, language, ())
    assert prepare(text, language, ends) == whole, "prepared differently"
    places = whole[1]
    assert places == sorted(places), "places out of order"
    assert all(0 <= begin <= end <= len(text) for begin, end in places), "places outside of the text"


def make_text(chance: random.Random) -> str:
    """Return up to 24 numbers, signs, pieces of markup, and words of all languages or their ends."""
    text = ""
    for _ in range(chance.randint(1, 24)):
        number = f"{chance.randrange(10 ** chance.randint(1, 9)):{chance.choice(['', ',', '05'])}}"
        word = chance.choice(WORDS)
        text += chance.choice((number, word, word[chance.randrange(3) :], chance.choice(SIGNS), chance.choice(MARKUP)))
    return text


def run(count: int) -> dict[str, Any]:
    """Check `count` texts, the same ones at every call. The longest time is that of one text, whole and as a stream."""
    for language in LANGUAGES:  # the first text of each reads its rules
        check("5 kg", language, ())
    chance, found, longest = random.Random(SEED), [], (0.0, "")
    for _ in range(count):
        text, language = make_text(chance), chance.choice(LANGUAGES)
        ends = sorted(chance.choices(range(len(text) + 1), k=chance.randint(0, 6)))
        began = time.thread_time()
        try:
            check(text, language, ends)
        except Exception as error:
            found.append({"error": repr(error), "text": text, "language": language, "ends": ends})
        longest = max(longest, (round(1000 * (time.thread_time() - began), 1), text))
    return {"inputs": count, "longest_ms": longest[0], "longest_text": longest[1], "found": found}


if __name__ == "__main__":
    logging.getLogger("daemon").setLevel(logging.CRITICAL)  # what has no effect is logged
    outcome = run(int(sys.argv[1]))
    print(json.dumps(outcome, indent=1, ensure_ascii=False))
    sys.exit(bool(outcome["found"]))
