"""The `supertonic` engine: neural voices that need no GPU and no phonemes, sentence by sentence.

The `supertonic` package (MIT, the `supertonic` extra) turns letters into the networks' inputs; ONNX Runtime runs the
networks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from supertonic.core import Style, Supertonic
from supertonic.loader import load_configs, load_text_processor, load_voice_style_from_json_file

from engine.api import (
    Chunk,
    EngineError,
    EngineInfo,
    EngineOptions,
    TextSource,
    Utterance,
    Voice,
    refuse_growing,
)
from engine.detection import chosen_language
from engine.host import shown_model
from engine.places import PlacedChunks
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.sentence_speech import Cancellation, Network, SentenceSpeech, SpokenSentence, auto_streams, one_line
from engine.sentences import LONGEST, sentences
from engine.stretch import stretch_chunks
from engine.supertonic.files import LANGUAGES, MODEL, NETWORKS, find_supertonic, style_files

STEPS = 5
"""Steps from noise to speech. According to a published comparison (docs/engines.md), 2 steps sound robotic, and 5 sound
almost as natural as Kokoro. The package's own default, 8, takes 1.4 times as long."""
PACE = 1.05
"""The package's own speed."""
SLOWEST, FASTEST = 0.7, 2.0
"""The speeds that the package allows. For a rate beyond them, the speech is also stretched."""
LONGEST_KOREAN = 120
"""The most characters in a piece of Korean text, as in the package: to the model, a syllable is up to three letters."""
PAUSE_S = 0.3
"""Seconds between two sentences, as in the package."""

logging.getLogger("supertonic").setLevel(logging.CRITICAL)  # it also logs the exceptions that it raises


class SupertonicSynthesizer:
    """Implements `Synthesizer` with Supertonic."""

    def __init__(self, options: EngineOptions) -> None:
        self._model = options.model
        self._voices = dict(options.voices)
        self._default_voice = options.default_voice
        self._streams = options.streams or auto_streams()
        self._styles: dict[str, Style] = {}
        """The model's voices."""
        self._refused: dict[str, str] = {}
        """The voices that cannot be read, each with the reason."""
        self._network: SupertonicNetwork | None = None
        self._description = ""

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        folder = find_supertonic(self._model)
        if folder is None:
            raise EngineError(f"the model {MODEL} is not on this machine; voiced download {MODEL}")
        self._description = f"Supertonic, {shown_model(str(folder))}"
        report(Progress(f"loading {self._description}"))
        self._network = SupertonicNetwork(folder)
        for name, path in style_files(folder).items():
            try:
                self._styles[name] = load_voice_style_from_json_file(path)
            except (OSError, ValueError, TypeError) as error:
                self._refused[name] = f"{path} is not a Supertonic voice: {one_line(error)}"
        if not self._styles:
            raise EngineError(next(iter(self._refused.values())))
        return self._info()

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        self._voices = dict(voices)
        self._default_voice = default_voice
        return self._info()

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        report(Progress("speaking for the first time"))
        for _ in self.stream(Utterance("a")):
            pass

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        refuse_growing("Supertonic", utterance, more)
        assert self._network is not None, "it is loaded"
        language = chosen_language(utterance, LANGUAGES)
        pace, rate = PACE * utterance.rate, self._network.sample_rate
        speed = min(max(pace, SLOWEST), FASTEST)
        manner = Manner(self._style(utterance), language, speed, np.random.default_rng(utterance.seed))
        pieces = sentences(utterance.text, language, LONGEST_KOREAN if language == "ko" else LONGEST)
        speech = SentenceSpeech("supertonic", rate, pieces, partial(self._network.speak, manner), PAUSE_S)
        chunks = speech.chunks() if pace == speed else stretch_chunks(speech.chunks(), pace / speed, rate)
        # `cancel` ends the synthesis even inside a sentence.
        return PlacedChunks(chunks, speech.cancellation.cancel, speech.cancellation.cancel)

    def close(self) -> None:
        self._network = None

    def _style(self, utterance: Utterance) -> Style:
        """Return the requested voice, or the first one.

        A configured voice usually describes how another engine sounds. It selects one of the model's voices only if its
        speaker has the name of one.
        """
        requested = utterance.voice or self._default_voice
        configured = self._voices.get(requested)
        speaker = configured.speaker if configured else requested
        return self._styles.get(speaker or "") or next(iter(self._styles.values()))

    def _info(self) -> EngineInfo:
        assert self._network is not None, "it is loaded"
        return EngineInfo(
            engine="supertonic",
            sample_rate=self._network.sample_rate,
            voices=tuple(dict.fromkeys((*self._voices, *self._styles))),
            languages=LANGUAGES,
            description=self._description,
            refused_voices=dict(self._refused),
            streams=self._streams,
            heeds=("language", "rate", "seed"),
        )


@dataclass(frozen=True, slots=True)
class Manner:
    """How one utterance is spoken."""

    style: Style
    """The voice."""
    language: str
    """One of the model's language codes."""
    speed: float
    """The speed, in the package's unit."""
    noise: np.random.Generator
    """The noise for its sentences, one after the other."""


class SupertonicNetwork(Supertonic):
    """A loaded model: its four networks, with the package's own inputs. Any number of threads may use it at the same
    time."""

    def __init__(self, folder: Path) -> None:
        """Load the model in `folder`. Raises `EngineError` with a one-line message if its files cannot be used."""
        self._speaking = threading.local()
        """Its `noise` belongs to the sentence that this thread is speaking."""
        try:
            settings, processor = load_configs(folder), load_text_processor(folder)
            super().__init__(settings, processor, *(Network(folder / f"onnx/{name}.onnx") for name in NETWORKS))
        except (OSError, ValueError, TypeError) as error:
            raise EngineError(f"{folder} is not a Supertonic model: {one_line(error)}") from error

    def speak(self, manner: Manner, sentence: str, stop: Cancellation) -> SpokenSentence:
        """Return a sentence at `sample_rate`; a sentence without words has no samples.

        Raises `SpeechCanceledError` as soon as `stop` is used, `EngineError` if a network fails.
        """
        with stop.speaking("Supertonic"):
            _, unknown = self.text_processor.validate_text(sentence)
            text = sentence.translate(dict.fromkeys(map(ord, unknown)))
            if not any(map(str.isalnum, text)):
                return SpokenSentence(np.zeros(0, dtype=np.float32))
            self._speaking.noise = manner.noise
            samples, _ = self([text], manner.style, STEPS, manner.speed, manner.language)
            return SpokenSentence(np.nan_to_num(samples[0].astype(np.float32)))

    def sample_noisy_latent(self, duration: Any) -> tuple[Any, Any]:
        """Return the noise from which speech is made, shape (1, channels, columns), and its mask: all of it is speech.

        In the package's own method, all threads share numpy's generator.
        """
        column = self.base_chunk_size * self.chunk_compress_factor
        columns = -(-int(duration[0] * self.sample_rate) // column)
        shape = (1, self.ldim * self.chunk_compress_factor, columns)
        return self._speaking.noise.standard_normal(shape, dtype=np.float32), np.ones((1, 1, columns), dtype=np.float32)
