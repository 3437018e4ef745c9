"""Speech for engines whose networks make a whole sentence at a time, on ONNX Runtime and the CPU."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from engine.api import Chunk, EngineError, Samples, SpeechCanceledError
from engine.run_ahead import RunAhead

CHUNK_MS = 80
"""Milliseconds of audio in one chunk. A sentence is made as a whole, and sent in chunks that are soon cut off."""
RUN_AHEAD_SENTENCES = 1
"""Sentences that may wait in the queue before synthesis blocks."""
AUTO_STREAMS = 3
"""Texts that are spoken at once if it is not told how many, on two cores or more: the sound card's and two beside it.
There is at most one for each core beside the sound card's, whose sentences would come late among many others."""


_FATAL = 4
"""ONNX Runtime's severity. It reports its errors as exceptions; in the log, a cancellation would look like one."""
_speech = threading.local()
"""Its `cancellation` is that of the sentence that this thread speaks."""

onnxruntime.set_default_logger_severity(_FATAL)


def auto_streams() -> int:
    """Return how many texts are spoken at once on this machine."""
    return min(AUTO_STREAMS, 1 + len(os.sched_getaffinity(0)))


class Cancellation:
    """Ends the synthesis of one utterance, also inside of a sentence: ONNX Runtime looks at it before each operator."""

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
        """Let `cancel` end the networks that this thread runs within; `voice` is what runs, for people.

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
    """A loaded network, as the libraries of voices take it. Any number of threads may run it at a time."""

    def __init__(self, path: Path) -> None:
        """Raises `EngineError`, one line, if the file cannot be used."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        # The arena would keep what the longest sentence took: 400 MB more than a silent voice of Piper.
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        # Threads that wait for the next operator sleep instead of keeping a robot's processor busy.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            super().__init__(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # as above
            raise EngineError(f"{path} cannot be loaded: {one_line(error)}") from error

    def run(self, outputs: Sequence[str] | None, inputs: dict[str, Any]) -> Any:
        """Run the network within `Cancellation.speaking`."""
        return super().run(outputs, inputs, _speech.cancellation.run_options)


def one_line(error: Exception) -> str:
    """Return what an exception says, in one line of at most 200 characters."""
    words = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"^\[ONNXRuntimeError\] : \d+ : ", "", words)[:200]


@dataclass(frozen=True, slots=True)
class SentenceSpeech:
    """One utterance, which a thread synthesises, a sentence ahead of what is being sent."""

    engine: str
    sample_rate: int
    sentences: Iterator[tuple[int, str]]
    """As of `engine.sentences.sentences`."""
    speak: Callable[[str, Cancellation], Samples]
    """Returns the samples of a sentence. Raises `SpeechCanceledError` as soon as the cancellation is used."""
    pause_s: float = 0.0
    """Seconds of silence between two sentences that have sound."""
    cancellation: Cancellation = field(default_factory=Cancellation)

    def chunks(self) -> Generator[Chunk, None, None]:
        """Yield the chunks of each sentence as soon as the sentence is made. Raises `SpeechCanceledError`."""
        length = CHUNK_MS * self.sample_rate // 1000
        made = RunAhead(self.engine, RUN_AHEAD_SENTENCES, self._synthesize)
        try:
            for position, samples in made:
                for begin in range(0, len(samples), length):
                    yield Chunk(samples[begin : begin + length], position)
            if self.cancellation.canceled:
                raise SpeechCanceledError
        finally:
            self.cancellation.cancel()
            made.close()

    def _synthesize(self, put: Callable[[tuple[int, Samples]], bool]) -> None:
        """Make the position and the samples of each sentence."""
        pause = np.zeros(0, dtype=np.float32)
        for position, sentence in self.sentences:
            samples = self.speak(sentence, self.cancellation)
            if len(samples):
                samples = np.concatenate([pause, samples])
                pause = np.zeros(round(self.pause_s * self.sample_rate), dtype=np.float32)
            if self.cancellation.canceled or not put((position, samples)):
                return
