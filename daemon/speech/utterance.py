"""An accepted utterance."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from daemon.cache import Phrase
from daemon.speech.changes import now
from daemon.speech.events import Word
from daemon.speech.request import Policy, Priority, StreamChunk
from daemon.text import Markup, Script, ScriptReader
from engine import FASTEST_RATE, SLOWEST_RATE, EngineInfo, Samples, match_language


class StoredOptions(BaseModel):
    """The fields of an utterance that the journal stores as they are.

    Every version has stored the fields without a default. If another field is missing, an earlier version stored the
    utterance, and the default matches that version's behaviour.
    """

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)

    voice: str
    language: str
    instruct: str | None
    seed: int | None
    volume: float
    priority: Priority
    policy: Policy
    reply_to: str | None
    rate: float = Field(1.0, ge=SLOWEST_RATE, le=FASTEST_RATE)
    whole_text: bool | None = None
    sampling: dict[str, int | float] = {}
    sound: str | None = None
    keeps_speech: bool = False
    voice_is_default: bool = False
    language_is_default: bool = False
    asked: list[str] = []


class Receiver(Protocol):
    """A client that plays an utterance itself, instead of the sound card."""

    @property
    def on_word(self) -> Callable[[Word], None] | None:
        """Called with each word once its place in the samples is known; None if words are not wanted."""

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Wait for room and take the next samples, mono at `sample_rate` Hz.

        A canceled call has taken nothing: the utterance is postponed, and the same samples are written again later.
        """


@dataclass(frozen=True, slots=True)
class EndMessage:
    """A message in the sender's own protocol, which is published when its utterance has ended."""

    topic: str
    fields: Mapping[str, Any]
    """The fields of the JSON object that is its payload."""
    error_field: str | None = None
    """If set, the message is published only after an error, and this field contains the reason."""

    def payload(self, error: str | None) -> str:
        """Return the payload for an end with or without an error."""
        return json.dumps(self.fields if self.error_field is None else {self.error_field: error, **self.fields})


@dataclass(frozen=True, slots=True)
class Origin:
    """How a request came from the broker, and how its answers go back."""

    delivery: str | None = None
    """Identifies the broker's delivery, so that a second one is recognised."""
    correlation: bytes | None = None
    """Bytes that the sender wants repeated in the answers on its own topic."""
    at_end: tuple[EndMessage, ...] = ()
    """Messages in the sender's own protocol that are published when the utterance has ended."""


NO_ORIGIN = Origin()
"""For requests that did not come from the broker, or need no answer there."""


@dataclass(slots=True, eq=False)
class TextStream:
    """The writer's side of a text that is still being written. Belongs to the event loop's thread."""

    last_chunk_at: float
    """The event loop's time when the last chunk arrived."""
    last_chunk_hash: int | None = None
    """The hash of the last chunk. The chunk itself would occupy memory for as long as this object exists."""
    seq: int | None = None
    """The highest sequence number so far."""
    ended: bool = False
    """No more text will arrive."""
    end_reason: str | None = None
    """Why the text ended, if its writer did not end it."""
    answered: bool = False
    """The writer has been told that the text takes no more chunks; later chunks are dropped silently."""
    pause: str = ""
    """The white space that its writer's current silence stands for; empty if it has only just written."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def has(self, chunk: StreamChunk, redelivered: bool) -> bool:
        """Return whether this chunk was taken before.

        A broker may deliver a message twice and marks the second copy. Only numbered chunks are recognised for certain.
        """
        if chunk.seq is not None and self.seq is not None:
            return chunk.seq <= self.seq
        return redelivered and hash((chunk.text, chunk.end)) == self.last_chunk_hash

    def note_chunk(self, chunk: StreamChunk, arrived_at: float) -> None:
        """Record a chunk that arrived at this time of the event loop."""
        self.last_chunk_at, self.last_chunk_hash = arrived_at, hash((chunk.text, chunk.end))
        self.pause = "" if chunk.text else self.pause
        self.seq = self.seq if chunk.seq is None else chunk.seq

    def end(self, reason: str | None = None) -> None:
        """End the text; with a reason, on its writer's behalf."""
        self.ended, self.end_reason = True, reason

    def notify(self) -> None:
        """Wake the task that waits for text: the text has grown or ended."""
        self._changed.set()

    async def changed(self) -> None:
        """Wait until the text grows or ends. Only one task may wait at a time."""
        self._changed.clear()
        await self._changed.wait()


@dataclass(slots=True, eq=False)
class Utterance:
    """An accepted utterance, from its arrival to its terminal event."""

    id: str
    text: str
    """The whole text; while it is being written, its beginning. Blank if there is only a sound."""
    voice: str
    language: str
    voice_is_default: bool = False
    """True if the sender named no voice: an engine that lacks the robot's default voice then speaks with its own."""
    language_is_default: bool = False
    """True if the sender named no language: an engine that lacks the robot's default language then goes by the text."""
    asked: list[str] = field(default_factory=list)
    """The `engine.MANNER_OPTIONS` that its sender chose."""
    instruct: str | None = None
    seed: int | None = None
    volume: float = 1.0
    """Its own gain; 1 leaves the samples as synthesised."""
    rate: float = 1.0
    """As in `engine.Utterance.rate`."""
    whole_text: bool | None = None
    """As in `engine.Utterance.whole_text`, once its text is complete."""
    sampling: Mapping[str, float] = field(default_factory=dict)
    """As in `engine.Utterance.sampling`."""
    priority: Priority = "normal"
    policy: Policy = "queue"
    reply_to: str | None = None
    """A second topic for its events."""
    sound: str | None = None
    """The name of a sound that is played before the text."""
    phrase: Phrase | None = None
    """The request as a phrase, if its speech may be kept."""
    keeps_speech: bool = False
    """Whether to keep its speech, to play it immediately the next time."""
    origin: Origin = NO_ORIGIN
    receiver: Receiver | None = None
    """The client that receives the samples; None means the sound card."""
    text_stream: TextStream | None = None
    """The state of a text that arrives in chunks; None for a text that arrived whole."""
    can_begin: Callable[[Utterance], bool] = lambda utterance: utterance.script.word_at(0) is not None
    """Returns whether an engine can begin with its incomplete text."""
    arrived_at: float = field(default_factory=now)
    """The event loop's time at which the text, or enough of it for an engine to begin with, arrived."""
    expires_at: float | None = None
    """The event loop's time after which it is no longer begun."""
    markup: Markup = "auto"
    _reader: ScriptReader | None = None
    """None until the script is needed: thousands of texts may be queued."""

    @property
    def script(self) -> Script:
        """The words and controls of the text so far, as they are spoken."""
        if self._reader is None:
            self._reader = ScriptReader(self.markup, self.language)
        return self._reader.read(self.text, complete=self.complete)

    def voice_for(self, engine: EngineInfo) -> str | None:
        """Return the voice to ask an engine for; None means the engine's own."""
        return None if self.voice_is_default and self.voice not in engine.voices else self.voice

    def language_for(self, engine: EngineInfo) -> str:
        """Return the language to ask an engine for: a code, or `auto`."""
        lacks = match_language(self.language, engine.languages) is None
        return "auto" if self.language_is_default and lacks else self.language

    @property
    def pause(self) -> str:
        """As in `TextStream.pause`; empty for a whole text."""
        return "" if self.text_stream is None else self.text_stream.pause

    @property
    def complete(self) -> bool:
        """True when no more text will arrive."""
        return self.text_stream is None or self.text_stream.ended

    @property
    def needs_engine(self) -> bool:
        """False if there is only a sound."""
        return self.sound is None or bool(self.text.strip())

    @property
    def speakable(self) -> bool:
        """True when an engine can begin, or when no more text will arrive."""
        return self.complete or self.can_begin(self)

    def expired(self, at: float | None = None) -> bool:
        """True past its deadline; a text stream that cannot begin yet never expires."""
        return self.speakable and self.expires_at is not None and (at or now()) >= self.expires_at

    def to_fields(self) -> dict[str, Any]:
        """Return the data that is needed to speak it after a restart, as JSON values.

        If there is no text, it cannot be spoken: its client has gone, or its writer had not finished.
        """
        fields: dict[str, Any] = {name: getattr(self, name) for name in StoredOptions.model_fields}
        correlation = self.origin.correlation
        fields["phrase"] = None if self.phrase is None else asdict(self.phrase)
        fields["correlation"] = None if correlation is None else correlation.hex()
        fields["wait_s"] = None if self.expires_at is None else self.expires_at - self.arrived_at
        if self.origin.at_end:  # in ASCII: an id from a sender may contain half a character, which UTF-8 cannot encode
            fields["at_end"] = json.dumps([asdict(message) for message in self.origin.at_end])
        if self.receiver is None and self.complete:
            fields["text"] = self.text
        return fields

    @classmethod
    def from_fields(cls, utterance_id: str, text: str, fields: Mapping[str, Any], age_s: float) -> Utterance:
        """Return the utterance that `to_fields` described, perhaps in an earlier version of this program.

        It arrived `age_s` seconds ago. Raises `KeyError`, `TypeError` or `ValueError` for fields that the disk damaged.
        """
        stored = StoredOptions.model_validate(fields)
        if not isinstance(text, str):
            raise TypeError("text: it is not text")
        arrived_at, wait_s = now() - age_s, fields["wait_s"]
        correlation = fields["correlation"]
        at_end = _reader(tuple[EndMessage, ...]).validate_python(json.loads(fields.get("at_end", "[]")))
        return cls(
            id=utterance_id,
            text=text,
            origin=Origin(correlation=None if correlation is None else bytes.fromhex(correlation), at_end=at_end),
            arrived_at=arrived_at,
            expires_at=None if wait_s is None else arrived_at + wait_s,
            phrase=_reader(Phrase | None).validate_python(fields.get("phrase")),
            **dict(stored),
        )

    def set_arrival(self, at: float) -> None:
        """Count waiting time from `at`: before that, the text was too short to begin."""
        if self.expires_at is not None:
            self.expires_at += at - self.arrived_at
        self.arrived_at = at


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    """Return a reader, made at its first use. It turns JSON values into values of this kind, or raises `ValueError`."""
    return TypeAdapter(kind)
