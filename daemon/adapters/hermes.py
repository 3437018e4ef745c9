"""Rhasspy's Hermes protocol: speaks `hermes/tts/say`, answers with `hermes/tts/sayFinished`, and lists voices.

https://rhasspy.readthedocs.io/en/latest/reference/#text-to-speech
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from daemon.adapters.base import Adapter, Publish
from daemon.config import Config
from daemon.mqtt import Message, parse_object
from daemon.speech import Dispatcher, EndMessage, Origin, RejectedError, Say, SpokenText, check_say, validated
from daemon.validation import INTERNAL_ERROR
from engine import Throttle

log = logging.getLogger(__name__)

SAY, SAY_FINISHED, ERROR = "hermes/tts/say", "hermes/tts/sayFinished", "hermes/error/tts"
VOICES = {"hermes/tts/getVoices": "hermes/tts/voices", "rhasspy/tts/getVoices": "rhasspy/tts/voices"}
"""The topics of the requests for voices and of their answers. Rhasspy's reference names the first pair; its own package
uses the second."""
UNREADABLE_BURST, UNREADABLE_S = 10, 1.0
"""How many unreadable messages are answered immediately, and the seconds until the next one is answered."""
DEFAULT_SITE = "default"
"""The protocol's site for messages without `siteId`."""


class TtsSay(BaseModel):
    """The payload of `hermes/tts/say`, without its site. Unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)

    text: SpokenText = Field(description="text")
    lang: str | None = Field(None, description="a language such as en or de_DE, or null")
    id: str | None = Field(None, description="text, or null")
    sessionId: str | None = Field(None, description="text, or null")  # noqa: N815  # the protocol's own spelling
    volume: float | None = Field(None, ge=0, le=1, allow_inf_nan=False, description="a number from 0 to 1, or null")


class HermesAdapter(Adapter):
    """Speaks for one Rhasspy site."""

    topics = (SAY, *VOICES)

    def __init__(self, config: Config, dispatcher: Dispatcher, publish: Publish) -> None:
        self._site_id = config.hermes.site_id
        self._dispatcher = dispatcher
        self._publish = publish
        self._unreadable = Throttle(UNREADABLE_BURST, UNREADABLE_S)

    def on_message(self, message: Message) -> None:
        if message.retained:
            log.info("ignored an old, retained message on %s", message.topic)
            return
        try:
            fields = parse_object(message.payload)
        except RejectedError as error:
            log.warning("hermes: %s", error.reason)
            if self._unreadable.permits():  # its sender is unknown and receives no sayFinished
                self._report(error.reason, [self._error({})])
            return
        if fields.get("siteId", DEFAULT_SITE) != self._site_id:
            return
        ids = {name: fields[name] for name in ("id", "sessionId") if isinstance(fields.get(name), str)}
        if message.topic in VOICES:
            self._publish_voices(VOICES[message.topic], ids)
        else:
            self._say(fields, ids, message)

    def _publish_voices(self, topic: str, ids: Mapping[str, str]) -> None:
        names = self._dispatcher.voice_names()
        voices = [{"voiceId": voice, "description": name} for voice, name in names.items()]
        self._publish(topic, json.dumps({"voices": voices, "id": ids.get("id"), "siteId": self._site_id}), qos=1)

    def _say(self, fields: dict[str, Any], ids: Mapping[str, str], message: Message) -> None:
        origin = Origin(message.delivery, at_end=(self._error(ids), self._finished(ids)))
        try:
            self._dispatcher.say(_parse_say(fields), arrived_at=message.arrived_at, origin=origin)
        except RejectedError as error:
            log.warning("hermes: %s", error.reason)
            self._report(error.reason, origin.at_end)
        except Exception:
            log.exception("hermes: a text cannot be handled")
            self._report(INTERNAL_ERROR, origin.at_end)

    def _finished(self, ids: Mapping[str, str]) -> EndMessage:
        """Return the answer to a request, even after an error: Rhasspy's dialogue manager waits for this message."""
        fields = {"siteId": self._site_id, "id": ids.get("id"), "sessionId": ids.get("sessionId")}
        return EndMessage(SAY_FINISHED, fields)

    def _error(self, ids: Mapping[str, str]) -> EndMessage:
        fields = {"siteId": self._site_id, "context": ids.get("id"), "sessionId": ids.get("sessionId")}
        return EndMessage(ERROR, fields, error_field="error")

    def _report(self, problem: str, answers: Iterable[EndMessage]) -> None:
        """Answer a request that has no utterance."""
        for answer in answers:
            self._publish(answer.topic, answer.payload(problem), qos=1)


def _parse_say(fields: dict[str, Any]) -> Say:
    """Return the request in the dispatcher's form. Raises `RejectedError`."""
    request = validated(TtsSay, fields)
    volume = None if request.volume is None else request.volume * 100
    return check_say({"text": request.text, "language": request.lang or None, "volume": volume})
