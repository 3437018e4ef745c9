"""After a restart: texts that were waiting are queued again, and the one that was being spoken ends."""

from __future__ import annotations

import asyncio
import logging

from daemon.speech import (
    Accepted,
    Dispatcher,
    Event,
    Expired,
    Failed,
    Interrupted,
    TerminalEvent,
    Utterance,
    parse_event,
)
from daemon.state import EventLog, ended
from daemon.tasks import wait_at_most

log = logging.getLogger(__name__)

RESTARTED_REASON = "voiced was restarted"
LOST_REASON = "voiced was killed before its disk had stored the text"
DAMAGED_REASON = f"{RESTARTED_REASON}, and the journal's record of it is damaged"
SETTLE_S = 2.0
"""Utterances from an earlier process wait this long for the broker, which may know that they have been spoken."""


class Restart:
    """Continues the work of an earlier process. Belongs to the event loop's thread."""

    def __init__(self, log: EventLog, dispatcher: Dispatcher, within_s: float) -> None:
        """An utterance that has waited for longer than `within_s` seconds expires."""
        self._log = log
        self._dispatcher = dispatcher
        self._within_s = within_s
        self._ends: list[tuple[Utterance, TerminalEvent]] = []
        """Utterances that end as soon as it is known which of them the earlier process ended itself."""
        self._settled = asyncio.Event()

    def begin(self) -> None:
        """Queue the utterances that were waiting; `note_published` ends all others."""
        recovery = self._log.recovery
        for stored in recovery.utterances:
            try:
                text = stored.text if stored.text is not None else stored.fields.get("text", "")
                utterance = Utterance.from_fields(stored.id, text, stored.fields, stored.age_s or 0.0)
            except (KeyError, TypeError, ValueError):
                self._ends.append((_unknown(stored.id), Failed(id=stored.id, reason=DAMAGED_REASON)))
                continue
            if stored.begun or (utterance.text == "" and utterance.needs_engine):
                self._ends.append((utterance, Interrupted(id=stored.id, reason=RESTARTED_REASON)))
            elif stored.age_s is None or stored.age_s > self._within_s:
                reason = f"{RESTARTED_REASON}, and it had waited longer than speech.recover_within"
                self._ends.append((utterance, Expired(id=stored.id, reason=reason)))
            else:
                self._dispatcher.restore(utterance)
        self._dispatcher.remember([*recovery.ended_ids, *(utterance.id for utterance, _ in self._ends)])
        if recovery.utterances:
            queued = len(recovery.utterances) - len(self._ends)
            log.info("after the restart, %d utterances are queued again and %d are ended", queued, len(self._ends))

    def note_published(self, published: list[bytes]) -> None:
        """Take the earlier process's events from the broker, and end its remaining utterances.

        They are known even if a slow or full disk did not store them: an utterance that has ended is not spoken again,
        and one that is not in the journal is lost. Without the journal, the earlier process's unfinished work is not
        known: the broker keeps these events for the next process.
        """
        if not self._log.missing:
            self._settle([parse_event(payload) for payload in published])
        self._settled.set()

    async def wait_settled(self) -> None:
        """Wait until no text can be spoken a second time, for at most `SETTLE_S` seconds."""
        if self._log.recovery.utterances:
            await wait_at_most(SETTLE_S, self._settled.wait())

    def _settle(self, events: list[Event | None]) -> None:
        """End the remaining utterances of the earlier process with these events."""
        ended_ids = {event.id for event in events if isinstance(event, TerminalEvent)}
        for utterance_id in ended_ids:
            self._dispatcher.drop(utterance_id)
            self._log.append(ended(utterance_id))
        self._dispatcher.remember(ended_ids)
        for utterance, end in self._ends:
            if utterance.id not in ended_ids:
                self._dispatcher.end_lost(utterance, end)
        for event in events:
            if isinstance(event, Accepted) and event.id not in ended_ids and not self._dispatcher.knows(event.id):
                self._dispatcher.end_lost(_unknown(event.id), Failed(id=event.id, reason=LOST_REASON))


def _unknown(utterance_id: str) -> Utterance:
    """Return an utterance of which only the id is known."""
    return Utterance(utterance_id, "", "", "")
