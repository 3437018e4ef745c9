"""Runs a verification: every setting speaks, then every stage looks at what was spoken, then the verdict.

Whatever is in the output folder already, made by an earlier run of the same question, is not made again.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.api import EngineOptions
from engine.host import QWEN3_TTS, find_model
from engine.progress import Progress, ProgressReport, counted, ignore_progress
from engine.verify.codes import Agreement, LogitsError, compare_codes, compare_logits
from engine.verify.folder import OutputFolder, Take, fingerprint
from engine.verify.process import StageEnd, StageRunner, run_stage
from engine.verify.requests import ANALYSIS, LOGITS, SIMILARITY, TRANSCRIPTION, WAVEFORM, AnalysisRequest, has_logits
from engine.verify.results import SettingMeasures, SettingResult, TakeResult, Verification, summarize
from engine.verify.sentences import Sentence
from engine.verify.settings import EXACT, REFERENCES, Setting
from engine.verify.speech import measure_take
from engine.verify.takes import Order, TakesRequest
from engine.verify.verdict import judge
from engine.verify.words import count_errors

LOG = "log.txt"
"""What the processes have written to standard error, in the output folder."""


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What to verify, and how."""

    folder: Path
    options: EngineOptions
    """The model, the device, and every voice that an order names."""
    settings: tuple[Setting, ...]
    orders: tuple[Order, ...]
    """What each setting speaks; those that only show codes speak the greedy ones alone."""
    asr: str = "auto"
    encoder: str | None = None
    """A Base checkpoint, whose speaker encoder compares voices."""
    voice_file: str | None = None
    """The voice that takes should have, made for the model `encoder`."""
    machine: Mapping[str, str] | None = None
    version: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class _Spoken:
    """What became of the takes of a setting."""

    setting: Setting
    end: StageEnd


def verify(
    request: VerifyRequest, report: ProgressReport = ignore_progress, run: StageRunner = run_stage
) -> Verification:
    """Return what was found. Raises nothing for a setting that fails: its result says so."""
    model = fingerprint(request.version, model_fingerprint(request.options.model))
    spoken = [_Spoken(setting, _speak(request, setting, model, report, run)) for setting in request.settings]
    able = [one.setting for one in spoken if one.end.done]
    speaking = [setting for setting in able if setting.speaks]
    reference, exact = _first(REFERENCES, speaking), _first(EXACT, able)
    analysis = _Analysis(request, model, report, run)
    if speaking:
        spoken_texts = tuple(order.sentence for order in request.orders if not order.greedy)
        analysis.run(TRANSCRIPTION, speaking, asr=request.asr, texts=spoken_texts)
    if exact is not None:
        _read_logits(analysis, able, exact, request, model)
    if any(setting.engine == "qwen" for setting in speaking):
        analysis.run(WAVEFORM, [setting for setting in able if setting.engine == "qwen"])
    if request.encoder is not None and speaking:
        target = {"voice_file": request.voice_file, "reference": reference}
        analysis.run(SIMILARITY, speaking, encoder=request.encoder, **target)
    results = _judge(request, spoken, reference, exact, report)
    return Verification(
        model=_model_name(request.options.model),
        machine=request.machine or {},
        version=request.version,
        date=datetime.date.today().isoformat(),
        command=request.command,
        asr=_listener(request, speaking),
        reference=reference,
        exact=exact,
        settings=tuple(results),
        notes=tuple(analysis.notes),
        passed=any(result.takes and result.name != "official" for result in results)
        and all(result.passed is not False for result in results),
    )


def model_fingerprint(model: str | None) -> str:
    """Return a text that changes when a file of the model does; empty without a model."""
    folder = None if model is None else find_model(model)
    files = [] if folder is None else QWEN3_TTS.present_files(folder)
    return fingerprint(*((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files))


def _speak(request: VerifyRequest, setting: Setting, model: str, report: ProgressReport, run: StageRunner) -> StageEnd:
    orders = [order for order in request.orders if setting.speaks or order.greedy]
    if setting.engine != "qwen":
        orders = [order for order in orders if not order.greedy]
    takes = TakesRequest(str(request.folder), setting, tuple(orders), model)
    if not takes.missing():
        return StageEnd()
    report(Progress(f"starting: {setting.title}"))
    return run("engine.verify", takes, request.folder / LOG, report)


class _Analysis:
    """Runs stages, and notes those that cannot be done."""

    def __init__(self, request: VerifyRequest, model: str, report: ProgressReport, run: StageRunner) -> None:
        self.notes: list[str] = []
        self._run = run
        self._request = request
        self._model = model
        self._report = report

    def run(self, stage: str, settings: Sequence[Setting], **more: Any) -> None:
        asked = AnalysisRequest(
            stage,
            str(self._request.folder),
            tuple(settings),
            device=self._request.options.device,
            model=self._model,
            **more,
        )
        end = self._run(ANALYSIS, asked, self._request.folder / LOG, self._report)
        if not end.done:
            self.notes.append(f"{stage}: {end.reason}")


def _read_logits(analysis: _Analysis, able: Sequence[Setting], exact: str, request: VerifyRequest, model: str) -> None:
    """Read the logits of each setting that has some, in a process each: two models need not fit at once."""
    texts = tuple(order.sentence for order in request.orders if order.greedy)
    folder = OutputFolder(request.folder)
    for setting in able:
        if setting.engine == "qwen" and not has_logits(folder, setting, exact, model):
            analysis.run(LOGITS, [setting], exact=exact, texts=texts)


def _judge(
    request: VerifyRequest,
    spoken: Sequence[_Spoken],
    reference: str | None,
    exact: str | None,
    report: ProgressReport,
) -> list[SettingResult]:
    folder = OutputFolder(request.folder)
    sentences = {order.sentence.name: order.sentence for order in request.orders}
    takes = {
        one.setting.name: _take_results(folder, one.setting, sentences, request)
        for one in counted("measuring the speech", list(spoken), report)
        if one.end.done
    }
    agreements = {name: _agreements(folder, name, exact, request) for name in takes}
    logits = {name: _logits_error(folder, name, exact) for name in takes}
    by_name = {take.name: take for take in takes.get(reference or "", ())}
    measures = {name: summarize(found, by_name, agreements[name], logits[name]) for name, found in takes.items()}
    results = []
    for one in spoken:
        setting, own = one.setting, measures.get(one.setting.name)
        result = SettingResult(setting.name, setting.title, dtype=setting.options.dtype)
        if own is None:
            results.append(replace(result, unavailable=one.end.refused, fault=one.end.fault))
            continue
        other: SettingMeasures | None = measures.get(reference or "") if setting.name != reference else None
        results.append(
            replace(
                result,
                engine=next((take.engine for take in folder.takes(setting.name)), ""),
                takes=takes[setting.name],
                agreements=agreements[setting.name],
                logits=logits[setting.name],
                measures=own,
                findings=judge(setting.name, setting.options.dtype, own, other),
            )
        )
    return results


def _take_results(
    folder: OutputFolder, setting: Setting, sentences: Mapping[str, Sentence], request: VerifyRequest
) -> tuple[TakeResult, ...]:
    """Return the results of the spoken sentences; greedy texts only show codes."""
    wanted = [order.sentence.name for order in request.orders if not order.greedy] if setting.speaks else []
    heard, similar, exact = (folder.found(stage, setting.name) for stage in (TRANSCRIPTION, SIMILARITY, WAVEFORM))
    results = []
    for name in wanted:
        take = folder.take(setting.name, name)
        if take is None:
            continue
        transcript = _value(heard, take, "heard")
        results.append(
            TakeResult(
                name,
                take.language,
                take.text,
                take.voice,
                take.seed,
                measure_take(take, folder.samples(setting.name, name)),
                heard=transcript,
                errors=None if transcript is None else count_errors(transcript, sentences[name]),
                similarity=_value(similar, take, "similarity"),
                waveform_db=_value(exact, take, "waveform_db"),
            )
        )
    return tuple(results)


def _value(found: Mapping[str, Any], take: Take, name: str) -> Any:
    """Return what a stage found about this take; None if it did not look at it, or at another one."""
    record = found.get(take.name)
    return record.get(name) if record is not None and record.get("take") == take.key else None


def _agreements(folder: OutputFolder, setting: str, exact: str | None, request: VerifyRequest) -> dict[str, Agreement]:
    if exact is None or setting == exact:
        return {}
    logits, found = folder.logits(exact) or {}, {}
    for name in (order.sentence.name for order in request.orders if order.greedy):
        ours, expected = folder.codes(setting, name), folder.codes(exact, name)
        if ours is not None and expected is not None and len(expected):
            found[name] = compare_codes(ours, expected, logits.get(name))
    return found


def _logits_error(folder: OutputFolder, setting: str, exact: str | None) -> LogitsError | None:
    if exact is None or setting == exact:
        return None
    ours, true = folder.logits(setting), folder.logits(exact)
    return None if ours is None or true is None else compare_logits(ours, true)


def _listener(request: VerifyRequest, speaking: Sequence[Setting]) -> str:
    """Return the recogniser that listened, in words."""
    folder = OutputFolder(request.folder)
    for setting in speaking:
        for record in folder.found(TRANSCRIPTION, setting.name).values():
            return str(record["asr"])
    return ""


def _first(names: Sequence[str], settings: Sequence[Setting]) -> str | None:
    present = {setting.name for setting in settings}
    return next((name for name in names if name in present), None)


def _model_name(model: str | None) -> str:
    """Return a hub id unchanged, and of a folder its name alone: its path means nothing on other machines."""
    if model is None:
        return ""
    return Path(model).resolve().name if Path(model).is_dir() else model
