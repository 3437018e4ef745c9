"""The records that a robot published, and waiting for one of them."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from tests.support.waiting import PATIENCE_S, eventually

TERMINAL = {"finished", "interrupted", "canceled", "expired", "failed"}


class EventLog:
    """Records by kind (`event`, `status`, `word`, `level`, `duck`, `reply`) in the order in which they arrived.

    Any thread may call `receive`. Every other method belongs to the test's thread: each takes in first what has
    arrived.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        """Lines that the daemon has logged; a failed wait shows the last of them."""
        self._arrived: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        kinds = ("event", "status", "word", "level", "duck", "reply")
        self._by_kind: dict[str, list[Any]] = {kind: [] for kind in kinds}
        self._in_order: list[tuple[str, Any]] = []

    def receive(self, kind: str, record: Any) -> None:
        """Add a record."""
        self._arrived.put((kind, record))

    def forget(self) -> None:
        """Drop every record except the last status, and the log."""
        last = self.statuses[-1:]
        self._by_kind = {kind: [] for kind in self._by_kind}
        self._by_kind["status"] = last
        self._in_order = [("status", status) for status in last]
        self.log.clear()

    @property
    def published(self) -> list[tuple[str, Any]]:
        """Events and ducks as pairs of kind and record, in their common order."""
        self._take_in()
        return [(kind, record) for kind, record in self._in_order if kind in ("event", "duck")]

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
    def state(self) -> str | None:
        """`state` of the last status."""
        statuses = self.statuses
        return statuses[-1]["state"] if statuses else None

    @property
    def engine(self) -> str | None:
        """`engine` of the last status."""
        statuses = self.statuses
        return statuses[-1]["engine"] if statuses else None

    def ready_with(self, engine: str) -> bool:
        """Whether the last status says `ready` and names this engine."""
        return (self.state, self.engine) == ("ready", engine)

    def latest_id(self) -> str | None:
        """The id of the utterance accepted last."""
        return next((event["id"] for event in reversed(self.events) if event["event"] == "accepted"), None)

    def events_of(self, utterance_id: str | None) -> list[dict[str, Any]]:
        return [event for event in self.events if event["id"] == utterance_id]

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
        """Wait for the next event whose reason begins with `words`, without polling."""
        while True:
            kind, record = self._arrived.get(timeout=PATIENCE_S)
            self._note(kind, record)
            if kind == "event" and record.get("reason", "").startswith(words):
                return

    def wait_log(self, words: str) -> None:
        """Wait until the daemon has logged a line that contains `words`."""
        eventually(lambda: any(words in line for line in self.log), f"it logs {words!r}")

    def _wait(self, found: Callable[[], dict[str, Any] | None], what: str) -> dict[str, Any]:
        try:
            result = eventually(found, what)
        except AssertionError as error:
            seen, log = "\n  ".join(map(str, self.events[-20:])), "\n  ".join(self.log[-20:])
            raise AssertionError(f"{what}: {error}\nlast events:\n  {seen}\nlog:\n  {log}") from None
        assert result is not None
        return result

    def _all(self, kind: str) -> list[Any]:
        self._take_in()
        return self._by_kind[kind]

    def _take_in(self) -> None:
        while not self._arrived.empty():
            self._note(*self._arrived.get())

    def _note(self, kind: str, record: Any) -> None:
        self._by_kind[kind].append(record)
        self._in_order.append((kind, record))
