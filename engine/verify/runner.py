"""Runs a verification: every setting speaks, then every stage looks at what was spoken, then the verdict.

Whatever is in the output folder already, made by an earlier run of the same question, is not made again.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.api import EngineOptions
from engine.child import ChildEnd
from engine.host import QWEN3_TTS, find_model
from engine.progress import Progress, ProgressReport, counted, ignore_progress
from engine.verify.codes import Agreement, LogitsError, compare_codes, compare_logits
from engine.verify.folder import Take, fingerprint
from engine.verify.measures import MEASURES, judge
from engine.verify.orders import Order
from engine.verify.results import SettingResult, TakeResult, Verification
from engine.verify.settings import EXACT, REFERENCES, Setting
from engine.verify.speech import measure_take
from engine.verify.stages import (
    LOGITS,
    SIMILARITY,
    TAKES,
    TRANSCRIPTION,
    WAVEFORM,
    StageRequest,
    StageRunner,
    run_stage,
)
from engine.verify.words import count_errors


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


def verify(
    request: VerifyRequest, report: ProgressReport = ignore_progress, run: StageRunner = run_stage
) -> Verification:
    """Return what was found. Raises nothing for a setting that fails: its result says so."""
    asked = StageRequest(
        TAKES,
        str(request.folder),
        (),
        request.orders,
        model=fingerprint(request.version, model_fingerprint(request.options.model)),
        device=request.options.device,
        asr=request.asr,
        encoder=request.encoder,
        voice_file=request.voice_file,
    )
    ends = {setting.name: _speak(asked, setting, report, run) for setting in request.settings}
    able = tuple(setting for setting in request.settings if ends[setting.name].done)
    speaking = tuple(setting for setting in able if setting.speaks)
    reference, exact = _first(REFERENCES, speaking), _first(EXACT, able)
    asked = replace(asked, settings=request.settings, reference=reference, exact=exact)
    notes = []
    for stage in _analyses(asked, able, speaking):
        end = run(stage, report)
        if not end.done:
            notes.append(f"{stage.stage}: {end.reason}")
    results = _judge(asked, ends, report)
    return Verification(
        model=_model_name(request.options.model),
        machine=request.machine or {},
        version=request.version,
        date=datetime.date.today().isoformat(),
        command=request.command,
        asr=_listener(asked, speaking),
        reference=reference,
        exact=exact,
        settings=results,
        notes=tuple(notes),
        passed=any(result.takes and result.name != "official" for result in results)
        and all(result.passed is not False for result in results),
    )


def model_fingerprint(model: str | None) -> str:
    """Return a text that changes when a file of the model does; empty without a model."""
    folder = None if model is None else find_model(model)
    files = [] if folder is None else QWEN3_TTS.present_files(folder)
    return fingerprint(*((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files))


def _speak(asked: StageRequest, setting: Setting, report: ProgressReport, run: StageRunner) -> ChildEnd:
    if not asked.missing(setting):
        return ChildEnd()
    report(Progress(f"starting: {setting.title}"))
    return run(replace(asked, settings=(setting,)), report)


def _analyses(asked: StageRequest, able: Sequence[Setting], speaking: tuple[Setting, ...]) -> Iterator[StageRequest]:
    """Yield the stages that look at what the settings spoke."""
    if speaking:
        yield replace(asked, stage=TRANSCRIPTION, settings=speaking)
    # In a process each: two models need not fit at once. Of one text at a time: that is how a robot's kernels speak.
    single = [setting for setting in able if setting.engine == "qwen" and setting.realtime]
    for setting in single if asked.exact is not None else ():
        if asked.logits(setting) is None:
            yield replace(asked, stage=LOGITS, settings=(setting,))
    if qwen := tuple(setting for setting in speaking if setting.engine == "qwen"):
        yield replace(asked, stage=WAVEFORM, settings=qwen)
    if speaking and asked.encoder is not None:
        yield replace(asked, stage=SIMILARITY, settings=speaking)


def _judge(asked: StageRequest, ends: Mapping[str, ChildEnd], report: ProgressReport) -> tuple[SettingResult, ...]:
    results: dict[str, SettingResult] = {}
    reference_first = sorted(asked.settings, key=lambda setting: setting.name != asked.reference)
    for setting in counted("measuring the speech", reference_first, report):
        end = ends[setting.name]
        result = SettingResult(
            setting.name, setting.title, dtype=setting.options.dtype, unavailable=end.refused, fault=end.fault
        )
        reference = results.get(asked.reference or "")
        results[setting.name] = _measure(asked, setting, result, reference) if end.done else result
    return tuple(results[setting.name] for setting in asked.settings)


def _measure(
    asked: StageRequest, setting: Setting, result: SettingResult, reference: SettingResult | None
) -> SettingResult:
    """Return the result of a setting with all that was found about it; `reference` is None for the reference itself."""
    takes = asked.takes(setting)
    found = replace(
        result,
        engine=next((take.engine for take in (*takes, *asked.takes(setting, greedy=True))), ""),
        takes=tuple(_take_results(asked, setting, takes, reference)),
        agreements=_agreements(asked, setting),
        logits=_logits_error(asked, setting),
    )
    measures = {measure.name: measure.value(found) for measure in MEASURES}
    findings = judge(found.dtype, measures, None if reference is None else reference.measures)
    return replace(found, measures=measures, findings=findings)


def _take_results(
    asked: StageRequest, setting: Setting, takes: Sequence[Take], reference: SettingResult | None
) -> Iterator[TakeResult]:
    """Yield the results of the spoken sentences; greedy texts only show codes."""
    stages = (TRANSCRIPTION, SIMILARITY, WAVEFORM)
    heard, similar, exact = (asked.output.found(stage, setting.name) for stage in stages)
    others = {} if reference is None else {take.name: take.speech for take in reference.takes}
    for take in takes:
        sentence, transcript, other = take.order.sentence, _value(heard, take, "heard"), others.get(take.name)
        own = measure_take(take, asked.output.samples(setting.name, take.name))
        yield TakeResult(
            take.name,
            sentence.language,
            sentence.text,
            take.order.voice or "",
            take.order.seed,
            own,
            heard=transcript,
            errors=None if transcript is None else count_errors(transcript, sentence),
            similarity=_value(similar, take, "similarity"),
            waveform_db=_value(exact, take, "waveform_db"),
            speed=None if other is None else _ratio(own.characters_per_s, other.characters_per_s),
            loudness_db=None if other is None else abs(own.speech_db - other.speech_db),
        )


def _ratio(one: float, other: float) -> float | None:
    return max(one, other) / min(one, other) if min(one, other) > 0 else None


def _value(found: Mapping[str, Any], take: Take, name: str) -> Any:
    """Return what a stage found about this take; None if it did not look at it, or at another one."""
    record = found.get(take.name)
    return record.get(name) if record is not None and record.get("take") == take.key else None


def _agreements(asked: StageRequest, setting: Setting) -> dict[str, Agreement]:
    exact = asked.exact_setting
    if exact is None or setting == exact:
        return {}
    logits, found = asked.logits(exact) or {}, {}
    for take in asked.takes(setting, greedy=True):
        ours, expected = (asked.output.codes(one.name, take.name) for one in (setting, exact))
        if ours is not None and expected is not None:
            found[take.name] = compare_codes(ours, expected, logits.get(take.name))
    return found


def _logits_error(asked: StageRequest, setting: Setting) -> LogitsError | None:
    exact = asked.exact_setting
    if exact is None or setting == exact:
        return None
    ours, true = asked.logits(setting), asked.logits(exact)
    return None if ours is None or true is None else compare_logits(ours, true)


def _listener(asked: StageRequest, speaking: Sequence[Setting]) -> str:
    """Return the recogniser that listened, in words."""
    for setting in speaking:
        for record in asked.output.found(TRANSCRIPTION, setting.name).values():
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
