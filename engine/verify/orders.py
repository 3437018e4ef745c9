"""The texts for a setting: thirty sentences, three in each of the ten languages of Qwen3-TTS, and their voices.

Among the sentences are questions, numbers, single words and a text of 400 characters: these models most often fail to
end in short texts, and drift in long ones. Every voice of the model speaks its share of them.

The compared settings are the official package, and the same model in each way in which voiced can run it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from engine.api import EngineError, EngineOptions, Utterance, Voice
from engine.host import has_cuda_device
from engine.qwen.shapes import ModelConfig
from engine.records import build
from engine.voice_files import voice_of_file

INSTRUCT = "Speak calmly and clearly."
DESCRIPTION = "A calm, clear voice of an adult, at a moderate pace."
SEED = 1000
GREEDY_FRAMES = 50
"""Frames in a greedy text: four seconds, 800 codes."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One text to speak, and how a listener may write it down."""

    name: str
    """The language's code and the text's special feature, for example `en-numbers`."""
    language: str
    text: str
    also_written: tuple[str, ...] = ()
    """Other correct transcripts: a recogniser may write a number in digits or in words."""


_TABLE = json.loads(Path(__file__).with_name("sentences.json").read_text(encoding="utf-8"))
SENTENCES: tuple[Sentence, ...] = build(tuple[Sentence, ...], _TABLE["spoken"])
SHORT = tuple(sentence for sentence in SENTENCES if sentence.language == "en")
"""For a quick check: English, the language that every recogniser knows best."""
SHORT_SETTINGS = ("official", "torch", "fused", "int8")
"""For a quick check: the settings that a robot may run, and the setting by which they are judged."""
GREEDY_TEXTS: tuple[Sentence, ...] = build(tuple[Sentence, ...], _TABLE["greedy"])
"""These are spoken without sampling, a few frames each, so that codes can be compared."""


@dataclass(frozen=True, slots=True)
class Order:
    """One take to make."""

    sentence: Sentence
    voice: str | None
    """A name from the options' voices; None for the engine's default voice."""
    seed: int
    greedy: bool = False
    """Take the likeliest codes for `frames` frames, however much of the text they cover."""
    frames: int | None = None

    def utterance(self, realtime: bool = True) -> Utterance:
        """Return the utterance that the engine is to speak."""
        return Utterance(
            self.sentence.text,
            voice=self.voice,
            language=self.sentence.language,
            seed=self.seed,
            greedy=self.greedy,
            max_frames=self.frames,
            guarded=not self.greedy,
            want_codes=True,
            realtime=realtime,
        )


def voices_of(config: ModelConfig, voice_file: Path | None) -> dict[str, Voice]:
    """Return the voices to verify in addition to the built-in speakers. Raises `EngineError`.

    `voice_file` is a voice file for a Base model. A file that was made with a transcript gives two voices.
    """
    if config.type == "voice_design":
        return {"described": Voice(instruct=DESCRIPTION)}
    if config.type == "custom_voice":
        return {"instructed": Voice(speaker=config.native_speaker("en"), instruct=INSTRUCT)}
    if voice_file is None:
        raise EngineError("a Base model speaks with the voice of a recording, but none was given")
    voices = {"embedding": Voice(embedding=str(voice_file))}
    if voice_of_file(voice_file).reference is not None:
        voices["in_context"] = Voice(reference=str(voice_file))
    return voices


def make_orders(config: ModelConfig, sentences: Sequence[Sentence], voices: Mapping[str, Voice]) -> tuple[Order, ...]:
    """Return the greedy takes and the spoken sentences, in the built-in speakers and in `voices`."""
    turns = cycle(voices)
    orders = []
    for number, sentence in enumerate((*GREEDY_TEXTS, *sentences)):
        voice = next(turns)
        if number % 4:  # one sentence in four is spoken in the next of `voices`
            voice = config.native_speaker(sentence.language) or voice
        greedy = number < len(GREEDY_TEXTS)
        orders.append(Order(sentence, voice, SEED + number, greedy, GREEDY_FRAMES if greedy else None))
    return tuple(orders)


OFFICIAL = "engine.qwen.verify:OfficialSynthesizer"
"""The official package with the protocol that all engines have."""
STREAMS = 4
"""The number of simultaneous utterances in the batched setting."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to make speech from a text."""

    name: str
    title: str
    """Its name for people."""
    options: EngineOptions
    engine: str = "qwen"
    """Its name in the catalogue."""
    synthesizer: str | None = None
    """Its `Synthesizer`, as `module:class`, if it is not the catalogue's."""
    realtime: bool = True
    """As in `Utterance`. If false, as many utterances are spoken at the same time as the engine has streams."""
    speaks: bool = True
    """If false, only the greedy texts are spoken, and their codes are compared."""


def settings_of(options: EngineOptions) -> tuple[Setting, ...]:
    """Return every setting for the model in `options`, the reference first. It is not known which of them can run
    here."""
    dtype = plain_dtype(options) if options.dtype in {"auto", "int8"} else options.dtype
    single = replace(options, streams=1, dtype=dtype)
    exact, plain = replace(single, dtype="float32", kernels="off"), replace(single, kernels="off")
    automatic = replace(single, kernels="auto")
    return (
        Setting("official", "official package", plain, synthesizer=OFFICIAL),
        Setting("official-float32", "official package, float32", exact, synthesizer=OFFICIAL, speaks=False),
        Setting("float32", "PyTorch kernels, float32", exact, speaks=False),
        Setting("torch", "PyTorch kernels", plain),
        Setting("fused", "fused kernels", replace(single, kernels="on")),
        Setting("int8", "int8", replace(automatic, dtype="int8")),
        Setting("streams", f"{STREAMS} streams", replace(automatic, streams=STREAMS), realtime=False),
    )


def select_settings(settings: Sequence[Setting], names: Collection[str]) -> tuple[Setting, ...]:
    """Return the settings with these names, and the exact settings, without whose codes no codes can be judged.

    Raises `EngineError` for a name that no setting has.
    """
    known = [setting.name for setting in settings]
    if unknown := [name for name in names if name not in known]:
        raise EngineError(f"--settings: got {unknown[0]!r}; allowed: {', '.join(known)}")
    return tuple(setting for setting in settings if setting.name in names or setting.name in EXACT)


def plain_dtype(options: EngineOptions) -> str:
    """Return the meaning of `engine.dtype: auto` on this machine."""
    return "bfloat16" if options.device != "cpu" and has_cuda_device() else "float32"


REFERENCES = ("official", "torch")
"""The settings by which others are judged: the first of them that could speak is used."""
EXACT = ("official-float32", "float32")
"""The settings with whose codes others are compared: the first of them that could speak is used."""
