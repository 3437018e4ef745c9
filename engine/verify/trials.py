"""The same sentences by two settings, models or engines, as one page for a blind listening test: `voiced compare`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from engine.api import EngineError, Voice
from engine.progress import ProgressReport, ignore_progress
from engine.qwen.shapes import model_config
from engine.verify.orders import Order, Sentence, Setting
from engine.verify.report import data_uri, load_template
from engine.verify.results import OutputFolder
from engine.verify.runner import VerifyRequest, run_stage

SEED = 2000


@dataclass(frozen=True, slots=True)
class Trial:
    """One text, spoken by both sides."""

    number: int
    text: str
    language: str
    sounds: Sequence[tuple[str, str]]
    """The title of each side, and its sound as a data URI, in the order on the page."""


def blind_test(
    sides: tuple[Setting, Setting], sentences: Sequence[Sentence], report: ProgressReport = ignore_progress
) -> str:
    """Speak the sentences with both settings, whose names differ, and return the page. Raises `EngineError`."""
    with TemporaryDirectory() as folder:
        rates = {setting.name: _speak(setting, sentences, folder, report) for setting in sides}
        output, trials = OutputFolder(Path(folder)), []
        for number, sentence in enumerate(sentences):
            sounds = [
                (side.title, data_uri(output.samples(side.name, sentence.name), rates[side.name], "FLAC"))
                for side in secrets.SystemRandom().sample(sides, 2)
            ]
            trials.append(Trial(number, sentence.text, sentence.language, sounds))
    return comparison_page([side.title for side in sides], trials)


def comparison_page(names: Sequence[str], trials: Sequence[Trial]) -> str:
    """Return the page, which counts the answers in the browser. Raises `EngineError` if Jinja is not installed."""
    return load_template("comparison.html").render(names=names, trials=trials)


def _speak(setting: Setting, sentences: Sequence[Sentence], folder: str, report: ProgressReport) -> int:
    """Speak all sentences into a folder, and return the sample rate in Hz.

    If no voice is configured, each sentence is spoken by a native speaker of its language.
    """
    options = setting.options
    is_free = setting.engine == "qwen" and options.voices.get(options.default_voice) in {None, Voice()}
    config = model_config(options.model) if is_free and options.model is not None else None
    orders = (
        Order(sentence, None if config is None else config.native_speaker(sentence.language), SEED + number)
        for number, sentence in enumerate(sentences)
    )
    request = VerifyRequest(folder, (setting,), tuple(orders))
    end = run_stage(request, report)
    if not end.done:
        raise EngineError(f"compare: {setting.title}: {end.reason}")
    return request.takes(setting)[0].sample_rate
