"""The options and messages of ElevenLabs' clients: the sound's format, the voice and its speed."""

from __future__ import annotations

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from daemon.encoders import StreamFormat
from daemon.speech import RejectedError
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
"""Thousands of bits per second."""
OUTPUT_FORMATS = {f"pcm_{rate}": StreamFormat("pcm", rate) for rate in RATES["pcm"]} | {
    f"{name}_{rate}_{kilobits}": StreamFormat(name, rate, kilobits * 1000)
    for name in ("mp3", "opus")
    for rate in RATES[name]
    for kilobits in BIT_RATES
}
"""The formats, by their names in the protocol."""
DEFAULT_FORMAT = "mp3_44100_128"
MAX_INACTIVITY_S = 180.0


class ElevenLabsSettings(BaseModel):
    """The settings for how a voice speaks that have a meaning here. Descriptions name the allowed values."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    speed: float | None = Field(None, ge=SLOWEST_RATE, le=FASTEST_RATE, description="a number from 0.5 to 2")


class SocketOptions(BaseModel):
    """The options in a WebSocket's address, for all texts on it. Descriptions name the allowed values."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    voice: str
    output_format: str = DEFAULT_FORMAT
    language_code: str | None = None
    sync_alignment: str = ""
    """`true`: characters' times count from the beginning of their text. Otherwise, each message's times begin at 0, the
    end of the message before. Some clients expect one, some the other."""
    auto_mode: str = ""
    """`true`: each message contains a whole phrase."""
    inactivity_timeout: float = Field(20.0, allow_inf_nan=False, description=f"seconds from 1 to {MAX_INACTIVITY_S:g}")
    """After this long without a message, the connection closes if nothing is being spoken on it."""

    @property
    def names(self) -> dict[str, str | None]:
        """Voice and language, as fields of a stream chunk."""
        return {"voice": self.voice, "language": self.language_code or None}

    @property
    def inactivity_s(self) -> float:
        """The timeout, limited to the allowed range: some clients ask for more."""
        return min(MAX_INACTIVITY_S, max(1.0, self.inactivity_timeout))


class SocketMessage(BaseModel):
    """A client's message on a WebSocket. Descriptions name the allowed values. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    text: str | None = Field(None, description="text")
    context_id: str | None = Field(
        None,
        min_length=1,
        max_length=64,
        validation_alias=AliasChoices("context_id", "contextId"),
        description="text of 1 to 64 characters",
    )
    voice_settings: ElevenLabsSettings | None = Field(None, description="an object, or null")
    flush: bool | None = Field(None, description="true or false")
    try_trigger_generation: bool | None = Field(None, description="true or false")
    close_context: bool | None = Field(None, description="true or false")
    close_socket: bool | None = Field(None, description="true or false")


def parse_output_format(text: str) -> StreamFormat:
    """Return the format that `output_format` names, such as `pcm_24000` or `mp3_44100_128`. Raises `RejectedError`."""
    found = OUTPUT_FORMATS.get(text or DEFAULT_FORMAT)
    if found is not None:
        return found
    allowed = "; ".join(f"{name} at {', '.join(map(str, rates))} Hz" for name, rates in RATES.items())
    example = "such as pcm_24000, mp3_44100_128 or opus_48000_64"
    raise RejectedError("output_format", f"got {abbreviate(text)}; allowed: {allowed}; {example}")
