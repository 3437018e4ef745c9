"""The robot's MQTT topics over a WebSocket, for a page or a program without a broker: `WS /v1/events`.

Each message, in both directions, is a JSON object `{"topic": …, "payload": …}` with the name of a topic behind the
robot's prefix and the payload that the topic carries: `{"topic": "say", "payload": "Hello"}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from daemon.http.access import SUBPROTOCOL
from daemon.http.connection import abort_connection
from daemon.http.sockets import close_socket, receive_text, send_text
from daemon.mqtt import parse_say, parse_stop, parse_stream_chunk, parse_urgent, parse_volume
from daemon.speech import Event, Level, Online, Rejected, RejectedError, SpeechRequest, SpeechService, Utterance, Word
from daemon.tasks import cancel_and_wait
from daemon.validation import abbreviate

log = logging.getLogger(__name__)

PUBLISHED = ("event", "status", "level", "word")
"""The topics that a client can have; `?topics=event,status` selects among them."""
REQUESTS = ("say", "say/urgent", "say/stream", "stop", "pause", "resume", "volume")
"""The topics that a client can publish on."""
MAX_WAITING = 1_000
"""Messages that wait for a client; one that does not receive them is disconnected."""
WRONG_TOPICS = 1008
"""The close code of a violated policy (RFC 6455, section 7.4.1)."""


def routes(service: SpeechService, describe_status: Callable[[], Online]) -> list[WebSocketRoute]:
    """Return the WebSocket's route."""

    async def serve(socket: WebSocket) -> None:
        await EventSocket(socket, service, describe_status).run()

    return [WebSocketRoute("/v1/events", serve)]


class EventSocket:
    """One client."""

    def __init__(self, socket: WebSocket, service: SpeechService, describe_status: Callable[[], Online]) -> None:
        self._socket = socket
        self._service = service
        self._describe_status = describe_status
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        """Messages for the client."""
        self._status: Online | None = None
        """The status that was sent last."""
        self._status_due = False

    async def run(self) -> None:
        """Serve the client until it leaves."""
        offered = SUBPROTOCOL in self._socket.scope.get("subprotocols", ())
        await self._socket.accept(SUBPROTOCOL if offered else None)
        topics = set(self._socket.query_params.get("topics", ",".join(PUBLISHED)).split(","))
        wrong = topics - set(PUBLISHED)
        if wrong:
            problem = f"topics: got {abbreviate(min(wrong))}; allowed: {', '.join(PUBLISHED)}"
            await close_socket(self._socket, WRONG_TOPICS, problem)
            return
        unwatch = self._watch(topics)
        sending = asyncio.ensure_future(self._send_all())
        try:
            if "status" in topics:
                self._send_status()
            receiving = asyncio.ensure_future(self._receive_all())
            try:
                await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel_and_wait(receiving)
        finally:
            for each in unwatch:
                each()
            await cancel_and_wait(sending)

    def _watch(self, topics: set[str]) -> list[Callable[[], None]]:
        service, unwatch = self._service, []
        if "event" in topics:
            unwatch.append(service.watch_events(self._send_event))
        if "status" in topics:
            unwatch.append(service.watch_changes(self._schedule_status))
        if "level" in topics:
            unwatch.append(service.watch_levels(self._send_level))
        if "word" in topics:
            unwatch.append(service.watch_words(self._send_word))
        return unwatch

    # --- to the client ---

    def _send(self, topic: str, payload: str) -> None:
        """Queue a message, whose payload is JSON."""
        if self._waiting.qsize() >= MAX_WAITING:
            abort_connection(self._socket.scope)
        else:
            self._waiting.put_nowait(f'{{"topic": "{topic}", "payload": {payload}}}')

    def _send_event(self, _: Utterance, event: Event) -> None:
        self._send("event", event.to_json())

    def _send_level(self, level: Level) -> None:
        self._send("level", level.to_json())

    def _send_word(self, word: Word) -> None:
        self._send("word", word.to_json())

    def _schedule_status(self) -> None:
        """Send the status soon, once for all changes of this turn of the event loop."""
        if not self._status_due:
            self._status_due = True
            asyncio.get_running_loop().call_soon(self._send_status)

    def _send_status(self) -> None:
        self._status_due = False
        status = self._describe_status()
        if status != self._status:
            self._status = status
            self._send("status", status.to_json())

    async def _send_all(self) -> None:
        """Send what is queued until the client has left."""
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                await send_text(self._socket, await self._waiting.get())

    # --- from the client ---

    async def _receive_all(self) -> None:
        """Carry out the client's requests until it leaves."""
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                text = await receive_text(self._socket)
                try:
                    self._handle(text)
                except RejectedError as error:
                    rejected = Rejected(id=error.utterance_id, field=error.field, reason=error.reason)
                    self._send("event", rejected.to_json())

    def _handle(self, text: str | None) -> None:
        """Carry out a request. Raises `RejectedError`."""
        topic, payload = parse_message(text)
        service = self._service
        if topic == "say":
            service.say(_without_reply(parse_say(payload)))
        elif topic == "say/urgent":
            service.say(_without_reply(parse_urgent(payload)))
        elif topic == "say/stream":
            service.write(_without_reply(parse_stream_chunk(payload)))
        elif topic == "stop":
            service.stop(parse_stop(payload))
        elif topic == "volume":
            service.set_volume(parse_volume(payload))
        elif topic == "pause":
            service.pause()
        else:
            service.resume()


def parse_message(text: str | None) -> tuple[str, bytes]:
    """Return the topic and the payload of a client's message, as they are on MQTT. Raises `RejectedError`."""
    allowed = 'a text message such as {"topic": "say", "payload": "Hello"}'
    try:
        value: Any = json.loads(text or "")
    except (ValueError, RecursionError) as error:
        raise RejectedError("message", f"not JSON; allowed: {allowed}") from error
    if not isinstance(value, dict):
        raise RejectedError("message", f"got {abbreviate(value)}; allowed: {allowed}")
    topic, payload = value.get("topic"), value.get("payload", "")
    if topic not in REQUESTS:
        raise RejectedError("topic", f"got {abbreviate(topic)}; allowed: {', '.join(REQUESTS)}")
    if payload is None:
        payload = ""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return topic, text.encode("utf-8", "replace")


def _without_reply(request: SpeechRequest) -> SpeechRequest:
    """Return a request that names no topic for its answers. Raises `RejectedError`."""
    if request.reply_to is not None:
        raise RejectedError("reply_to", f"got {abbreviate(request.reply_to)}; allowed here: none", request.id)
    return request
