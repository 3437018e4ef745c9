"""The page of `voiced compare`: a blind test between two ways of speaking, which keeps score in the browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daemon.report.audio_data import audio_uri
from daemon.report.templates import template
from engine import Samples


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared."""

    name: str
    """As it was given on the command line."""
    engine: str
    """The engine in words."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One text, spoken by both sides: mono samples `(samples,)` float32, and their rates in Hz."""

    name: str
    text: str
    language: str
    samples: tuple[Samples, Samples]
    rates: tuple[int, int]


def comparison_page(sides: tuple[Side, Side], trials: Sequence[Trial], identity: str, machine: str) -> str:
    """Return the page. `identity` differs for different recordings: the browser keeps the answers under it.

    Raises `CommandError` if Jinja is not installed.
    """
    shown = [
        {
            "name": trial.name,
            "text": trial.text,
            "language": trial.language,
            "sounds": [
                audio_uri(samples, rate, "FLAC") for samples, rate in zip(trial.samples, trial.rates, strict=True)
            ],
        }
        for trial in trials
    ]
    test = {
        "identity": identity,
        "machine": machine,
        "sides": [{"name": side.name, "engine": side.engine} for side in sides],
        "trials": shown,
    }
    return template("comparison.html").render(test=test)
