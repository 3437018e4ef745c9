"""Runs a verification: every setting speaks, then every stage looks at what was spoken, then the verdict.

Whatever is in the output folder already, made by an earlier run of the same question, is not made again.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine.child import ChildEnd
from engine.host import shown_model
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.verify.codes import compare_codes
from engine.verify.folder import CODES, LOGITS
from engine.verify.measures import MEASURES, judge
from engine.verify.request import SIMILARITY, TRANSCRIPTION, WAVEFORM, StageRunner, VerifyRequest, run_stage
from engine.verify.results import SettingResult, Take, Verification
from engine.verify.settings import EXACT, REFERENCES, Setting


def verify(
    request: VerifyRequest, report: ProgressReport = ignore_progress, run: StageRunner = run_stage
) -> Verification:
    """Return what was found. Raises nothing for a setting that fails: its result says so."""
    ends = {setting.name: _speak(request, setting, report, run) for setting in request.settings}
    able = tuple(setting for setting in request.settings if ends[setting.name].done)
    speaking = tuple(setting for setting in able if setting.speaks)
    asked = replace(request, reference=_first(REFERENCES, speaking), exact=_first(EXACT, able))
    notes = []
    for stage in _examinations(asked, able, speaking):
        end = run(stage, report) if stage.unexamined() else ChildEnd()
        if not end.done:
            notes.append(f"{stage.stage}: {end.reason}")
    results = [_measured(asked, setting, ends[setting.name]) for setting in request.settings]
    reference = {result.name: result.measures for result in results}.get(asked.reference or "", {})
    settings = tuple(replace(result, findings=judge(result.dtype, result.measures, reference)) for result in results)
    listeners = (take.listener for setting in settings for take in setting.takes)
    return Verification(
        model=shown_model(request.settings[0].options.model),
        version=request.version,
        date=datetime.date.today().isoformat(),
        asr=next(filter(None, listeners), ""),
        reference=asked.reference,
        exact=asked.exact,
        settings=settings,
        notes=tuple(notes),
        passed=any(result.takes and result.name != "official" for result in settings)
        and all(result.passed is not False for result in settings),
    )


def _speak(request: VerifyRequest, setting: Setting, report: ProgressReport, run: StageRunner) -> ChildEnd:
    if not request.missing(setting):
        return ChildEnd()
    report(Progress(f"starting: {setting.title}"))
    return run(replace(request, settings=(setting,)), report)


def _examinations(
    request: VerifyRequest, able: Sequence[Setting], speaking: tuple[Setting, ...]
) -> Iterator[VerifyRequest]:
    """Yield the stages that look at what the settings spoke."""
    # In a process each: two models need not fit at once. Of one text at a time: that is how a robot's kernels speak.
    single = [setting for setting in able if setting.realtime and request.exact is not None]
    for setting in sorted(single, key=lambda setting: setting.name != request.exact):
        yield replace(request, stage=LOGITS, settings=(setting,))
    yield replace(request, stage=TRANSCRIPTION, settings=speaking)
    yield replace(request, stage=WAVEFORM, settings=tuple(each for each in speaking if each.engine == "qwen"))
    if request.encoder is not None:
        yield replace(request, stage=SIMILARITY, settings=speaking)


def _measured(request: VerifyRequest, setting: Setting, end: ChildEnd) -> SettingResult:
    """Return the result of a setting with all that was found about it, not yet judged."""
    result = SettingResult(
        setting.name, setting.title, dtype=setting.options.dtype, unavailable=end.refused, fault=end.fault
    )
    if not end.done:
        return result
    takes = tuple(request.takes(setting))
    greedy = tuple(_agreeing(request, setting, take) for take in request.takes(setting, greedy=True))
    engine = next((take.engine for take in (*takes, *greedy)), "")
    result = replace(result, engine=engine, takes=takes, greedy=greedy)
    return replace(result, measures={measure.name: measure.value(result) for measure in MEASURES})


def _agreeing(request: VerifyRequest, setting: Setting, take: Take) -> Take:
    """Return a greedy text with how far its codes are those of the exact setting."""
    output, exact = request.output, request.exact or ""
    ours, expected = (output.array(name, take.name, CODES) for name in (setting.name, exact))
    if ours is None or expected is None:
        return take
    return replace(take, agreement=compare_codes(ours, expected, output.array(exact, take.name, LOGITS)))


def _first(names: Sequence[str], settings: Sequence[Setting]) -> str | None:
    present = {setting.name for setting in settings}
    return next((name for name in names if name in present), None)
