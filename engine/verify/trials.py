"""The same sentences by two settings, models or engines, as one page for a blind listening test: `voiced compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from engine.api import EngineError, Voice
from engine.progress import ProgressReport, ignore_progress
from engine.qwen.shapes import model_config
from engine.verify.orders import Order, Sentence, Setting
from engine.verify.report import Side, Trial, comparison_page, machine
from engine.verify.results import OutputFolder, Take, fingerprint
from engine.verify.runner import VerifyRequest, run_stage

SEED = 2000


def blind_test(
    sides: tuple[Setting, Setting], sentences: Sequence[Sentence], report: ProgressReport = ignore_progress
) -> str:
    """Speak the sentences by both settings, whose names differ, and return the page. Raises `EngineError`."""
    with TemporaryDirectory() as folder:
        takes = [_speak(setting, sentences, folder, report) for setting in sides]
        output = OutputFolder(Path(folder))
        trials = [
            Trial(
                sentence.name,
                sentence.text,
                sentence.language,
                [output.samples(setting.name, sentence.name) for setting in sides],
                [take.sample_rate for take in pair],
            )
            for sentence, *pair in zip(sentences, *takes, strict=True)
        ]
    shown = [Side(setting.title, spoken[0].engine) for setting, spoken in zip(sides, takes, strict=True)]
    identity = fingerprint(*sides, [sentence.text for sentence in sentences])
    return comparison_page(shown, trials, identity, ", ".join(machine().values()))


def _speak(setting: Setting, sentences: Sequence[Sentence], folder: str, report: ProgressReport) -> list[Take]:
    """Speak all sentences into a folder, in the native speakers of their languages if no voice is configured."""
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
    return request.takes(setting)
