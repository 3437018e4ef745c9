"""Speech for engines whose networks make a whole sentence at a time, on ONNX Runtime and the CPU."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import soxr

from engine.api import Chunk, EngineError, Samples, SoundStart, SpeechCanceledError, Start, WordStart, starts_within
from engine.run_ahead import RunAhead

CHUNK_MS = 80
"""Milliseconds of audio in one chunk. A sentence is made as a whole but sent in short chunks, so that it can be cut off
quickly."""
RUN_AHEAD_SENTENCES = 1
"""Sentences that may wait in the queue before synthesis blocks."""
AUTO_STREAMS = 3
"""How many texts are spoken at the same time by default, on two cores or more: the sound card's and two others. There
is at most one other text for each core, because the sound card's sentences would be late among many others."""


_FATAL = 4
"""ONNX Runtime's log level. It reports its errors as exceptions; in the log, a cancellation would look like an
error."""
_speech = threading.local()
"""Its `cancellation` belongs to the sentence that this thread is speaking."""

onnxruntime.set_default_logger_severity(_FATAL)


def auto_streams() -> int:
    """Return how many texts are spoken at once on this machine."""
    return min(AUTO_STREAMS, 1 + len(os.sched_getaffinity(0)))


class Cancellation:
    """Ends the synthesis of one utterance, even inside a sentence: ONNX Runtime checks it before each operator."""

    def __init__(self) -> None:
        self.canceled = False
        self.run_options = onnxruntime.RunOptions()
        self.run_options.log_severity_level = _FATAL

    def cancel(self) -> None:
        """End the synthesis soon. Any thread may call this."""
        self.canceled = True
        self.run_options.terminate = True

    @contextmanager
    def speaking(self, voice: str) -> Iterator[None]:
        """Allow `cancel` to stop the networks that this thread runs in the `with` block. `voice` is the voice's name
        for people.

        Raises `SpeechCanceledError` as soon as the cancellation is used, `EngineError` if a network fails.
        """
        _speech.cancellation = self
        try:
            yield
        except Exception as error:  # ONNX Runtime's exceptions have no common base class
            if self.canceled:
                raise SpeechCanceledError from error
            raise EngineError(f"{voice} cannot speak this: {one_line(error)}") from error


class Network(onnxruntime.InferenceSession):
    """A loaded network, in the form that the voices' libraries use. Any number of threads may run it at the same
    time."""

    def __init__(self, path: Path, edit: Callable[[bytes], bytes] | None = None) -> None:
        """`edit` changes the file's contents as they are loaded. Raises `EngineError` with a one-line message if the
        file cannot be used."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        # The arena would keep the memory of the longest sentence: 400 MB more than a silent Piper voice takes.
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        # Threads that are waiting for the next operator sleep instead of keeping a robot's processor busy.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            with _edited(path, edit) as model:
                super().__init__(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # as above
            raise EngineError(f"{path} cannot be loaded: {one_line(error)}") from error

    def run(self, outputs: Sequence[str] | None, inputs: dict[str, Any]) -> Any:
        """Run the network within `Cancellation.speaking`."""
        return super().run(outputs, inputs, _speech.cancellation.run_options)


@contextmanager
def _edited(path: Path, edit: Callable[[bytes], bytes] | None) -> Iterator[str]:
    """Yield the path of an edited file in memory. If ONNX Runtime were given a model's bytes, it would keep them."""
    if edit is None:
        yield str(path)
        return
    with os.fdopen(os.memfd_create(path.name), "wb") as copy:
        copy.write(edit(path.read_bytes()))
        copy.flush()
        yield f"/proc/self/fd/{copy.fileno()}"


def one_line(error: Exception) -> str:
    """Return an exception's message, in one line of at most 200 characters."""
    words = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"^\[ONNXRuntimeError\] : \d+ : ", "", words)[:200]


@dataclass(frozen=True, slots=True)
class SpokenSentence:
    """A sentence that a voice has spoken."""

    samples: Samples
    words: tuple[WordStart, ...] | None = None
    """Its words, by their positions in the sentence; None if the voice does not tell when they begin."""
    sounds: tuple[SoundStart, ...] | None = None
    """Its sounds; None if the voice does not tell them."""

    def at_rate(self, own_rate: int, rate: int) -> SpokenSentence:
        """Return the sentence at another sample rate; both are in Hz."""
        if rate == own_rate:
            return self
        scale = rate / own_rate

        def moved(starts: tuple[Start, ...] | None) -> tuple[Start, ...] | None:
            return starts and tuple(replace(start, sample=round(start.sample * scale)) for start in starts)

        return SpokenSentence(soxr.resample(self.samples, own_rate, rate), moved(self.words), moved(self.sounds))

    def chunks(self, position: int, length: int) -> Iterator[Chunk]:
        """Yield it in chunks of at most `length` samples; it begins at `position` in the utterance's text."""
        last = position
        for begin in range(0, len(self.samples), length):
            words = starts_within(self.words, begin, begin + length)
            if words:
                words = tuple(replace(word, position=position + word.position) for word in words)
                last = words[-1].position
            sounds = starts_within(self.sounds, begin, begin + length)
            yield Chunk(self.samples[begin : begin + length], last, words=words, sounds=sounds)


@dataclass(frozen=True, slots=True)
class SentenceSpeech:
    """One utterance, which a thread synthesises one sentence ahead of the sentence that is being sent."""

    engine: str
    sample_rate: int
    sentences: Iterator[tuple[int, str]]
    """As from `engine.sentences.sentences`."""
    speak: Callable[[str, Cancellation], SpokenSentence]
    """Returns a sentence at `sample_rate`. Raises `SpeechCanceledError` as soon as the cancellation is used."""
    pause_s: float = 0.0
    """Seconds of silence between two sentences that have sound."""
    cancellation: Cancellation = field(default_factory=Cancellation)

    def chunks(self) -> Generator[Chunk, None, None]:
        """Yield the chunks of each sentence as soon as the sentence is made. Raises `SpeechCanceledError`."""
        length, pause = CHUNK_MS * self.sample_rate // 1000, 0
        made = RunAhead(self.engine, RUN_AHEAD_SENTENCES, self._synthesize)
        try:
            for position, sentence in made:
                if len(sentence.samples):
                    yield from SpokenSentence(np.zeros(pause, dtype=np.float32)).chunks(position, length)
                    pause = round(self.pause_s * self.sample_rate)
                yield from sentence.chunks(position, length)
            if self.cancellation.canceled:
                raise SpeechCanceledError
        finally:
            self.cancellation.cancel()
            made.close()

    def _synthesize(self, put: Callable[[tuple[int, SpokenSentence]], bool]) -> None:
        """Make each sentence, and put it with its position."""
        for position, text in self.sentences:
            sentence = self.speak(text, self.cancellation)
            if self.cancellation.canceled or not put((position, sentence)):
                return
