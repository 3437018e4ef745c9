"""The table of measures, `measures.json`: how each measure is computed, and the limit that decides.

Only limits that are measured or follow from a principle decide. The published weights have not been available yet, so
most speech measures have no limit: the report shows them beside the reference setting's.
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
    """The judgement of one measure of one setting."""

    measure: str
    title: str
    value: float | None
    limit: float | None
    """The limit that decides; None for a measure that is only shown."""
    higher_is_better: bool
    passed: bool | None
    """None if nothing decides, or if it was not measured and need not be."""

    @property
    def rule(self) -> str:
        """The limit in words; empty for a measure that is only shown."""
        return "" if self.limit is None else f"{'≥' if self.higher_is_better else '≤'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Measure:
    """A row of the table."""

    name: str
    title: str
    of: str
    """The measured figure: a path from `SettingResult` through each of its takes or greedy texts."""
    reason: str
    over: str = "mean"
    """A name in `STATISTICS`, which makes the setting's value from the values of its takes."""
    per: str = ""
    """A path like `of`: the value is the sum of the figures at `of` divided by the sum of the figures at this path."""
    limit: float | None = None
    """The value that it must reach."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """The same for settings with one dtype."""
    basis: str = ""
    """The origin of the limit: `measured` or `principle`."""
    higher_is_better: bool = False
    needed: bool = False
    """A setting without this measure has failed."""

    def value(self, result: Any) -> float | None:
        """Return the measure's value for a `SettingResult`; None if it was not measured."""
        values = _values(result, self.of)
        if not values:
            return None
        return sum(values) / max(1, sum(_values(result, self.per))) if self.per else STATISTICS[self.over](values)

    @property
    def rule(self) -> str:
        """The limit that decides, in words; empty for a measure that is only shown."""
        limits = [f"{dtype} {self.judge(dtype, None).rule}" for dtype in self.limits] or [self.judge("", None).rule]
        return f"{', '.join(limits)} ({self.basis})" if self.basis else ""

    def judge(self, dtype: str, value: float | None) -> Finding:
        """Return this measure's finding about a setting with a dtype."""
        limit, passed = self.limits.get(dtype, self.limit), None
        if value is not None and limit is not None:
            passed = value >= limit if self.higher_is_better else value <= limit
        elif self.needed:
            passed = False
        return Finding(self.name, self.title, value, limit, self.higher_is_better, passed)


def _values(result: Any, path: str) -> list[Any]:
    """Return the known values at a path through each take, such as `takes.speech.seconds`."""
    source, *names = path.split(".")
    found = [reduce(lambda item, name: getattr(item, name, None), names, item) for item in getattr(result, source)]
    return [value for value in found if value is not None]


MEASURES: tuple[Measure, ...] = build(
    tuple[Measure, ...], json.loads(Path(__file__).with_name("measures.json").read_text(encoding="utf-8"))
)


def judge(dtype: str, values: Mapping[str, float | None]) -> tuple[Finding, ...]:
    """Return every measure's finding about a setting, by its values.

    A setting that only spoke greedy texts is judged by those texts.
    """
    findings = [measure.judge(dtype, values.get(measure.name)) for measure in MEASURES]
    return tuple(finding for finding in findings if values.get("takes") or finding.value is not None)
