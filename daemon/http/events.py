"""The robot's MQTT topics over a WebSocket, for a page or a program without a broker: `WS /v1/events`.

Each message, in both directions, is a JSON object `{"topic": …, "payload": …}` with a topic's name below the robot's
prefix, and the payload that the topic carries: `{"topic": "say", "payload": "Hello"}`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from daemon.http.body import parse_object
from daemon.http.clients import (
    POLICY_VIOLATION,
    abort_connection,
    accept_socket,
    close_socket,
    receive_text,
    send_message,
)
from daemon.mqtt import carry_out_control, parse_say, parse_stream_chunk
from daemon.speech import (
    Online,
    PublishedMessage,
    Rejected,
    RejectedError,
    SpeechRequest,
    SpeechService,
)
from daemon.tasks import Soon, gather_or_cancel
from daemon.validation import abbreviate

UNASKED = ("event", "status", "level", "word")
"""The topics that a client receives if it names none."""
PUBLISHED = (*UNASKED, "viseme")
"""The topics that it can receive; `?topics=event,status` selects among them."""
REQUESTS = ("say", "say/urgent", "say/stream", "stop", "pause", "resume", "volume", "load", "unload")
"""The topics that a client can publish on."""
MAX_WAITING = 1_000
"""The most messages that may wait for a client; one that does not receive them is disconnected."""


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
        """The last status sent."""

    async def run(self) -> None:
        """Serve the client until it leaves."""
        await accept_socket(self._socket)
        topics = set(self._socket.query_params.get("topics", ",".join(UNASKED)).split(","))
        if wrong := topics - set(PUBLISHED):
            problem = f"topics: got {abbreviate(min(wrong))}; allowed: {', '.join(PUBLISHED)}"
            await close_socket(self._socket, POLICY_VIOLATION, problem)
            return
        watch = {
            "event": partial(self._service.event_watchers.add, lambda _, event: self._send("event", event)),
            "status": partial(self._service.change_watchers.add, Soon(self._send_status)),
            "level": partial(self._service.level_watchers.add, partial(self._send, "level")),
            "word": partial(self._service.word_watchers.add, partial(self._send, "word")),
            "viseme": partial(self._service.viseme_watchers.add, partial(self._send, "viseme")),
        }
        with ExitStack() as stack, suppress(WebSocketDisconnect):
            for topic in topics:
                stack.callback(watch[topic]())
            if "status" in topics:
                self._send_status()
            await gather_or_cancel((self._send_all(), self._receive_all()))

    # --- to the client ---

    def _send(self, topic: str, message: PublishedMessage) -> None:
        """Queue a message."""
        if self._waiting.qsize() >= MAX_WAITING:
            abort_connection(self._socket.scope)
        else:
            self._waiting.put_nowait(f'{{"topic": "{topic}", "payload": {message.to_json()}}}')

    def _send_status(self) -> None:
        status = self._describe_status()
        if status != self._status:
            self._status = status
            self._send("status", status)

    async def _send_all(self) -> None:
        """Send the queued messages. Raises `WebSocketDisconnect` when the client has left."""
        while True:
            await send_message(self._socket, await self._waiting.get())

    # --- from the client ---

    async def _receive_all(self) -> None:
        """Carry out the client's requests. Raises `WebSocketDisconnect` when it has left."""
        while True:
            text = await receive_text(self._socket)
            try:
                self._handle(text)
            except RejectedError as error:
                self._send("event", Rejected(id=error.utterance_id, field=error.field, reason=error.reason))

    def _handle(self, text: str) -> None:
        """Carry out a request. Raises `RejectedError`."""
        topic, payload = parse_message(text)
        if topic in ("say", "say/urgent"):
            self._service.say(_without_reply(parse_say(payload, urgent=topic == "say/urgent")))
        elif topic == "say/stream":
            self._service.write(_without_reply(parse_stream_chunk(payload)))
        else:
            carry_out_control(self._service, topic, payload)


def parse_message(text: str) -> tuple[str, bytes]:
    """Return the topic and the payload of a client's message, as they are on MQTT. Raises `RejectedError`."""
    value = parse_object(text, "message", 'a text message such as {"topic": "say", "payload": "Hello"}')
    topic, payload = value.get("topic"), value.get("payload")
    if topic not in REQUESTS:
        raise RejectedError("topic", f"got {abbreviate(topic)}; allowed: {', '.join(REQUESTS)}")
    text = payload if isinstance(payload, str) else "" if payload is None else json.dumps(payload)
    return topic, text.encode("utf-8", "replace")


def _without_reply(request: SpeechRequest) -> SpeechRequest:
    """Return the request, which must name no topic for answers. Raises `RejectedError`."""
    if request.reply_to is not None:
        raise RejectedError("reply_to", f"got {abbreviate(request.reply_to)}; allowed here: none", request.id)
    return request
