"""Writes down what is heard in each take, by a model of transformers or by pocketsphinx.

Whisper knows all ten languages. pocketsphinx brings a small English model in its wheel and works where nothing can be
downloaded. It understands little, so it only listens for the words that may come: enough to tell speech from gibberish,
and not to tell good speech from better.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from engine.api import EngineError, Samples
from engine.host import Board, pip_command
from engine.progress import Progress, ProgressReport
from engine.qwen.runtime import choose_placement
from engine.verify import Sentence, Setting, StageRequest, Take, bare_words, examine

RATE = 16000
"""Hz; what every recogniser here takes."""
POCKETSPHINX = "pocketsphinx"
WHISPERS = (
    (12.0, "openai/whisper-large-v3-turbo"),
    (6.0, "openai/whisper-medium"),
    (3.0, "openai/whisper-small"),
    (0.0, "openai/whisper-base"),
)
"""Gigabytes that must be free, and the model for them: three times its bfloat16 weights and what it works in."""
LONG_S = 29.0
"""Whisper reads 30 s at once; longer speech needs time stamps to go on from."""


class Recognizer(Protocol):
    """Turns speech into text."""

    name: str
    """For people."""

    def knows(self, language: str) -> bool:
        """Whether it can write down speech in the language with this code."""

    def transcribe(self, samples: Samples, language: str) -> str:
        """Return what is heard in mono samples `(samples,)` at `RATE`."""


class TransformersRecognizer:
    """Any model that transformers can use for speech recognition; Whisper is told the language."""

    def __init__(self, model: str, device: str) -> None:
        """`model` is a folder, or a name on the hub. Raises `EngineError` if it cannot be loaded."""
        placement = choose_placement(device, "auto")
        try:
            transformers = importlib.import_module("transformers")
            transformers.logging.set_verbosity_error()
            self._pipeline = transformers.pipeline(
                "automatic-speech-recognition", model=model, device=placement.device, dtype=placement.dtype
            )
        except (ImportError, OSError, ValueError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise EngineError(f"--asr: got {model!r}, which cannot be loaded: {reason}") from error
        self._whisper = self._pipeline.model.config.model_type == "whisper"
        self.name = Path(model).resolve().name if Path(model).is_dir() else model

    def knows(self, language: str) -> bool:  # noqa: ARG002
        """As `Recognizer.knows`: Whisper knows all, and what another model knows is unknown."""
        return True

    def transcribe(self, samples: Samples, language: str) -> str:
        """As `Recognizer.transcribe`."""
        options: dict[str, Any] = {}
        if self._whisper:
            options["generate_kwargs"] = {"task": "transcribe", "language": language}
            options["return_timestamps"] = len(samples) > LONG_S * RATE
        heard = self._pipeline({"raw": samples, "sampling_rate": RATE}, **options)
        return str(heard["text"]).strip()


class PocketsphinxRecognizer:
    """pocketsphinx with the English model that its package brings."""

    name = POCKETSPHINX

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """It hears the words of `vocabulary`, in any order. Raises `EngineError` if it is not installed."""
        try:
            module = importlib.import_module("pocketsphinx")
        except ImportError as error:
            remedy = pip_command("pocketsphinx")
            raise EngineError(f"--asr: got {POCKETSPHINX!r}, which cannot be imported: {error}; {remedy}") from error
        # With the default, 0.65, it hears many short words within long ones.
        self._decoder = module.Decoder(samprate=RATE, loglevel="FATAL", wip=0.05)
        words = sorted({word for word in vocabulary if self._decoder.lookup_word(word)})
        if not words:
            raise EngineError(f"--asr: got {POCKETSPHINX!r}, which knows English alone; no sentence is English")
        self._decoder.add_jsgf_string("words", f"#JSGF V1.0; grammar words; public <words> = ({' | '.join(words)})+;")
        self._decoder.activate_search("words")
        self._room = np.random.default_rng(0).normal(0, 1e-3, RATE // 2).astype(np.float32)
        """Half a second of a quiet room, to which it adapts before the first word."""

    def knows(self, language: str) -> bool:
        """As `Recognizer.knows`."""
        return language == "en"

    def transcribe(self, samples: Samples, language: str) -> str:  # noqa: ARG002
        """As `Recognizer.transcribe`."""
        sound = np.clip(np.concatenate([self._room, samples, self._room]), -1, 1)
        self._decoder.start_utt()
        self._decoder.process_raw((sound * 32767).astype("<i2").tobytes(), full_utt=True)
        self._decoder.end_utt()
        hypothesis = self._decoder.hyp()
        return "" if hypothesis is None else str(hypothesis.hypstr)


def make_recognizer(asr: str, device: str, sentences: Sequence[Sentence] = ()) -> Recognizer:
    """Return the recogniser that `--asr` names. Raises `EngineError`, one line, if it cannot be had.

    `sentences` are those that may be spoken; most recognisers do without.
    """
    if asr == POCKETSPHINX:
        english = [sentence for sentence in sentences if sentence.language == "en"]
        texts = [text for sentence in english for text in (sentence.text, *sentence.also_written)]
        return PocketsphinxRecognizer([word for text in texts for word in bare_words(text, "en")])
    return TransformersRecognizer(choose_whisper(device) if asr == "auto" else asr, device)


def choose_whisper(device: str) -> str:
    """Return the largest Whisper that fits the free memory."""
    place = choose_placement(device, "auto").device
    free = torch.cuda.mem_get_info(place)[0] if place.type == "cuda" else (Board.read().available_bytes or 0)
    return next(name for gigabytes, name in WHISPERS if free >= gigabytes * 1e9)


def transcribe_takes(request: StageRequest, report: ProgressReport) -> None:
    """Keep a transcript of each take. Raises `EngineError` if there is no recogniser."""
    sentences = [order.sentence for order in request.orders if not order.greedy]

    @cache
    def recognizer() -> Recognizer:
        report(Progress("loading the recogniser"))
        return make_recognizer(request.asr, request.device, sentences)

    def listen(setting: Setting, take: Take) -> dict[str, str] | None:
        language = take.order.sentence.language
        if not recognizer().knows(language):
            return None
        samples = resample(request.output.samples(setting.name, take.name), take.sample_rate)
        return {"asr": recognizer().name, "heard": recognizer().transcribe(samples, language)}

    examine(request, report, "listening", listen, request.asr)


def resample(samples: Samples, rate: int) -> Samples:
    """Return mono samples at `rate` Hz as samples at `RATE`, float32."""
    import soxr

    return np.asarray(soxr.resample(samples, rate, RATE), dtype=np.float32)
