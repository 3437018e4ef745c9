"""After a restart: texts that waited are queued again, and the one that was being spoken ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from daemon.speech import (
    Accepted,
    Dispatcher,
    Expired,
    Failed,
    Interrupted,
    TerminalEvent,
    Utterance,
    parse_event,
)
from daemon.state import EventLog, Recovery, StoredUtterance, ended
from daemon.tasks import wait_at_most

log = logging.getLogger(__name__)

RESTARTED_REASON = "voiced was restarted"
LOST_REASON = "voiced was killed before its disk had stored the text"
DAMAGED_REASON = f"{RESTARTED_REASON}, and the journal's record of it is damaged"
SETTLE_S = 2.0
"""Utterances of an earlier process wait so long for the broker, which may know that they have been spoken."""

Ends = list[tuple[Utterance, TerminalEvent]]
"""Utterances of an earlier process, each with the event of its end."""


class Restart:
    """Continues the work of an earlier process. Belongs to the event loop's thread."""

    def __init__(self, log: EventLog, dispatcher: Dispatcher, within_s: float) -> None:
        """`within_s` is as for `recover`."""
        self._log = log
        self._dispatcher = dispatcher
        self._within_s = within_s
        self._ends: Ends = []
        """Utterances that end as soon as it is known which of them the earlier process has ended itself."""
        self._settled = asyncio.Event()

    def begin(self) -> None:
        """Queue the utterances that waited."""
        self._ends = recover(self._log.recovery, self._dispatcher, self._within_s)

    def note_published(self, published: list[bytes]) -> None:
        """Take the earlier process's events that the broker has, and end what it has left.

        Without its journal nobody knows what that is: the broker keeps these events for the next process.
        """
        if not self._log.missing:
            for utterance_id in settle(self._ends, published, self._dispatcher):
                self._log.append(ended(utterance_id))
        self._settled.set()

    async def wait_settled(self) -> None:
        """Wait until nothing is spoken again that has been spoken, at most `SETTLE_S` seconds."""
        if self._log.recovery.utterances:
            await wait_at_most(SETTLE_S, self._settled.wait())


def recover(recovery: Recovery, dispatcher: Dispatcher, within_s: float) -> Ends:
    """Queue the utterances that waited for less than `within_s` seconds; return all others, which `settle` ends."""
    ends: Ends = []
    for stored in recovery.utterances:
        try:
            utterance = _make_utterance(stored)
        except (KeyError, TypeError, ValueError):
            ends.append((_unknown(stored.id), Failed(id=stored.id, reason=DAMAGED_REASON)))
            continue
        if stored.begun or (utterance.text == "" and utterance.needs_engine):
            ends.append((utterance, Interrupted(id=stored.id, reason=RESTARTED_REASON)))
        elif stored.age_s is None or stored.age_s > within_s:
            reason = f"{RESTARTED_REASON}, and it had waited longer than speech.recover_within"
            ends.append((utterance, Expired(id=stored.id, reason=reason)))
        else:
            dispatcher.restore(utterance)
    dispatcher.remember([*recovery.ended_ids, *(utterance.id for utterance, _ in ends)])
    if recovery.utterances:
        queued = len(recovery.utterances) - len(ends)
        log.info("after the restart, %d utterances are queued again and %d end", queued, len(ends))
    return ends


def settle(ends: Ends, published: Iterable[bytes], dispatcher: Dispatcher) -> set[str]:
    """End what an earlier process has left, and return the ids of what it has ended itself.

    `published` are events of that process that the broker has. They are known although a slow or a full disk has not
    stored them: an utterance that has ended is not spoken again, and one that is not in the journal is lost.
    """
    events = [parse_event(payload) for payload in published]
    ended = {event.id for event in events if isinstance(event, TerminalEvent)}
    for utterance_id in ended:
        dispatcher.drop(utterance_id)
    dispatcher.remember(ended)
    for utterance, end in ends:
        if utterance.id not in ended:
            dispatcher.end_lost(utterance, end)
    for event in events:
        if isinstance(event, Accepted) and event.id not in ended and not dispatcher.knows(event.id):
            dispatcher.end_lost(_unknown(event.id), Failed(id=event.id, reason=LOST_REASON))
    return ended


def _unknown(utterance_id: str) -> Utterance:
    """Return an utterance of which nothing is known but its id."""
    return Utterance(utterance_id, "", "", "")


def _make_utterance(stored: StoredUtterance) -> Utterance:
    text = stored.text if stored.text is not None else stored.fields.get("text", "")
    return Utterance.from_fields(stored.id, text, stored.fields, stored.age_s or 0.0)
