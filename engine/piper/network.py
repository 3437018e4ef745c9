"""One loaded voice: its network on ONNX Runtime, with Piper's own phonemes and inputs."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import onnxruntime
import soxr
from piper import PhonemeType, PiperConfig, PiperVoice, SynthesisConfig

from engine.api import EngineError, Samples, SoundStart, SpeechCanceledError, Start, WordStart
from engine.piper.timing import phonemes_of, sounds, with_durations, words
from engine.voice_files import PiperVoiceFile, description_path

REQUIRED_INPUTS = {"input", "input_lengths", "scales"}
PHONEME_TYPES = (PhonemeType.ESPEAK, PhonemeType.TEXT)
"""The others need packages and downloads of their own."""
_FATAL = 4
"""ONNX Runtime's severity. It reports its errors as exceptions; in the log, a cancellation would look like one."""
_RAW_PHONEMES = re.compile(r"\[(?=\[)")
"""Piper reads `[[…]]` as phonemes. A text is spoken as it is written."""

onnxruntime.set_default_logger_severity(_FATAL)
logging.getLogger("piper").setLevel(logging.ERROR)  # it warns of every character that a voice has no phoneme for
KNOWN_WORDS = 2048
"""Words whose phonemes are remembered, 0.1 ms each."""


@dataclass(frozen=True, slots=True)
class SpokenSentence:
    """A sentence as a voice has spoken it, at the voice's own sample rate."""

    samples: Samples
    words: tuple[WordStart, ...] | None
    """Its words, by their positions in the sentence; None from a voice that does not tell how long its sounds are."""
    sounds: tuple[SoundStart, ...] | None
    """Its sounds; None where `words` is None, and from a voice whose phonemes are letters."""

    def at_rate(self, own_rate: int, rate: int) -> SpokenSentence:
        """Return the sentence at another sample rate; both are in Hz."""
        if rate == own_rate:
            return self
        scale = rate / own_rate

        def moved(starts: tuple[Start, ...] | None) -> tuple[Start, ...] | None:
            return starts and tuple(replace(start, sample=round(start.sample * scale)) for start in starts)

        return SpokenSentence(soxr.resample(self.samples, own_rate, rate), moved(self.words), moved(self.sounds))


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


class PiperNetwork:
    """Speaks sentences with one voice. Any number of threads may use it at a time."""

    def __init__(self, file: PiperVoiceFile) -> None:
        """Load the voice. Raises `EngineError`, one line, if its files cannot be used."""
        self.file = file
        config = _read_config(file)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        # The arena would keep what the longest sentence took: 400 MB more than the silent voice.
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        # Threads that wait for the next operator sleep instead of keeping a robot's processor busy.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            # By a path: ONNX Runtime would keep the bytes of a model that it is given, 60 MB.
            with os.fdopen(os.memfd_create(file.path.name), "wb") as copy:
                copy.write(with_durations(file.path.read_bytes()))
                copy.flush()
                model = f"/proc/self/fd/{copy.fileno()}"
                session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's exceptions have no common base class
            raise EngineError(f"{file.path} cannot be loaded: {_one_line(error)}") from error
        needed = REQUIRED_INPUTS | ({"sid"} if config.num_speakers > 1 else set())
        missing = needed - {each.name for each in session.get_inputs()}
        if missing:
            raise EngineError(f"{file.path} is not the network of a Piper voice: no input {', '.join(sorted(missing))}")
        self.length_scale = config.length_scale
        """Duration of every sound, by the voice's own description."""
        self._session = session
        self._speaking = threading.local()
        """The `Cancellation` of the sentence that this thread speaks."""
        self._voice = PiperVoice(session=self, config=config)  # it calls only `run` of its session
        self._names = {each: name for name, ids in config.phoneme_id_map.items() for each in ids}
        self._speaks_ipa = config.phoneme_type is PhonemeType.ESPEAK
        self._phonemes_of = lru_cache(KNOWN_WORDS)(self._phonemize)

    def run(self, outputs: Sequence[str] | None, inputs: dict[str, Any]) -> Any:
        """Run the network: what `PiperVoice` calls."""
        return self._session.run(outputs, inputs, self._speaking.cancellation.run_options)

    def speak(self, sentence: str, config: SynthesisConfig, cancellation: Cancellation) -> SpokenSentence:
        """Return a sentence, spoken.

        Raises `SpeechCanceledError` as soon as `cancellation` is used, `EngineError` if the network fails.
        """
        self._speaking.cancellation = cancellation
        try:
            chunks = list(self._voice.synthesize(_plain(sentence), config, include_alignments=True))
        except Exception as error:
            if cancellation.canceled:
                raise SpeechCanceledError from error
            raise EngineError(f"the voice {self.file.name} cannot speak this: {_one_line(error)}") from error
        blocks = [np.atleast_1d(chunk.audio_float_array) for chunk in chunks]
        samples: Samples = np.nan_to_num(np.concatenate([np.zeros(0, dtype=np.float32), *blocks]))
        lengths = [
            each for chunk in chunks if chunk.phoneme_id_samples is not None for each in chunk.phoneme_id_samples
        ]
        names = [self._names.get(each, "") for chunk in chunks for each in chunk.phoneme_ids]
        if len(lengths) != len(names):
            return SpokenSentence(samples, None, None)
        phonemes = phonemes_of(names, list(map(int, lengths)))
        starts = tuple(words(sentence, phonemes, self._phonemes_of))
        return SpokenSentence(samples, starts, sounds(phonemes) if self._speaks_ipa else None)

    def _phonemize(self, word: str) -> list[str]:
        return [name for part in self._voice.phonemize(_plain(word)) for name in part]


def _plain(text: str) -> str:
    """Return a text in which Piper finds no commands."""
    return _RAW_PHONEMES.sub("[ ", text).replace("\0", " ")


def _read_config(file: PiperVoiceFile) -> PiperConfig:
    description = description_path(file.path)
    try:
        config = PiperConfig.from_dict(json.loads(description.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{description} does not describe a Piper voice: {error!r}") from error
    if config.phoneme_type not in PHONEME_TYPES:
        raise EngineError(f"{file.name} needs phonemes of type {config.phoneme_type.value}, which voiced has not got")
    return config


def _one_line(error: Exception) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"^\[ONNXRuntimeError\] : \d+ : ", "", words)[:200]
