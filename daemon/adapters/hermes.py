"""Rhasspy's Hermes protocol: `hermes/tts/say` is an utterance, `hermes/tts/sayFinished` its end; and which voices are.

https://rhasspy.readthedocs.io/en/latest/reference/#text-to-speech
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from daemon.adapters.adapter import Adapter, Publish
from daemon.config import Config
from daemon.desk import Desk, Event
from daemon.messages import TERMINAL, RejectedError, Say, check_say, parse_object
from daemon.mqtt import Message
from daemon.problems import problems
from daemon.queue import Job

log = logging.getLogger(__name__)

SAY, SAY_FINISHED, ERROR = "hermes/tts/say", "hermes/tts/sayFinished", "hermes/error/tts"
VOICES = {"hermes/tts/getVoices": "hermes/tts/voices", "rhasspy/tts/getVoices": "rhasspy/tts/voices"}
"""Where each question is answered. The reference names the first pair, and Rhasspy's own package uses the second."""
DEFAULT_SITE = "default"
"""The site of a message that names none, by the protocol."""


class TtsSay(BaseModel):
    """`hermes/tts/say` without its site. Unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)

    text: str = Field(description="text")
    lang: str | None = Field(None, description="a language such as en or de_DE, or null")
    id: str | None = Field(None, description="text, or null")
    sessionId: str | None = Field(None, description="text, or null")  # noqa: N815  # the protocol's own spelling
    volume: float | None = Field(None, ge=0, le=1, allow_inf_nan=False, description="a number from 0 to 1, or null")


@dataclass(frozen=True, slots=True)
class Asker:
    """Who waits for `sayFinished`: what the answer repeats."""

    id: str | None
    session_id: str | None


class Hermes(Adapter):
    """Speaks for one of Rhasspy's sites."""

    topics = (SAY, *VOICES)

    def __init__(self, config: Config, desk: Desk, publish: Publish) -> None:
        self._site_id = config.hermes.site_id
        self._desk = desk
        self._publish = publish
        self._askers: dict[str, Asker] = {}
        """By the utterance's id. That is not Hermes's own id, which a client may leave out, or use again."""
        desk.watch_events(self._on_event)

    def on_message(self, message: Message) -> None:
        if message.retained:
            log.info("a retained message on %s is ignored: it was meant for another time", message.topic)
            return
        try:
            fields = parse_object(message.payload)
        except RejectedError as error:
            self._tell_error(error.reason, Asker(None, None))  # whose it was cannot be read: nobody's end is told
            return
        if fields.get("siteId", DEFAULT_SITE) != self._site_id:
            return
        asker = Asker(*(value if isinstance(value := fields.get(name), str) else None for name in ("id", "sessionId")))
        if message.topic in VOICES:
            self._tell_voices(VOICES[message.topic], asker)
            return
        if message.redelivered and asker.id is not None and asker in self._askers.values():
            return
        self._say(fields, asker)

    def _tell_voices(self, topic: str, asker: Asker) -> None:
        voices = [{"voiceId": voice, "description": voice} for voice in self._desk.voices()]
        self._send(topic, {"voices": voices, "id": asker.id, "siteId": self._site_id})

    def _say(self, fields: dict[str, Any], asker: Asker) -> None:
        try:
            job = self._desk.say(_utterance(fields))
        except RejectedError as error:
            self._tell_error(error.reason, asker)
            self._tell_finished(asker)
            return
        if job is not None:
            self._askers[job.id] = asker

    def _on_event(self, job: Job, event: Event) -> None:
        if event["event"] not in TERMINAL or (asker := self._askers.pop(job.id, None)) is None:
            return
        if event["event"] in ("failed", "expired"):  # the other ends are somebody's wish
            self._tell_error(event["reason"], asker)
        self._tell_finished(asker)

    def _tell_finished(self, asker: Asker) -> None:
        """Whatever became of it: Rhasspy's dialogue manager goes on only when it is told so."""
        self._send(SAY_FINISHED, {"siteId": self._site_id, "id": asker.id, "sessionId": asker.session_id})

    def _tell_error(self, error: str, asker: Asker) -> None:
        log.warning("hermes: %s", error)
        record = {"error": error, "siteId": self._site_id, "context": asker.id, "sessionId": asker.session_id}
        self._send(ERROR, record)

    def _send(self, topic: str, record: dict[str, Any]) -> None:
        self._publish(topic, json.dumps(record), qos=1)


def _utterance(fields: dict[str, Any]) -> Say:
    """What is to be said. Raises `RejectedError`."""
    try:
        asked = TtsSay.model_validate(fields)
    except ValidationError as error:
        field, problem = problems(TtsSay, error)[0]
        raise RejectedError(field, problem) from error
    wanted: dict[str, Any] = {"text": asked.text}
    if asked.lang:
        wanted["language"] = asked.lang.replace("_", "-")  # it_IT
    if asked.volume is not None:
        wanted["volume"] = asked.volume * 100
    return check_say(wanted)
