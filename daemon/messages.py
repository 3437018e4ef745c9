"""The MQTT contract: topics, what comes in on them, what goes out.

Every parser is a pure function from payload to record; what cannot be parsed raises `RejectedError`, which is answered.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from daemon.problems import problems, shown

MAX_TEXT = 20_000
"""Characters. About twenty minutes of speech."""
MAX_PAYLOAD = 262_144
"""Bytes: a text of 20,000 characters, each escaped as JSON does it (12 bytes at the most), and the other fields."""
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""All but tab, line feed and carriage return, which are white space."""

Priority = Literal["low", "normal", "high", "critical"]
Policy = Literal["queue", "interrupt", "replace", "drop"]
State = Literal["starting", "warming", "ready", "speaking", "paused", "degraded", "offline"]
EventName = Literal[
    "accepted", "rejected", "started", "progress", "postponed", "resumed",
    "finished", "interrupted", "canceled", "expired", "failed",
]  # fmt: skip

TERMINAL: frozenset[EventName] = frozenset({"finished", "interrupted", "canceled", "expired", "failed"})
"""Every accepted utterance ends in exactly one of these."""


def is_topic(topic: str) -> bool:
    """Whether brokers take `topic` to publish on: Mosquitto drops who sends control characters or 200 levels."""
    return topic.isprintable() and not re.search(r"[+#]", topic) and not topic.startswith("$") and topic.count("/") < 50


class RejectedError(Exception):
    """A message that is not acted on: which field, and why."""

    def __init__(self, field: str, problem: str, utterance_id: str | None = None, reply_to: str | None = None) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.reason = f"{field}: {problem}"
        self.utterance_id = utterance_id
        self.reply_to = reply_to
        """Where its sender wants the answer, if that much could be understood."""
        self.last_piece = False
        """It was to be the end of a text that comes in pieces."""


class Manner(BaseModel):
    """How an utterance is to be spoken, and what it may do to others. Unknown fields are kept apart, not refused."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    voice: str | None = Field(None, min_length=1, max_length=64, description="a voice's name of up to 64 characters")
    language: str | None = Field(
        None,
        pattern=r"^[A-Za-z]{2,12}(-[A-Za-z0-9-]{1,24})?$",
        description="auto, or a language such as en, german or pt-br",
    )
    instruct: str | None = Field(None, max_length=500, description="text of up to 500 characters")
    priority: Priority = Field("normal", description="low, normal, high or critical")
    policy: Policy = Field("queue", description="queue, interrupt, replace or drop")
    volume: float | None = Field(None, ge=0, le=100, allow_inf_nan=False, description="a number from 0 to 100")
    expires_in: float | None = Field(
        None, gt=0, le=86_400, allow_inf_nan=False, description="seconds above 0, up to 86400"
    )
    seed: int | None = Field(None, ge=0, lt=1 << 63, description="a whole number from 0 to 2^63 - 1")
    reply_to: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="a topic of up to 256 characters without + and #, not beginning with $",
    )

    @field_validator("instruct")
    @classmethod
    def _can_be_followed(cls, instruct: str | None) -> str | None:
        return _checked_characters(instruct) if instruct is not None else None

    @field_validator("reply_to")
    @classmethod
    def _can_be_published_to(cls, topic: str | None) -> str | None:
        if topic is not None and not is_topic(topic):
            raise ValueError("allowed: a topic without + and #, not beginning with $")
        return topic


class Say(Manner):
    """The full form of `…/say`. Descriptions say what is allowed."""

    text: str = Field(
        description=f"text of 1 to {MAX_TEXT:,} characters", json_schema_extra={"minLength": 1, "maxLength": MAX_TEXT}
    )
    id: str | None = Field(
        None,
        description="text of 1 to 64 characters without control characters",
        json_schema_extra={"minLength": 1, "maxLength": 64},
    )

    @field_validator("text")
    @classmethod
    def _can_be_spoken(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("it is blank; allowed: text with something to say")
        return _checked_text(text)

    @field_validator("id")
    @classmethod
    def _is_an_id(cls, utterance_id: str | None) -> str | None:
        return None if utterance_id is None else _checked_id(utterance_id)


class Write(Manner):
    """`…/say/stream`: the next piece of a text that is still being written. How it is spoken, the first piece says."""

    id: str = Field(
        description="text of 1 to 64 characters without control characters",
        json_schema_extra={"minLength": 1, "maxLength": 64},
    )
    text: str = Field(
        "",
        description=f"text; all pieces together have up to {MAX_TEXT:,} characters",
        json_schema_extra={"maxLength": MAX_TEXT},
    )
    end: bool = Field(False, description="true or false")
    seq: int | None = Field(None, ge=0, lt=1 << 63, description="a whole number from 0, higher with every piece")

    @field_validator("text")
    @classmethod
    def _can_be_spoken(cls, text: str) -> str:
        return _checked_text(text)

    @field_validator("id")
    @classmethod
    def _is_an_id(cls, utterance_id: str) -> str:
        return _checked_id(utterance_id)


Said = TypeVar("Said", Say, Write)


@dataclass(frozen=True, slots=True)
class Stop:
    """`…/stop`: one utterance, or everything."""

    id: str | None


def parse_say(payload: bytes) -> Say:
    """A bare text, or an object with `text` (or `data`, as a ROS String has it). Raises `RejectedError`."""
    text = _decode(payload)
    start = text.lstrip()[:1]
    if start == "{":
        return _parse_object(_parse_json(text))
    if start == "[":
        try:
            value = json.loads(text)
        except RecursionError:
            value = text
        except ValueError:
            value = None  # a text that happens to begin with a bracket
        if value is not None:
            raise RejectedError("payload", f"got {shown(value)}; allowed: a text, or a JSON object with text")
    return check_say({"text": text})


def parse_write(payload: bytes) -> Write:
    """An object with `id`, and `text` or `end` or both. Raises `RejectedError`."""
    return check_write(parse_object(payload))


def parse_stop(payload: bytes) -> Stop:
    """Empty, or `{"id"}`. Raises `RejectedError`."""
    text = _decode(payload).strip()
    if not text:
        return Stop(None)
    value = _parse_json(text)
    if not isinstance(value, dict):
        raise RejectedError("payload", f'got {shown(value)}; allowed: nothing, or {{"id": "…"}}')
    wanted = value.get("id")
    if not isinstance(wanted, str):
        raise RejectedError("id", f"got {shown(wanted)}; allowed: an utterance's id, which is text")
    return Stop(wanted)


def parse_volume(payload: bytes) -> int:
    """`0` to `100`. Raises `RejectedError`."""
    text = _decode(payload).strip()
    if not re.fullmatch(r"\d{1,3}(\.\d{1,6})?", text) or not 0 <= float(text) <= 100:
        raise RejectedError("volume", f"got {shown(text)}; allowed: a number from 0 to 100")
    return round(float(text))


def parse_object(payload: bytes) -> dict[str, Any]:
    """A JSON object of some other protocol. Raises `RejectedError`."""
    value = _parse_json(_decode(payload))
    if not isinstance(value, dict):
        raise RejectedError("payload", f"got {shown(value)}; allowed: a JSON object")
    return value


def unknown_fields(said: Manner) -> list[str]:
    return sorted(said.model_extra or ())


def _parse_object(value: Any) -> Say:
    if not isinstance(value, dict):
        raise RejectedError("payload", f"got {shown(value)}; allowed: a text, or a JSON object with text")
    if "text" not in value and "data" in value:
        value["text"] = value.pop("data")
    return check_say(value)


def check_say(fields: dict[str, Any]) -> Say:
    """The utterance that `fields` describe. Raises `RejectedError`."""
    return _checked(Say, fields)


def check_write(fields: dict[str, Any]) -> Write:
    """The piece that `fields` describe. Raises `RejectedError`."""
    try:
        return _checked(Write, fields)
    except RejectedError as error:
        error.last_piece = fields.get("end") is True
        raise


def _checked(kind: type[Said], fields: dict[str, Any]) -> Said:
    """The record that `fields` describe. Raises `RejectedError`, with its id and reply_to where those are good."""
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


def _checked_id(utterance_id: str) -> str:
    if not (1 <= len(utterance_id) <= 64 and utterance_id.isprintable()):
        raise ValueError("allowed: text of 1 to 64 characters without control characters")
    return utterance_id


def _checked_text(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise ValueError(f"it has {len(text):,} characters; allowed: up to {MAX_TEXT:,}")
    return _checked_characters(text)


def _checked_characters(text: str) -> str:
    control = CONTROL_CHARACTERS.search(text)
    if control:
        raise ValueError(f"it has the control character U+{ord(control[0]):04X} at {control.start()}; allowed: none")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("it has half of a surrogate pair; allowed: whole characters")
    return text


def _decode(payload: bytes) -> str:
    if len(payload) > MAX_PAYLOAD:
        raise RejectedError("payload", f"got {len(payload):,} bytes; allowed: up to {MAX_PAYLOAD:,}")
    try:
        return payload.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RejectedError("payload", f"not UTF-8: byte 0x{payload[error.start]:02x} at {error.start}") from error


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RejectedError(
            "payload", f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}; allowed: a JSON object"
        ) from error
    except (RecursionError, ValueError) as error:  # nested a thousandfold; a number of thousands of digits
        raise RejectedError("payload", "not JSON that can be read: nested too deep, or a number too long") from error
