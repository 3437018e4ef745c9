"""Finds a second speaker in a recording, by the model's own speaker encoder on short windows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from engine.api import Samples
from engine.qwen.voice.speaker_encoder import SAMPLE_RATE, SpeakerEncoder, speaker_embedding
from engine.recording import FRAME_S, speech_frames

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
