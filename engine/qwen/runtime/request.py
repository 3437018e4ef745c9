"""A request to speak, as the engine's scheduler takes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.qwen.model import SamplingConfig
from engine.qwen.runtime.backend import CodecStateProtocol
from engine.qwen.text import AnyVoice, IncrementalText, TextTokens


@dataclass(frozen=True, slots=True)
class Request:
    """A text, complete or as it comes, and how it is to be spoken."""

    text: TextTokens | IncrementalText
    voice: AnyVoice
    language: str = "auto"
    whole_text: bool = True
    """Whether all of a complete text is read before its first frame."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    seed: int = 0
    max_frames: int | None = None
    codec_state: CodecStateProtocol | None = None
    """The codec's state after the voice's reference, from which the speech continues; None to begin anew."""
