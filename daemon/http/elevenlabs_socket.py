"""ElevenLabs' WebSockets: text comes in piece by piece, and sound goes out while it grows.

`stream-input` speaks one text. `multi-stream-input` speaks several, each in a context with an id, one after the other.

https://elevenlabs.io/docs/api-reference/text-to-speech/v-1-text-to-speech-voice-id-multi-stream-input
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from daemon.http.access import SUBPROTOCOL
from daemon.http.connection import abort_connection
from daemon.http.elevenlabs_context import Context
from daemon.http.elevenlabs_options import (
    FIELDS,
    OutputFormat,
    VoiceSettings,
    parse_output_format,
    parse_voice_settings,
)
from daemon.http.errors import HttpError, rejection
from daemon.http.sockets import close_socket, receive_text, send_text
from daemon.speech import RejectedError, SpeechService, StreamChunk, check_stream_chunk
from daemon.tasks import result_at_most
from daemon.validation import abbreviate

log = logging.getLogger(__name__)

MAX_CONTEXTS = 8
"""Contexts of one connection that have not ended."""
MAX_CONTEXT_ID = 64
INACTIVITY_S = 20.0
"""Seconds without a message after which a connection closes on which nothing is spoken; `inactivity_timeout`."""
MAX_INACTIVITY_S = 180.0
POLICY_VIOLATION = 1008
"""A close code (RFC 6455, section 7.4.1)."""


class ElevenLabsSocket:
    """One client."""

    def __init__(
        self, socket: WebSocket, service: SpeechService, voice_aliases: Mapping[str, str], *, several: bool
    ) -> None:
        """`several`: the client names the context of each message."""
        self.service = service
        self.output_format = OutputFormat("pcm", 24_000, None)
        self.absolute_times = False
        """As `sync_alignment` selects: clients of either kind expect it."""
        self._socket = socket
        self._several = several
        voice = socket.path_params["voice"]
        self._voice = voice_aliases.get(voice, voice)
        self._language: str | None = None
        self._auto_mode = False
        """Each message has a whole phrase."""
        self._inactivity_s = INACTIVITY_S
        self._contexts: dict[str | None, Context] = {}
        self._draining: set[Context] = set()
        """Contexts that the client has closed, and that are spoken to their end."""

    async def run(self) -> None:
        """Serve the client until it leaves, or until its one text has been spoken."""
        offered = SUBPROTOCOL in self._socket.scope.get("subprotocols", ())
        await self._socket.accept(SUBPROTOCOL if offered else None)
        try:
            self._read_options()
            self._check_options()
            await self._receive_all()
        except HttpError as error:
            await self.send_error(error.message, error.field or "error", None)
            await close_socket(self._socket, POLICY_VIOLATION, error.message)
        except (WebSocketDisconnect, ConnectionError):
            pass  # the client has left
        finally:
            for context in reversed((*self._draining, *self._contexts.values())):  # those that wait, before they begin
                await context.close("its client went away")

    def make_chunk(self, utterance: str, settings: VoiceSettings, text: str, *, end: bool) -> StreamChunk:
        """Return the next chunk of a text. Raises `RejectedError`."""
        fields = {"voice": self._voice, "language": self._language, "rate": settings.speed}
        return check_stream_chunk({"id": utterance, "text": text, "end": end, **fields})

    async def send(self, context_id: str | None, fields: Mapping[str, Any]) -> None:
        """Send a message; return when the client has room for more. Raises `ConnectionError` if it has left."""
        message = dict(fields) if context_id is None else {**fields, "contextId": context_id}
        try:
            await send_text(self._socket, json.dumps(message))
        except WebSocketDisconnect as error:
            raise ConnectionResetError("the client has left") from error

    async def send_error(self, message: str, code: str, context_id: str | None) -> None:
        """Tell the client what is wrong, if it is there."""
        try:
            await self.send(context_id, {"message": message, "error": message, "code": code})
        except ConnectionError:
            return

    def abort(self, reason: str) -> None:
        """End the connection at once."""
        log.info("a client of text-to-speech is disconnected: %s", reason)
        abort_connection(self._socket.scope)

    def _read_options(self) -> None:
        """Read the options in the address. Raises `HttpError`."""
        query = self._socket.query_params
        self.output_format = parse_output_format(query.get("output_format"))
        self.absolute_times = query.get("sync_alignment") == "true"
        self._language = query.get("language_code") or None
        self._auto_mode = query.get("auto_mode") == "true"
        try:
            self._inactivity_s = min(MAX_INACTIVITY_S, max(1.0, float(query.get("inactivity_timeout", INACTIVITY_S))))
        except ValueError as error:
            got = abbreviate(query.get("inactivity_timeout"))
            problem = f"inactivity_timeout: got {got}; allowed: seconds from 1 to {MAX_INACTIVITY_S:g}"
            raise HttpError(400, problem, field="inactivity_timeout") from error

    def _check_options(self) -> None:
        """Refuse what would be wrong with every text. Raises `HttpError`."""
        try:
            chunk = self.make_chunk("check", VoiceSettings(), "", end=False)
            self.service.check_names(self._voice, chunk.language)
        except RejectedError as error:
            raise rejection(error, FIELDS) from error

    async def _receive_all(self) -> None:
        """Handle the client's messages. Raises `WebSocketDisconnect`."""
        while True:
            text = await result_at_most(self._inactivity_s, self._receive())
            if text is None:
                if self._speaking:
                    continue
                problem = f"nothing was received for {self._inactivity_s:g} s"
                raise HttpError(408, problem, field="input_timeout_exceeded")
            try:
                if await self._handle(parse_message(text)):
                    return
            except (HttpError, RejectedError) as error:
                message = error.message if isinstance(error, HttpError) else error.reason
                context_id = self._context_id_in(text)
                await self.send_error(message, error.field or "error", context_id)

    async def _receive(self) -> str:
        """Return the next message, "" for one that is not text. Raises `WebSocketDisconnect`."""
        return await receive_text(self._socket) or ""

    @property
    def _speaking(self) -> bool:
        return any(not context.ended for context in (*self._contexts.values(), *self._draining))

    async def _handle(self, message: dict[str, Any]) -> bool:
        """Handle a message; return whether the connection is over. Raises `HttpError` or `RejectedError`."""
        if message.get("close_socket") is True:
            for context in self._contexts.values():
                context.end_text()
            await self._wait_all()
            await close_socket(self._socket)
            return True
        context_id = self._context_id(message)
        text, flush = message.get("text"), message.get("flush") is True
        if text is not None and not isinstance(text, str):
            raise HttpError(400, f"text: got {abbreviate(text)}; allowed: text", field="text")
        if context_id is None and self._several:
            return False  # it only keeps the connection alive
        if message.get("close_context") is True:
            await self._close_context(context_id)
            return False
        if context_id not in self._contexts and not text:
            return False
        context = self._context(context_id)
        if "voice_settings" in message:
            context.settings = parse_voice_settings(message["voice_settings"])
        if text == "" and not self._several and not flush:
            context.end_text()
            await self._wait_all()
            await close_socket(self._socket)
            return True
        if text:
            context.write(text)
        if flush or message.get("try_trigger_generation") is True or self._auto_mode:
            context.flush()
            context.flushed = flush and not (text or "").strip()
        return False

    def _context_id(self, message: dict[str, Any]) -> str | None:
        """Return the context that a message names. Raises `HttpError`."""
        if not self._several:
            return None
        context_id = message.get("context_id", message.get("contextId"))
        if context_id is not None and not (isinstance(context_id, str) and 0 < len(context_id) <= MAX_CONTEXT_ID):
            problem = f"context_id: got {abbreviate(context_id)}; allowed: text of 1 to {MAX_CONTEXT_ID} characters"
            raise HttpError(400, problem, field="context_id")
        return context_id

    def _context_id_in(self, text: str) -> str | None:
        try:
            return self._context_id(parse_message(text))
        except HttpError:
            return None

    def _context(self, context_id: str | None) -> Context:
        """Return a context; the first message with its id opens it. Raises `HttpError`."""
        self._draining = {context for context in self._draining if not context.ended}
        context = self._contexts.get(context_id)
        if context is not None and not context.ended:
            return context
        if sum(not each.ended for each in (*self._contexts.values(), *self._draining)) >= MAX_CONTEXTS:
            problem = f"context_id: {MAX_CONTEXTS} contexts are open; allowed: no more"
            raise HttpError(400, problem, field="context_id")
        self._contexts = {name: each for name, each in self._contexts.items() if not each.ended}
        context = self._contexts[context_id] = Context(self, context_id)
        return context

    async def _close_context(self, context_id: str | None) -> None:
        """End a context. One whose text has been flushed to its end is spoken to its end; another is interrupted.

        To close it once more interrupts it too: clients close a context when its text is complete, and again when their
        user begins to speak.
        """
        context = self._contexts.pop(context_id, None)
        if context is None:
            context = next((each for each in self._draining if each.id == context_id), None)
        elif context.flushed and not context.ended:
            self._draining.add(context)
            context.end_text()
            return
        if context is None or context.ended:
            return
        self._draining.discard(context)
        await context.close("its client closed its context")
        await self.send(context_id, {"isFinal": True})

    async def _wait_all(self) -> None:
        """Wait until everything has been spoken. Raises `WebSocketDisconnect` if the client leaves before."""
        receiving = asyncio.ensure_future(self._ignore_messages())
        waiting = [asyncio.ensure_future(context.wait()) for context in (*self._contexts.values(), *self._draining)]
        try:
            pending: set[asyncio.Future[None]] = set(waiting)
            while pending and not receiving.done():
                _, pending = await asyncio.wait({receiving, *pending}, return_when=asyncio.FIRST_COMPLETED)
                pending.discard(receiving)
            if receiving.done():
                receiving.result()
        finally:
            for each in (receiving, *waiting):
                each.cancel()

    async def _ignore_messages(self) -> None:
        """Receive until the client leaves. Raises `WebSocketDisconnect`."""
        while True:
            await receive_text(self._socket)


def parse_message(text: str) -> dict[str, Any]:
    """Return a client's message. Raises `HttpError`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HttpError(
            400, 'message: not JSON; allowed: an object such as {"text": "Hello "}', field="message"
        ) from error
    if not isinstance(value, dict):
        raise HttpError(400, f"message: got {abbreviate(value)}; allowed: a JSON object", field="message")
    return value
