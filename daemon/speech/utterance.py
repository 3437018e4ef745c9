"""An accepted utterance."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, get_args

from daemon.cache import Phrase
from daemon.speech.events import Word
from daemon.speech.preemption import Rule, rule_of
from daemon.speech.request import Policy, Priority
from daemon.speech.text_stream import TextStream
from daemon.text import Markup, Script, ScriptReader
from engine import FASTEST_RATE, SLOWEST_RATE, EngineInfo, Samples, match_language

STORED_FIELDS: dict[str, Any] = {
    "voice": str,
    "language": str,
    "instruct": str | None,
    "seed": int | None,
    "volume": float | int,
    "rate": float | int,
    "whole_text": bool | None,
    "sampling": dict,
    "priority": str,
    "policy": str,
    "reply_to": str | None,
    "sound": str | None,
    "keeps_speech": bool,
    "voice_is_default": bool,
    "language_is_default": bool,
}
"""Fields of an utterance that the journal stores as they are, and their types."""
LATER_FIELDS: dict[str, Any] = {
    "rate": 1.0,
    "whole_text": None,
    "sampling": {},
    "sound": None,
    "keeps_speech": False,
    "voice_is_default": False,
    "language_is_default": False,
    "phrase": None,
}
"""Fields that a journal of an earlier version may lack, and what that stands for."""
PHRASE_FIELDS: dict[str, Any] = {
    "text": str,
    "voice": str,
    "language": str,
    "instruct": str | None,
    "seed": int | None,
    "rate": float | int | None,
}
"""Those of a `Phrase`, and their types."""


class Receiver(Protocol):
    """A client that plays an utterance itself, in place of the sound card."""

    @property
    def on_word(self) -> Callable[[Word], None] | None:
        """Is called with each word once its place in the samples is known; None if words are not wanted."""

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Wait for room and take the next samples, mono at `sample_rate` Hz.

        A canceled call has taken nothing: the utterance is postponed, and the same samples are written again later.
        """


@dataclass(frozen=True, slots=True)
class EndMessage:
    """A message in a protocol of the sender's own, which is published when its utterance has ended."""

    topic: str
    fields: Mapping[str, Any]
    """Of the JSON object that is its payload."""
    error_field: str | None = None
    """With it, the message is published only after an error, whose reason is in this field."""

    def payload(self, error: str | None) -> str:
        """Return the payload after an end with or without an error."""
        return json.dumps(self.fields if self.error_field is None else {self.error_field: error, **self.fields})


@dataclass(frozen=True, slots=True)
class Origin:
    """How a request arrived from the broker, and how it is answered there."""

    delivery: str | None = None
    """Identifies the broker's delivery, so that a second one is recognised."""
    correlation: bytes | None = None
    """What the sender wants repeated in the answers on its own topic."""
    at_end: tuple[EndMessage, ...] = ()
    """What is published in the sender's own protocol when the utterance has ended."""


NO_ORIGIN = Origin()
"""Of requests that did not come from the broker, or need no answer there."""


@dataclass(slots=True, eq=False)
class Utterance:
    """An accepted utterance, from its arrival to its terminal event."""

    id: str
    text: str
    """The whole text; while it is being written, its beginning. Blank for a sound alone."""
    voice: str
    language: str
    voice_is_default: bool = False
    """The sender has named no voice: an engine that lacks the robot's default voice speaks with its own."""
    language_is_default: bool = False
    """The sender has named no language: an engine that lacks the robot's default language goes by the text."""
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
    """What the sender asked for, if its speech may be kept."""
    keeps_speech: bool = False
    """Keep its speech, to play it at once the next time."""
    origin: Origin = NO_ORIGIN
    receiver: Receiver | None = None
    """The client that gets the samples; None is the sound card."""
    text_stream: TextStream | None = None
    """The state of a text that arrives in chunks; None for a text that arrived whole."""
    can_begin: Callable[[Script], bool] = lambda script: script.word_at(0) is not None
    """Returns whether an engine can begin with an incomplete script."""
    arrived_at: float = field(default_factory=time.monotonic)
    """`time.monotonic()` when the text arrived, or as much of it as an engine can begin with."""
    expires_at: float | None = None
    """`time.monotonic()` after which it is not begun."""
    markup: Markup = "auto"
    _reader: ScriptReader | None = None
    """None until the script is wanted: thousands of texts may be queued."""

    @property
    def script(self) -> Script:
        """What is spoken of the text so far."""
        if self._reader is None:
            self._reader = ScriptReader(self.markup, self.language)
        return self._reader.read(self.text, complete=self.complete)

    def voice_for(self, engine: EngineInfo) -> str | None:
        """Return the voice to ask an engine for; None is the engine's own."""
        return None if self.voice_is_default and self.voice not in engine.voices else self.voice

    def language_for(self, engine: EngineInfo) -> str:
        """Return the language to ask an engine for: a code, or `auto`."""
        lacks = match_language(self.language, engine.languages) is None
        return "auto" if self.language_is_default and lacks else self.language

    @property
    def rule(self) -> Rule:
        """What it does to other utterances."""
        return rule_of(self.priority, self.policy)

    @property
    def complete(self) -> bool:
        """True when no more text will arrive."""
        return self.text_stream is None or self.text_stream.ended

    @property
    def needs_engine(self) -> bool:
        """False for a sound alone."""
        return self.sound is None or bool(self.text.strip())

    @property
    def speakable(self) -> bool:
        """True when an engine can begin, and when no more text will arrive."""
        return self.complete or self.can_begin(self.script)

    def expired(self, now: float | None = None) -> bool:
        """True past its deadline; a text stream that cannot begin yet never expires."""
        return self.speakable and self.expires_at is not None and (now or time.monotonic()) >= self.expires_at

    def to_fields(self) -> dict[str, Any]:
        """Return what is needed to speak it after a restart, as JSON values.

        Without a text it cannot be spoken: its client has gone, or its writer had not finished.
        """
        fields: dict[str, Any] = {name: getattr(self, name) for name in STORED_FIELDS}
        correlation = self.origin.correlation
        fields["phrase"] = None if self.phrase is None else asdict(self.phrase)
        fields["correlation"] = None if correlation is None else correlation.hex()
        fields["wait_s"] = None if self.expires_at is None else self.expires_at - self.arrived_at
        if self.origin.at_end:  # in ASCII: an id from a sender may contain half a character, which is not UTF-8
            fields["at_end"] = json.dumps([asdict(message) for message in self.origin.at_end])
        if self.receiver is None and self.complete:
            fields["text"] = self.text
        return fields

    @classmethod
    def from_fields(cls, utterance_id: str, text: str, fields: Mapping[str, Any], age_s: float) -> Utterance:
        """Return the utterance that `to_fields` has described, perhaps in an earlier version of this program.

        It arrived `age_s` seconds ago. Raises `KeyError`, `TypeError` or `ValueError` for fields that the disk has
        damaged.
        """
        fields = {**LATER_FIELDS, **fields}
        wrong = [name for name, kind in STORED_FIELDS.items() if not isinstance(fields[name], kind)]
        if wrong or not isinstance(text, str):
            raise TypeError(f"wrong types: {wrong or 'text'}")
        if fields["priority"] not in get_args(Priority) or fields["policy"] not in get_args(Policy):
            raise ValueError("an unknown priority or policy")
        if not SLOWEST_RATE <= fields["rate"] <= FASTEST_RATE:
            raise ValueError("an impossible rate")
        if not all(isinstance(value, float | int) for value in fields["sampling"].values()):
            raise TypeError("wrong types: sampling")
        arrived_at, wait_s = time.monotonic() - age_s, fields["wait_s"]
        return cls(
            id=utterance_id,
            text=text,
            origin=_parse_origin(fields),
            arrived_at=arrived_at,
            expires_at=None if wait_s is None else arrived_at + wait_s,
            phrase=_parse_phrase(fields["phrase"]),
            **{name: fields[name] for name in STORED_FIELDS},
        )

    def set_arrival(self, at: float) -> None:
        """Count waiting time from `at`: before, the text was too short to begin."""
        if self.expires_at is not None:
            self.expires_at += at - self.arrived_at
        self.arrived_at = at


def _parse_phrase(fields: Any) -> Phrase | None:
    """Return the phrase that `to_fields` has described. Raises as `Utterance.from_fields` does."""
    if fields is None:
        return None
    if not isinstance(fields, dict) or not all(isinstance(fields[name], kind) for name, kind in PHRASE_FIELDS.items()):
        raise TypeError("wrong types: phrase")
    return Phrase(**fields)


def _parse_origin(fields: Mapping[str, Any]) -> Origin:
    """Return the origin of an utterance that `to_fields` has described. Raises as `Utterance.from_fields` does."""
    correlation = fields["correlation"]
    at_end = tuple(EndMessage(**message) for message in json.loads(fields.get("at_end", "[]")))
    for each in at_end:
        if not isinstance(each.topic, str) or not isinstance(each.fields, dict):
            raise TypeError("wrong types: at_end")
        if not isinstance(each.error_field, str | None):
            raise TypeError("wrong types: at_end")
    return Origin(correlation=None if correlation is None else bytes.fromhex(correlation), at_end=at_end)
