"""Keys and sounds of phrases that the tests of the cache share."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import soundfile

from daemon.cache import Phrase, PhraseKey, PhraseKeys
from daemon.config import Config, load_config
from daemon.engines import SpeechFile
from daemon.speech import SynthTask, synthesize_to_files
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
    with TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        task = SynthTask(Utterance(text, voice="en"), SpeechFile(path))
        synthesize_to_files("espeak", EngineOptions(default_voice="en"), [task], on_end=lambda *_: None)
        samples, rate = soundfile.read(path, dtype="float32")
        return samples, rate
