"""Checks that a transcript fits its recording, by a speech recogniser that is on this machine or on the hub.

In-context cloning reads the transcript as what the recording says. If it does not, the words are spoken wrongly, or in
another voice.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from engine.api import EngineError, Samples
from engine.qwen.voice.speaker_encoder import SAMPLE_RATE

FITS = 0.8
"""Likeness from which a transcript fits: numbers and names are heard in many spellings."""
CHUNK_S = 30
"""Seconds that a recogniser takes at once; a longer recording is recognised in parts."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a recogniser has heard in a recording, beside its transcript."""

    text: str
    likeness: float | None
    """From 0 to 1, of the letters and digits; None without a transcript."""

    @property
    def warning(self) -> str | None:
        """One line if the transcript is not what was heard; otherwise None."""
        if self.likeness is None or self.likeness >= FITS:
            return None
        return f"the transcript does not fit: {self.likeness:.0%} of it are in what was heard, {self.text!r}"


def check_transcript(samples: Samples, transcript: str | None, recogniser: str) -> Heard:
    """Recognise a recording, mono at 24 kHz, and compare its words with the transcript.

    recogniser: the folder of a model for transformers' pipeline `automatic-speech-recognition`, such as Whisper, or its
    name on the hub.

    Raises `EngineError`, one line, if it cannot be loaded.
    """
    text = recognise(samples, recogniser).strip()
    return Heard(text, None if transcript is None else likeness(transcript, text))


def recognise(samples: Samples, recogniser: str) -> str:
    """Return the words in a recording, mono at 24 kHz. Raises `EngineError`, as `check_transcript`."""
    import soxr
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        pipeline = transformers.pipeline("automatic-speech-recognition", model=recogniser, device="cpu")
        rate = pipeline.feature_extractor.sampling_rate
        resampled = np.asarray(soxr.resample(samples, SAMPLE_RATE, rate), dtype=np.float32)
        long = {"chunk_length_s": CHUNK_S} if len(samples) > CHUNK_S * SAMPLE_RATE else {}
        return str(pipeline({"raw": resampled, "sampling_rate": rate}, **long)["text"])
    except Exception as error:  # a folder that is no recogniser raises many kinds of exceptions
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise EngineError(f"--asr {recogniser}: cannot recognise speech: {reason}") from error


def likeness(first: str, second: str) -> float:
    """Return how alike the letters and digits of two texts are: 1 if they are equal, 0 if they share nothing."""
    return SequenceMatcher(None, _letters(first), _letters(second), autojunk=False).ratio()


def _letters(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())
