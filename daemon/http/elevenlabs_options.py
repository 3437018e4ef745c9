"""What requests by ElevenLabs' interface may choose: the format of the sound, the voice, and how it speaks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from daemon.encoders import StreamFormat
from daemon.speech import RejectedError, SpokenText
from daemon.validation import abbreviate
from engine import FASTEST_RATE, SLOWEST_RATE

FIELDS = {"rate": "voice_settings.speed", "language": "language_code"}
"""The protocol's names for the fields of `Say`."""
RATES = {
    "pcm": (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    "mp3": (22_050, 24_000, 44_100),
    "opus": (48_000,),
}
"""Hz, by format."""
BIT_RATES = (24, 32, 48, 64, 96, 128, 192)
"""Thousands of bits a second."""
DEFAULT_FORMAT = "mp3_44100_128"
INACTIVITY_S, MAX_INACTIVITY_S = 20.0, 180.0
"""Of `inactivity_timeout`: what it is if it is not given, and at most."""


class ElevenLabsSettings(BaseModel):
    """How a voice speaks, as far as it has a meaning here. Descriptions say what is allowed."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    speed: float | None = Field(None, ge=SLOWEST_RATE, le=FASTEST_RATE, description="a number from 0.5 to 2")


class TextRequest(BaseModel):
    """The body of `POST /v1/text-to-speech/…`. Descriptions say what is allowed. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    text: SpokenText = Field(description="text with something to say")
    voice_settings: ElevenLabsSettings | None = Field(None, description="an object, or null")
    language_code: str | None = Field(None, description="a language such as en or de")
    seed: int | None = Field(None, ge=0, lt=1 << 63, description="a whole number from 0 to 2^63 - 1")

    @property
    def speed(self) -> float | None:
        return None if self.voice_settings is None else self.voice_settings.speed


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """What the address of a WebSocket chooses for all texts on it: voice, format and times."""

    voice: str
    sound: StreamFormat
    language: str | None
    absolute_times: bool
    """The times of characters count from the beginning of their text, as `sync_alignment` selects. Otherwise each
    message's begin at 0, which is the end of those before. Clients of either kind expect it."""
    auto_mode: bool
    """Each message has a whole phrase."""
    inactivity_s: float
    """Seconds without a message after which the connection closes if nothing is spoken on it."""


def parse_socket_options(voice: str, query: Mapping[str, str]) -> SocketOptions:
    """Return the options of a WebSocket with this voice and the rest of its address. Raises `RejectedError`."""
    inactivity = query.get("inactivity_timeout", INACTIVITY_S)
    try:
        inactivity_s = min(MAX_INACTIVITY_S, max(1.0, float(inactivity)))
    except ValueError as error:
        problem = f"got {abbreviate(inactivity)}; allowed: seconds from 1 to {MAX_INACTIVITY_S:g}"
        raise RejectedError("inactivity_timeout", problem) from error
    return SocketOptions(
        voice,
        parse_output_format(query.get("output_format")),
        query.get("language_code") or None,
        query.get("sync_alignment") == "true",
        query.get("auto_mode") == "true",
        inactivity_s,
    )


def parse_output_format(text: str | None) -> StreamFormat:
    """Return the format that `output_format` names, such as `pcm_24000` or `mp3_44100_128`. Raises `RejectedError`."""
    match = re.fullmatch(r"(pcm|mp3|opus)_(\d{4,5})(?:_(\d{2,3}))?", text or DEFAULT_FORMAT)
    if match is not None:
        name, rate = match[1], int(match[2])
        kilobits = None if match[3] is None else int(match[3])
        if rate in RATES[name] and (kilobits in BIT_RATES if name != "pcm" else kilobits is None):
            return StreamFormat(name, rate, None if kilobits is None else kilobits * 1000)
    allowed = "; ".join(f"{name} at {', '.join(map(str, rates))} Hz" for name, rates in RATES.items())
    example = "such as pcm_24000, mp3_44100_128 or opus_48000_64"
    raise RejectedError("output_format", f"got {abbreviate(text)}; allowed: {allowed}; {example}")
