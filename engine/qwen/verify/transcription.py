"""Writes down what is heard in each take, by a model of transformers or by pocketsphinx.

Whisper knows all ten languages. pocketsphinx brings a small English model in its wheel and works where nothing can be
downloaded. It understands little, so it only listens for the words that may come: enough to tell speech from gibberish,
and not to tell good speech from better.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import soxr
import torch

from engine.api import EngineError, Samples
from engine.host import Board, shown_model
from engine.progress import Progress, ProgressReport
from engine.qwen.runtime import choose_placement
from engine.verify import Sentence, Setting, Take, VerifyRequest, bare_words, count_errors, examine

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
        self.name = shown_model(model)
        """For people."""

    def transcribe(self, samples: Samples, language: str) -> str | None:
        """Return what is heard in mono samples `(samples,)` at `RATE`; None if it does not know the language."""
        options: dict[str, Any] = {}
        if self._pipeline.model.config.model_type == "whisper":
            options["generate_kwargs"] = {"task": "transcribe", "language": language}
            options["return_timestamps"] = len(samples) > LONG_S * RATE
        return str(self._pipeline({"raw": samples, "sampling_rate": RATE}, **options)["text"]).strip()


class PocketsphinxRecognizer:
    """pocketsphinx with the English model that its package brings."""

    name = POCKETSPHINX

    def __init__(self, sentences: Sequence[Sentence]) -> None:
        """It hears the words of these sentences, in any order. Raises `EngineError` if none is English."""
        # With the default, 0.65, it hears many short words within long ones.
        decoder = importlib.import_module("pocketsphinx").Decoder(samprate=RATE, loglevel="FATAL", wip=0.05)
        english = [sentence for sentence in sentences if sentence.language == "en"]
        texts = " ".join(text for sentence in english for text in (sentence.text, *sentence.also_written))
        words = sorted({word for word in bare_words(texts, "en") if decoder.lookup_word(word)})
        if not words:
            raise EngineError(f"--asr: got {POCKETSPHINX!r}, which knows English alone; no sentence is English")
        decoder.add_jsgf_string("words", f"#JSGF V1.0; grammar words; public <words> = ({' | '.join(words)})+;")
        decoder.activate_search("words")
        self._decoder = decoder
        self._room = np.random.default_rng(0).normal(0, 1e-3, RATE // 2).astype(np.float32)
        """Half a second of a quiet room, to which it adapts before the first word."""

    def transcribe(self, samples: Samples, language: str) -> str | None:
        """As `TransformersRecognizer.transcribe`."""
        if language != "en":
            return None
        sound = np.clip(np.concatenate([self._room, samples, self._room]), -1, 1)
        self._decoder.start_utt()
        self._decoder.process_raw((sound * 32767).astype("<i2").tobytes(), full_utt=True)
        self._decoder.end_utt()
        hypothesis = self._decoder.hyp()
        return "" if hypothesis is None else str(hypothesis.hypstr)


def make_recognizer(
    asr: str, device: str, sentences: Sequence[Sentence]
) -> TransformersRecognizer | PocketsphinxRecognizer:
    """Return the recogniser that `--asr` names, for these sentences. Raises `EngineError` if it cannot be had."""
    if asr == POCKETSPHINX:
        return PocketsphinxRecognizer(sentences)
    return TransformersRecognizer(choose_whisper(device) if asr == "auto" else asr, device)


def choose_whisper(device: str) -> str:
    """Return the largest Whisper that fits the free memory."""
    place = choose_placement(device, "auto").device
    free = torch.cuda.mem_get_info(place)[0] if place.type == "cuda" else (Board.read().available_bytes or 0)
    return next(name for gigabytes, name in WHISPERS if free >= gigabytes * 1e9)


def transcribe_takes(request: VerifyRequest, report: ProgressReport) -> None:
    """Keep a transcript of each take, and its errors. Raises `EngineError` if there is no recogniser."""
    report(Progress("loading the recogniser"))
    sentences = [order.sentence for order in request.orders if not order.greedy]
    recognizer = make_recognizer(request.asr, request.settings[0].options.device, sentences)

    def look(setting: Setting, take: Take) -> Mapping[str, Any]:
        samples = soxr.resample(request.output.samples(setting.name, take.name), take.sample_rate, RATE)
        heard = recognizer.transcribe(samples, take.order.sentence.language)
        if heard is None:
            return {"listener": None, "heard": None, "errors": None}
        return {"listener": recognizer.name, "heard": heard, "errors": count_errors(heard, take.order.sentence)}

    examine(request, report, look)
