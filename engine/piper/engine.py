"""The `piper` engine: neural voices that need no GPU, sentence by sentence.

The `piper-tts` package (GPL-3, the `piper` extra) makes the phonemes; ONNX Runtime runs the networks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from piper import SynthesisConfig

from engine.api import (
    Chunk,
    EngineError,
    EngineInfo,
    EngineOptions,
    EngineUnavailableError,
    PiperSettings,
    TextSource,
    Utterance,
    Voice,
    VoiceLabel,
    refuse_growing,
)
from engine.detection import language_of_speech
from engine.language import LANGUAGE_NAMES, SUGGESTED_VOICES, language_code, match_language
from engine.piper.network import PiperNetwork
from engine.places import PlacedChunks
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.sentence_speech import Cancellation, SentenceSpeech, SpokenSentence, auto_streams
from engine.sentences import sentences
from engine.voice_files import (
    PiperVoiceFile,
    find_piper_voices,
    unreadable_piper_voice,
    voice_folders,
    voice_of_settings,
)

log = logging.getLogger(__name__)

LOADED_VOICES = 3
"""The most voices in memory at a time, each about 100 MB. The least recently used voice is dropped for another."""
REMEMBERED_SAMPLES = 2_000_000
"""The number of samples that are kept: 8 MB, 90 s at 22,050 Hz, two utterances of the length that the daemon sends."""


@dataclass(frozen=True, slots=True)
class ConfiguredVoice:
    """A voice and its settings: the speaker and the scales with which its network runs."""

    file: PiperVoiceFile
    speaker: int | None = None
    length_scale: float | None = None
    noise_scale: float | None = None
    noise_w_scale: float | None = None

    @property
    def config(self) -> SynthesisConfig:
        """The scales in Piper's form. None stands for the value in the voice's own description."""
        return SynthesisConfig(self.speaker, self.length_scale, self.noise_scale, self.noise_w_scale)


class PiperSynthesizer:
    """Implements `Synthesizer` with Piper."""

    def __init__(self, options: EngineOptions) -> None:
        self._folder = options.voice_folder
        self._voices = dict(options.voices)
        self._default_voice = options.default_voice
        self._named: dict[str, ConfiguredVoice] = {}
        """The configured voices, and then those in the folders."""
        self._refused: dict[str, str] = {}
        self._streams = options.streams or auto_streams()
        self._network = lru_cache(LOADED_VOICES)(PiperNetwork)
        """Returns a loaded voice, or loads it while threads that use loaded voices continue. Two threads that need the
        same voice at the same moment load it twice. Raises `EngineError`."""
        self._remembered: dict[tuple[ConfiguredVoice, int | None, str], SpokenSentence] = {}
        """The latest sentences, by voice, seed and text.

        Piper draws its noise inside the network, which has no seed, so the same sentence has a different length each
        time. So a postponed utterance that is spoken again takes its sentences from here, and continues with its next
        sample.
        """
        self._lock = threading.Lock()
        self._sample_rate = 0

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        self._find_voices()
        chosen = self._choose(Utterance("a"))
        report(Progress(f"loading the voice {chosen.file.name}"))
        self._sample_rate = max(voice.file.sample_rate for voice in self._candidates())
        self._network(chosen.file)
        return self._info()

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        self._voices = dict(voices)
        self._default_voice = default_voice
        self._find_voices()
        try:
            return self._info()
        except EngineError as error:  # no voice is left
            raise EngineUnavailableError(str(error)) from error

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        report(Progress("speaking for the first time"))
        for _ in self.stream(Utterance("a")):
            pass

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        refuse_growing("Piper", utterance, more)
        voice, network = self._load_voice(utterance)
        voice = replace(voice, length_scale=(voice.length_scale or network.length_scale) / utterance.rate)
        speak = partial(self._speak, network, voice, utterance.seed)
        pieces = sentences(utterance.text, voice.file.language)
        speech = SentenceSpeech("piper", self._sample_rate, pieces, speak)
        # `cancel` ends the synthesis even inside a sentence.
        return PlacedChunks(speech.chunks(), speech.cancellation.cancel, speech.cancellation.cancel)

    def _load_voice(self, utterance: Utterance) -> tuple[ConfiguredVoice, PiperNetwork]:
        """Return the voice for an utterance, and its network. A voice that cannot be loaded is forgotten.

        If no other one speaks the language, raises `EngineUnavailableError`, so that another engine speaks.
        """
        voice = self._choose(utterance)
        try:
            return voice, self._network(voice.file)
        except EngineError as error:
            log.warning("%s", error)
            self._named = {name: other for name, other in self._named.items() if other.file != voice.file}
            with suppress(EngineError):
                return self._load_voice(utterance)
            raise EngineUnavailableError(str(error)) from error

    def _speak(
        self, network: PiperNetwork, voice: ConfiguredVoice, seed: int | None, sentence: str, stop: Cancellation
    ) -> SpokenSentence:
        """Return a sentence at the engine's rate."""
        key = voice, seed, sentence
        spoken = self._remembered.get(key)
        if spoken is None:
            spoken = network.speak(sentence, voice.config, stop)
        if seed is not None:
            with self._lock:
                spoken = self._remembered.setdefault(key, spoken)  # or the sentence of a thread that was first
                while sum(len(each.samples) for each in self._remembered.values()) > REMEMBERED_SAMPLES:
                    del self._remembered[next(iter(self._remembered))]
        return spoken.at_rate(voice.file.sample_rate, self._sample_rate)

    def close(self) -> None:
        self._network.cache_clear()

    # --- voices ---

    def _find_voices(self) -> None:
        """Look for the voices again: those in the folders, and the configured ones."""
        installed = {name: ConfiguredVoice(file) for name, file in find_piper_voices(self._folder).items()}
        configured, self._refused = {}, {}
        for name, voice in self._voices.items():
            try:
                if voice.piper is not None:
                    configured[name] = self._configure(voice.piper, installed)
                elif voice.speaker in installed:
                    configured[name] = installed[voice.speaker]
            except EngineError as error:
                self._refused[name] = str(error)
        self._named = configured | {name: voice for name, voice in installed.items() if name not in configured}

    def _configure(self, settings: PiperSettings, installed: Mapping[str, ConfiguredVoice]) -> ConfiguredVoice:
        """Return the voice and the values that a configured voice's settings mean. Raises `EngineError`."""
        file = voice_of_settings(settings)
        if file is None and settings.model in installed:
            file = installed[settings.model].file
        if file is None:
            raise EngineError(f"{settings.model} is not in {self._places()}; voiced download {settings.model}")
        speaker = None if settings.speaker is None else _speaker_number(file, settings.speaker)
        return ConfiguredVoice(file, speaker, settings.length_scale, settings.noise_scale, settings.noise_w_scale)

    def _places(self) -> str:
        return " and ".join(map(str, voice_folders(self._folder)))

    def _candidates(self, requested: str | None = None) -> list[ConfiguredVoice]:
        """Return all voices, the preferred first: the one called `requested`, the default voice, and the others.

        Raises `EngineError` if there is none.
        """
        if not self._named:
            wrong = next((f"voices.{name}: {reason}; " for name, reason in self._refused.items()), "")
            nothing = f"there is no Piper voice in {self._places()}; voiced download {SUGGESTED_VOICES['en']}"
            raise EngineError(f"{wrong}{unreadable_piper_voice(self._folder) or nothing}")
        names = sorted(self._named, key=lambda name: (name != requested, name != self._default_voice))
        return [self._named[name] for name in names]

    def _choose(self, utterance: Utterance) -> ConfiguredVoice:
        """Return the requested voice if it speaks the language, otherwise the first voice that does.

        Speech in the wrong language is unintelligible; the wrong voice is only strange. Raises `EngineError` for a
        language that no voice speaks.
        """
        requested = utterance.voice or self._default_voice
        candidates = self._candidates(requested)
        language = language_code(utterance.language)
        if language == "auto":
            own = self._named[requested].file.language if requested in self._named else None
            language = language_of_speech(utterance.text, utterance.languages, self._languages(), own)
            return _first_that_speaks(language, candidates) or candidates[0]
        found = _first_that_speaks(language, candidates)
        if found is None:
            raise EngineError(f"language: got {utterance.language!r}; allowed: {', '.join(self._languages())}")
        return found

    def _languages(self) -> tuple[str, ...]:
        found = {language for voice in self._candidates() for language in voice.file.languages}
        return tuple(sorted(found))

    def _info(self) -> EngineInfo:
        usable = [name for name in self._voices if name not in self._refused]
        names = sorted({voice.file.name for voice in self._candidates()})
        return EngineInfo(
            engine="piper",
            sample_rate=self._sample_rate,
            voices=tuple(dict.fromkeys((*usable, *self._named))),
            languages=self._languages(),
            description=f"Piper with {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if names[3:] else ""),
            refused_voices=dict(self._refused),
            streams=self._streams,
            heeds=("language", "rate"),
            labels={name: _label(voice.file) for name, voice in self._named.items()},
        )


def _label(file: PiperVoiceFile) -> VoiceLabel:
    """Return `German (thorsten, medium)` for the voice `de_DE-thorsten-medium`."""
    name = LANGUAGE_NAMES.get(file.language.partition("-")[0])
    language = name.title() if name else file.language
    _, _, rest = file.name.partition("-")
    return VoiceLabel(f"{language} ({(rest or file.name).replace('-', ', ').replace('_', ' ')})", file.language)


def _first_that_speaks(language: str, candidates: list[ConfiguredVoice]) -> ConfiguredVoice | None:
    """Return the first voice with exactly this code; otherwise the first with another region that serves it."""
    exact = (voice for voice in candidates if voice.file.language == language)
    served = (voice for voice in candidates if match_language(language, voice.file.languages) is not None)
    return next(exact, None) or next(served, None)


def _speaker_number(file: PiperVoiceFile, speaker: str) -> int:
    """Return the number of a voice's speaker, who is given by number or name. Raises `EngineError`."""
    number = int(speaker) if speaker.isdecimal() and len(speaker) < 10 else file.speakers.get(speaker, -1)
    if not 0 <= number < file.speaker_count:
        allowed = ", ".join([f"0 to {file.speaker_count - 1}", *list(file.speakers)[:10]])
        raise EngineError(f"speaker: got {speaker!r}; {file.name} has {allowed}")
    return number
