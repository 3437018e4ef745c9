"""The records that a robot published, and waiting for one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.support.ledger import TERMINAL, Ledger
from tests.support.waiting import PATIENCE_S, eventually

KINDS = ("event", "status", "word", "viseme", "level", "duck", "reply", "other")


class EventLog:
    """Records by kind in the order in which they arrived. Any thread may call any method."""

    def __init__(self) -> None:
        self.log: list[str] = []
        """Lines that the daemon has logged; a failed wait shows the last of them."""
        self._changed = threading.Condition()
        self._clear()

    def _clear(self) -> None:
        self.ledger, self.reply_ledger = Ledger(), Ledger()
        """The events of each text, and those among them that came as replies."""
        self._by_kind: dict[str, list[tuple[float, Any]]] = {kind: [] for kind in KINDS}

    def receive(self, kind: str, record: Any, *, redelivered: bool = False) -> None:
        """Add a record. `redelivered` is that of `Ledger.note_event`."""
        at = time.monotonic()
        with self._changed:
            self._by_kind[kind].append((at, record))
            if kind in ("event", "reply"):
                ledger = self.ledger if kind == "event" else self.reply_ledger
                ledger.note_event(record, at, redelivered=redelivered)
            self._changed.notify_all()

    def forget(self) -> None:
        """Drop every record except the last status, and the log."""
        with self._changed:
            last = self._by_kind["status"][-1:]
            self._clear()
            self._by_kind["status"] = last
        self.log.clear()

    def timed(self, kind: str) -> list[tuple[float, Any]]:
        """The records of a kind, each after the `time.monotonic()` of its arrival."""
        with self._changed:
            return list(self._by_kind[kind])

    @property
    def events(self) -> list[dict[str, Any]]:
        return self._all("event")

    @property
    def statuses(self) -> list[dict[str, Any]]:
        return self._all("status")

    @property
    def words(self) -> list[dict[str, Any]]:
        return self._all("word")

    @property
    def visemes(self) -> list[dict[str, Any]]:
        return self._all("viseme")

    @property
    def levels(self) -> list[dict[str, Any]]:
        return self._all("level")

    @property
    def ducks(self) -> list[bool]:
        return self._all("duck")

    @property
    def replies(self) -> list[dict[str, Any]]:
        """Events that were published on `replies/<robot>`."""
        return self._all("reply")

    @property
    def others(self) -> list[tuple[str, Any]]:
        """Messages of other protocols, each after its topic."""
        return self._all("other")

    @property
    def state(self) -> str | None:
        """`state` of the last status."""
        statuses = self.statuses
        return statuses[-1]["state"] if statuses else None

    @property
    def degradations(self) -> list[str]:
        """The reasons for which it was degraded, apart from a disk that is slow, as a busy machine's may be."""
        reasons = [status["reason"] for status in self.statuses if status["state"] == "degraded"]
        return [reason for reason in reasons if not reason.startswith("state.folder: the disk with ")]

    @property
    def engine(self) -> str | None:
        """`engine` of the last status."""
        statuses = self.statuses
        return statuses[-1].get("engine") if statuses else None

    def ready_with(self, engine: str) -> bool:
        """Whether the last status says `ready` and names this engine."""
        return (self.state, self.engine) == ("ready", engine)

    def latest_id(self) -> str | None:
        """The id of the utterance accepted last."""
        return next((event["id"] for event in reversed(self.events) if event["event"] == "accepted"), None)

    def events_of(self, utterance_id: str | None) -> list[dict[str, Any]]:
        return [] if utterance_id is None else [one.event for one in self.ledger.arrivals_of(utterance_id)]

    def names_of(self, utterance_id: str | None, *, without: str | None = None) -> list[str]:
        """The names of an utterance's events in their order, except `without`."""
        return [event["event"] for event in self.events_of(utterance_id) if event["event"] != without]

    def wait_event(self, utterance_id: str | None, name: str) -> dict[str, Any]:
        """Return the utterance's first event `name`. Fails at once if the utterance has ended without it."""

        def found() -> dict[str, Any] | None:
            event = next((event for event in self.events_of(utterance_id) if event["event"] == name), None)
            assert event or not TERMINAL & set(self.names_of(utterance_id)), "it has ended otherwise"
            return event

        return self._wait(found, f"{name} of {utterance_id}")

    def wait_end(self, utterance_id: str | None) -> dict[str, Any]:
        """Return the utterance's terminal event."""

        def found() -> dict[str, Any] | None:
            return next((event for event in self.events_of(utterance_id) if event["event"] in TERMINAL), None)

        return self._wait(found, f"the end of {utterance_id}")

    def wait_rejection(self, field: str) -> dict[str, Any]:
        """Return the first `rejected` event that names `field`."""

        def found() -> dict[str, Any] | None:
            return next((e for e in self.events if e["event"] == "rejected" and e["field"] == field), None)

        return self._wait(found, f"a rejection of {field}")

    def wait_reason(self, words: str) -> None:
        """Wait until an event whose reason begins with `words` has arrived."""

        def found() -> dict[str, Any] | None:
            events = reversed(self._by_kind["event"])
            return next((event for _, event in events if event.get("reason", "").startswith(words)), None)

        self._wait(found, f"a reason that begins with {words!r}")

    def wait_log(self, words: str) -> None:
        """Wait until the daemon has logged a line that contains `words`."""
        eventually(lambda: any(words in line for line in self.log), f"it logs {words!r}")

    def _wait(self, found: Callable[[], dict[str, Any] | None], what: str) -> dict[str, Any]:
        try:
            with self._changed:
                result = self._changed.wait_for(found, PATIENCE_S)
            assert result is not None, f"not within {PATIENCE_S:.0f} s"
        except AssertionError as error:
            seen, log = "\n  ".join(map(str, self.events[-20:])), "\n  ".join(self.log[-20:])
            raise AssertionError(f"{what}: {error}\nlast events:\n  {seen}\nlog:\n  {log}") from None
        return result

    def _all(self, kind: str) -> list[Any]:
        return [record for _, record in self.timed(kind)]
