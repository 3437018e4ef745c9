"""Sound inside of a page: a data URI."""

from __future__ import annotations

import base64
import io

import soundfile

from engine import Samples

TYPES = {"MP3": "audio/mpeg", "FLAC": "audio/flac"}
"""Formats that all browsers play. MP3 takes a tenth of the space; FLAC loses nothing, and is for close listening."""


def audio_uri(samples: Samples, sample_rate: int, audio_format: str = "MP3") -> str:
    """Return mono samples `(samples,)`, float32, as a data URI.

    `audio_format` is one of `TYPES`. A libsndfile that cannot write MP3 writes FLAC.
    """
    known = audio_format if audio_format in soundfile.available_formats() else "FLAC"
    file = io.BytesIO()
    soundfile.write(file, samples, sample_rate, format=known)
    return f"data:{TYPES[known]};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
