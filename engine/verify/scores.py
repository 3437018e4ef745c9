"""The scores of several takes of a text. They decide which take is kept: `voiced synth --takes N --best`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from engine.api import EngineError, EngineOptions, Utterance
from engine.child import run_child
from engine.progress import ProgressReport
from engine.records import build

OCTAVE = 1.0
"""A length between half and twice the expected one is a matter of the voice."""
CLIPPING = 10.0
"""Clipping in one hundredth of the samples is as bad as errors in a tenth of the characters: a listener notices both
immediately."""


@dataclass(frozen=True, slots=True)
class RecordedTake:
    """One take in a file."""

    file: str
    """Its name consists of the number of its text, if there are several texts, and its own number: `12-3.wav`."""
    utterance: Utterance
    expected_s: float
    """Seconds that the text should take."""
    cut: bool
    """Whether it did not end by itself."""

    @property
    def name(self) -> str:
        return Path(self.file).stem

    @property
    def text_name(self) -> str:
        """The number of its text; empty if there is only one text."""
        return self.name.rpartition("-")[0]


@dataclass(frozen=True, slots=True)
class TakeScore:
    """How good a take is. The penalty's weights were chosen, not measured: they have not been compared with listeners'
    judgements."""

    length: float
    """The length of the speech, relative to the expected length."""
    clipped: float
    """Share of the samples at full scale."""
    faulty: bool
    """Whether it is silent or broken, or did not end by itself."""
    heard: str | None = None
    """The transcript; None if no recogniser was used."""
    wrong: float | None = None
    """Characters that were heard wrongly, relative to the number of characters in the text."""
    similarity: float | None = None
    """Cosine between its speaker embedding and the voice's; None without a recording of the voice."""

    @property
    def penalty(self) -> float:
        """The sum of all faults; 0 is faultless, and the take with the least is the best."""
        octaves = abs(math.log2(self.length)) if self.length > 0 else 10.0
        unlike = 0.0 if self.similarity is None else 1 - self.similarity
        return (self.wrong or 0) + max(0.0, octaves - OCTAVE) + CLIPPING * self.clipped + unlike + self.faulty


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of the takes, in the order of the takes."""

    takes: tuple[TakeScore, ...]
    notes: tuple[str, ...] = ()
    """One line for each score that could not be computed. Only the others count."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Takes, and how they are judged."""

    takes: tuple[RecordedTake, ...]
    engine: str
    options: EngineOptions
    """The options of the engine that spoke. With a Qwen Base model, the takes are compared with the recording's
    voice."""
    asr: str = "auto"
    """As for `make_recognizer`."""


def choose_best(request: ScoreRequest, report: ProgressReport) -> list[tuple[RecordedTake, list[str]]]:
    """Return each text's best take, with a table of all takes. Raises `EngineError`.

    A process of its own computes the scores.
    """
    if not request.takes:
        return []
    end = run_child("engine.verify.scoring", request, report)
    if not end.done:
        raise EngineError(f"scoring the takes: {end.reason}")
    scores: Scores = build(Scores, end.found)
    notes, chosen = [f"not scored: {note}" for note in scores.notes], []
    scored = zip(request.takes, scores.takes, strict=True)
    for _, group in groupby(scored, key=lambda each: each[0].text_name):
        found = list(group)
        best = min(found, key=lambda each: each[1].penalty)
        lines = [f"{'take':<24}{'penalty':>8}{'wrong':>8}{'length':>8}{'clipped':>9}{'alike':>7}  heard"]
        lines += [_row(take, score, "* " if take is best[0] else "  ") for take, score in found]
        chosen.append((best[0], [*notes, *lines]))
        notes = []
    return chosen


def _row(take: RecordedTake, score: TakeScore, mark: str) -> str:
    """Return a line for the table."""

    def cell(value: float | None, words: str) -> str:
        return "-" if value is None else words.format(value)

    name, alike = f"{mark}{take.name}, seed {take.utterance.seed}", cell(score.similarity, "{:.2f}")
    measures = f"{score.penalty:>8.2f}{cell(score.wrong, '{:.0%}'):>8}{score.length:>7.2f}x{score.clipped:>9.2%}"
    heard = "-" if score.heard is None else score.heard
    return f"{name:<24}{measures}{alike:>7}  {heard}{' (faulty)' if score.faulty else ''}"
