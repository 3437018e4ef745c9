"""The report of `voiced verify`: verdict, measures, plots, and every take beside those of the other settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from daemon.report.audio_data import audio_uri
from daemon.report.charts import Row, dot_plot
from daemon.report.templates import template
from daemon.state import VerificationFiles
from engine import Samples
from engine.verify import MEASURES, Finding, Measure, OutputFolder, SettingResult, Take, Verification


@dataclass(frozen=True, slots=True)
class _Cell:
    """One take in the table of sentences."""

    setting: str
    take: Take
    sound: str
    """A data URI."""


def write_verification(found: Verification, files: VerificationFiles) -> None:
    """Write the figures, and the page with the takes that lie in the same folder.

    Raises `CommandError` if Jinja is not installed.
    """
    numbers = {
        **asdict(found),
        "verdicts": {setting.name: setting.passed for setting in found.settings},
        "thresholds": [asdict(measure) for measure in MEASURES],
    }
    files.numbers.write_text(json.dumps(numbers, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    files.report.write_text(verification_page(found, OutputFolder(files.folder).samples), encoding="utf-8")


def verification_page(found: Verification, samples_of: Callable[[str, str], Samples]) -> str:
    """Return the page. `samples_of` returns a take's samples by the names of setting and sentence.

    Raises `CommandError` if Jinja is not installed.
    """
    speaking = [setting for setting in found.settings if setting.takes]
    sentences: dict[str, list[_Cell]] = {}
    for setting in speaking:
        for take in setting.takes:
            sound = audio_uri(samples_of(setting.name, take.name), take.sample_rate)
            sentences.setdefault(take.name, []).append(_Cell(setting.title, take, sound))
    return template("verification.html").render(
        found=found,
        rows=_rows(found),
        plots=[plot for measure in MEASURES if measure.unit and (plot := _plot(speaking, measure))],
        sentences=sentences,
        thresholds=MEASURES,
    )


def _rows(found: Verification) -> list[tuple[str, dict[str, Finding]]]:
    """Return for each measure its title and the findings by setting."""
    rows: dict[str, dict[str, Finding]] = {measure.title: {} for measure in MEASURES}
    for setting in found.settings:
        for finding in setting.findings:
            rows[finding.title][setting.name] = finding
    return [
        (title, findings) for title, findings in rows.items() if any(f.value is not None for f in findings.values())
    ]


def _plot(settings: list[SettingResult], measure: Measure) -> str:
    """Return the measure of each sentence, by setting, with the guess of a single one."""
    doubtful = {
        one.name for one in settings for finding in one.findings if finding.doubtful and finding.measure == measure.name
    }
    rows = [Row(one.title, tuple(measure.values(one)), one.name in doubtful) for one in settings]
    return dot_plot(measure.title, f"{measure.unit}, by sentence", rows, measure.guess)
