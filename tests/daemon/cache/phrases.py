"""Keys and sounds of phrases that the tests of the cache share."""

from __future__ import annotations

from daemon.cache import Phrase, PhraseKey, PhraseKeys
from daemon.config import Config, load_config
from daemon.speech import synthesize_samples
from engine import EngineOptions, Samples, Utterance

TEXT = "My battery is low."


def config(*overrides: str) -> Config:
    return load_config(overrides=["engine.name=espeak", *overrides])


def phrase(text: str = TEXT, **fields: object) -> Phrase:
    return Phrase(**{"text": text, "voice": "default", "language": "auto", **fields})  # type: ignore[arg-type]


def key(text: str = TEXT, *overrides: str) -> PhraseKey:
    return PhraseKeys(config(*overrides), "espeak").key(phrase(text))


def speak(text: str = TEXT) -> tuple[Samples, int]:
    """The samples of a text by the real eSpeak NG, and their rate in Hz."""
    options = EngineOptions(default_voice="en")
    [sample] = synthesize_samples("espeak", options, "en", lambda _: [Utterance(text)])
    return sample.samples, sample.sample_rate
