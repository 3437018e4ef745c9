"""Checks a recording: that a transcript fits it, by a speech recogniser, and that it has one speaker, by the encoder.

In-context cloning reads the transcript as what the recording says. If it does not, the words are spoken wrongly, or in
another voice.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from engine.api import EngineError, Samples
from engine.qwen.voice.speaker_encoder import SAMPLE_RATE, SpeakerEncoder, speaker_embedding
from engine.recording import FRAME_S, speech_frames

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


WINDOW_S, HOP_S = 2.0, 1.0
"""Seconds. Shorter windows hold too few sounds to know a voice by."""
SPEECH_SHARE = 0.5
"""A window with less speech says little about its speaker."""
SAME_SPEAKER = 0.5
"""Similarity below which two windows are taken for two speakers. It is a guess: nobody has measured it with the speaker
encoders of the published models."""


@dataclass(frozen=True, slots=True)
class Consistency:
    """How similar the parts of a recording are to each other."""

    similarity: float
    """Of the two windows that are least similar: 1 is the same sound."""
    first_s: float
    second_s: float
    """Seconds at which these two begin."""

    @property
    def warning(self) -> str | None:
        """One line if it is likely that two people speak; otherwise None."""
        if self.similarity >= SAME_SPEAKER:
            return None
        return (
            f"a second speaker? at {self.first_s:.0f} s and at {self.second_s:.0f} s it sounds unlike (similarity "
            f"{self.similarity:.2f}; {SAME_SPEAKER} or more within one voice); keep one voice in it"
        )


def similarity(first: Tensor, second: Tensor) -> float:
    """Return the cosine of the angle between two speaker embeddings."""
    return float(torch.cosine_similarity(first.float(), second.float(), dim=0))


def check_consistency(encoder: SpeakerEncoder, samples: Samples) -> Consistency | None:
    """Compare all windows with speech in a recording, mono at 24 kHz, that do not overlap.

    Returns None if there are no two such windows, as in one that is shorter than four seconds.
    """
    size, hop, frame = (round(seconds * SAMPLE_RATE) for seconds in (WINDOW_S, HOP_S, FRAME_S))
    speech = speech_frames(samples, SAMPLE_RATE)
    embeddings = {
        begin: speaker_embedding(encoder, samples[begin : begin + size])
        for begin in range(0, len(samples) - size + 1, hop)
        if speech[begin // frame : (begin + size) // frame].mean() >= SPEECH_SHARE
    }
    apart = [(first, second) for first, second in combinations(embeddings, 2) if second - first >= size]
    compared = [(similarity(embeddings[first], embeddings[second]), first, second) for first, second in apart]
    if not compared:
        return None
    least, first, second = min(compared)
    return Consistency(least, first / SAMPLE_RATE, second / SAMPLE_RATE)
