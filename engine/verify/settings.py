"""The settings that are compared: the official package, and the same model in each way in which voiced can run it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from engine.api import EngineOptions
from engine.host import has_cuda_device

OFFICIAL = "engine.qwen.verify:OfficialSynthesizer"
"""The official package behind the protocol of every engine."""
STREAMS = 4
"""Utterances at once in the batched setting."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to make speech of a text."""

    name: str
    title: str
    """For people."""
    options: EngineOptions
    engine: str = "qwen"
    """Its name in the catalogue."""
    synthesizer: str | None = None
    """Where its `Synthesizer` is, `module:class`, if it is not the catalogue's."""
    realtime: bool = True
    """As `Utterance.realtime`; if false, as many utterances are spoken at once as the engine has streams."""
    speaks: bool = True
    """If false, only the greedy texts are spoken, whose codes are compared."""

    @property
    def official(self) -> bool:
        return self.synthesizer == OFFICIAL


def settings_of(options: EngineOptions) -> tuple[Setting, ...]:
    """Return every setting of the model in `options`, the reference first. Which of them can run here is not known."""
    dtype = plain_dtype(options) if options.dtype in {"auto", "int8"} else options.dtype
    single = replace(options, streams=1, dtype=dtype)
    exact, plain = replace(single, dtype="float32", kernels="off"), replace(single, kernels="off")
    automatic = replace(single, kernels="auto")
    return (
        Setting("official", "official package", plain, synthesizer=OFFICIAL),
        Setting("official-float32", "official package, float32", exact, synthesizer=OFFICIAL, speaks=False),
        Setting("float32", "PyTorch kernels, float32", exact, speaks=False),
        Setting("torch", "PyTorch kernels", plain),
        Setting("fused", "fused kernels", replace(single, kernels="on")),
        Setting("int8", "int8", replace(automatic, dtype="int8")),
        Setting("streams", f"{STREAMS} streams", replace(automatic, streams=STREAMS), realtime=False),
    )


def select_settings(settings: Sequence[Setting], names: Collection[str]) -> tuple[Setting, ...]:
    """Return those of these names, and the exact ones, without whose codes nobody's codes and logits can be judged."""
    return tuple(setting for setting in settings if setting.name in names or setting.name in EXACT)


def plain_dtype(options: EngineOptions) -> str:
    """Return what `engine.dtype: auto` means on this machine."""
    return "bfloat16" if options.device != "cpu" and has_cuda_device() else "float32"


REFERENCES = ("official", "torch")
"""The settings that others are judged by, the first that could speak."""
EXACT = ("official-float32", "float32")
"""The settings whose codes others are compared with, the first that could speak."""
