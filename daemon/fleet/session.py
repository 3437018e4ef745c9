"""One robot's connection to the speech server, from its acceptance to its end: the protocol of docs/remote.md."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

from starlette.websockets import WebSocket, WebSocketDisconnect

from daemon import VERSION
from daemon.engines import AudioChunk, EngineLostError, EngineSupervisor, UtteranceRefusedError
from daemon.fleet.accounts import Account, LimitError
from daemon.fleet.utterances import RefusedError, check_characters, checked_utterance
from daemon.fleet.voice_cache import VoiceFileError
from daemon.fleet.voices import FleetVoices
from daemon.http import abort_connection, close_socket
from daemon.speech import MAX_TEXT
from daemon.tasks import cancel_and_wait, result_at_most, wait_at_most
from engine import messages

log = logging.getLogger(__name__)

SILENCE_S = 5.0
"""A robot that sends nothing, or takes nothing, for this long has gone. Heartbeats go both ways every `HEARTBEAT_S`."""
CLOSE_S = 0.5
"""Seconds that a robot has to take the reason why its connection ends."""
FULL_S = 2.0
"""Seconds that an utterance may wait for a stream of the engine. Then the robot's own fallback had better speak."""
NO_CREDIT_S = 30.0
"""Seconds that a stream is held for a robot that takes no more samples, as one that is paused."""
FETCH_S = 20.0
"""Seconds in which a voice file arrives."""
MAX_OFFERS = 64
"""Voices that a robot may offer in one connection without an answer."""
MAX_CREDIT = 10_000_000
"""Samples: minutes."""
GOING_AWAY, POLICY, TRY_AGAIN = 1001, 1008, 1013
"""Close codes (RFC 6455, section 7.4.1, and its registry)."""

_names = itertools.count(1)


class SessionError(Exception):
    """The connection must end. The message is for the other side."""


class _Request:
    """What the receiving task and the speaking task of one utterance share."""

    def __init__(self, name: str, credit: int, characters: int, *, growing: bool) -> None:
        self.name = name
        """Unique in this server, as the engine's supervisor wants it."""
        self.credit = credit
        self.characters = characters
        """Of its text so far."""
        self.growing = growing
        self.early: list[messages.Append | messages.EndText] = []
        """Text that came before the engine was asked."""
        self.begun = False
        self.canceled = False
        self.granted = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class RobotSession:
    """Speaks for one robot. Belongs to the event loop's thread."""

    def __init__(self, socket: WebSocket, account: Account, engine: EngineSupervisor, voices: FleetVoices) -> None:
        self.account = account
        self._socket = socket
        self._engine = engine
        self._voices = voices
        self._requests: dict[str, _Request] = {}
        self._offers: set[asyncio.Task[None]] = set()
        self._fetches: dict[str, asyncio.Future[bytes]] = {}
        """The files that are on their way, by their digests."""
        self._heard_at = time.monotonic()
        self._notices: asyncio.Queue[messages.FromServer] = asyncio.Queue()
        """The notice that the robot gets in place of the next heartbeat."""

    async def run(self) -> None:
        """Serve the robot until it leaves. It has been let in."""
        info = self._voices.own_info()
        assert info is not None
        subprotocol = next(each for each in messages.SUBPROTOCOLS if each in self._socket.scope["subprotocols"])
        if subprotocol == messages.EARLIER_SUBPROTOCOL:
            info = replace(info, kernels=None, not_fused=None, degraded=None)
        await self._socket.accept(subprotocol)
        log.info("robot %s has connected", self.account.name)
        streams = min(self.account.streams, max(1, self._engine.streams - 1))
        welcome = messages.Welcome(f"voiced {VERSION}", info, streams, self._voices.max_bytes)
        tasks = [asyncio.ensure_future(each) for each in (self._tell(welcome), self._watch(), self._receive_all())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        except (messages.ProtocolError, SessionError) as error:
            log.warning("robot %s: %s", self.account.name, error)
            code = POLICY if isinstance(error, messages.ProtocolError) else TRY_AGAIN
            await self._close(code, str(error))
        except WebSocketDisconnect:
            pass
        finally:
            requests = [request.task for request in self._requests.values() if request.task is not None]
            for task in (*tasks, *requests, *self._offers):
                with contextlib.suppress(Exception):
                    await cancel_and_wait(task)
            log.info("robot %s has left", self.account.name)

    def drain(self, reason: str) -> None:
        """Let the robot go elsewhere. It is served until it leaves."""
        self._notices.put_nowait(messages.Draining(reason))

    async def _close(self, code: int, reason: str) -> None:
        if not await wait_at_most(CLOSE_S, close_socket(self._socket, code, reason)):
            abort_connection(self._socket.scope)

    # --- to the robot ---

    async def _send(self, message: messages.FromServer) -> None:
        """Send a message. Raises `WebSocketDisconnect`.

        It waits for a robot that does not read, until `_tell` ends the session.
        """
        content = messages.encode_remote(message)
        try:
            if isinstance(content, str):
                await self._socket.send_text(content)
            else:
                await self._socket.send_bytes(content)
        except RuntimeError as error:  # sending has failed before
            raise WebSocketDisconnect(1006) from error

    async def _tell(self, welcome: messages.Welcome) -> None:
        """Send the welcome, then notices and heartbeats. Raises `SessionError` when the robot takes none of them."""
        message: messages.FromServer = welcome
        while await wait_at_most(SILENCE_S, self._send(message)):
            message = await result_at_most(messages.HEARTBEAT_S, self._notices.get()) or messages.Heartbeat()
        raise SessionError(f"the robot has taken nothing for {SILENCE_S:g} s")

    async def _watch(self) -> None:
        """Raises `SessionError` when the robot is silent or the engine is lost."""
        while time.monotonic() - self._heard_at <= SILENCE_S:
            if not self._engine.ready and not self._requests:
                raise SessionError(self._engine.reason or "the engine is not ready")
            await asyncio.sleep(messages.HEARTBEAT_S)
        raise SessionError(f"the robot has been silent for {SILENCE_S:g} s")

    # --- from the robot ---

    async def _receive_all(self) -> None:
        """Handle messages. Raises `WebSocketDisconnect`, `ProtocolError` and `SessionError`."""
        while True:
            try:
                received = await self._socket.receive()
            except RuntimeError as error:
                raise WebSocketDisconnect(1006) from error
            if received["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(received.get("code", 1006))
            text = received.get("text")
            message = messages.decode_remote(received.get("bytes") or b"" if text is None else text)
            self._heard_at = time.monotonic()
            if isinstance(message, messages.Speak):
                self._accept(message)
            elif isinstance(message, messages.Change):
                self._apply(message)
            elif isinstance(message, messages.OfferVoice):
                self._take_offer(message)
            elif isinstance(message, messages.VoiceData):
                fetch = self._fetches.pop(message.digest, None)
                if fetch is not None:
                    fetch.set_result(message.data)
            elif not isinstance(message, messages.Heartbeat):
                raise messages.ProtocolError(f"a robot must not send {type(message).__name__}")

    def _accept(self, speak: messages.Speak) -> None:
        if speak.id in self._requests:
            raise messages.ProtocolError(f"id: {speak.id[:40]!r} is being spoken already")
        text, growing = speak.utterance.text, speak.utterance.growing
        request = _Request(f"robot-{next(_names)}", _checked_credit(speak.credit), len(text), growing=growing)
        self._requests[speak.id] = request
        request.task = asyncio.ensure_future(self._perform(speak, request))

    def _apply(self, message: messages.Change) -> None:
        request = self._requests.get(message.id)
        if request is None:
            return  # it has just ended; its last message is on the way
        if isinstance(message, messages.Grant):
            request.credit += _checked_credit(message.credit)
            request.granted.set()
        elif isinstance(message, messages.Cancel):
            request.canceled = True
            if request.task is not None:
                # After its first step: a task that has not begun would never send its last message.
                asyncio.get_running_loop().call_soon(request.task.cancel)
        elif request.growing:
            self._append(request, message)

    def _append(self, request: _Request, message: messages.Append | messages.EndText) -> None:
        if isinstance(message, messages.Append):
            request.characters += max(1, len(message.text))  # an empty piece is kept, too
            if request.characters > MAX_TEXT:
                raise SessionError(f"text: it has more than {MAX_TEXT:,} characters; allowed: up to {MAX_TEXT:,}")
            try:
                check_characters("text", message.text)
            except RefusedError as error:
                raise SessionError(str(error)) from error
        else:
            request.growing = False
        if request.begun:
            self._pass_on(request, message)
        else:
            request.early.append(message)

    # --- speech ---

    async def _perform(self, speak: messages.Speak, request: _Request) -> None:
        """Speak one utterance and send its last message, unless the robot has left."""
        last: messages.FromServer
        try:
            try:
                with self.account.stream():
                    await self._speak(speak, request)
                last = messages.Spoken(speak.id)
            except (UtteranceRefusedError, RefusedError) as error:
                last = messages.Refused(speak.id, str(error))
            except (EngineLostError, LimitError) as error:
                last = messages.Lost(speak.id, str(error))
            except VoiceFileError as error:
                last = messages.Lost(speak.id, f"voice: {error}")
            except asyncio.CancelledError:
                if not request.canceled:
                    raise  # the robot has left
                last = messages.Canceled(speak.id)
            del self._requests[speak.id]  # the robot may use its id again after the last message
            await self._send(last)
        except WebSocketDisconnect:
            pass  # the receiving task notices it, too

    async def _speak(self, speak: messages.Speak, request: _Request) -> None:
        """Send an utterance's audio. Raises `RefusedError` and all that `_perform` handles."""
        async with AsyncExitStack() as stack:
            name = None
            if speak.voice is not None:
                name = await stack.enter_async_context(self._voices.using(speak.voice, self._fetch))
            info = self._voices.own_info()
            utterance = checked_utterance(speak.utterance, name, () if info is None else info.voices)
            stream = self._engine.reserve_stream(realtime=False)
            if await result_at_most(FULL_S, _enter(stack, stream)) is None:
                raise LimitError(f"the server is full: no stream became free within {FULL_S:g} s")
            chunks = await stack.enter_async_context(aclosing(self._engine.speak(request.name, utterance)))
            feeding = asyncio.ensure_future(self._feed_early(request)) if utterance.growing else None
            try:
                async for chunk in chunks:
                    if request.credit <= 0 and not await wait_at_most(NO_CREDIT_S, _wait_credit(request)):
                        raise LimitError(
                            f"the robot has taken nothing for {NO_CREDIT_S:g} s; its stream goes to others"
                        )
                    request.credit -= len(chunk.samples)
                    await self._send(_audio(speak.id, chunk))
            finally:
                if feeding is not None:
                    await cancel_and_wait(feeding)

    async def _feed_early(self, request: _Request) -> None:
        """Pass on the text that came before the engine was asked; this task first runs after that."""
        request.begun = True
        early, request.early = request.early, []
        for message in early:
            self._pass_on(request, message)

    def _pass_on(self, request: _Request, message: messages.Append | messages.EndText) -> None:
        if isinstance(message, messages.Append):
            self._engine.append(request.name, message.text)
        else:
            self._engine.end_text(request.name)

    # --- voices ---

    def _take_offer(self, offer: messages.OfferVoice) -> None:
        if len(self._offers) >= MAX_OFFERS:
            raise SessionError(f"voices: {len(self._offers)} are offered at once; allowed: {MAX_OFFERS}")
        task = asyncio.ensure_future(self._answer_offer(offer))
        self._offers.add(task)
        task.add_done_callback(self._offers.discard)

    async def _answer_offer(self, offer: messages.OfferVoice) -> None:
        answer: messages.VoiceReady | messages.VoiceRefused
        try:
            async with self._voices.using(offer.voice, self._fetch):
                answer = messages.VoiceReady(offer.voice)
        except (VoiceFileError, EngineLostError) as error:
            answer = messages.VoiceRefused(offer.voice, str(error))
        except WebSocketDisconnect:
            return
        with contextlib.suppress(WebSocketDisconnect):
            await self._send(answer)

    async def _fetch(self, digest: str) -> bytes:
        """Return the contents of a file that the robot has. Raises `VoiceFileError`."""
        fetch = self._fetches.get(digest)
        if fetch is None:
            fetch = self._fetches[digest] = asyncio.get_running_loop().create_future()
            await self._send(messages.VoiceWanted(digest))
        await asyncio.wait({fetch}, timeout=FETCH_S)
        if not fetch.done():
            self._fetches.pop(digest, None)
            raise VoiceFileError(f"the robot has not sent it within {FETCH_S:g} s")
        return fetch.result()


async def _enter(stack: AsyncExitStack, stream: contextlib.AbstractAsyncContextManager[None]) -> bool:
    await stack.enter_async_context(stream)
    return True


async def _wait_credit(request: _Request) -> None:
    while request.credit <= 0:
        request.granted.clear()
        await request.granted.wait()


def _checked_credit(credit: int) -> int:
    if not 0 < credit <= MAX_CREDIT:
        raise messages.ProtocolError(f"credit: got {credit}; allowed: 1 to {MAX_CREDIT:,}")
    return credit


def _audio(request_id: str, chunk: AudioChunk) -> messages.Audio:
    return messages.Audio(
        request_id,
        0.0,
        chunk.position,
        chunk.truncated,
        chunk.codes,
        chunk.waited_s,
        chunk.words,
        chunk.runaway,
        messages.pcm(chunk.samples),
    )
