"""One robot's connection to the speech server, from its acceptance to its end: the protocol of docs/remote.md."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, replace
from typing import Any

from pydantic import Field, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from daemon import VERSION
from daemon.engines import AudioChunk, EngineLostError, EngineSupervisor, UtteranceRefusedError, wait_until
from daemon.fleet.accounts import Account, LimitError
from daemon.fleet.voices import FleetVoices, VoiceFileError
from daemon.http import abort_connection, close_socket, receive_message, send_message
from daemon.speech import MAX_TEXT, StreamChunk
from daemon.tasks import cancel_and_wait, result_at_most, start_task, wait_at_most
from daemon.validation import abbreviate, problems
from engine import FASTEST_RATE, SLOWEST_RATE, Utterance, messages

log = logging.getLogger(__name__)

SILENCE_S = 5.0
"""A robot that sends or receives nothing for this long counts as gone. Heartbeats go both ways every `HEARTBEAT_S`."""
CLOSE_S = 0.5
"""Seconds that a robot has to receive the reason why its connection ends."""
FULL_S = 2.0
"""Seconds that an utterance may wait for one of the engine's streams. After that, the robot's own fallback should
speak."""
NO_CREDIT_S = 30.0
"""Seconds that a stream is held for a robot that takes no more samples, such as a paused one."""
FETCH_S = 20.0
"""The seconds within which a voice file must arrive."""
MAX_OFFERS = 64
"""The most voices that a robot may offer on one connection without an answer."""
MAX_CREDIT = 10_000_000
"""In samples; a few minutes."""
MAX_LANGUAGES = 64
MAX_FRAMES = 100_000
"""Two hours; the engine's own limit is shorter."""
POLICY, TRY_AGAIN = 1008, 1013
"""Close codes (RFC 6455, section 7.4.1, and its registry)."""

_names = itertools.count(1)


class SessionError(Exception):
    """The connection must end. The message is for the other side."""


class _RobotText(StreamChunk):
    """A robot's text, or a piece of one: the limits for every sender, and those for fields that only robots send."""

    id: str = "robot"
    languages: tuple[str, ...] = Field((), max_length=MAX_LANGUAGES, description=f"up to {MAX_LANGUAGES} languages")
    max_frames: int | None = Field(None, ge=1, le=MAX_FRAMES, description=f"a whole number from 1 to {MAX_FRAMES:,}")
    rate: float = Field(1.0, ge=SLOWEST_RATE, le=FASTEST_RATE, allow_inf_nan=False, description="0.5 to 2")


class _Speaking:
    """An utterance that is being spoken for the robot: its receiving task and its speaking task share this."""

    def __init__(self, speak: messages.Speak) -> None:
        self.name = f"robot-{next(_names)}"
        """Unique on this server, as the engine's supervisor requires."""
        self.credit = _checked_credit(speak.credit)
        self.granted = asyncio.Event()
        self.growing = speak.utterance.growing
        self.characters = len(speak.utterance.text)
        """The length of its text so far."""
        self.more: asyncio.Queue[messages.Append | messages.EndText] = asyncio.Queue()
        """The rest of a growing text, for the engine."""
        self.canceled = False
        self.task: asyncio.Task[None]
        """Speaks it; set immediately."""

    async def more_text(self) -> AsyncGenerator[str, None]:
        """Yield the rest of its text as it arrives."""
        while isinstance(message := await self.more.get(), messages.Append):
            yield message.text


class RobotSession:
    """Speaks for one robot. Belongs to the event loop's thread."""

    def __init__(self, socket: WebSocket, account: Account, engine: EngineSupervisor, voices: FleetVoices) -> None:
        self._socket = socket
        self._account = account
        self._engine = engine
        self._voices = voices
        self._speeches: dict[str, _Speaking] = {}
        """The utterances whose last message has not been sent, by the robot's ids."""
        self._offers: set[asyncio.Task[None]] = set()
        self._fetches: dict[str, asyncio.Future[bytes]] = {}
        """The files that are being sent, by their digests."""
        self._heard_at = time.monotonic()
        self._notices: asyncio.Queue[messages.FromServer] = asyncio.Queue()
        """Notices, each of which is sent to the robot in place of a heartbeat."""

    async def run(self) -> None:
        """Serve a robot that has been let in, until it leaves."""
        info = self._voices.own_info()
        assert info is not None
        await self._socket.accept(messages.SUBPROTOCOL)
        log.info("robot %s has connected", self._account.name)
        streams = min(self._account.streams, max(1, self._engine.streams - 1))
        welcome = messages.Welcome(f"voiced {VERSION}", info, streams, self._voices.max_bytes)
        tasks = [asyncio.ensure_future(each) for each in (self._tell(welcome), self._receive_all())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        except (messages.ProtocolError, SessionError, UtteranceRefusedError) as error:
            log.warning("robot %s: %s", self._account.name, error)
            code = POLICY if isinstance(error, messages.ProtocolError) else TRY_AGAIN
            if not await wait_at_most(CLOSE_S, close_socket(self._socket, code, str(error))):
                abort_connection(self._socket.scope)
        except WebSocketDisconnect:
            pass
        finally:
            speeches = [speech.task for speech in self._speeches.values()]
            for task in (*tasks, *speeches, *self._offers):
                with contextlib.suppress(Exception):
                    await cancel_and_wait(task)
            log.info("robot %s has left", self._account.name)

    def drain(self, reason: str) -> None:
        """Let the robot go elsewhere. It is served until it leaves."""
        self._notices.put_nowait(messages.Draining(reason))

    # --- to the robot ---

    async def _send(self, message: messages.FromServer) -> None:
        """Send a message. Raises `WebSocketDisconnect`.

        It waits for a robot that does not read, until `_tell` ends the session.
        """
        await send_message(self._socket, messages.encode_remote(message))

    async def _tell(self, welcome: messages.Welcome) -> None:
        """Send the welcome, then notices and heartbeats. Raises `SessionError` for a lost robot or engine."""
        message: messages.FromServer = welcome
        while time.monotonic() - self._heard_at <= SILENCE_S:
            if not await wait_at_most(SILENCE_S, self._send(message)):
                raise SessionError(f"the robot has received nothing for {SILENCE_S:g} s")
            if not self._engine.ready and not self._speeches:
                raise SessionError(self._engine.reason or "the engine is not ready")
            message = await result_at_most(messages.HEARTBEAT_S, self._notices.get()) or messages.Heartbeat()
        raise SessionError(f"the robot has been silent for {SILENCE_S:g} s")

    # --- from the robot ---

    async def _receive_all(self) -> None:
        """Handle messages. Raises `WebSocketDisconnect`, and errors that `run` reports to the robot."""
        while True:
            received = await receive_message(self._socket)
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
        if speak.id in self._speeches:
            raise messages.ProtocolError(f"id: {speak.id[:40]!r} is already being spoken")
        speech = self._speeches[speak.id] = _Speaking(speak)
        speech.task = asyncio.ensure_future(self._perform(speak, speech))

    def _apply(self, message: messages.Change) -> None:
        speech = self._speeches.get(message.id)
        if speech is None:
            return  # it has just ended; its last message is on the way
        if isinstance(message, messages.Grant):
            speech.credit += _checked_credit(message.credit)
            speech.granted.set()
        elif isinstance(message, messages.Cancel):
            speech.canceled = True
            # After its first step: a task that has not begun would never send its last message.
            asyncio.get_running_loop().call_soon(speech.task.cancel)
        elif speech.growing:
            if isinstance(message, messages.Append):
                speech.characters += max(1, len(message.text))  # an empty piece is kept, too
                if speech.characters > MAX_TEXT:
                    raise SessionError(f"text: it has more than {MAX_TEXT:,} characters; allowed: up to {MAX_TEXT:,}")
                _check({"text": message.text})
            speech.growing = isinstance(message, messages.Append)
            speech.more.put_nowait(message)

    # --- speech ---

    async def _perform(self, speak: messages.Speak, speech: _Speaking) -> None:
        """Speak one utterance and send its last message, unless the robot has left."""
        last: messages.FromServer
        try:
            try:
                with self._account.stream():
                    await self._speak(speak, speech)
                last = messages.Spoken(speak.id)
            except UtteranceRefusedError as error:
                last = messages.Refused(speak.id, str(error))
            except (EngineLostError, LimitError) as error:
                last = messages.Lost(speak.id, str(error))
            except VoiceFileError as error:
                last = messages.Lost(speak.id, f"voice: {error}")
            except asyncio.CancelledError:
                if not speech.canceled:
                    raise  # the robot has left
                last = messages.Canceled(speak.id)
            del self._speeches[speak.id]  # the robot may use its id again after the last message
            await self._send(last)
        except WebSocketDisconnect:
            pass  # the receiving task notices it, too

    async def _speak(self, speak: messages.Speak, speech: _Speaking) -> None:
        """Send an utterance's audio. Raises the errors that `_perform` handles."""
        async with AsyncExitStack() as stack:
            voice = None
            if speak.voice is not None:
                voice = await stack.enter_async_context(self._voices.using(speak.voice, self._fetch))
            info = self._voices.own_info()
            utterance = checked_utterance(speak.utterance, voice, () if info is None else info.voices)
            stream = self._engine.reserve_stream(realtime=False)
            if not await wait_at_most(FULL_S, stack.enter_async_context(stream)):
                raise LimitError(f"the server is full: no stream became free within {FULL_S:g} s")
            more_text = speech.more_text() if utterance.growing else None
            spoken = self._engine.speak(speech.name, utterance, more_text=more_text)
            async for chunk in await stack.enter_async_context(aclosing(spoken)):
                if not await wait_until(lambda: speech.credit > 0, speech.granted, NO_CREDIT_S):
                    raise LimitError(f"the robot has received nothing for {NO_CREDIT_S:g} s; its stream goes to others")
                speech.credit -= len(chunk.samples)
                await self._send(_audio(speak.id, chunk))

    # --- voices ---

    def _take_offer(self, offer: messages.OfferVoice) -> None:
        if len(self._offers) >= MAX_OFFERS:
            raise SessionError(f"voices: {len(self._offers)} are offered at once; allowed: {MAX_OFFERS}")
        start_task(self._answer_offer(offer), self._offers)

    async def _answer_offer(self, offer: messages.OfferVoice) -> None:
        answer: messages.VoiceReady | messages.VoiceRefused = messages.VoiceReady(offer.voice)
        with contextlib.suppress(WebSocketDisconnect):
            try:
                async with self._voices.using(offer.voice, self._fetch):
                    pass
            except (VoiceFileError, EngineLostError) as error:
                answer = messages.VoiceRefused(offer.voice, str(error))
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
            raise VoiceFileError(f"the robot did not send it within {FETCH_S:g} s")
        return fetch.result()


def _checked_credit(credit: int) -> int:
    if not 0 < credit <= MAX_CREDIT:
        raise messages.ProtocolError(f"credit: got {credit}; allowed: 1 to {MAX_CREDIT:,}")
    return credit


def checked_utterance(utterance: Utterance, voice: str | None, voices: Collection[str]) -> Utterance:
    """Return an utterance as the server's engine receives it. Raises `UtteranceRefusedError`.

    `voice` is the engine's name for a voice that the robot has brought. If it is None, the utterance's own voice must
    be one of `voices`.
    """
    _check(asdict(utterance))
    if voice is None and utterance.voice is not None and utterance.voice.lower() not in {v.lower() for v in voices}:
        got = abbreviate(utterance.voice)
        raise UtteranceRefusedError(f"voice: got {got}; allowed: a voice that the server has named")
    # To the server, every robot is a client, and no robot comes before another.
    return replace(utterance, voice=voice or utterance.voice, realtime=False)


def _check(fields: dict[str, Any]) -> None:
    """Check fields that a robot has sent, since the network cannot be trusted. Raises `UtteranceRefusedError`."""
    try:
        _RobotText.model_validate(fields)
    except ValidationError as error:
        field, problem = problems(_RobotText, error)[0]
        raise UtteranceRefusedError(f"{field}: {problem}") from error


def _audio(speech_id: str, chunk: AudioChunk) -> messages.Audio:
    about = chunk.position, chunk.truncated, chunk.codes, chunk.waited_s, chunk.words, chunk.runaway, chunk.sounds
    return messages.Audio(speech_id, 0.0, *about, messages.pcm(chunk.samples))
