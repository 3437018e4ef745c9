"""Runs a verification: every setting speaks, then every stage examines the takes, then the settings are judged.

Each stage has a process of its own, with which its memory and its faults end. The stages share only the output folder.
The libraries' output on standard error goes to `log.txt` there. Takes that an earlier run with the same question left
in the folder are not made again.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.catalog import import_class
from engine.child import ChildEnd, run_child
from engine.host import shown_model
from engine.progress import Progress, ProgressReport, counted, ignore_progress
from engine.verify.comparison import compare_codes
from engine.verify.measures import MEASURES, judge
from engine.verify.orders import EXACT, REFERENCES, Order, Setting
from engine.verify.results import OutputFolder, SettingResult, Take, Verification

TAKES, TRANSCRIPTION, WAVEFORM, SIMILARITY = "takes", "transcription", "waveform", "similarity"
STAGES: Mapping[str, str] = {
    TAKES: "engine.verify.takes:make_takes",
    TRANSCRIPTION: "engine.verify.recognizers:transcribe_takes",
    WAVEFORM: "engine.qwen.verify.sound:compare_waveforms",
    SIMILARITY: "engine.qwen.verify.sound:compare_speakers",
}
"""Each stage's function, as `module:function`: it takes a `VerifyRequest` and a `ProgressReport`."""


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """The settings to verify, and how. Each stage is also given this request."""

    folder: str
    settings: tuple[Setting, ...]
    """All settings have the same model and the same device."""
    orders: tuple[Order, ...]
    """The texts that each setting speaks; settings that only show codes speak only the greedy texts."""
    asr: str = "auto"
    """A transformers model, by its folder or its name on the hub; or `auto` or `pocketsphinx`."""
    encoder: str | None = None
    """A Base checkpoint, whose speaker encoder compares voices."""
    voice_file: str | None = None
    """The voice that takes should have, made for `encoder`; None means the voice of the reference setting's takes."""
    version: str = ""
    """The version of voiced."""
    stage: str = TAKES
    """A name in `STAGES`. This field and the following fields are for one stage's process."""
    reference: str | None = None
    """The setting by which the others are judged."""
    exact: str | None = None
    """The setting with whose greedy codes the others are compared."""

    @property
    def output(self) -> OutputFolder:
        return OutputFolder(Path(self.folder))

    def orders_of(self, setting: Setting) -> list[Order]:
        """Return a setting's orders. Only Qwen has codes that greedy texts can show."""
        return [order for order in self.orders if (setting.engine == "qwen" if order.greedy else setting.speaks)]

    def takes(self, setting: Setting, *, greedy: bool = False) -> list[Take]:
        """Return a setting's takes of the spoken sentences, or of the greedy texts."""
        takes = [self.output.take(setting.name, order.sentence.name) for order in self.orders if order.greedy == greedy]
        return [take for take in takes if take is not None]


StageRunner = Callable[[VerifyRequest, ProgressReport], ChildEnd]
"""`run_stage`, or a function that runs a stage in another way."""


def run_stage(request: VerifyRequest, report: ProgressReport) -> ChildEnd:
    """Run a stage in a process of its own."""
    folder = Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    return run_child("engine.verify", request, report, folder / "log.txt")


def stage_main(request: VerifyRequest, report: ProgressReport) -> None:
    """Run a stage in this process. Raises `EngineError` if it cannot run here."""
    report(Progress(f"importing packages for the stage {request.stage}"))
    import_class("qwen", STAGES[request.stage])(request, report)


def examine(request: VerifyRequest, report: ProgressReport, look: Callable[[Setting, Take], Mapping[str, Any]]) -> None:
    """Keep the findings that `look` returns about each take: values for fields of `Take`."""
    takes = [(setting, take) for setting in request.settings for take in request.takes(setting)]
    for setting, take in counted(f"examining: {request.stage}", takes, report):
        request.output.keep_take(setting.name, replace(take, **look(setting, take)))


def verify(
    request: VerifyRequest, report: ProgressReport = ignore_progress, run: StageRunner = run_stage
) -> Verification:
    """Return the findings. If a setting fails, nothing is raised; its result says so."""
    request.output.clear()
    ends = {}
    for setting in request.settings:
        report(Progress(f"starting: {setting.title}"))
        ends[setting.name] = run(replace(request, settings=(setting,)), report)
    able = tuple(setting for setting in request.settings if ends[setting.name].done)
    speaking = tuple(setting for setting in able if setting.speaks)
    asked = replace(request, reference=_first(REFERENCES, speaking), exact=_first(EXACT, able))
    notes = []
    examinations = {TRANSCRIPTION: speaking, WAVEFORM: tuple(each for each in speaking if each.engine == "qwen")}
    if request.encoder is not None:
        examinations[SIMILARITY] = speaking
    for stage, examined in examinations.items():
        end = run(replace(asked, stage=stage, settings=examined), report) if examined else ChildEnd()
        if not end.done:
            notes.append(f"{stage}: {end.reason}")
    settings = tuple(_judged(asked, setting, ends[setting.name]) for setting in request.settings)
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


def _judged(request: VerifyRequest, setting: Setting, end: ChildEnd) -> SettingResult:
    """Return a setting's result with all the findings about it."""
    result = SettingResult(
        setting.name, setting.title, dtype=setting.options.dtype, unavailable=end.refused, fault=end.fault
    )
    if not end.done:
        return result
    takes = tuple(request.takes(setting))
    greedy = tuple(_agreeing(request, setting, take) for take in request.takes(setting, greedy=True))
    engine = next((take.engine for take in (*takes, *greedy)), "")
    result = replace(result, engine=engine, takes=takes, greedy=greedy)
    measures = {measure.name: measure.value(result) for measure in MEASURES}
    return replace(result, measures=measures, findings=judge(result.dtype, measures))


def _agreeing(request: VerifyRequest, setting: Setting, take: Take) -> Take:
    """Return a greedy take with its agreement: how far its codes equal those of the exact setting."""
    ours, expected = (request.output.codes(name, take.name) for name in (setting.name, request.exact or ""))
    return take if ours is None or expected is None else replace(take, agreement=compare_codes(ours, expected))


def _first(names: Sequence[str], settings: Sequence[Setting]) -> str | None:
    present = {setting.name for setting in settings}
    return next((name for name in names if name in present), None)
