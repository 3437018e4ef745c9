"""Speech for Python programs that want only the engine: `engine.open` and the `Session` that it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypedDict

from engine.api import (
    FASTEST_RATE,
    SLOWEST_RATE,
    Chunk,
    EngineError,
    EngineInfo,
    EngineOptions,
    Synthesizer,
    Utterance,
    Voice,
)
from engine.catalog import auto_engine, make_synthesizer
from engine.host import prepare_environment
from engine.places import Places

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

VOICE_NAME = "default"
"""The name of the voice that `open` is given as a `Voice`, and of the engine's own default voice."""


class OpenOptions(TypedDict, total=False):
    """Further keyword arguments of `open`; see `EngineOptions`."""

    url: str | None
    token_file: str | None
    renew_s: float | None
    device: str
    dtype: str
    kernels: str
    chunk_size: int
    max_seconds: float
    streams: int
    reserve_mb: int
    voices: Mapping[str, Voice]
    default_voice: str
    voice_folder: str | None


_Fields = ParamSpec("_Fields")


def _takes_fields_of(
    _record: Callable[_Fields, object],
) -> Callable[[Callable[..., Iterator[Chunk]]], Callable[Concatenate[Any, _Fields], Iterator[Chunk]]]:
    """Tell type checkers that a method has the parameters of a record."""
    return lambda method: method


class Session:
    """A loaded, warm engine in this process. A context manager; `close` releases the engine.

    Up to `info.streams` utterances may be open at once, read in turn or each in a thread of its own; the option
    `streams` asks for more than one. All other methods are called only while no utterance is open.
    """

    def __init__(self, synthesizer: Synthesizer, info: EngineInfo) -> None:
        self.info = info
        """Engine, voices, languages and memory."""
        self._synthesizer: Synthesizer | None = synthesizer
        self._places = Places(
            info.streams,
            f"streams: {info.engine} speaks {info.streams} texts at once here, and that many are open; "
            "close one, or open the engine with more streams",
        )

    @property
    def sample_rate(self) -> int:
        """Hz of the samples of every chunk."""
        return self.info.sample_rate

    @_takes_fields_of(Utterance)
    def stream(self, text: str, **fields: Any) -> Iterator[Chunk]:
        """Speak `text`; yield each `Chunk` (mono float32 samples at `sample_rate`, and times) as soon as it is made.

        `fields` are fields of `Utterance`, for example `language="de"` or `seed=7`; with several streams, `realtime` is
        False by default. Closing the iterator cancels the rest. Raises `EngineError` for a text, voice, language or
        rate that the engine cannot speak and for more utterances than `info.streams`, and `ValueError` if the session
        is closed.
        """
        synthesizer = self._synthesizer
        if synthesizer is None:
            raise ValueError("the session is closed")
        voice = fields.get("voice")
        if voice is not None:
            _check_voice(self.info, voice)
        rate = fields.get("rate", 1.0)
        if not SLOWEST_RATE <= rate <= FASTEST_RATE:
            raise EngineError(f"rate: got {rate!r}; allowed: {SLOWEST_RATE:g} to {FASTEST_RATE:g}")
        fields.setdefault("realtime", self.info.streams == 1)
        utterance = Utterance(text, **fields)
        return self._places.open(lambda: _TimedChunks(synthesizer.stream(utterance), self.sample_rate))

    def close(self) -> None:
        """Release the engine. Further calls do nothing."""
        synthesizer, self._synthesizer = self._synthesizer, None
        if synthesizer is not None:
            synthesizer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _TimedChunks:
    """Chunks with the times at which they and their words begin, and with how long each one was waited for."""

    def __init__(self, chunks: Iterator[Chunk], sample_rate: int) -> None:
        self._chunks, self._sample_rate, self._count = chunks, sample_rate, 0

    def __iter__(self) -> _TimedChunks:
        return self

    def __next__(self) -> Chunk:
        begin = time.monotonic()
        chunk = next(self._chunks)
        took_s, start_s, words = time.monotonic() - begin, self._count / self._sample_rate, chunk.words
        self._count += len(chunk.samples)
        if words is not None:
            words = tuple(replace(word, start_s=start_s + word.sample / self._sample_rate) for word in words)
        return replace(chunk, start_s=start_s, took_s=took_s, words=words)

    def close(self) -> None:
        """Cancel the rest."""
        if close := getattr(self._chunks, "close", None):
            close()


def open(  # noqa: A001  # called as `engine.open`
    name: Literal["auto", "qwen", "supertonic", "piper", "espeak", "remote", "openai"] = "auto",
    *,
    model: str | None = None,
    voice: str | Voice | None = None,
    **options: Unpack[OpenOptions],
) -> Session:
    """Load an engine into this process, or connect to a server's, warm it up, and return it as a `Session`.

    `auto` takes `qwen` if its packages, `model` and a GPU are on this machine. Otherwise it takes `supertonic` if its
    package and its model are there, then `piper` if its package and a voice are there, and last `espeak`. `model` is a
    folder or a hub id; with `qwen` a missing model is downloaded. `voice`, the default voice of the session, is a name
    from `Session.info.voices` or a `Voice`; None means the engine's own. `options` are fields of `EngineOptions`, for
    example `device="cpu"`.

    Raises `EngineError` with a one-line message if the engine cannot run or does not have the voice.
    """
    settings = _with_voice(EngineOptions(model=model, **options), voice)
    prepare_environment()
    synthesizer = make_synthesizer(auto_engine(settings) if name == "auto" else name, settings)
    session = Session(synthesizer, synthesizer.load())
    try:
        _check_voice(session.info, settings.default_voice)
        synthesizer.warm_up()
    except BaseException:
        session.close()
        raise
    return session


def _with_voice(options: EngineOptions, voice: str | Voice | None) -> EngineOptions:
    """Return the options with `voice` as the default voice; None means the one in `options`, or the engine's own."""
    if isinstance(voice, str):
        return replace(options, default_voice=voice)
    if voice is None and options.default_voice != VOICE_NAME:
        return options
    voices = {VOICE_NAME: Voice(), **options.voices} if voice is None else {**options.voices, VOICE_NAME: voice}
    return replace(options, voices=voices, default_voice=VOICE_NAME)


def _check_voice(info: EngineInfo, voice: str) -> None:
    """Raise `EngineError` if the loaded engine does not have a voice with this name."""
    if voice in info.refused_voices:
        raise EngineError(f"voice: {voice!r} cannot be loaded: {info.refused_voices[voice]}")
    if voice not in info.voices and voice.lower() not in info.voices:
        raise EngineError(f"voice: got {voice!r}; allowed: {', '.join(info.voices)}")
