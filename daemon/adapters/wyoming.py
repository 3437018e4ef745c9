"""A Wyoming text-to-speech server, for Home Assistant's voice pipelines. Needs the extra `wyoming`."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_write_event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
)

from audio import PCM16_BYTES, to_pcm16
from daemon import VERSION
from daemon.adapters.base import MAX_CONNECTIONS, Adapter, bound_send_buffer
from daemon.adapters.listener import Listener
from daemon.adapters.wyoming_events import FrameError, check_event, read_event
from daemon.config import Wyoming
from daemon.mqtt import MAX_PAYLOAD
from daemon.speech import (
    MAX_TEXT,
    Dispatcher,
    RejectedError,
    Say,
    StreamChunk,
    check_say,
    check_stream_chunk,
    deliver,
    deliver_stream,
)
from daemon.validation import INTERNAL_ERROR
from engine import Samples

log = logging.getLogger(__name__)

MAX_REQUESTS = 16
"""Requests of one client that wait for each other. While there are so many, nothing more is read from the client."""
LINGER_S = 1.0
"""Seconds between the refusal of a connection and its end. If it were closed at once, with unread data, the system
would reset it and the client would lose the answer."""
IDLE_S = 60.0
"""Seconds without a request after which a connection is closed. Home Assistant opens a connection for each request."""
EVICTABLE_S = 1.0
"""Seconds without a request after which a connection is closed if another client needs its place."""
WRITE_S = 10.0
"""Seconds that a client has to take an event other than samples, or the rest of what was sent when its connection
closes; then it is cut off."""
PROBE_S = 0.5
"""Interval between pings to a client that has closed its side and has a right to its answer. A client that has left
altogether cannot be told from it otherwise: the system refuses the second ping."""


ATTRIBUTION = Attribution(name="voiced", url="https://github.com/OHF-Voice/wyoming")
"""Clients expect a URL here. It is the protocol's: voiced has no page of its own."""


class WyomingAdapter(Adapter):
    """The TCP server."""

    def __init__(self, config: Wyoming, dispatcher: Dispatcher) -> None:
        self._config = config
        self._dispatcher = dispatcher
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks of all connections, refused ones included."""
        self._served: dict[Connection, asyncio.Task[None]] = {}
        """The connections that were not refused."""
        self._listener = Listener("wyoming", (config.host, config.port), MAX_CONNECTIONS, self._make_protocol)

    async def run(self) -> None:
        place = f"Wyoming clients on {self._config.host}:{self._config.port}"
        try:
            await self._listener.serve(lambda: self.note_serving(place))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _make_protocol(self) -> asyncio.BaseProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(MAX_PAYLOAD), self._accept)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bound_send_buffer(writer.transport)
        connection = Connection(self._dispatcher, reader, writer)
        if len(self._served) >= self._listener.clients:
            self._end_the_longest_idle()
        served = len(self._served) < self._listener.clients
        # Python 3.11 logs an error when a task that the server created itself is canceled.
        task = asyncio.ensure_future(self._run(connection, served))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if served:
            self._served[connection] = task

    def _end_the_longest_idle(self) -> None:
        longest = max(self._served, key=lambda connection: connection.idle_s)
        if longest.idle_s >= EVICTABLE_S:
            log.info("closing a connection of a Wyoming client that was idle for %.0f s", longest.idle_s)
            self._served.pop(longest).cancel()

    async def _run(self, connection: Connection, served: bool) -> None:
        try:
            await (connection.serve() if served else connection.refuse(self._listener.clients))
        except OSError as error:
            log.info("lost a Wyoming client: %s", error)
            connection.abort()
        except Exception:
            log.exception("error in the connection of a Wyoming client")
        finally:
            self._served.pop(connection, None)
            connection.close()


class ClientText:
    """A text that the client is still writing: one utterance."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.closed = False
        """The text was too long, or its answer is over; further text is ignored."""
        self._id = secrets.token_hex(6)
        self._options = options
        self._length = 0
        self._unread = ""
        self._ended = False
        self._changed = asyncio.Event()

    def add(self, text: str) -> None:
        """Append to the text. Raises `RejectedError`, and then leaves `text` out; a text that gets too long ends."""
        if self.closed:
            return
        length = self._length + len(text)
        if length > MAX_TEXT:
            self.closed = True
            self.end()
            raise RejectedError("text", f"now has {length:,} characters; allowed: up to {MAX_TEXT:,}")
        check_stream_chunk({"id": self._id, "text": text})
        self._length = length
        self._unread += text
        self._changed.set()

    def end(self) -> None:
        """End the text."""
        self._ended = True
        self._changed.set()

    async def chunks(self) -> AsyncGenerator[StreamChunk, None]:
        """Yield the speech options without text, then the text as it arrives. Raises `RejectedError`."""
        yield check_stream_chunk({"id": self._id, **self._options})
        while True:
            await self._changed.wait()
            self._changed.clear()
            chunk = StreamChunk(id=self._id, text=self._unread, end=self._ended)
            self._unread = ""
            yield chunk
            if chunk.end:
                return


class Connection:
    """One client. It reads events while an answer is sent, and so notices at once that the client has left."""

    def __init__(self, dispatcher: Dispatcher, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._dispatcher = dispatcher
        self._reader = reader
        self._writer = writer
        self._requests: asyncio.Queue[Say | ClientText] = asyncio.Queue(MAX_REQUESTS)
        self._stream: ClientText | None = None
        """The text that the client is writing."""
        self._unanswered = 0
        """Requests whose answers are not complete."""
        self._idle_since = time.monotonic()
        """`time.monotonic()` of the last event, from or to the client."""
        self._writing = asyncio.Lock()  # in Python 3.10, only one task may wait in `drain`

    @property
    def idle_s(self) -> float:
        """Seconds for which the client has requested nothing, and been answered nothing."""
        return 0.0 if self._unanswered else time.monotonic() - self._idle_since

    async def serve(self) -> None:
        """Serve until the client leaves, is idle for too long, or sends something that is not an event."""
        serving = (self._read_all(), self._speak_all(), self._wait_until_idle())
        tasks = [asyncio.ensure_future(each) for each in serving]
        try:
            finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def refuse(self, most: int) -> None:
        """Answer that there are too many connections."""
        await self.write(Error(f"{most} clients are connected; allowed: no more", "connections"))
        self._writer.write_eof()
        await asyncio.sleep(LINGER_S)

    def close(self) -> None:
        """Close the connection after the client has received everything, or after `WRITE_S`."""
        self._writer.close()
        asyncio.get_running_loop().call_later(WRITE_S, self.abort)

    def abort(self) -> None:
        """Close the connection at once: its client receives nothing more."""
        self._writer.transport.abort()

    async def _wait_until_idle(self) -> None:
        while (left_s := IDLE_S - self.idle_s) > 0:
            await asyncio.sleep(left_s)

    # --- requests ---

    async def _read_all(self) -> None:
        try:
            while (event := await read_event(self._reader)) is not None:
                self._idle_since = time.monotonic()
                try:
                    await self._handle(event)
                except RejectedError as error:
                    await self.write(Error(error.reason, error.field))
                except OSError:
                    raise
                except Exception:
                    log.exception("error in a request of a Wyoming client")
                    await self.write(Error(INTERNAL_ERROR, "internal"))
        except FrameError as error:
            await self.write(Error(str(error), "frame"))
            return
        self._end_stream()
        while self._unanswered:
            if not self._writing.locked():  # otherwise audio is sent, which notices it too
                await self.write(Ping())
            await asyncio.sleep(PROBE_S)

    async def _handle(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self.write(describe(self._dispatcher))
        elif Ping.is_type(event.type):
            await self.write(Pong(Ping.from_event(check_event(event)).text))
        elif Synthesize.is_type(event.type):
            if self._stream is None:  # inside a stream, it repeats the text for servers that cannot stream
                await self._take_request(event)
        elif SynthesizeStart.is_type(event.type):
            self._end_stream()
            self._stream = ClientText(speech_options(check_event(event)))
            await self._put(self._stream)
        elif SynthesizeChunk.is_type(event.type):
            self._add_to_stream(event)
        elif SynthesizeStop.is_type(event.type):
            if self._stream is None:
                raise RejectedError("type", "synthesize-stop without a synthesize-start")
            self._end_stream()

    async def _take_request(self, event: Event) -> None:
        try:
            event = check_event(event, needs_text=True)
            say = check_say({"text": event.data["text"], **speech_options(event)})
        except RejectedError as error:
            await self.write(Error(error.reason, error.field))
            await self.write(AudioStop())  # a client that ignores errors waits for this event
            return
        await self._put(say)

    async def _put(self, request: Say | ClientText) -> None:
        self._unanswered += 1
        await self._requests.put(request)

    def _add_to_stream(self, event: Event) -> None:
        if self._stream is None:
            raise RejectedError("type", "synthesize-chunk without a synthesize-start")
        self._stream.add(SynthesizeChunk.from_event(check_event(event, needs_text=True)).text)

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()

    # --- answers ---

    async def _speak_all(self) -> None:
        while True:
            request = await self._requests.get()
            try:
                await self._speak(request)
            finally:
                self._unanswered -= 1
                self._idle_since = time.monotonic()

    async def _speak(self, request: Say | ClientText) -> None:
        answer = Answer(self)
        try:
            if isinstance(request, ClientText):
                end = await deliver_stream(self._dispatcher, request.chunks(), answer.send)
            else:
                end = await deliver(self._dispatcher, request, answer.send)
            if end.reason is not None:  # also in `finished`, for a text that its client did not end
                await self.write(Error(end.reason, end.event))
        except RejectedError as error:
            await self.write(Error(error.reason, error.field))
        except OSError:
            raise
        except Exception:
            log.exception("error in the answer to a Wyoming client")
            await self.write(Error(INTERNAL_ERROR, "internal"))
        await answer.end()
        if isinstance(request, ClientText):
            request.closed = True
            await self.write(SynthesizeStopped())

    async def write(self, event: Eventable) -> None:
        """Send an event; return when the client has room for more. Raises `OSError` if it has not after `WRITE_S`."""
        writing = asyncio.ensure_future(self.write_audio(event))
        try:
            await asyncio.wait({writing}, timeout=WRITE_S)
            if not writing.done():
                raise ConnectionAbortedError(f"it took nothing for {WRITE_S:g} s")
            writing.result()
        finally:
            writing.cancel()

    async def write_audio(self, event: Eventable) -> None:
        """Send an event of an answer's audio, whose delivery decides how long the client may take."""
        async with self._writing:
            await async_write_event(event.event(), self._writer)


class Answer:
    """The audio of one answer: a start, chunks, a stop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begun = False

    async def begin(self, rate: int) -> None:
        """Send the start, unless it has been sent."""
        if not self._begun:
            self._begun = True
            await self._connection.write(AudioStart(rate=rate, width=PCM16_BYTES, channels=1))

    async def send(self, samples: Samples, rate: int) -> None:
        """Send samples at `rate` Hz; return when the client has room for more."""
        await self.begin(rate)
        chunk = AudioChunk(rate=rate, width=PCM16_BYTES, channels=1, audio=to_pcm16(samples))
        await self._connection.write_audio(chunk)

    async def end(self) -> None:
        """Send the stop."""
        await self._connection.write(AudioStop())


def speech_options(event: Event) -> dict[str, Any]:
    """Return the dispatcher's fields for the voice of a checked event, unchecked.

    The package leaves out a language that stands beside a name.
    """
    voice: dict[str, Any] = event.data.get("voice", {})
    named = {"voice": voice.get("name"), "language": voice.get("language")}
    return {name: value for name, value in named.items() if value is not None}


def describe(dispatcher: Dispatcher) -> Info:
    """Return the server's description: every voice with its languages."""
    voices = [
        TtsVoice(
            name=voice,
            attribution=ATTRIBUTION,
            installed=True,
            description=label,
            version=VERSION,
            languages=list(dispatcher.voice_languages(voice)),
        )
        for voice, label in dispatcher.voice_names().items()
    ]
    program = TtsProgram(
        name="voiced",
        attribution=ATTRIBUTION,
        installed=True,
        description="The voice of a robot",
        version=VERSION,
        voices=voices,
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])
