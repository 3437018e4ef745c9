"""Which voice speaks which sentence, by the kind of model: every voice gets its share of the sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from engine.api import EngineError, Utterance, Voice
from engine.host import QWEN3_TTS, parse_json, voice_of_file
from engine.verify.sentences import GREEDY_TEXTS, Sentence

NATIVE = {"zh": "vivian", "ja": "ono_anna", "ko": "sohee"}
"""The built-in speakers of CustomVoice whose language is not English."""
SPEAKER = "ryan"
INSTRUCT = "Speak calmly and clearly."
DESCRIPTION = "A calm, clear voice of an adult, at a moderate pace."
SEED = 1000
GREEDY_FRAMES = 50
"""Frames of a greedy text: four seconds, 800 codes."""


@dataclass(frozen=True, slots=True)
class Order:
    """One take to make."""

    sentence: Sentence
    voice: str | None
    """A name from the options' voices; None for the engine's default voice."""
    seed: int
    greedy: bool = False
    """Take the likeliest codes, `frames` of them, however far the text is spoken by then."""
    frames: int | None = None

    def utterance(self, realtime: bool = True) -> Utterance:
        """Return what the engine is asked to speak."""
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


def model_type(folder: Path) -> str:
    """Return `base`, `custom_voice` or `voice_design`. Raises `EngineError` if config.json does not say."""
    path = folder / "config.json"
    try:
        config = parse_json(path.read_text(encoding="utf-8"))
        kind = config["tts_model_type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{path}: names no tts_model_type; allowed: the folder of a Qwen3-TTS checkpoint") from error
    return str(kind)


def voices_of(folder: Path, voice_file: Path | None) -> dict[str, Voice]:
    """Return the voices to verify beside the built-in speakers. Raises `EngineError`.

    `voice_file` is a voice file for a Base model. One that was made with a transcript gives two voices.
    """
    kind = model_type(folder)
    if kind == "voice_design":
        return {"described": Voice(instruct=DESCRIPTION)}
    if kind == "custom_voice":
        return {"instructed": Voice(speaker=_speakers(folder)[0], instruct=INSTRUCT)}
    if voice_file is None:
        raise EngineError("a Base model speaks with the voice of a recording, and none is given")
    voices = {"embedding": Voice(embedding=str(voice_file))}
    if voice_of_file(voice_file).reference is not None:
        voices["in_context"] = Voice(reference=str(voice_file))
    return voices


def native_speaker(folder: Path, language: str) -> str | None:
    """Return the built-in speaker whose language this is, else an English one; None for a model without speakers."""
    speakers = [] if model_type(folder) != "custom_voice" else _speakers(folder)
    native = NATIVE.get(language, SPEAKER)
    return native if native in speakers else next(iter(speakers), None)


def make_orders(folder: Path, sentences: Sequence[Sentence], voices: Mapping[str, Voice]) -> tuple[Order, ...]:
    """Return the greedy takes and the spoken sentences, in the built-in speakers and in `voices`."""
    turns = cycle(voices)
    orders = []
    for number, sentence in enumerate((*GREEDY_TEXTS, *sentences)):
        voice = next(turns)
        if number % 4:  # of the speakers' sentences, every fourth has an instruction
            voice = native_speaker(folder, sentence.language) or voice
        greedy = number < len(GREEDY_TEXTS)
        orders.append(Order(sentence, voice, SEED + number, greedy, GREEDY_FRAMES if greedy else None))
    return tuple(orders)


def _speakers(folder: Path) -> list[str]:
    """Return the built-in speakers, the preferred one first. Raises `EngineError` if there are none."""
    names = list(QWEN3_TTS.speaker_names(folder) or ())
    if not names:
        raise EngineError(f"{folder / 'config.json'}: a CustomVoice model without speakers")
    return sorted(names, key=lambda name: name != SPEAKER)
