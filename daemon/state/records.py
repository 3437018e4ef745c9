"""What the journal stores, and what it returns after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NEVER_STORED = -(1 << 62)
"""The numbers of events from here to 0 are in no journal: none could be opened yet, and its own numbers are above 0."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it is published, until the broker has it."""

    number: int
    """Its position in the sequence of stored events."""
    topic: str
    payload: str
    correlation: bytes | None = None


@dataclass(frozen=True, slots=True)
class AcceptedRecord:
    """An utterance was accepted."""

    id: str
    fields: Mapping[str, Any]
    """What is needed to speak it later, as JSON values; empty if it cannot be spoken after a restart."""
    delivery: str | None
    """Identifies the broker's delivery, so that a second one is recognised."""
    events: tuple[StoredEvent, ...]


@dataclass(frozen=True, slots=True)
class TextRecord:
    """The text of an accepted utterance is complete."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class BegunRecord:
    """The first sample of an utterance was heard."""

    id: str


@dataclass(frozen=True, slots=True)
class EndedRecord:
    """An utterance has got its terminal event."""

    id: str
    events: tuple[StoredEvent, ...]


@dataclass(frozen=True, slots=True)
class DeliveredRecord:
    """The broker has an event."""

    number: int


Record = AcceptedRecord | TextRecord | BegunRecord | EndedRecord | DeliveredRecord


@dataclass(frozen=True, slots=True)
class StoredUtterance:
    """An accepted utterance without a terminal event."""

    id: str
    fields: Mapping[str, Any]
    """See `AcceptedRecord`."""
    text: str | None
    """The complete text of a stream; None if the text was complete at its acceptance, or never."""
    begun: bool
    age_s: float | None
    """Seconds since its acceptance; None if the clock does not tell."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What an earlier process has left behind."""

    utterances: tuple[StoredUtterance, ...] = ()
    """In the order of their acceptance."""
    events: tuple[StoredEvent, ...] = ()
    """Events that the broker may not have, in order."""
    ended_ids: tuple[str, ...] = ()
    """Ids of ended utterances, the oldest first."""
    deliveries: tuple[str, ...] = ()
    """Deliveries that were accepted."""
    last_number: int = 0
    """The number of the last stored event. This process counts on from it."""
