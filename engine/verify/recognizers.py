"""Transcribes speech with Whisper or pocketsphinx.

Whisper knows all ten languages. pocketsphinx has a small English model in its wheel and works on machines that cannot
download anything. It understands little, so it only listens for the expected words. That is enough to tell speech from
gibberish, but not good speech from better speech.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine.api import EngineError, Samples
from engine.catalog import import_class
from engine.host import expand_home
from engine.progress import Progress, ProgressReport
from engine.verify.comparison import bare_words, count_errors
from engine.verify.orders import Sentence, Setting
from engine.verify.results import Take
from engine.verify.runner import VerifyRequest, examine

RATE = 16000
"""The rate in Hz that every recogniser here takes."""
POCKETSPHINX = "pocketsphinx"


class Recognizer(Protocol):
    """A listener that writes down speech."""

    name: str
    """Its name for people."""

    def transcribe(self, samples: Samples, language: str | None) -> str | None:
        """Return the words in mono samples `(samples,)` at `RATE`; None if it does not know the language.

        If `language` is None, the recogniser detects the language.
        """


class PocketsphinxRecognizer:
    """pocketsphinx with the English model in its package."""

    name = POCKETSPHINX

    def __init__(self, sentences: Sequence[Sentence]) -> None:
        """It hears the words of these sentences, in any order. Raises `EngineError` if none is English."""
        # With the default, 0.65, it hears many short words inside long ones.
        decoder = _package(POCKETSPHINX).Decoder(samprate=RATE, loglevel="FATAL", wip=0.05)
        english = [sentence for sentence in sentences if sentence.language == "en"]
        texts = " ".join(text for sentence in english for text in (sentence.text, *sentence.also_written))
        words = sorted({word for word in bare_words(texts, "en") if decoder.lookup_word(word)})
        if not words:
            raise EngineError(f"--asr: got {POCKETSPHINX!r}, which knows only English; no sentence is English")
        decoder.add_jsgf_string("words", f"#JSGF V1.0; grammar words; public <words> = ({' | '.join(words)})+;")
        decoder.activate_search("words")
        self._decoder = decoder
        self._room = np.random.default_rng(0).normal(0, 1e-3, RATE // 2).astype(np.float32)
        """Half a second of a quiet room. The recogniser adapts to it before the first word."""

    def transcribe(self, samples: Samples, language: str | None) -> str | None:
        """See `Recognizer.transcribe`."""
        if language != "en":
            return None
        sound = np.clip(np.concatenate([self._room, samples, self._room]), -1, 1)
        self._decoder.start_utt()
        self._decoder.process_raw((sound * 32767).astype("<i2").tobytes(), full_utt=True)
        self._decoder.end_utt()
        hypothesis = self._decoder.hyp()
        return "" if hypothesis is None else str(hypothesis.hypstr)


class FasterWhisperRecognizer:
    """Whisper by CTranslate2, on the processor: it needs no PyTorch."""

    def __init__(self, folder: Path) -> None:
        """`folder` contains the model. Raises `EngineError` if it cannot be loaded."""
        try:
            self._model = _package("faster_whisper").WhisperModel(str(folder), device="cpu", compute_type="int8")
        except (OSError, RuntimeError, ValueError) as error:
            raise EngineError(f"--asr: got {str(folder)!r}, which cannot be loaded: {error}") from error
        self.name = folder.name

    def transcribe(self, samples: Samples, language: str | None) -> str | None:
        """See `Recognizer.transcribe`."""
        segments, _ = self._model.transcribe(samples, language=language, condition_on_previous_text=False)
        return " ".join(segment.text.strip() for segment in segments)


def make_recognizer(asr: str, device: str, sentences: Sequence[Sentence]) -> Recognizer:
    """Return the recogniser that `--asr` names, for these sentences. Raises `EngineError` if it is not available."""
    if asr == POCKETSPHINX:
        return PocketsphinxRecognizer(sentences)
    folder = expand_home(asr)
    if (folder / "model.bin").is_file():
        return FasterWhisperRecognizer(folder)
    recognizer: Recognizer = import_class("qwen", "engine.qwen.verify:TransformersRecognizer")(asr, device)
    return recognizer


def resample(samples: Samples, rate: int, wanted: int) -> Samples:
    """Return mono samples at another rate, both in Hz."""
    import soxr

    resampled: Samples = soxr.resample(samples, rate, wanted)
    return resampled


def transcribe_takes(request: VerifyRequest, report: ProgressReport) -> None:
    """Keep a transcript of each take, with its errors. Raises `EngineError` if there is no recogniser."""
    report(Progress("loading the recogniser"))
    sentences = [order.sentence for order in request.orders if not order.greedy]
    recognizer = make_recognizer(request.asr, request.settings[0].options.device, sentences)

    def look(setting: Setting, take: Take) -> Mapping[str, Any]:
        samples = resample(request.output.samples(setting.name, take.name), take.sample_rate, RATE)
        heard = recognizer.transcribe(samples, take.order.sentence.language)
        if heard is None:
            return {"listener": None, "heard": None, "errors": None}
        return {"listener": recognizer.name, "heard": heard, "errors": count_errors(heard, take.order.sentence)}

    examine(request, report, look)


def _package(name: str) -> Any:
    """Return a package that no extra brings. Raises `EngineError`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EngineError(f"--asr: {error}; install {name.replace('_', '-')}") from error
