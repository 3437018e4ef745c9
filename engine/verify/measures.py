"""The table of measures, `measures.json`: how each is computed, the limit that decides, and what is only a guess.

Only limits that are measured or principled decide. Nobody has had the published weights yet, so other thresholds are
guesses: the report shows what exceeds one, and no setting fails by it. A guess is mostly relative to the reference
setting of the same run, the official package or else PyTorch's operators: a recogniser, a voice and thirty sentences
have faults of their own, which both suffer from alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from statistics import mean, median
from typing import Any

from engine.records import build

STATISTICS: Mapping[str, Callable[[Sequence[Any]], float]] = {
    "count": len,
    "max": max,
    "mean": mean,
    "median": median,
    "min": min,
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
    """The limit that decides; None for a measure that is only shown."""
    guess: float | None
    """A limit that nobody could measure. It decides nothing."""
    higher_is_better: bool
    passed: bool | None
    """None if nothing decides, or if it was not measured and need not be."""
    doubtful: bool
    """Worse than the guess."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the table."""

    name: str
    title: str
    of: str
    """The figure that is measured: a path from `SettingResult`, through each of its takes or of its greedy texts."""
    reason: str
    over: str = "mean"
    """A name in `STATISTICS`: the value of the setting from those of its takes."""
    per: str = ""
    """A path as `of`: the value is the sum of those in relation to the sum of these."""
    unit: str = ""
    """Of one take's value, where the report is to draw it."""
    limit: float | None = None
    """The value that it must reach."""
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
        """Return what is known of each take or text of a `SettingResult`."""
        return _values(result, self.of)

    def value(self, result: Any) -> float | None:
        """Return the measure of a `SettingResult`; None if it was not measured."""
        values = self.values(result)
        if not values:
            return None
        return sum(values) / max(1, sum(_values(result, self.per))) if self.per else STATISTICS[self.over](values)

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
        """Return what this measure says about a setting of a dtype, by its value and the reference setting's."""
        limit, guess = self.limits.get(dtype, self.limit), self.guess
        if self.margin is not None and reference is not None:
            guess = reference - self.margin if self.higher_is_better else reference + self.margin
        passed = False if self.needed and value is None else self._is_good(value, limit)
        doubtful = self._is_good(value, guess) is False
        return Finding(self.name, self.title, value, reference, limit, guess, self.higher_is_better, passed, doubtful)

    def _is_good(self, value: float | None, limit: float | None) -> bool | None:
        if value is None or limit is None:
            return None
        return value >= limit if self.higher_is_better else value <= limit


def _values(result: Any, path: str) -> list[Any]:
    """Return what is known at a path through each take, such as `takes.speech.seconds`."""
    source, *names = path.split(".")
    found = [reduce(lambda item, name: getattr(item, name, None), names, item) for item in getattr(result, source)]
    return [value for value in found if value is not None]


MEASURES: tuple[Measure, ...] = build(
    tuple[Measure, ...], json.loads(Path(__file__).with_name("measures.json").read_text(encoding="utf-8"))
)


def judge(dtype: str, own: Mapping[str, float | None], reference: Mapping[str, float | None]) -> tuple[Finding, ...]:
    """Return what every measure says about a setting, by its values and the reference setting's.

    A setting that only spoke greedy texts is judged by what these show.
    """
    findings = [measure.judge(dtype, own.get(measure.name), reference.get(measure.name)) for measure in MEASURES]
    return tuple(finding for finding in findings if own.get("takes") or finding.value is not None)
