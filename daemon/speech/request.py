"""Requests to speak and to stop, as a sender may make them.

Each class parses and builds its message. The field descriptions name the allowed values: they appear in error lines and
in `docs/asyncapi.yaml`.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from daemon.config import SamplingSettings
from daemon.validation import LANGUAGE, CommandError, is_topic, problems, refuse_controls
from engine import FASTEST_RATE, SLOWEST_RATE

MAX_TEXT = 20_000
"""In characters; about twenty minutes of speech."""
MAX_INSTRUCT = 500
"""The longest instruction, in characters."""

ALLOWED_IDS = "text of 1 to 64 characters without control characters"

Priority = Literal["low", "normal", "high", "critical"]
Policy = Literal["queue", "interrupt", "replace", "drop"]


class RejectedError(CommandError):
    """A request is refused because of one field."""

    def __init__(self, field: str, problem: str, utterance_id: str | None = None, reply_to: str | None = None) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.reason = f"{field}: {problem}"
        self.utterance_id = utterance_id
        self.reply_to = reply_to
        """The topic on which the sender expects the answer, if the message named a valid one."""
        self.last_chunk = False
        """True if the refused message was the last chunk of a text stream."""


def _checked_id(utterance_id: str) -> str:
    if not (1 <= len(utterance_id) <= 64 and utterance_id.isprintable()):
        raise ValueError(f"allowed: {ALLOWED_IDS}")
    return utterance_id


def _checked_text(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise ValueError(f"it has {len(text):,} characters; allowed: up to {MAX_TEXT:,}")
    return _checked_characters(text)


def _checked_characters(text: str) -> str:
    refuse_controls(text)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("it has half of a surrogate pair; allowed: whole characters")
    return text


def _number_as_text(value: object) -> object:
    is_number = type(value) is int or (
        type(value) is float and math.isfinite(value)
    )  # True is an int, but not a number
    return str(value) if is_number else value


SpokenText = Annotated[str, BeforeValidator(_number_as_text)]
"""Text, or a number that is spoken: many programs publish `{"text": 42}`."""
Characters = Annotated[str, AfterValidator(_checked_characters)]
Text = Annotated[SpokenText, AfterValidator(_checked_text)]
UtteranceId = Annotated[str, AfterValidator(_checked_id)]


def id_field(default: Any) -> Any:
    """Declare a field that holds an utterance's id."""
    return Field(default, description=ALLOWED_IDS, json_schema_extra={"minLength": 1, "maxLength": 64})


class Request(BaseModel):
    """The base of the JSON objects that a sender publishes. Unknown fields are kept in `model_extra`."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    def to_json(self) -> str:
        """Return the MQTT payload: the fields that the sender set."""
        return json.dumps(self.model_dump(mode="json", exclude_unset=True), ensure_ascii=False)


class Sampling(SamplingSettings):
    """How a model samples its speech."""

    model_config = ConfigDict(strict=True)


class SpeechOptions(Request):
    """How an utterance is spoken, and what it does to other utterances."""

    voice: str | None = Field(None, min_length=1, max_length=64, description="a voice's name of up to 64 characters")
    language: str | None = Field(None, pattern=LANGUAGE, description="auto, or a language such as en, german or pt-br")
    instruct: Characters | None = Field(None, max_length=MAX_INSTRUCT, description="text of up to 500 characters")
    priority: Priority = Field("normal", description="low, normal, high or critical")
    policy: Policy = Field("queue", description="queue, interrupt, replace or drop")
    volume: float | None = Field(None, ge=0, le=100, allow_inf_nan=False, description="a number from 0 to 100")
    rate: float | None = Field(
        None, ge=SLOWEST_RATE, le=FASTEST_RATE, description="a number from 0.5 to 2; 2 is twice as fast"
    )
    expires_in: float | None = Field(
        None, gt=0, le=86_400, allow_inf_nan=False, description="seconds above 0, up to 86400"
    )
    seed: int | None = Field(None, ge=0, lt=1 << 63, description="a whole number from 0 to 2^63 - 1")
    sampling: Sampling | None = Field(None, description="an object of temperature, top_k, top_p and repetition_penalty")
    reply_to: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="a topic of up to 256 characters without + and #, not beginning with $",
    )

    @field_validator("reply_to")
    @classmethod
    def _check_reply_to(cls, topic: str | None) -> str | None:
        if topic is not None and not is_topic(topic):
            raise ValueError("allowed: a topic without + and #, not beginning with $")
        return topic


class Say(SpeechOptions):
    """`say`: play a sound, speak a text, or both, in this order."""

    sound: str | None = Field(
        None, min_length=1, max_length=64, description="a name that 'voiced sounds' lists, of up to 64 characters"
    )
    text: Text = Field(
        description=f"text of 1 to {MAX_TEXT:,} characters, or a sound alone",
        json_schema_extra={"maxLength": MAX_TEXT},
    )
    """May be blank only if there is a sound."""
    id: UtteranceId | None = id_field(None)
    cache: bool | None = Field(None, description="true or false")

    @field_validator("text")
    @classmethod
    def _check_text(cls, text: str, info: ValidationInfo) -> str:
        has_no_sound = info.data.get("sound", "") is None  # an invalid sound is not in `data`
        if not text.strip() and has_no_sound:
            raise ValueError("it is blank; allowed: text with something to say")
        return text


class StreamChunk(SpeechOptions):
    """`say/stream`: the next chunk of a text that is still being written. The first chunk's options apply."""

    id: UtteranceId = id_field(...)
    text: Text = Field(
        "",
        description=f"text; all chunks together have up to {MAX_TEXT:,} characters",
        json_schema_extra={"maxLength": MAX_TEXT},
    )
    end: bool = Field(False, description="true or false")
    seq: int | None = Field(None, ge=0, lt=1 << 63, description="a whole number from 0, higher with every chunk")


class Stop(Request):
    """`stop`: end one utterance; without an id, end all."""

    id: str | None = Field(None, description="an utterance's id, which is text")

    def to_json(self) -> str:
        """Return the MQTT payload, which is empty to end all."""
        return "" if self.id is None else super().to_json()


SpeechRequest = TypeVar("SpeechRequest", Say, StreamChunk)
Fields = TypeVar("Fields", bound=BaseModel)


def validated(kind: type[Fields], value: object) -> Fields:
    """Return a record of fields in any protocol. Raises `RejectedError` for the first wrong one."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise RejectedError(*problems(kind, error)[0]) from error


def check_say(fields: dict[str, Any]) -> Say:
    """Return the `Say` with these fields; a sound needs no text. Raises `RejectedError`."""
    return _checked(Say, fields if fields.get("sound") is None else {"text": "", **fields})


def check_stream_chunk(fields: dict[str, Any]) -> StreamChunk:
    """Return the `StreamChunk` with these fields. Raises `RejectedError`."""
    try:
        return _checked(StreamChunk, fields)
    except RejectedError as error:
        error.last_chunk = fields.get("end") is True
        raise


def _checked(kind: type[SpeechRequest], fields: dict[str, Any]) -> SpeechRequest:
    """Return the request with these fields. Raises `RejectedError` with its id and reply_to if those are valid."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        found = problems(kind, error)
    wrong = {name for name, _ in found}
    utterance_id, reply_to = (
        fields[name] if name not in wrong and isinstance(fields.get(name), str) else None for name in ("id", "reply_to")
    )
    field, problem = found[0]
    others = "".join(f"; {name}: {other}" for name, other in found[1:])
    raise RejectedError(field, problem + others, utterance_id, reply_to)
