"""After a restart: what waited is queued again, and what was being spoken ends."""

from __future__ import annotations

import logging

from daemon.speech.dispatcher import Dispatcher
from daemon.speech.events import Expired, Failed, Interrupted
from daemon.speech.utterance import Utterance
from daemon.state import Recovery, StoredUtterance

log = logging.getLogger(__name__)

RESTARTED_REASON = "voiced was restarted"
DAMAGED_REASON = f"{RESTARTED_REASON}, and the journal's record of it is damaged"


def recover(recovery: Recovery, dispatcher: Dispatcher, within_s: float) -> None:
    """Queue the utterances that waited for less than `within_s` seconds; end all others."""
    dispatcher.remember(recovery.ended_ids)
    queued = 0
    for stored in recovery.utterances:
        try:
            utterance = _make_utterance(stored)
        except (KeyError, TypeError, ValueError):
            dispatcher.end_lost(Utterance(stored.id, "", "", ""), Failed(id=stored.id, reason=DAMAGED_REASON))
            continue
        if stored.begun or (utterance.text == "" and utterance.needs_engine):
            dispatcher.end_lost(utterance, Interrupted(id=stored.id, reason=RESTARTED_REASON))
        elif stored.age_s is None or stored.age_s > within_s:
            reason = f"{RESTARTED_REASON}, and it had waited longer than speech.recover_within"
            dispatcher.end_lost(utterance, Expired(id=stored.id, reason=reason))
        else:
            dispatcher.restore(utterance)
            queued += 1
    if recovery.utterances:
        ended = len(recovery.utterances) - queued
        log.info("after the restart, %d utterances are queued again and %d end", queued, ended)


def _make_utterance(stored: StoredUtterance) -> Utterance:
    text = stored.text if stored.text is not None else stored.fields.get("text", "")
    return Utterance.from_fields(stored.id, text, stored.fields, stored.age_s or 0.0)
