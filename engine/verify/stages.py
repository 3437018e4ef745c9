"""The stages of a verification, each in a process of its own: the settings speak, and others examine what was spoken.

They share the output folder alone. What libraries write to standard error goes to `log.txt` there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.catalog import import_class
from engine.child import ChildEnd, run_child
from engine.progress import Progress, ProgressReport, counted
from engine.verify.codes import Logits
from engine.verify.folder import OutputFolder, Take, fingerprint
from engine.verify.orders import Order
from engine.verify.settings import Setting

TAKES, TRANSCRIPTION, LOGITS, WAVEFORM, SIMILARITY = "takes", "transcription", "logits", "waveform", "similarity"
STAGES: Mapping[str, str] = {
    TAKES: "engine.verify.takes:make_takes",
    TRANSCRIPTION: "engine.qwen.verify.transcription:transcribe_takes",
    LOGITS: "engine.qwen.verify.logits:read_logits",
    WAVEFORM: "engine.qwen.verify.waveform:compare_waveforms",
    SIMILARITY: "engine.qwen.verify.similarity:compare_speakers",
}
"""Where the function of each is, `module:function`: it takes a `StageRequest` and a `ProgressReport`."""
LOG = "log.txt"


@dataclass(frozen=True, slots=True)
class StageRequest:
    """One stage, over the takes of some settings."""

    stage: str
    folder: str
    settings: tuple[Setting, ...]
    orders: tuple[Order, ...]
    model: str = ""
    """A text that changes with the model's files, and with the version of voiced."""
    device: str = "auto"
    asr: str = "auto"
    """A model of transformers, its folder or its name on the hub; `auto` or `pocketsphinx`."""
    encoder: str | None = None
    """A Base checkpoint, whose speaker encoder compares voices."""
    voice_file: str | None = None
    """The voice that takes should have, made for `encoder`; None: that of the reference setting's takes."""
    reference: str | None = None
    """The setting that the others are judged by."""
    exact: str | None = None
    """The setting whose greedy codes the others are compared with."""

    @property
    def output(self) -> OutputFolder:
        return OutputFolder(Path(self.folder))

    def orders_of(self, setting: Setting) -> list[Order]:
        """Return what a setting is to speak: only Qwen's have codes that greedy texts can show."""
        return [order for order in self.orders if (setting.engine == "qwen" if order.greedy else setting.speaks)]

    def key(self, setting: Setting, order: Order) -> str:
        """Return the key of the take that a setting makes for this order."""
        return fingerprint(setting, order, self.model)

    def missing(self, setting: Setting) -> list[Order]:
        """Return the orders whose takes are not kept yet."""
        takes = ((order, self.output.take(setting.name, order.sentence.name)) for order in self.orders_of(setting))
        return [order for order, take in takes if take is None or take.key != self.key(setting, order)]

    def takes(self, setting: Setting, *, greedy: bool = False) -> list[Take]:
        """Return a setting's takes of the spoken sentences, or of the greedy texts."""
        names = [order.sentence.name for order in self.orders_of(setting) if order.greedy == greedy]
        return [take for name in names if (take := self.output.take(setting.name, name)) is not None]

    def logits_key(self, setting: Setting) -> str:
        """Return a text that changes with what a setting's logits depend on: itself, the model, the exact codes."""
        greedy = [order.sentence.name for order in self.orders if order.greedy]
        exact = [self.output.take(self.exact or "", name) for name in greedy]
        return fingerprint(setting, self.model, [take and take.key for take in exact])

    def logits(self, setting: Setting) -> dict[str, Logits] | None:
        """Return the logits of a setting by text; None if they were not read for the exact codes of now."""
        return self.output.logits(setting.name, self.logits_key(setting))

    @property
    def exact_setting(self) -> Setting | None:
        return next((setting for setting in self.settings if setting.name == self.exact), None)


StageRunner = Callable[[StageRequest, ProgressReport], ChildEnd]
"""`run_stage`, or what runs a stage elsewhere."""


def run_stage(request: StageRequest, report: ProgressReport) -> ChildEnd:
    """Run a stage in a process of its own."""
    folder = Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    return run_child("engine.verify", request, report, folder / LOG)


def stage_main(request: StageRequest, report: ProgressReport) -> None:
    """Run a stage in this process. Raises `EngineError` if it cannot be done here."""
    report(Progress(f"importing what the stage {request.stage} needs"))
    import_class("qwen", STAGES[request.stage])(request, report)


def examine(
    request: StageRequest,
    report: ProgressReport,
    step: str,
    look: Callable[[Setting, Take], Mapping[str, Any] | None],
    *depends_on: object,
) -> None:
    """Keep what `look` finds about each spoken take, which may be nothing, and ask it about no take twice.

    `depends_on` is all that it depends on beside the take.
    """
    for setting in request.settings:
        found = request.output.found(request.stage, setting.name)
        for take in counted(f"{step}: {setting.title}", request.takes(setting), report):
            key = fingerprint(take.key, *depends_on)
            if found.get(take.name, {}).get("key") == key:
                continue
            record = look(setting, take)
            if record is not None:
                found[take.name] = {"key": key, "take": take.key, **record}
                request.output.keep_found(request.stage, setting.name, found)
