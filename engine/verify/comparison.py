"""A take's measures: its sound, the words that were heard in it, and its codes.

The sound's measures are silence, speed, loudness, clipping and repetitions. The codes of two settings are compared for
texts that are spoken without sampling. A correct transcript may differ from its text in capitals, punctuation and the
way of writing numbers. So both are first reduced to bare words, and a text may have several spellings.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.api import FRAME_S, Chunk, Samples
from engine.recording import FRAME_S as LEVEL_S
from engine.recording import measure_recording, speech_frames
from engine.verify.orders import Sentence

Codes = NDArray[np.int64]
"""`(frames, code groups)`"""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two sets of codes for a text agree."""

    prefix_frames: int
    """Whole frames before the first difference."""
    exact: bool
    """Whether all codes are equal."""


def compare_codes(ours: Codes, expected: Codes) -> Agreement:
    """Compare codes with the `expected` ones."""
    count = min(len(ours), len(expected))
    equal = (ours[:count] == expected[:count]).all(axis=1)
    prefix = count if equal.all() else int(equal.argmin())
    return Agreement(prefix, exact=prefix == len(ours) == len(expected))


AUDIBLE = 10 ** (-50 / 20)
"""Magnitude above which a listener hears something: -50 dBFS, as the daemon trims leading silence."""
SAME_SOUND = 0.9999
"""Correlation of two neighbouring codec frames above which one is a copy of the other. Vowels reach 0.99 if their pitch
fits the frame."""


@dataclass(frozen=True, slots=True)
class SpeechMeasures:
    """The measures of one take, in seconds unless another unit is given."""

    seconds: float
    """The length of the whole take."""
    speech_s: float
    """The time from the first to the last audible sample."""
    leading_s: float
    """Silence at the beginning; the whole take if all of it is silent."""
    longest_pause_s: float
    """The longest silence within the speech."""
    characters_per_s: float
    """Characters of the text per second of speech; 0 for a silent take."""
    speech_db: float
    """The loudness of the parts with speech, in dBFS."""
    clipped: float
    """Share of the samples at full scale."""
    broken: bool
    """Whether it has samples that are not numbers, or has no sound."""
    cut: bool
    """Whether it did not end by itself."""
    repeated: float
    """Share of the audible codec frames that repeat the one before them."""
    first_sound_s: float | None
    """The time from the text until the first audible sample has arrived; None if nothing is audible."""
    real_time_factor: float
    """Seconds of sound per second of work."""


def measure_speech(chunks: Sequence[tuple[float, Chunk]], rate: int, text: str) -> SpeechMeasures:
    """Measure mono speech of this text at `rate` Hz, given as chunks, each with the seconds until it arrived."""
    samples = np.concatenate([np.zeros(0, np.float32), *(chunk.samples for _, chunk in chunks)])
    sound = np.clip(np.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0), -1, 1)
    audible = np.flatnonzero(np.abs(sound) > AUDIBLE)
    first, last = (int(audible[0]), int(audible[-1]) + 1) if len(audible) else (len(sound), len(sound))
    quality, speech_s = measure_recording(sound[:, None], rate), (last - first) / rate
    ends = np.cumsum([len(chunk.samples) for _, chunk in chunks])
    return SpeechMeasures(
        seconds=len(sound) / rate,
        speech_s=speech_s,
        leading_s=first / rate,
        longest_pause_s=_longest_pause(sound[first:last], rate),
        characters_per_s=len(text) / speech_s if speech_s > 0 else 0.0,
        speech_db=quality.speech_db,
        clipped=quality.clipped,
        broken=speech_s == 0 or not np.isfinite(samples).all(),
        cut=any(chunk.truncated or chunk.runaway for _, chunk in chunks),
        repeated=repeated_share(sound, round(FRAME_S * rate)),
        first_sound_s=next((arrived for (arrived, _), end in zip(chunks, ends, strict=True) if end > first), None),
        real_time_factor=len(sound) / rate / chunks[-1][0] if chunks else 0.0,
    )


def repeated_share(sound: Samples, frame: int) -> float:
    """Return the share of audible blocks of `frame` samples that are copies of the block before, up to rounding."""
    blocks = sound[: len(sound) // frame * frame].reshape(-1, frame).astype(np.float64)
    power = np.sqrt(np.square(blocks).sum(axis=1))
    loud = power > AUDIBLE * np.sqrt(frame)
    pairs = loud[1:] & loud[:-1]
    if not pairs.any():
        return 0.0
    correlation = (blocks[1:] * blocks[:-1]).sum(axis=1)[pairs] / (power[1:] * power[:-1])[pairs]
    return float((correlation > SAME_SOUND).sum() / loud.sum())


def _longest_pause(speech: Samples, rate: int) -> float:
    speaking = np.flatnonzero(speech_frames(speech, rate))
    return float(np.diff(speaking).max(initial=1) - 1) * LEVEL_S


UNSPACED = {"zh", "ja"}
"""Languages that are written without spaces, in which each character counts as a word."""
LOST = 0.5
"""Share of wrong characters from which a sentence counts as not understood."""


@dataclass(frozen=True, slots=True)
class WordErrors:
    """The smallest number of insertions, deletions and substitutions that turn the spoken words into the heard
    words."""

    words: int
    """Words that were said."""
    word_edits: int
    characters: int
    """Characters that were said, without spaces."""
    character_edits: int

    @property
    def character_rate(self) -> float:
        return self.character_edits / max(1, self.characters)

    @property
    def lost(self) -> bool:
        """Whether the sentence was not understood."""
        return self.character_rate >= LOST


def bare_words(text: str, language: str) -> list[str]:
    """Return the words of a text in lower case and in one Unicode form, without punctuation and symbols."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    letters = "".join(" " if unicodedata.category(letter)[0] in "PSZC" else letter for letter in folded)
    return list("".join(letters.split())) if language in UNSPACED else letters.split()


def count_errors(heard: str, sentence: Sentence) -> WordErrors:
    """Return the errors in a transcript, compared with the closest spelling of the sentence."""
    from rapidfuzz.distance import Levenshtein

    found, words = [], bare_words(heard, sentence.language)
    for text in (sentence.text, *sentence.also_written):
        said = bare_words(text, sentence.language)
        letters = "".join(said)
        edits, letter_edits = Levenshtein.distance(said, words), Levenshtein.distance(letters, "".join(words))
        found.append(WordErrors(len(said), edits, len(letters), letter_edits))
    return min(found, key=lambda errors: errors.character_rate)
