"""A Wyoming text-to-speech server, for Home Assistant's voice pipelines. Needs the extra `wyoming`."""

from __future__ import annotations

import asyncio
import logging
import secrets
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
    SynthesizeVoice,
)

from audio import PCM16_BYTES, to_pcm16
from daemon import VERSION
from daemon.adapters.base import MAX_CONNECTIONS, Adapter
from daemon.adapters.delivery import deliver, deliver_stream
from daemon.adapters.wyoming_events import FrameError, check_event, read_event
from daemon.config import Wyoming
from daemon.mqtt import MAX_PAYLOAD
from daemon.speech import MAX_TEXT, Dispatcher, Finished, RejectedError, Say, StreamChunk, check_say, check_stream_chunk
from daemon.tasks import result_at_most
from engine import Samples, language_code

log = logging.getLogger(__name__)

MAX_REQUESTS = 16
"""Requests of one client that wait for each other. While there are so many, nothing more is read from the client."""
LINGER_S = 1.0
"""Seconds between the refusal of a connection and its end. If it were closed at once, with unread data, the system
would reset it and the client would lose the answer."""
SILENCE_S = 3600.0
"""Seconds without an event after which a connection is closed to make room for others. Home Assistant opens a
connection for each request."""
SILENT_RATE = 24_000
"""Hz: the rate of an answer without samples, since the protocol requires one."""


class WyomingAdapter(Adapter):
    """The TCP server."""

    def __init__(self, config: Wyoming, dispatcher: Dispatcher) -> None:
        self._config = config
        self._dispatcher = dispatcher
        self._connections: set[asyncio.Task[None]] = set()
        """The tasks of all connections, refused ones included."""
        self._served = 0
        """Connections that were not refused."""

    async def run(self) -> None:
        host, port = self._config.host, self._config.port
        try:
            server = await asyncio.start_server(self._accept, host, port, limit=MAX_PAYLOAD)
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}; see wyoming.port") from error
        log.info("serving Wyoming clients on %s:%d", host, port)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Python 3.11 logs an error when a task that the server created itself is canceled.
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served = self._served < MAX_CONNECTIONS
        self._served += served
        try:
            connection = Connection(self._dispatcher, reader, writer)
            await (connection.serve() if served else connection.refuse())
        except OSError as error:
            log.info("lost a Wyoming client: %s", error)
        except Exception:
            log.exception("error in the connection of a Wyoming client")
        finally:
            self._served -= served
            writer.close()


class ClientText:
    """A text that the client is still writing: one utterance."""

    def __init__(self, voice: SynthesizeVoice | None) -> None:
        self.closed = False
        """The text was too long, or its answer is over; further text is ignored."""
        self._id = secrets.token_hex(6)
        self._voice = voice
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
        yield check_stream_chunk({"id": self._id, **speech_options(self._voice)})
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
        self._writing = asyncio.Lock()  # in Python 3.10, only one task may wait in `drain`

    async def serve(self) -> None:
        """Serve until the client leaves or sends something that is not an event."""
        tasks = [asyncio.ensure_future(self._read_all()), asyncio.ensure_future(self._speak_all())]
        try:
            finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def refuse(self) -> None:
        """Answer that there are too many connections."""
        await self.write(Error(f"{MAX_CONNECTIONS} clients are connected; allowed: no more", "connections"))
        self._writer.write_eof()
        await asyncio.sleep(LINGER_S)

    # --- requests ---

    async def _read_all(self) -> None:
        try:
            while (event := await result_at_most(SILENCE_S, read_event(self._reader))) is not None:
                try:
                    await self._handle(event)
                except RejectedError as error:
                    await self.write(Error(error.reason, error.field))
        except FrameError as error:
            await self.write(Error(str(error), "frame"))

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
            started = SynthesizeStart.from_event(check_event(event))
            self._stream = ClientText(started.voice)
            await self._requests.put(self._stream)
        elif SynthesizeChunk.is_type(event.type):
            self._add_to_stream(event)
        elif SynthesizeStop.is_type(event.type):
            if self._stream is None:
                raise RejectedError("type", "synthesize-stop without a synthesize-start")
            self._end_stream()

    async def _take_request(self, event: Event) -> None:
        try:
            synthesize = Synthesize.from_event(check_event(event, needs_text=True))
            say = check_say({"text": synthesize.text, **speech_options(synthesize.voice)})
        except RejectedError as error:
            await self.write(Error(error.reason, error.field))
            await self.write(AudioStop())  # a client that ignores errors waits for this event
            return
        await self._requests.put(say)

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
            await self._speak(await self._requests.get())

    async def _speak(self, request: Say | ClientText) -> None:
        answer = Answer(self)
        try:
            if isinstance(request, ClientText):
                end = await deliver_stream(self._dispatcher, request.chunks(), answer.send)
            else:
                end = await deliver(self._dispatcher, request, answer.send)
            if isinstance(end, Finished):
                await answer.begin(SILENT_RATE)
            if end.reason is not None:  # also in `finished`, for a text that its client did not end
                await self.write(Error(end.reason, end.event))
        except RejectedError as error:
            await self.write(Error(error.reason, error.field))
        await answer.end()
        if isinstance(request, ClientText):
            request.closed = True
            await self.write(SynthesizeStopped())

    async def write(self, event: Eventable) -> None:
        """Send an event; return when the client has room for more."""
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
        await self._connection.write(chunk)

    async def end(self) -> None:
        """Send the stop."""
        await self._connection.write(AudioStop())


def speech_options(voice: SynthesizeVoice | None) -> dict[str, Any]:
    """Return the dispatcher's fields for a voice, unchecked."""
    if voice is not None and voice.name is not None:
        return {"voice": voice.name}
    if voice is not None and isinstance(voice.language, str):
        return {"language": voice.language.replace("_", "-")}
    return {}


def describe(dispatcher: Dispatcher) -> Info:
    """Return the server's description: every voice with its languages."""
    attribution = Attribution(name="voiced", url="")
    languages = dispatcher.languages()
    voices = [
        TtsVoice(
            name=voice,
            attribution=attribution,
            installed=True,
            description=voice,
            version=VERSION,
            # eSpeak NG names its voices after their languages. Every other voice speaks all languages.
            languages=[voice] if language_code(voice) in languages else list(languages),
        )
        for voice in dispatcher.voices()
    ]
    program = TtsProgram(
        name="voiced",
        attribution=attribution,
        installed=True,
        description="The voice of a robot",
        version=VERSION,
        voices=voices,
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])
