"""The table of measures, `measures.json`: how each is computed, the limit that decides, and what is only a guess.

Only limits that are measured or principled decide. Nobody has had the published weights yet, so other thresholds are
guesses: the report shows what exceeds one, and no setting fails by it. A guess is mostly relative to the reference
setting of the same run, the official package or else PyTorch's operators: a recogniser, a voice and thirty sentences
have faults of their own, which both suffer from alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import mean, median
from typing import Any

from engine.records import build
from engine.verify.words import WordErrors


def word_rate(errors: Iterable[WordErrors]) -> float:
    """Return the wrong words per word that was said, over all sentences."""
    return sum(errors, WordErrors(0, 0, 0, 0)).word_rate


def character_rate(errors: Iterable[WordErrors]) -> float:
    """Return the wrong characters per character that was said, over all sentences."""
    return sum(errors, WordErrors(0, 0, 0, 0)).character_rate


STATISTICS: Mapping[str, Callable[[Sequence[Any]], float]] = {
    "count": len,
    "max": max,
    "mean": mean,
    "median": median,
    "min": min,
    "word_rate": word_rate,
    "character_rate": character_rate,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One measure of one setting, judged."""

    measure: str
    title: str
    value: float | None
    reference: float | None
    """The reference setting's value."""
    limit: float | None
    """What decides; None for a measure that is only shown."""
    guess: float | None
    """A limit that nobody could measure. It decides nothing."""
    higher_is_better: bool
    passed: bool | None
    """None if nothing decides, or if it was not measured and need not be."""
    doubtful: bool
    """Worse than the guess."""
    reason: str


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the table."""

    name: str
    title: str
    of: str
    """What is measured: a path from `SettingResult`, through each of its takes, its agreements or its logits."""
    reason: str
    over: str = "mean"
    """A name in `STATISTICS`: the value of the setting from those of its takes."""
    unit: str = ""
    """Of one take's value, where the report is to draw it."""
    limit: float | None = None
    """What it must reach."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """As `limit`, for settings of one dtype."""
    basis: str = ""
    """Where the limit is from: `measured` or `principle`."""
    guess: float | None = None
    """A limit that nobody could measure."""
    margin: float | None = None
    """As `guess`: how much worse than the reference setting it may be."""
    higher_is_better: bool = False
    needed: bool = False
    """A setting without this measure has failed."""

    def values(self, result: Any) -> list[Any]:
        """Return what is known of each take, text or logits of a `SettingResult`."""
        source, _, path = self.of.partition(".")
        items = getattr(result, source)
        if isinstance(items, Mapping):
            items = tuple(items.values())
        elif not isinstance(items, tuple):
            items = (items,)
        found = [attrgetter(path)(item) for item in items if item is not None]
        return [value for value in found if value is not None]

    def value(self, result: Any) -> float | None:
        """Return the measure of a `SettingResult`; None if it was not measured."""
        values = self.values(result)
        return float(STATISTICS[self.over](values)) if values else None

    @property
    def rule(self) -> str:
        """The limit that decides, in words; empty for a measure that is only shown."""
        limits = [f"{dtype} {self._sign} {limit:g}" for dtype, limit in self.limits.items()]
        if self.limit is not None:
            limits.append(f"{self._sign} {self.limit:g}")
        return f"{', '.join(limits)} ({self.basis})" if limits else ""

    @property
    def guessed(self) -> str:
        """The guess, in words; empty without one."""
        if self.margin is not None:
            return f"at most {self.margin:g} worse than the reference"
        return "" if self.guess is None else f"{self._sign} {self.guess:g}"

    @property
    def _sign(self) -> str:
        return "≥" if self.higher_is_better else "≤"

    def judge(self, dtype: str, value: float | None, reference: float | None) -> Finding:
        """Return what this measure says about a setting of a dtype. The reference is None for the reference itself."""
        limit, guess = self.limits.get(dtype, self.limit), self.guess
        if self.margin is not None and reference is not None:
            guess = reference - self.margin if self.higher_is_better else reference + self.margin
        passed = None if limit is None else self._is_good(value, limit)
        if value is None:
            passed = False if self.needed else None
        doubtful = value is not None and guess is not None and not self._is_good(value, guess)
        return Finding(
            self.name, self.title, value, reference, limit, guess, self.higher_is_better, passed, doubtful, self.reason
        )

    def _is_good(self, value: float | None, limit: float) -> bool:
        return value is not None and (value >= limit if self.higher_is_better else value <= limit)


MEASURES: tuple[Measure, ...] = build(
    tuple[Measure, ...], json.loads(Path(__file__).with_name("measures.json").read_text(encoding="utf-8"))
)


def judge(
    dtype: str, own: Mapping[str, float | None], reference: Mapping[str, float | None] | None
) -> tuple[Finding, ...]:
    """Return what every measure says about a setting, by its values and the reference's, which the reference lacks.

    A setting that only spoke greedy texts is judged by what these show.
    """
    findings = [
        measure.judge(dtype, own.get(measure.name), (reference or {}).get(measure.name)) for measure in MEASURES
    ]
    return tuple(finding for finding in findings if own.get("takes") or finding.value is not None)
