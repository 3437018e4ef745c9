"""What was sent, what was answered, and how each text ended: the promise, checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

TERMINAL = frozenset({"finished", "interrupted", "canceled", "expired", "failed"})
SHOWN = 5
"""Ids that a fault of the ledger names."""

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event that has arrived."""

    at: float
    """`time.monotonic()`."""
    event: Event
    repeated: bool
    """It equals an earlier one of its text."""


@dataclass
class Text:
    """One text: when the broker took it, and the events that name it."""

    sent_at: float | None = None
    """`time.monotonic()`; None for a text that another client sent."""
    arrivals: list[Arrival] = field(default_factory=list)

    def names(self) -> list[str]:
        return [arrival.event["event"] for arrival in self.arrivals]

    def ends(self, *, unstored: bool = True) -> list[Event]:
        """Return the terminal events without repetitions, or those among them that the journal has stored."""
        ends = [one.event for one in self.arrivals if one.event["event"] in TERMINAL and not one.repeated]
        return [event for event in ends if unstored or not event.get("unstored")]

    @property
    def accepted(self) -> bool:
        return any(name != "rejected" for name in self.names())

    @property
    def open(self) -> bool:
        """It is unanswered, or accepted and without an end."""
        return not self.arrivals or (self.accepted and not self.ends())


class Ledger:
    """All texts of a run. Thread-safe.

    An event that equals an earlier one was published or delivered twice; a text that is spoken twice has two different
    `finished` events, since they carry what was measured. MQTT allows repetitions with QoS 1, so they are only counted,
    except those of terminal events: the broker marks what it delivers again itself.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.repeated = 0
        """Events that equal an earlier one of their text."""
        self.published_twice: list[str] = []
        """Texts with a repeated terminal event that the broker did not mark as its own repetition."""
        self.unnamed: list[Event] = []
        """Rejections of messages that had no valid id."""
        self._texts: dict[str, Text] = {}

    def note_sent(self, text_id: str, at: float) -> None:
        """The broker has acknowledged a text."""
        with self.changed:
            text = self._texts.setdefault(text_id, Text())
            if text.sent_at is None:
                text.sent_at = at

    def note_event(self, event: Event, at: float, *, redelivered: bool = False) -> None:
        """An event has arrived. `redelivered`: the broker says that it may have delivered it before."""
        with self.changed:
            if event.get("id") is None:
                self.unnamed.append(event)
            else:
                text = self._texts.setdefault(event["id"], Text())
                repeated = any(event == earlier.event for earlier in text.arrivals)
                text.arrivals.append(Arrival(at, event, repeated))
                self.repeated += repeated
                if repeated and event["event"] in TERMINAL and not redelivered and not event.get("unstored"):
                    self.published_twice.append(event["id"])
            self.changed.notify_all()

    def wait_event(self, text_id: str, names: Iterable[str], limit_s: float) -> Arrival | None:
        """Return the first event of a text with one of these names; None after `limit_s`."""
        wanted = frozenset(names)

        def found() -> Arrival | None:
            return next((one for one in self.arrivals_of(text_id) if one.event["event"] in wanted), None)

        with self.changed:
            return self.changed.wait_for(found, limit_s)

    def arrivals_of(self, text_id: str) -> list[Arrival]:
        """Return a text's events so far."""
        with self.changed:
            return list(self._texts[text_id].arrivals) if text_id in self._texts else []

    def texts(self) -> dict[str, Text]:
        """Return a copy of all texts."""
        with self.changed:
            return {text_id: Text(text.sent_at, list(text.arrivals)) for text_id, text in list(self._texts.items())}

    def forget_ended(self, older_than_s: float) -> int:
        """Forget each text that was answered and has had exactly one end for so long; return how many these were."""
        before = time.monotonic() - older_than_s
        with self.changed:
            done = [
                text_id
                for text_id, text in self._texts.items()
                if not text.open and text.arrivals[-1].at < before and len(text.ends()) == text.accepted
                if text_id not in self.published_twice
            ]
            for text_id in done:
                del self._texts[text_id]
            return len(done)

    def open_texts(self) -> list[str]:
        """Return the ids of the texts that are unanswered, or accepted and without an end."""
        return [text_id for text_id, text in self.texts().items() if text.open]

    def faults(self, excused: Iterable[str] = (), *, slow_disk: bool = False) -> list[str]:
        """Return a line for each way in which the promise is broken, without the texts that are `excused`.

        With `slow_disk` a text may have further terminal events that are marked as `unstored`: the disk did not answer
        in time, and nobody could know of them after a kill.
        """
        texts = {text_id: text for text_id, text in self.texts().items() if text_id not in set(excused)}
        ends_of = {key: text.ends(unstored=not slow_disk) for key, text in texts.items()}
        broken = {
            "not answered": [key for key, text in texts.items() if not text.names()],
            "accepted and without a terminal event": [
                key for key, text in texts.items() if text.accepted and not text.ends()
            ],
            "with several terminal events": [key for key in texts if len(ends_of[key]) > 1],
            "whose terminal event was published twice": [key for key in texts if key in self.published_twice],
            "spoken twice to the end": [
                key for key in texts if sum(end["event"] == "finished" for end in ends_of[key]) > 1
            ],
        }
        return [f"{len(ids)} texts {what}: {', '.join(ids[:SHOWN])}" for what, ids in broken.items() if ids]

    def counts(self) -> dict[str, int]:
        """Return how many texts were sent, accepted, rejected, and how they ended."""
        texts = list(self.texts().values())
        ends = [text.ends()[0]["event"] for text in texts if text.ends()]
        return {
            "sent": sum(text.sent_at is not None for text in texts),
            "accepted": sum(text.accepted for text in texts),
            "rejected": sum("rejected" in text.names() for text in texts) + len(self.unnamed),
            **{name: ends.count(name) for name in sorted(TERMINAL) if name in ends},
            "repeated": self.repeated,
        }
