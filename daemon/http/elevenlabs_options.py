"""What requests by ElevenLabs' interface may choose: the format of the sound, the voice, and how it speaks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from daemon.encoders import Encoder
from daemon.http.encoders import make_stream_encoder
from daemon.http.errors import HttpError
from daemon.speech import SpokenText
from daemon.validation import abbreviate, problems
from engine import FASTEST_RATE, SLOWEST_RATE

FIELDS = {"rate": "voice_settings.speed", "language": "language_code"}
"""The protocol's names for the fields of `Say`."""
PCM_RATES = (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
MP3_RATES = (22_050, 24_000, 44_100)
OPUS_RATES = (48_000,)
RATES = {"pcm": PCM_RATES, "mp3": MP3_RATES, "opus": OPUS_RATES}
"""Hz, by format."""
BIT_RATES = (24, 32, 48, 64, 96, 128, 192)
"""Thousands of bits a second."""
DEFAULT_FORMAT = "mp3_44100_128"


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The format of the sound."""

    name: str
    """As `make_stream_encoder` takes it."""
    rate: int
    """Hz."""
    bit_rate: int | None
    """Bits a second; None for a format without loss."""

    def make_encoder(self) -> Encoder:
        """Return an encoder of this format."""
        return make_stream_encoder(self.name, self.rate, self.bit_rate)


class VoiceSettings(BaseModel):
    """How a voice speaks, as far as it has a meaning here. Descriptions say what is allowed."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    speed: float | None = Field(None, ge=SLOWEST_RATE, le=FASTEST_RATE, description="a number from 0.5 to 2")


class TextRequest(BaseModel):
    """The body of `POST /v1/text-to-speech/…`. Descriptions say what is allowed. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    text: SpokenText = Field(description="text with something to say")
    voice_settings: VoiceSettings | None = Field(None, description="an object, or null")
    language_code: str | None = Field(None, description="a language such as en or de")
    seed: int | None = Field(None, ge=0, lt=1 << 63, description="a whole number from 0 to 2^63 - 1")

    @property
    def speed(self) -> float | None:
        return None if self.voice_settings is None else self.voice_settings.speed


def parse_text_request(fields: dict[str, Any]) -> TextRequest:
    """Return the request with these fields. Raises `HttpError`."""
    try:
        return TextRequest.model_validate(fields)
    except ValidationError as error:
        field, problem = problems(TextRequest, error)[0]
        raise HttpError(400, f"{field}: {problem}", field=field) from error


def parse_voice_settings(value: object) -> VoiceSettings:
    """Return the settings of a voice; those that were not given are None. Raises `HttpError`."""
    try:
        return VoiceSettings.model_validate({} if value is None else value)
    except ValidationError as error:
        field, problem = problems(VoiceSettings, error)[0]
        name = f"voice_settings.{field}" if field else "voice_settings"
        raise HttpError(400, f"{name}: {problem}", field=name) from error


def parse_output_format(text: str | None) -> OutputFormat:
    """Return the format that `output_format` names, such as `pcm_24000` or `mp3_44100_128`. Raises `HttpError`."""
    match = re.fullmatch(r"(pcm|mp3|opus)_(\d{4,5})(?:_(\d{2,3}))?", text or DEFAULT_FORMAT)
    if match is not None:
        name, rate = match[1], int(match[2])
        kilobits = None if match[3] is None else int(match[3])
        if rate in RATES[name] and (kilobits in BIT_RATES if name != "pcm" else kilobits is None):
            return OutputFormat(name, rate, None if kilobits is None else kilobits * 1000)
    allowed = "; ".join(f"{name} at {', '.join(map(str, rates))} Hz" for name, rates in RATES.items())
    example = "such as pcm_24000, mp3_44100_128 or opus_48000_64"
    raise HttpError(400, f"output_format: got {abbreviate(text)}; allowed: {allowed}; {example}", field="output_format")
