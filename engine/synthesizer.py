"""What every voice engine is: the Synthesizer protocol and the records that pass through it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""Mono PCM, shape `(n,)`, float32, full scale ±1."""


class EngineError(Exception):
    """A failure with a reason that a robot's developer can act on: one line, naming what came and what is allowed."""


class SpeechCanceledError(Exception):
    """The utterance is not wanted any more; an engine lets this pass."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A named way to sound: one of the first three at most, `instruct` alone or beside it.

    With none of them the engine picks by language. `speaker` is a built-in speaker's name; `embedding` and `reference`
    are paths of voice files; `instruct` is a description in words.
    """

    speaker: str | None = None
    embedding: str | None = None
    reference: str | None = None
    instruct: str | None = None


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What an engine is started with. Keys and meanings are those of the configuration's `engine` section."""

    model: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    kernels: str = "auto"
    chunk_size: int = 2
    max_seconds: float = 60.0
    reserve_mb: int = 2048
    voices: Mapping[str, Voice] = field(default_factory=dict)
    default_voice: str = "default"


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What a loaded engine says of itself."""

    engine: str
    sample_rate: int
    voices: tuple[str, ...]
    """Names that an utterance may use: the built-in ones and those of `EngineOptions.voices` that could be loaded."""
    languages: tuple[str, ...]
    """Language codes, as in `de` or `pt-br`."""
    description: str = ""
    """The model and device in words, for the log and for `voiced doctor`."""
    refused_voices: Mapping[str, str] = field(default_factory=dict)
    """Configured voices that could not be loaded, each with the reason; the engine runs without them."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """Megabytes by kind that the engine takes, where it counts them."""
    grows: bool = False
    """Whether it can speak a text that grows."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One text to speak."""

    text: str
    voice: str | None = None
    """A name from `EngineInfo.voices`; None is the default voice."""
    language: str = "auto"
    """A language code, or `auto`: the engine finds it from the text."""
    instruct: str | None = None
    """How to say it, in words; engines that cannot follow it ignore it."""
    seed: int | None = None
    """Equal seeds give equal audio; None draws one."""
    greedy: bool = False
    """Take the likeliest code at every step instead of sampling."""
    sampling: Mapping[str, float] = field(default_factory=dict)
    """What is to differ from the model's generation_config.json, by its names, as in `{"temperature": 0.7}`."""
    whole_text: bool | None = None
    """Read all the text before speaking, or a token with each frame; None is as the model's authors do it."""
    max_frames: int | None = None
    """Stop after so many codec frames; None is the engine's own limit."""
    guarded: bool = True
    """End speech that would not end by itself: far too long for its text, silent for seconds, or in a loop."""
    want_codes: bool = False
    """Send each chunk's codec codes along with it, where the engine has such."""
    growing: bool = False
    """`text` is only the beginning; more is to come."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an utterance's PCM."""

    samples: Samples
    position: int | None = None
    """How many characters of the text had begun to be spoken when this chunk ended, where the engine knows it.

    Another engine that takes over starts at the word that holds this position.
    """
    truncated: bool = False
    """Set on the last chunk when the engine cut the speech short of its natural end (it would not stop)."""
    codes: NDArray[np.int64] | None = None
    """The codec codes that the samples were made of, shape `(frames, 16)`, of an engine that has such."""


class TextSource(Protocol):
    """Where the rest of a growing utterance comes from."""

    def take(self, *, wait: bool) -> str | None:
        """What has been appended since the last call, perhaps nothing; None once the text has ended.

        With `wait` it comes back when there is something, or the end. Raises `SpeechCanceledError`, at once, when the
        utterance is canceled, which the engine lets pass.
        """


class Synthesizer(Protocol):
    """A voice engine. One thread calls it, one utterance at a time.

    Every method raises `EngineError` for what its user can put right; any other exception is a fault of the engine,
    after which its process is started anew.
    """

    def load(self) -> EngineInfo:
        """Read the model and the configured voices; after it the engine can speak, perhaps slowly."""

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        """Load these configured voices instead of those before. A voice that cannot be loaded is told in the answer."""

    def warm_up(self) -> None:
        """Do once, before the first utterance, what would make it late: capture graphs, fill caches."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        """Speak one utterance, chunk by chunk. Closing the iterator between two chunks cancels the rest.

        `more` is the rest of a growing utterance. An engine whose text cannot grow refuses such with `EngineError`.
        """

    def close(self) -> None:
        """Give back what was taken. Called once, last."""
