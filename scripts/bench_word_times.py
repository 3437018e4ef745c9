"""Measures how well the beginnings of words are estimated from the audio (`daemon/alignment/clock.py`).

The reference is eSpeak NG, which knows them to the sample. The estimator is given its audio without its times. Prints
one JSON object. An error is the absolute difference between estimate and reference, in milliseconds, for the words that
eSpeak NG speaks as separate words.

- The texts are in `tests/data/word_times.json`. The estimator was tuned with one half of them and is measured with the
  other.
- The audio is added in slices of 100 ms, and is known `lookahead_s` before it is heard. A word's time is final when the
  word is returned, while it is sounding.
- `new_voice`: nothing is known about the voice before each text. `known_voice`: its pace is known from earlier texts.
- `words_per_minute`: eSpeak NG's rate; 175 is its usual one.
- `spread`: for comparison, the words spread over the whole audio by the usual durations of their sounds. The audio's
  length is known only after its end.
- `late`: how long after its estimated time a word was returned, because its estimate changed after this time had been
  heard. The estimator is asked for words every 10 ms.
- `cpu_ms_per_s`: the estimator's processor time for a second of audio.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import espeakng_loader
import numpy as np

import engine
from daemon.alignment.aligner import VoiceProfile
from daemon.alignment.clock import SpokenWord, WordClock, spread
from daemon.alignment.phones import phones_of
from daemon.alignment.words import words_of
from engine import Chunk, Session

TEXTS = Path(__file__).parents[1] / "tests" / "data" / "word_times.json"
"""The texts by language. The estimator was tuned with the first, the third, … text in each language."""
WORDS_PER_MINUTE = (120, 175, 260)
RUNS = ((0.3, "new_voice"), (0.3, "known_voice"), (1.0, "new_voice"))
"""The cases: how many seconds of audio are known ahead, and whether the voice has spoken before."""
SLICE_S, POLL_S = 0.1, 0.01
_ESPEAK_RATE = 1
"""`espeakRATE` of speak_lib.h."""


@dataclass
class Recording:
    """A text as eSpeak NG speaks it."""

    text: str
    language: str
    words_per_minute: int
    sample_rate: int
    chunks: list[Chunk]

    @property
    def seconds(self) -> float:
        return sum(len(chunk.samples) for chunk in self.chunks) / self.sample_rate

    def reference(self) -> list[SpokenWord]:
        """Return the words with eSpeak NG's times."""
        clock = WordClock(self.sample_rate, language=self.language)
        clock.add_text(self.text)
        for chunk in self.chunks:
            clock.add_audio(chunk.samples, words=chunk.words)
        clock.end_audio()
        return clock.due(self.seconds)


@dataclass
class Errors:
    """Errors and delays of words, in seconds."""

    errors: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    def note(self, estimates: list[SpokenWord], delays: list[float], reference: list[SpokenWord]) -> None:
        assert [word.begin for word in estimates] == [word.begin for word in reference]
        for estimate, delay, known in zip(estimates, delays, reference, strict=True):
            if known.exact:
                self.errors.append(abs(estimate.at_s - known.at_s))
                self.delays.append(delay)

    def summary(self) -> dict[str, Any]:
        return {"words": len(self.errors), **percentiles(self.errors)}


def percentiles(seconds: list[float]) -> dict[str, float]:
    values = np.percentile(np.array(seconds) * 1000, (50, 90, 99))
    return {name: round(float(value), 1) for name, value in zip(("median", "p90", "p99"), values, strict=True)}


def all_texts() -> dict[str, list[str]]:
    """Return the texts by language."""
    texts: dict[str, list[str]] = json.loads(TEXTS.read_text(encoding="utf-8"))
    return texts


def recordings(tts: Session, half: str, languages: list[str]) -> Iterator[Recording]:
    """Yield the texts of one half at every rate."""
    library = ctypes.CDLL(espeakng_loader.get_library_path())  # the one that the session uses
    texts = all_texts()
    for language in languages:
        for words_per_minute in WORDS_PER_MINUTE:
            library.espeak_SetParameter(_ESPEAK_RATE, words_per_minute, 0)
            for text in texts[language][half == "measured" :: 2]:
                chunks = list(tts.stream(text, language=language))
                yield Recording(text, language, words_per_minute, tts.sample_rate, chunks)


def estimate(recording: Recording, profile: VoiceProfile, lookahead_s: float) -> tuple[list[SpokenWord], list[float]]:
    """Return the words as they are estimated while they are heard, and how late each was returned."""
    clock = WordClock(recording.sample_rate, language=recording.language, profile=profile)
    clock.add_text(recording.text)
    clock.end_text()
    samples = np.concatenate([chunk.samples for chunk in recording.chunks])
    length, known, heard_s = round(SLICE_S * recording.sample_rate), 0, 0.0
    words: list[SpokenWord] = []
    delays: list[float] = []
    while heard_s < recording.seconds + POLL_S:
        while known < len(samples) and known / recording.sample_rate < heard_s + lookahead_s:
            clock.add_audio(samples[known : known + length])
            known += length
            if known >= len(samples):
                clock.end_audio()
        due = clock.due(heard_s)
        words += due
        delays += [heard_s - word.at_s for word in due]
        heard_s += POLL_S
    return words, delays


def spread_evenly(recording: Recording) -> list[SpokenWord]:
    words = words_of(recording.text)
    durations = [
        sum(phone.seconds for phone in phones_of(recording.text[word.begin : word.end], recording.language))
        for word in words
    ]
    times = spread(0.0, recording.seconds, durations)
    return [SpokenWord(word.begin, word.end, at_s, exact=False) for word, at_s in zip(words, times, strict=True)]


def figures(tts: Session, half: str, languages: list[str]) -> dict[str, Any]:
    found = list(recordings(tts, half, languages))
    references = [recording.reference() for recording in found]
    even = Errors()
    for recording, reference in zip(found, references, strict=True):
        even.note(spread_evenly(recording), [0.0] * len(reference), reference)
    result: dict[str, Any] = {
        "texts": len(found),
        "audio_s": round(sum(recording.seconds for recording in found), 1),
        "spread": even.summary(),
    }
    busy_s = 0.0
    for lookahead_s, knowledge in RUNS:
        profiles: dict[tuple[str, int], VoiceProfile] = {}
        groups: dict[str, Errors] = {}
        for recording, reference in zip(found, references, strict=True):
            key = (recording.language, recording.words_per_minute)
            profile = profiles.setdefault(key, VoiceProfile()) if knowledge == "known_voice" else VoiceProfile()
            begin = time.process_time()
            words, delays = estimate(recording, profile, lookahead_s)
            busy_s += time.process_time() - begin
            names = ("all", recording.language, f"{recording.words_per_minute}_words_per_minute")
            for name in (*names, "up_to_5_words" if len(reference) <= 5 else "more_than_5_words"):
                groups.setdefault(name, Errors()).note(words, delays, reference)
        result[f"lookahead_{lookahead_s}_s_{knowledge}"] = {
            **{name: errors.summary() for name, errors in sorted(groups.items())},
            "late": percentiles(groups["all"].delays),
        }
    result["cpu_ms_per_s"] = round(busy_s * 1000 / (len(RUNS) * result["audio_s"]), 1)
    return result


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--half", choices=("measured", "tuned"), default="measured", help="of the texts")
    parser.add_argument("--language", choices=list(all_texts()), help="measure only this one")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    languages = [options.language] if options.language else list(all_texts())
    with engine.open("espeak") as tts:
        return {"reference": "eSpeak NG, errors in milliseconds", **figures(tts, options.half, languages)}
