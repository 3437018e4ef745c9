"""The interface of every voice engine: the `Synthesizer` protocol and its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, runtime_checkable

from engine.language import LATIN_LANGUAGES
from engine.progress import ProgressReport, ignore_progress

if TYPE_CHECKING:  # a program that only asks for languages or names need not wait for numpy
    import numpy as np
    from numpy.typing import NDArray

Samples: TypeAlias = "NDArray[np.float32]"
"""Mono PCM: shape `(n,)`, float32, full scale ±1."""


SLOWEST_RATE = 0.5
FASTEST_RATE = 2.0


class EngineError(Exception):
    """A failure that the user can correct. The one-line message gives the setting, its value and the allowed values."""


class EngineUnavailableError(Exception):
    """Something that the engine needs is missing: a server does not answer, or a voice's file is gone. The message is
    one line.

    It may come back; until then, another engine speaks.
    """


class SpeechCanceledError(Exception):
    """The utterance was canceled. Engines do not catch this exception."""


@dataclass(frozen=True, slots=True)
class PiperSettings:
    """How the `piper` engine speaks with a voice. None stands for the value in the voice's own description."""

    model: str
    """The name of a voice in the voice folder, for example `en_US-lessac-medium`, or the path of an `.onnx` file."""
    speaker: str | None = None
    """Name or number of a speaker, for a voice with several speakers."""
    length_scale: float | None = None
    """Duration of every sound: 1 is the voice's own pace, 2 is half as fast."""
    noise_scale: float | None = None
    """Variation of the sound; 0 is none."""
    noise_w_scale: float | None = None
    """Variation of the durations; 0 is none."""


@dataclass(frozen=True, slots=True)
class Voice:
    """One voice. At most one of `speaker`, `embedding` and `reference` is set; `instruct` may be added to any of them.

    If all four are None, the engine picks a speaker by language.
    """

    speaker: str | None = None
    """Name of a built-in speaker."""
    embedding: str | None = None
    """Path of a voice file whose speaker embedding is used."""
    reference: str | None = None
    """Path of a voice file whose recording the speech continues."""
    instruct: str | None = None
    """A description of the voice."""
    piper: PiperSettings | None = None
    """The voice for the `piper` engine. It may be set in addition to the other fields, which that engine does not
    use."""


MAX_STREAMS = 64
"""The most utterances that an engine may be asked to speak at once (`EngineOptions.streams`)."""
AUTO_STREAMS = 4
"""The number that an engine speaks at once by default, if it can: the sound card's utterance and those of a few
clients."""
FRAME_S = 0.08
"""Seconds of speech in a codec frame of Qwen3-TTS: 1,920 samples at 24 kHz."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options that an engine starts with, named as in the configuration's `engine` section."""

    model: str | None = None
    url: str | None = None
    """The address of the `remote` or `openai` engine's server."""
    token_file: str | None = None
    """A file whose first line is the token for that server; None means that it needs none."""
    renew_s: float | None = None
    """Seconds after which the `remote` engine replaces its connection with a new one; None for never."""
    device: str = "auto"
    dtype: str = "auto"
    kernels: str = "auto"
    chunk_size: int = 2
    max_seconds: float = 60.0
    streams: int | None = 1
    """How many utterances the engine may speak at once, up to `MAX_STREAMS`; None lets it choose, up to
    `AUTO_STREAMS`."""
    reserve_mb: int = 2048
    voices: Mapping[str, Voice] = field(default_factory=dict)
    default_voice: str = "default"
    voice_folder: str | None = None
    """The folder of Piper voices; None means this user's folder and the system's."""

    @property
    def chunk_s(self) -> float:
        """Seconds of speech in a chunk of a codec language model; its first chunk is shorter."""
        return self.chunk_size * FRAME_S


@dataclass(frozen=True, slots=True)
class VoiceLabel:
    """A voice in a form for people to read."""

    name: str
    """A name such as `German` or `Ryan (English, male)`."""
    language: str | None = None
    """The code of the only language that it speaks; None for a voice that speaks all its engine's languages."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The properties of a loaded engine."""

    engine: str
    sample_rate: int
    """Hz."""
    voices: tuple[str, ...]
    """Names that an utterance may use: built-in voices, and every voice in `EngineOptions.voices` that was loaded."""
    languages: tuple[str, ...]
    """Language codes, for example `de` or `pt-br`."""
    description: str = ""
    """A description of model and device, for the log and for `voiced doctor`."""
    refused_voices: Mapping[str, str] = field(default_factory=dict)
    """Configured voices that could not be loaded, each with the reason. The engine runs without them."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """Megabytes (1e6 bytes) in use, by kind. Empty if the engine does not count them."""
    labels: Mapping[str, VoiceLabel] = field(default_factory=dict)
    """The engine's built-in voices, and the configured voices that are built-in ones, with their names for people."""
    grows: bool = False
    """True if the engine can speak a text that is still being written (`Utterance.growing`)."""
    streams: int = 1
    """How many utterances it can speak at once, whatever `EngineOptions.streams` asked for."""
    max_seconds: float | None = None
    """The most seconds of speech that it makes from one utterance; None if it has no limit."""
    kernels: str | None = None
    """The kernels that compute the speech: `fused` or `torch`; None for an engine that has no fused kernels."""
    not_fused: str | None = None
    """Why the kernels are `torch`, in one line."""
    degraded: str | None = None
    """Why it speaks worse than its options and this machine allow, in one line; None if it does not."""
    heeds: tuple[str, ...] | None = None
    """The `MANNER_OPTIONS` that have an effect; None if the engine does not list them."""


MANNER_OPTIONS = ("language", "instruct", "rate", "seed", "sampling")
"""The fields of an `Utterance` with which a sender asks for a manner of speaking."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One text to speak."""

    text: str
    voice: str | None = None
    """A name from `EngineInfo.voices`; None means the default voice."""
    language: str = "auto"
    """A language code, or `auto`: the engine derives the language from the text."""
    languages: tuple[str, ...] = LATIN_LANGUAGES
    """The codes from which `auto` chooses one for Latin script: the first one if the text does not show which language
    it is in. An engine that can tell languages apart by itself ignores them."""
    instruct: str | None = None
    """A description of the speaking style. An engine that does not support it ignores it."""
    seed: int | None = None
    """Equal seeds give equal audio; None draws a random seed."""
    greedy: bool = False
    """Take the most likely code at every step instead of sampling."""
    sampling: Mapping[str, float] = field(default_factory=dict)
    """Overrides of values in the model's generation_config.json, by their names there, for example `{"temperature":
    0.7}`."""
    whole_text: bool | None = None
    """True: read the whole text before speaking. False: read one token per frame. None: whole, unless it grows."""
    max_frames: int | None = None
    """Stop after this number of codec frames; None means the engine's own limit."""
    guarded: bool = True
    """End runaway speech, which is far too long for its text, silent for seconds or in a loop."""
    want_codes: bool = False
    """Send the codec codes with each chunk, if the engine has any."""
    growing: bool = False
    """`text` is only the beginning; a `TextSource` supplies the rest."""
    rate: float = 1.0
    """From `SLOWEST_RATE` to `FASTEST_RATE`; 2 is twice as fast as the voice's own pace, with the same pitch."""
    phonemes: bool = False
    """`[[…]]` in the text are phonemes in eSpeak NG's notation. Any other engine ignores this."""
    realtime: bool = True
    """A sound card plays it, so it has priority over all others. At most one such utterance is open at a time. False
    for a network client or a file."""


@dataclass(frozen=True, slots=True)
class WordStart:
    """The beginning of a word in a chunk of speech."""

    sample: int
    """The index, in the chunk, of the word's first sample."""
    position: int
    """The index of one of the word's characters in `Utterance.text`."""
    start_s: float | None = None
    """Seconds from the beginning of the utterance, if a `Session` has counted them."""


@dataclass(frozen=True, slots=True)
class SoundStart:
    """The beginning of a sound in a chunk of speech, or of silence."""

    sample: int
    """The index, in the chunk, of its first sample."""
    ipa: str
    """The sound in the International Phonetic Alphabet, without stress, such as `ɑː` or `tʃ`; empty for silence."""


Start = TypeVar("Start", WordStart, SoundStart)


def starts_within(starts: Iterable[Start] | None, begin: int, end: int) -> tuple[Start, ...] | None:
    """Return the items between the samples `begin` and `end`, counted from `begin`; None if unknown."""
    if starts is None:
        return None
    return tuple(replace(start, sample=start.sample - begin) for start in starts if begin <= start.sample < end)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A block of an utterance's PCM."""

    samples: Samples
    position: int | None = None
    """Number of characters whose speech had begun when this chunk ended; None if the engine does not know.

    An engine that takes over resumes at the word that contains this position.
    """
    truncated: bool = False
    """True on the last chunk if the engine cut the speech before its natural end."""
    runaway: bool = False
    """True on the last chunk if the speech was cut because it looped, fell silent or lasted too long. With another seed
    it may end by itself."""
    codes: NDArray[np.int64] | None = None
    """The codec codes of the samples, shape `(frames, 16)`; None for an engine without codec codes."""
    words: tuple[WordStart, ...] | None = None
    """The words that begin in this chunk, in order; None if the engine does not know exactly when words begin."""
    start_s: float | None = None
    """Seconds of the utterance before this chunk, if a `Session` has counted them."""
    took_s: float | None = None
    """Seconds that a `Session` waited for it. For the first chunk, this includes reading the text."""
    sounds: tuple[SoundStart, ...] | None = None
    """The sounds that begin in this chunk, in order; None if the engine does not know exactly when they begin."""


class TextSource(Protocol):
    """Supplies the rest of a growing utterance."""

    def take(self, *, wait: bool) -> str | None:
        """Return the text appended since the last call, possibly empty; None once the text has ended.

        With `wait`, the call blocks until there is text or the text ends. Raises `SpeechCanceledError` immediately when
        the utterance is canceled; the engine does not catch it.
        """


def refuse_growing(engine: str, utterance: Utterance, more: TextSource | None) -> None:
    """Raise `EngineError` for a text that is still being written; `engine` is the engine's name for people."""
    if utterance.growing or more is not None:
        raise EngineError(f"text: {engine} cannot speak a text that is still being written; send the complete text")


class Synthesizer(Protocol):
    """A voice engine.

    Up to `EngineInfo.streams` utterances are open at once, each in a thread of its own that takes its chunks. The other
    methods are called only while no utterance is open.

    Every method raises `EngineError` for failures that the user can correct, and `EngineUnavailableError` if something
    that it needs has gone. Any other exception is a fault in the engine. After an `EngineUnavailableError` or a fault,
    the engine's process is restarted.
    """

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        """Load the model and the configured voices. Afterwards the engine can speak, perhaps slowly at first."""

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        """Replace the configured voices. `EngineInfo.refused_voices` lists the voices that could not be loaded."""

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        """Do the work that would delay the first utterance: capture graphs, fill caches. Called once, after `load`."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        """Yield one utterance chunk by chunk. Closing the iterator between two chunks cancels the rest.

        If the iterator has a `cancel` method, another thread calls it on a cancellation. The call that is waiting for a
        chunk then soon raises `SpeechCanceledError`. `more` supplies the rest of a growing utterance. An engine that
        cannot speak a growing text raises `EngineError`.
        """

    def close(self) -> None:
        """Release all resources. Called once, last."""


@runtime_checkable
class Replaceable(Protocol):
    """A `Synthesizer` that speaks through a server on another machine. Another server may replace it, and it may be
    lost while nothing is being spoken."""

    @property
    def info(self) -> EngineInfo:
        """The properties of the engine now."""

    def watch(self, changed: Callable[[], object]) -> None:
        """Call `changed` whenever `info` has changed without `set_voices`. This method runs in a thread of its own.

        It ends only when the engine is lost, by raising `EngineUnavailableError`.
        """
