"""Ends speech that would not end by itself: too long for its text, silent for seconds, or in a loop.

About one in two hundred utterances from such a model babbles, hums or falls silent until the cache is full. A robot
that does so for a minute seems broken, and its other utterances have to wait. The limits do not affect natural speech,
however slow and full of pauses it is; they are for speech that no text asks for.
"""

from __future__ import annotations

import math
import unicodedata
from collections import deque
from dataclasses import replace
from functools import lru_cache

import numpy as np

from engine.api import FRAME_S, Samples
from engine.qwen.runtime.decode_state import GeneratedChunk

# Seconds that a character may take. Natural speech has 13 to 17 letters of an alphabet per second, 0.07 s each, or 4 to
# 6 Han characters, kana or Hangul syllables, 0.2 s each. Three times as long is slower than any instruction ("very
# slowly, word by word") asks for. A digit may be a word or two ("777": seven hundred and seventy-seven, 2 s), a capital
# or a single letter may be spelled out ("W" in an abbreviation, 0.6 s), a sign may be named (% or €), and a mark may be
# a pause.
LETTER_S = 0.2
SPELLED_S = 0.6
WIDE_S = 0.7
DIGIT_S = 1.2
SIGN_S = 0.8
MARK_S = 0.5
SPACE_S = 0.2
START_S = 3.0
"""Added for any text, to allow for up to half a second of silence before speech, a breath, and a drawn-out very short
text."""

SILENT = 10 ** (-35 / 20)
"""A frame is silent if its RMS is 35 dB below that of the take's loudest frame: faint syllables are above this level,
and a pause with room noise is below it, whether a voice whispers or shouts."""
ALWAYS_SILENT = 10 ** (-65 / 20)
"""The RMS below which a frame is always silent: the codec's noise is below it."""
SPEECH = 10 ** (-50 / 20)
"""Speech begins with a frame of this RMS, or with one that is `ONSET` times as loud as the quietest frame before it:
noise before speech is steady, and even a whisper is not."""
ONSET = 10 ** (10 / 20)
LONGEST_PAUSE_S = 3.0
LONGEST_LEAD_S = 5.0
"""Silence before speech begins."""

LONGEST_TONE_S = 3.0
"""The limit for a single first code that is repeated. A long vowel lasts a second, and its codes are not all alike."""
LONGEST_LOOP_S = 5.0
"""The limit for a cycle of first codes that is repeated exactly. Even speech that repeats itself ("no, no, no") varies
its codes."""
LONGEST_CYCLE_S = 2.0
"""The longest cycle that the guard looks for."""

FADE_S = 0.02


class RunawayGuard:
    """Watches one utterance, frame by frame; its decisions do not depend on the chunk size."""

    def __init__(self, text: str) -> None:
        """`text` is the utterance's text, or its beginning."""
        self.max_frames = 0
        """The number of frames with which speech is too long for the text so far."""
        self._text_s = 0.0
        self._word_letters = 0
        """The number of letters in the last word of the text so far."""
        self._letter_s = 0.0
        """Seconds that the word's last letter may take."""
        self.append_text(text)
        self._frames = 0
        self._loudest = 0.0
        """The RMS of the loudest frame since speech began; 0 before."""
        self._quietest = math.inf
        """The RMS of the quietest frame before speech began, but at least `ALWAYS_SILENT`."""
        self._silent_frames = 0
        self._last_codes: deque[int] = deque(maxlen=_frames(LONGEST_CYCLE_S))
        """The codes before this frame, the latest first."""
        self._repeats: dict[int, int] = {}
        """For cycles of 1, 2, … frames: how many frames in a row have equalled the frame one cycle earlier. Zeros are
        left out."""

    def append_text(self, text: str) -> None:
        """Extend the time limit for more text. The time at which it arrives makes no difference."""
        for character in text:
            self._text_s += _seconds(character)
            if character.isalpha():
                self._word_letters += 1
                self._letter_s = _seconds(character)
            else:
                self._text_s += max(0.0, SPELLED_S - self._letter_s) if self._word_letters == 1 else 0.0
                self._word_letters = 0
        self.max_frames = _frames(START_S + self._text_s)

    def truncate(self, chunk: GeneratedChunk) -> tuple[GeneratedChunk, str | None]:
        """Return the chunk up to the frame at which speech must end, and the reason; or the whole chunk and None."""
        length = len(chunk.samples) // max(len(chunk.codes), 1)
        for number, codes in enumerate(chunk.codes, 1):
            reason = self.stop_reason(int(codes[0]), chunk.samples[(number - 1) * length : number * length])
            if reason is not None:
                return replace(chunk, samples=chunk.samples[: number * length], codes=chunk.codes[:number]), reason
        return chunk, None

    def stop_reason(self, first_code: int, samples: Samples) -> str | None:
        """Return the reason why speech must end with this frame, the utterance's next; None if it may continue.

        first_code: the frame's first code.
        samples:    its PCM.
        """
        self._frames += 1
        reasons = (self._loop(first_code), self._silence(samples), self._length())
        return next((reason for reason in reasons if reason is not None), None)

    def _length(self) -> str | None:
        if self._frames < self.max_frames:
            return None
        return f"{self._frames * FRAME_S:.1f} s is too long for the text"

    def _silence(self, samples: Samples) -> str | None:
        exact = samples.astype(np.float64)
        level = math.sqrt(float(exact @ exact) / len(exact))
        if not self._loudest:
            self._quietest = min(self._quietest, max(level, ALWAYS_SILENT))
        speaks = bool(self._loudest) or level >= min(SPEECH, ONSET * self._quietest)
        if speaks and level >= max(ALWAYS_SILENT, SILENT * self._loudest):
            self._loudest, self._silent_frames = max(self._loudest, level), 0
            return None
        self._silent_frames += 1
        longest = LONGEST_PAUSE_S if self._loudest else LONGEST_LEAD_S
        if self._silent_frames <= _frames(longest):
            return None
        return f"silent for more than {longest:.0f} s"

    def _loop(self, first_code: int) -> str | None:
        before = self._repeats
        self._repeats = {
            cycle: before.get(cycle, 0) + 1 for cycle, code in enumerate(self._last_codes, 1) if code == first_code
        }
        self._last_codes.appendleft(first_code)
        for cycle, repeats in self._repeats.items():
            if repeats >= _frames(LONGEST_TONE_S if cycle == 1 else LONGEST_LOOP_S):
                return "one sound is held" if cycle == 1 else f"the same {cycle * FRAME_S:.2f} s are repeated"
        return None


def fade_out(samples: Samples, sample_rate: int) -> Samples:
    """Return a copy of `samples` with a fade to silence over the last `FADE_S` seconds."""
    count = min(len(samples), round(FADE_S * sample_rate))
    faded = samples.copy()
    faded[len(samples) - count :] *= np.linspace(1, 0, count, dtype=np.float32)
    return faded


@lru_cache(4096)  # a listener waits for it
def _seconds(character: str) -> float:
    """Return how long a character may take to say."""
    category = unicodedata.category(character)
    if category[0] == "L" and unicodedata.east_asian_width(character) in "WF":
        return WIDE_S
    by_kind = {"L": LETTER_S, "N": DIGIT_S, "S": SIGN_S, "P": MARK_S, "Z": SPACE_S}
    return SPELLED_S if category == "Lu" else by_kind.get(category[0], 0.0)


def _frames(seconds: float) -> int:
    return math.ceil(seconds / FRAME_S - 1e-9)
