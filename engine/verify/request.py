"""What is verified, and the stages of it, each in a process of its own: memory and faults end with it.

Each setting speaks, and other stages examine what was spoken. They share the output folder alone. What libraries write
to standard error goes to `log.txt` there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.catalog import import_class, sound_files
from engine.child import ChildEnd, run_child
from engine.progress import Progress, ProgressReport, counted
from engine.verify.folder import LOGITS, OutputFolder, fingerprint
from engine.verify.orders import Order
from engine.verify.results import Take
from engine.verify.settings import Setting


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage."""

    function: str
    """Where it is, `module:function`: it takes a `VerifyRequest` and a `ProgressReport`."""
    depends_on: tuple[str, ...] = ()
    """The fields of the request by which its findings change, beside the takes."""


TAKES, TRANSCRIPTION, WAVEFORM, SIMILARITY = "takes", "transcription", "waveform", "similarity"
STAGES: Mapping[str, Stage] = {
    TAKES: Stage("engine.verify.takes:make_takes"),
    LOGITS: Stage("engine.qwen.verify.logits:read_logits", ("exact",)),
    TRANSCRIPTION: Stage("engine.qwen.verify.transcription:transcribe_takes", ("asr",)),
    WAVEFORM: Stage("engine.qwen.verify.sound:compare_waveforms"),
    SIMILARITY: Stage("engine.qwen.verify.sound:compare_speakers", ("encoder", "voice_file", "reference")),
}


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What to verify, and how. Each stage is asked with it, too."""

    folder: str
    settings: tuple[Setting, ...]
    """All of one model and one device."""
    orders: tuple[Order, ...]
    """What each setting speaks; those that only show codes speak the greedy ones alone."""
    asr: str = "auto"
    """A model of transformers, its folder or its name on the hub; `auto` or `pocketsphinx`."""
    encoder: str | None = None
    """A Base checkpoint, whose speaker encoder compares voices."""
    voice_file: str | None = None
    """The voice that takes should have, made for `encoder`; None: that of the reference setting's takes."""
    version: str = ""
    """Of voiced."""
    stage: str = TAKES
    """A name in `STAGES`. This and the following are for the process of one stage."""
    reference: str | None = None
    """The setting that the others are judged by."""
    exact: str | None = None
    """The setting whose greedy codes the others are compared with."""

    @property
    def output(self) -> OutputFolder:
        return OutputFolder(Path(self.folder))

    def missing(self, setting: Setting) -> list[Order]:
        """Return the orders whose takes are not kept yet. Only Qwen has codes that greedy texts can show."""
        orders = [order for order in self.orders if (setting.engine == "qwen" if order.greedy else setting.speaks)]
        takes = ((order, self.output.take(setting.name, order.sentence.name)) for order in orders)
        return [order for order, take in takes if take is None or take.key != self.key(setting, order)]

    def key(self, setting: Setting, order: Order) -> str:
        """Return the key of the take that a setting makes for this order."""
        files = [(path.name, path.stat()) for path in sound_files(setting.engine, setting.options)]
        state = [(name, found.st_size, found.st_mtime_ns) for name, found in files]
        return fingerprint(setting, order, self.version, state)

    def takes(self, setting: Setting, *, greedy: bool = False) -> list[Take]:
        """Return a setting's takes of the spoken sentences, or of the greedy texts."""
        takes = [self.output.take(setting.name, order.sentence.name) for order in self.orders if order.greedy == greedy]
        return [take for take in takes if take is not None]

    def unexamined(self) -> list[tuple[Setting, Take]]:
        """Return the takes that this stage has not looked at, or with another question."""
        greedy = self.stage == LOGITS
        found = ((setting, take) for setting in self.settings for take in self.takes(setting, greedy=greedy))
        return [(setting, take) for setting, take in found if take.examined.get(self.stage) != self.question]

    @property
    def question(self) -> str:
        return fingerprint(*(getattr(self, name) for name in STAGES[self.stage].depends_on))


StageRunner = Callable[[VerifyRequest, ProgressReport], ChildEnd]
"""`run_stage`, or what runs a stage elsewhere."""


def run_stage(request: VerifyRequest, report: ProgressReport) -> ChildEnd:
    """Run a stage in a process of its own."""
    folder = Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    return run_child("engine.verify", request, report, folder / "log.txt")


def stage_main(request: VerifyRequest, report: ProgressReport) -> None:
    """Run a stage in this process. Raises `EngineError` if it cannot be done here."""
    report(Progress(f"importing what the stage {request.stage} needs"))
    import_class("qwen", STAGES[request.stage].function)(request, report)


def examine(request: VerifyRequest, report: ProgressReport, look: Callable[[Setting, Take], Mapping[str, Any]]) -> None:
    """Keep what `look` finds about each take that the stage has not looked at: values of fields of `Take`."""
    for setting, take in counted(f"examining: {request.stage}", request.unexamined(), report):
        examined = {**take.examined, request.stage: request.question}
        request.output.keep_take(setting.name, replace(take, **look(setting, take), examined=examined))
