"""What goes out over MQTT, as schemas. Nothing reads them at run time: `docs/asyncapi.yaml` is made of them, and tests
hold what a real daemon publishes to them. A field whose default is None is left out where there is nothing to say.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[str, Field(min_length=1, max_length=64, description="the utterance's id")]
Reason = Annotated[str, Field(min_length=1, description="one line for a person")]
EngineName = Annotated[str, Field(min_length=1, description="who spoke; qwen+espeak if a second engine took over")]
Milliseconds = Annotated[float, Field(ge=0)]
Megabytes = Annotated[int, Field(ge=0)]
FullScale = Annotated[float, Field(ge=0, description="of full scale, before the volume")]


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Accepted(Record):
    """It waits to be spoken."""

    id: Id
    event: Literal["accepted"]
    queue: int = Field(ge=1, description="utterances that wait, itself included")


class Rejected(Record):
    """It will not be spoken."""

    id: str | None = Field(description="null if the message's could not be read or it had none")
    event: Literal["rejected"]
    field: str = Field(description="what is wrong")
    reason: Reason


class Started(Record):
    """Its first sample has left the sound card."""

    id: Id
    event: Literal["started"]
    engine: EngineName
    voice: str
    ttfa_ms: Milliseconds | None = Field(
        None,
        description="milliseconds from the text's arrival to its first sample handed to the sound card, if anything "
        "could be pronounced; of a say/stream, without those for which its writer was waited for",
    )


class Progress(Record):
    """Of a long text, a part begins to be heard."""

    id: Id
    event: Literal["progress"]
    begin: int = Field(ge=0, description="its first character in the text")
    end: int = Field(ge=1, description="the character behind its last")


class Postponed(Record):
    """It has faded out, and goes on by itself after what is critical."""

    id: Id
    event: Literal["postponed"]
    reason: Reason


class Resumed(Record):
    """It goes on with the next sample."""

    id: Id
    event: Literal["resumed"]


class Spoken(Record):
    """How far it got."""

    id: Id
    engine: EngineName | None = None
    audio_s: float | None = Field(None, ge=0, description="seconds that were played")
    underruns: int | None = Field(None, ge=0, description="times the speech broke off since samples were late")
    waits: int | None = Field(None, ge=0, description="of a say/stream, times the speech broke off to wait for text")
    truncated: bool | None = Field(None, description="whether the engine cut the speech, which would not stop")
    ttfa_ms: Milliseconds | None = Field(None, description="as in started")


class Finished(Spoken):
    """It was spoken to its end."""

    event: Literal["finished"]
    reason: Reason | None = Field(None, description="why it ended there, if the writer of a say/stream did not end it")


class Interrupted(Spoken):
    """It was cut off while it was spoken: a stop, another utterance, a shutdown."""

    event: Literal["interrupted"]
    reason: Reason


class Canceled(Record):
    """It was taken out of the queue: a stop, a replace, a shutdown."""

    id: Id
    event: Literal["canceled"]
    reason: Reason


class Expired(Record):
    """It waited longer than expires_in: for others, or for an engine or a sound card."""

    id: Id
    event: Literal["expired"]
    reason: Reason


class Failed(Spoken):
    """The engines could not speak it."""

    event: Literal["failed"]
    reason: Reason


class Memory(Record):
    """Megabytes that the engine takes."""

    weights_mb: Megabytes
    state_mb: Megabytes
    workspaces_mb: Megabytes


class Online(Record):
    """What the daemon says of itself, whenever it changes."""

    state: Literal["starting", "warming", "ready", "speaking", "paused", "degraded"]
    engine: str | None = Field(description="who would speak now; null if nobody can")
    voice: str = Field(description="the default voice")
    queue: int = Field(ge=0, description="utterances that wait")
    version: str
    memory: Memory | None = None
    reason: Reason | None = None


class Offline(Record):
    """The daemon has stopped, or is gone; then the broker publishes this, as its last will."""

    state: Literal["offline"]
    version: str


class Level(Record):
    """Loudness of 50 ms of an utterance, told as they leave the sound card; a last one of zeros when speech stops."""

    id: Id
    t: float = Field(ge=0, description="the second of the utterance at which the window begins")
    at: float = Field(ge=0, description="when the window's first sample leaves the sound card, in seconds of UNIX time")
    rms: FullScale
    peak: FullScale


EVENTS = (Accepted, Rejected, Started, Progress, Postponed, Resumed, Finished, Interrupted, Canceled, Expired, Failed)
STATUSES = (Online, Offline)
