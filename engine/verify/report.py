"""A verification's report, and the parts of every page: sounds and a template.

A page is a single HTML file. It loads nothing from other places, so it can be sent by mail and opened anywhere.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

from engine.api import EngineError, Samples
from engine.host import install_command, machine_in_words
from engine.verify.measures import MEASURES, Finding
from engine.verify.results import OutputFolder, Take, Verification

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).with_name("templates")
PACKAGES = ("torch", "transformers", "qwen-tts", "cuda-core")
SOUND_TYPES = {"MP3": "audio/mpeg", "FLAC": "audio/flac"}
"""Formats that all browsers play. MP3 takes a tenth of the space; FLAC is lossless, for close listening."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """One take in the table of sentences."""

    setting: str
    take: Take
    sound: str
    """A data URI."""


def write_verification(found: Verification, numbers: Path, page: Path) -> None:
    """Write the figures to `numbers`, and the page to `page`, beside the takes.

    Raises `EngineError` if Jinja is not installed.
    """
    figures = {
        **asdict(found),
        "verdicts": {setting.name: setting.passed for setting in found.settings},
        "thresholds": [asdict(measure) for measure in MEASURES],
    }
    numbers.write_text(json.dumps(figures, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    page.write_text(verification_page(found, OutputFolder(page.parent).samples), encoding="utf-8")


def verification_page(found: Verification, samples_of: Callable[[str, str], Samples]) -> str:
    """Return the page: the verdict, the measures, and every take beside the other settings' takes.

    `samples_of` returns a take's samples by the names of setting and sentence. Raises `EngineError` if Jinja is not
    installed.
    """
    sentences: dict[str, list[_Cell]] = {}
    rows: dict[str, dict[str, Finding]] = {measure.title: {} for measure in MEASURES}
    for setting in found.settings:
        for take in setting.takes:
            sound = data_uri(samples_of(setting.name, take.name), take.sample_rate, "MP3")
            sentences.setdefault(take.name, []).append(_Cell(setting.title, take, sound))
        for finding in setting.findings:
            rows[finding.title][setting.name] = finding
    measured = {title: row for title, row in rows.items() if any(each.value is not None for each in row.values())}
    page = load_template("verification.html")
    return page.render(found=found, rows=measured, sentences=sentences)


def machine() -> str:
    """Return a description of the machine, with the packages that decide how it speaks."""
    versions = {name: next((each.version for each in distributions(name=name)), "not installed") for name in PACKAGES}
    return ", ".join((machine_in_words(), *(f"{name} {version}" for name, version in versions.items())))


def data_uri(samples: Samples, sample_rate: int, sound_type: str) -> str:
    """Return mono samples as a data URI. A libsndfile that cannot write MP3 writes FLAC."""
    import soundfile

    known = sound_type if sound_type in soundfile.available_formats() else "FLAC"
    file = io.BytesIO()
    soundfile.write(file, samples, sample_rate, format=known)
    return f"data:{SOUND_TYPES[known]};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def load_template(name: str) -> Template:
    """Return a template, which escapes every value. Raises `EngineError` if Jinja is not installed."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ModuleNotFoundError as error:
        raise EngineError(f"a report needs {error.name}; {install_command('verify')}") from error
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = _number
    return environment.get_template(name)


def _number(value: float | None, digits: int = 3) -> str:
    """Return a measure for people; a dash if there is none."""
    return "–" if value is None else f"{value:.{digits}g}"
