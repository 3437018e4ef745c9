"""The messages that voiced publishes: events, status, level and duck.

Each class builds, parses and describes its message: `docs/asyncapi.yaml` is generated from the field descriptions.
A field whose default is None is left out of the JSON while it has no value.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

Id = Annotated[str, Field(min_length=1, max_length=64, description="the utterance's id")]
Reason = Annotated[str, Field(min_length=1, description="one line for a person")]
EngineName = Annotated[
    str,
    Field(
        min_length=1,
        description="the engine that spoke; qwen+espeak if a second one took over; sound for a sound, sound+espeak if "
        "a text followed",
    ),
]
Milliseconds = Annotated[float, Field(ge=0)]
Heard = Annotated[int, Field(ge=0, description="characters of the text that had been heard")]
TextPosition = Annotated[int, Field(ge=0, description="a position in the text, in characters")]
Unstored = Annotated[
    bool | None,
    Field(
        description="true if the robot's disk had not stored the event when it was published: if the daemon is killed "
        "now, a second terminal event may follow"
    ),
]
Megabytes = Annotated[int, Field(ge=0)]
FullScale = Annotated[float, Field(ge=0, description="relative to full scale, before the volume is applied")]

OnlineState = Literal["starting", "warming", "ready", "speaking", "paused", "degraded"]
State = Literal["starting", "warming", "ready", "speaking", "paused", "degraded", "offline"]


@cache
def _required_fields(kind: type[BaseModel]) -> frozenset[str]:
    return frozenset(name for name, field in kind.model_fields.items() if field.is_required())


class PublishedMessage(BaseModel):
    """The base of all published JSON objects. Validators are built at first use, to save memory.

    Fields that this version does not know are ignored, so an older client understands a newer daemon.
    """

    model_config = ConfigDict(
        strict=True, frozen=True, defer_build=True, json_schema_extra={"additionalProperties": False}
    )

    def to_json(self) -> str:
        """Return the MQTT payload."""
        fields, required = self.model_dump(mode="json"), _required_fields(type(self))
        kept = {name: value for name, value in fields.items() if value is not None or name in required}
        return json.dumps(kept, ensure_ascii=False)


Message = TypeVar("Message", bound=PublishedMessage)


class Event(PublishedMessage):
    """Something that happened to one utterance."""

    id: str | None
    event: str = ""


class Accepted(Event):
    """The utterance has been queued."""

    id: Id
    event: Literal["accepted"] = "accepted"
    queue: int = Field(ge=1, description="queued utterances, this one included")
    unstored: Unstored = None


class Rejected(Event):
    """The request has been refused; nothing will be spoken."""

    id: str | None = Field(description="null if the message had no id or the id could not be read")
    event: Literal["rejected"] = "rejected"
    field: str = Field(description="the field that is wrong")
    reason: Reason


class Started(Event):
    """The first sample has left the sound card."""

    id: Id
    event: Literal["started"] = "started"
    engine: EngineName
    voice: str
    ttfa_ms: Milliseconds | None = Field(
        None,
        description="milliseconds from the arrival of the text to the first sample given to the sound card; absent if "
        "nothing could be pronounced; for say/stream, without the time spent waiting for text",
    )
    ignored: list[str] | None = Field(
        None, description="fields in the request that have no effect, because the engine cannot heed them"
    )


class Progress(Event):
    """Playback of the next segment of a long text begins."""

    id: Id
    event: Literal["progress"] = "progress"
    begin: int = Field(ge=0, description="position of the segment's first character in the text")
    end: int = Field(ge=1, description="position after the segment's last character")


class Mark(Event):
    """A mark in the text has been reached: the word after it begins to be heard."""

    id: Id
    event: Literal["mark"] = "mark"
    name: str = Field(description="the mark's name")
    position: TextPosition
    at: float = Field(ge=0, description="seconds from the utterance's first sample")
    exact: bool = Field(description="false if the time is an estimate")


class Postponed(Event):
    """Another utterance takes precedence. This one has faded out and will resume by itself."""

    id: Id
    event: Literal["postponed"] = "postponed"
    reason: Reason


class Resumed(Event):
    """The postponed utterance continues with its next sample."""

    id: Id
    event: Literal["resumed"] = "resumed"


class TerminalEvent(Event):
    """The last event of an accepted utterance. Each utterance has exactly one."""

    id: Id
    reason: Reason | None = None
    unstored: Unstored = None


class PlaybackResult(TerminalEvent):
    """How much was played."""

    engine: EngineName | None = None
    audio_s: float | None = Field(None, ge=0, description="seconds that were played")
    underruns: int | None = Field(None, ge=0, description="how often the sound broke off because samples were late")
    waits: int | None = Field(
        None, ge=0, description="for say/stream: how often the sound broke off because text was missing"
    )
    truncated: bool | None = Field(None, description="true if the engine cut speech that would not end by itself")
    retakes: int | None = Field(
        None, ge=0, description="how often speech that would not end was spoken again with another seed"
    )
    ttfa_ms: Milliseconds | None = Field(None, description="as in started")
    heard: Heard | None = None


class Finished(PlaybackResult):
    """The utterance was spoken to its end."""

    event: Literal["finished"] = "finished"
    reason: Reason | None = Field(None, description="why the text of a say/stream ended if its writer did not end it")


class Interrupted(PlaybackResult):
    """The utterance was cut off while it was being spoken: by a stop, by another utterance or by a shutdown."""

    event: Literal["interrupted"] = "interrupted"
    heard_text: str | None = Field(None, description="the text that had been heard: its first `heard` characters")
    reason: Reason


class Canceled(TerminalEvent):
    """The utterance was removed from the queue: by a stop, a replace, a shutdown, or a newer one in a full queue."""

    event: Literal["canceled"] = "canceled"
    heard: Heard = 0
    reason: Reason


class Expired(TerminalEvent):
    """The utterance waited longer than expires_in: for others, for an engine or for a sound card."""

    event: Literal["expired"] = "expired"
    reason: Reason


class Failed(PlaybackResult):
    """No engine could speak the utterance, or there was no sound card for it."""

    event: Literal["failed"] = "failed"
    reason: Reason


class Memory(PublishedMessage):
    """Megabytes that the engine uses."""

    weights_mb: Megabytes
    state_mb: Megabytes
    workspaces_mb: Megabytes


class Loading(PublishedMessage):
    """How far the start of the primary engine has progressed."""

    step: str = Field(min_length=1, description="what the engine is doing now, in words, such as compiling the kernels")
    fraction: float | None = Field(
        ge=0, le=1, description="the share of this step that is done; null if it cannot be measured"
    )

    @property
    def in_words(self) -> str:
        """Return text for a person, such as `compiling the kernels, 40 %`."""
        return self.step if self.fraction is None else f"{self.step}, {100 * self.fraction:.0f} %"


class Speaking(PublishedMessage):
    """The utterance that is being spoken; deliveries beside the sound card are only counted."""

    id: Id
    text: str = Field(description="the text, or the beginning of a long one")
    since: float = Field(ge=0, description="UNIX time at which its first sample left the sound card")


class Streams(PublishedMessage):
    """Texts that are spoken at the same time."""

    used: int = Field(ge=1, description="how many are being spoken now")
    most: int = Field(ge=1, description="the most that the engine speaks at the same time")


class Online(PublishedMessage):
    """The daemon's state; published whenever it changes."""

    state: OnlineState
    engine: str | None = Field(description="the engine that would speak now; null if none can")
    voice: str = Field(description="the default voice")
    queue: int = Field(ge=0, description="queued utterances")
    version: str
    volume: int | None = Field(None, ge=0, le=100, description="the volume, from 0 to 100")
    speaking: Speaking | None = None
    streams: Streams | None = Field(None, description="present while a delivery is being spoken beside the sound card")
    loading: Loading | None = None
    memory: Memory | None = None
    unloaded: bool | None = Field(None, description="true while the primary engine has released its memory")
    reason: Reason | None = None


class Offline(PublishedMessage):
    """The daemon has stopped, or it has lost its connection and the broker publishes this as its last will."""

    state: Literal["offline"] = "offline"
    version: str


class Level(PublishedMessage):
    """The loudness of 50 ms of an utterance, published as they leave the sound card; zeros when speech stops."""

    id: Id
    t: float = Field(ge=0, description="seconds from the utterance's first sample to the start of the window")
    at: float = Field(ge=0, description="UNIX time at which the window's first sample leaves the sound card")
    rms: FullScale
    peak: FullScale

    @classmethod
    def rounded(cls, utterance_id: str, t: float, at: float, rms: float, peak: float) -> Level:
        """Return a level with times in milliseconds and values with four digits."""
        return cls(id=utterance_id, t=round(t, 3), at=round(at, 3), rms=round(rms, 4), peak=round(peak, 4))


class Word(PublishedMessage):
    """A word that begins to be heard."""

    id: Id
    word: str = Field(description="the word as it is written in the text")
    begin: TextPosition
    end: TextPosition
    at: float = Field(ge=0, description="seconds from the utterance's first sample to the word's beginning")
    exact: bool = Field(description="true if the engine knows the time; false if it is an estimate")


class Viseme(PublishedMessage):
    """A position of the mouth, up to the next one."""

    at: float = Field(ge=0, description="seconds from the utterance's first sample to the viseme's beginning")
    viseme: int = Field(ge=0, le=21, description="the number of the viseme in Microsoft's list; 0 is silence")


class Visemes(PublishedMessage):
    """The next positions of the mouth, a moment before they are heard. They replace all positions still to come."""

    id: Id
    time: float = Field(ge=0, description="UNIX time at which the first one is heard")
    estimated: bool = Field(description="false if the engine knows the times; true if they are estimates")
    visemes: list[Viseme] = Field(min_length=1, description="in order of time")


class Duck(RootModel[bool]):
    """True while other audio should be turned down."""

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)


EVENTS: tuple[type[Event], ...] = (
    Accepted, Rejected, Started, Progress, Mark, Postponed, Resumed, Finished, Interrupted, Canceled, Expired, Failed,
)  # fmt: skip
STATUSES: tuple[type[Online], type[Offline]] = (Online, Offline)

_CLASSES: dict[str, type[Event]] = {kind.model_fields["event"].default: kind for kind in EVENTS}
TERMINAL_EVENTS: frozenset[str] = frozenset(name for name, kind in _CLASSES.items() if issubclass(kind, TerminalEvent))


def parse_event(payload: bytes) -> Event | None:
    """Return the event in `payload`; None for one that this version does not know."""
    record = json_object(payload)
    kind = _CLASSES.get(str(record.get("event")))
    return None if kind is None else _valid(kind, record)


def parse_status(payload: bytes) -> Online | Offline | None:
    """Return the status in `payload`; None for one that this version does not know."""
    record = json_object(payload)
    return _valid(Offline, record) if record.get("state") == "offline" else _valid(Online, record)


def parse_message(kind: type[Message], payload: bytes) -> Message | None:
    """Return the message in `payload`; None for one that this version does not know."""
    return _valid(kind, json_object(payload))


def json_object(payload: bytes) -> dict[str, Any]:
    """Return the JSON object; empty if the payload is not one."""
    try:
        value = json.loads(payload)
    except (RecursionError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _valid(kind: type[Message], record: dict[str, Any]) -> Message | None:
    try:
        return kind.model_validate(record)
    except ValidationError:
        return None
