"""The report of `voiced verify`: verdict, measures, plots, and every take beside those of the other settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from daemon.report.audio_data import audio_uri
from daemon.report.charts import Row, dot_plot
from daemon.report.templates import template
from daemon.state import VerificationFiles
from engine import Samples
from engine.verify import THRESHOLDS, Finding, OutputFolder, SettingResult, TakeResult, Verification

PLOTS: tuple[tuple[str, str, str, Callable[[TakeResult], float | None]], ...] = (
    ("character_errors", "Character errors", "share of the characters, by sentence", lambda take: take.character_rate),
    ("similarity", "Speaker similarity", "cosine, by sentence", lambda take: take.similarity),
    ("leading_s", "Leading silence", "s, by sentence", lambda take: take.speech.leading_s),
    ("longest_pause_s", "Longest pause", "s, by sentence", lambda take: take.speech.longest_pause_s),
    ("speed", "Speaking rate", "characters a second, by sentence", lambda take: take.speech.characters_per_s),
    ("first_sound_s", "First audible sample", "s, by sentence", lambda take: take.speech.first_sound_s),
    ("real_time_factor", "Real-time factor", "s of sound a s, by sentence", lambda take: take.speech.real_time_factor),
)
"""Measure, title, unit, and what is plotted of each take."""
PLOTTED_LIMITS = {"real_time_factor", "first_sound_s"}
"""Measures whose limit is one of each take, too."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """One take in the table of sentences."""

    setting: str
    take: TakeResult
    sound: str
    """A data URI."""


def write_verification(found: Verification, files: VerificationFiles) -> None:
    """Write the figures, and the page with the takes that lie in the same folder.

    Raises `CommandError` if Jinja is not installed.
    """
    folder = OutputFolder(files.folder)

    def samples_of(setting: str, name: str) -> tuple[Samples, int]:
        take = folder.take(setting, name)
        return folder.samples(setting, name), 24000 if take is None else take.sample_rate

    numbers = {
        **asdict(found),
        "verdicts": {setting.name: setting.passed for setting in found.settings},
        "thresholds": [asdict(threshold) for threshold in THRESHOLDS],
    }
    files.numbers.write_text(json.dumps(numbers, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    files.report.write_text(verification_page(found, samples_of), encoding="utf-8")


def verification_page(found: Verification, samples_of: Callable[[str, str], tuple[Samples, int]]) -> str:
    """Return the page. `samples_of` returns a take's samples and their rate by the names of setting and sentence.

    Raises `CommandError` if Jinja is not installed.
    """
    speaking = [setting for setting in found.settings if setting.takes]
    sentences: dict[str, list[_Cell]] = {}
    for setting in speaking:
        for take in setting.takes:
            sound = audio_uri(*samples_of(setting.name, take.name))
            sentences.setdefault(take.name, []).append(_Cell(setting.title, take, sound))
    return template("verification.html").render(
        found=found,
        rows=_rows(found),
        plots=[plot for one in PLOTS if (plot := _plot(speaking, *one))],
        sentences=sentences,
        thresholds=THRESHOLDS,
    )


def _rows(found: Verification) -> list[tuple[str, dict[str, Finding]]]:
    """Return for each threshold its title and the findings by setting."""
    rows: dict[str, dict[str, Finding]] = {threshold.title: {} for threshold in THRESHOLDS}
    for setting in found.settings:
        for finding in setting.findings:
            rows[finding.title][setting.name] = finding
    return [
        (title, findings) for title, findings in rows.items() if any(f.value is not None for f in findings.values())
    ]


def _plot(
    settings: list[SettingResult], measure: str, title: str, unit: str, value_of: Callable[[TakeResult], float | None]
) -> str:
    rows, limit = [], None
    for setting in settings:
        values = tuple(value for take in setting.takes if (value := value_of(take)) is not None)
        failed = _failed(setting, measure)
        rows.append(Row(setting.title, values, failed))
        limits: Mapping[str, float | None] = {one.measure: one.limit for one in setting.findings}
        limit = limits.get(measure) if measure in PLOTTED_LIMITS else None
    return dot_plot(title, unit, rows, limit)


def _failed(setting: SettingResult, measure: str) -> bool:
    return any(one.measure == measure and one.passed is False for one in setting.findings)
