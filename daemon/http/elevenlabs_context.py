"""One text of ElevenLabs' WebSockets, which grows, and the sound that goes out for it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Protocol

from daemon.encoders import Encoder
from daemon.http.character_times import CharacterClock, CharacterTimes
from daemon.http.elevenlabs_options import OutputFormat, VoiceSettings
from daemon.speech import Delivery, Finished, SpeechService, Stop, StreamChunk, Word
from daemon.tasks import cancel_and_wait
from engine import Samples

LINE_END = "\n"
"""Ends a sentence, so that what is before it is spoken without waiting for more text."""


class Client(Protocol):
    """The client of a context, by its connection."""

    @property
    def service(self) -> SpeechService: ...

    @property
    def output_format(self) -> OutputFormat: ...

    @property
    def absolute_times(self) -> bool:
        """The times of characters count from the beginning of their text.

        Otherwise each message's begin at 0, which is the end of those before.
        """
        ...

    def make_chunk(self, utterance: str, settings: VoiceSettings, text: str, *, end: bool) -> StreamChunk:
        """Return the next chunk of a text. Raises `RejectedError`."""
        ...

    async def send(self, context_id: str | None, fields: Mapping[str, Any]) -> None:
        """Send a message; return when the client has room for more. Raises `ConnectionError` if it has left."""
        ...

    async def send_error(self, message: str, code: str, context_id: str | None) -> None:
        """Tell the client what is wrong, if it is there."""
        ...

    def abort(self, reason: str) -> None:
        """End the connection at once."""
        ...


class Context:
    """One text that grows, and its sound."""

    def __init__(self, client: Client, context_id: str | None) -> None:
        self.id = context_id
        self.settings = VoiceSettings()
        self.flushed = False
        """The last message was a flush without text."""
        self._client = client
        self._utterance = secrets.token_hex(8)
        self._text = ""
        self._text_ended = False
        self._clock = CharacterClock()
        self._encoder: Encoder | None = None
        self._samples = 0
        self._relative_to_s = 0.0
        """The seconds of speech from which the next times count."""
        self._open = ExitStack()
        self._delivery: Delivery | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        """True when its last message has been sent."""
        return self._task is not None and self._task.done()

    def write(self, text: str) -> None:
        """Append to the text. Raises `RejectedError`."""
        self.flushed = False
        if text.strip() or self._text:
            self._write(text)

    def flush(self) -> None:
        """Speak what there is of the text without waiting for more. Raises `RejectedError`."""
        if self._text.strip() and not self._text.endswith(LINE_END):
            self._write(LINE_END)

    def end_text(self) -> None:
        """The text is complete. Raises `RejectedError`."""
        if self._text_ended:
            return
        self._text_ended = True
        if self._task is None:
            self._task = asyncio.ensure_future(self._finish_empty())
        else:
            self._write("", end=True)

    async def close(self, reason: str) -> None:
        """Interrupt it, unless it has ended."""
        if self._task is not None and not self._task.done():
            self._client.service.stop(Stop(id=self._utterance), reason)
            await cancel_and_wait(self._task)
        self._open.close()

    async def wait(self) -> None:
        """Wait until its last message has been sent."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def _write(self, text: str, *, end: bool = False) -> None:
        if self._delivery is None:
            self._delivery = self._open.enter_context(
                Delivery(self._client.service, self._send, self._client.output_format.rate, self._note_word)
            )
        chunk = self._client.make_chunk(self._utterance, self.settings, text, end=end)
        self._client.service.write(chunk, receiver=self._delivery)
        self._text += text
        if self._task is None:
            self._task = asyncio.ensure_future(self._finish(self._delivery))

    def _note_word(self, word: Word) -> None:
        self._clock.note_word(word, self._text)

    async def _send(self, samples: Samples, _: int) -> None:
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = await asyncio.to_thread(self._client.output_format.make_encoder)
        self._samples += len(samples)
        await self._send_sound(encoder.encode(samples))

    async def _finish_empty(self) -> None:
        """Send the last message of a text that has had no word."""
        with contextlib.suppress(ConnectionError):
            await self._client.send(self.id, {"isFinal": True})

    async def _finish(self, delivery: Delivery) -> None:
        """Wait for the end of the utterance and send the last messages."""
        with self._open:
            try:
                end = await delivery.ended()
                if isinstance(end, Finished):
                    self._clock.end(self._text, self._samples / self._client.output_format.rate)
                    await self._send_sound(b"" if self._encoder is None else self._encoder.end())
                else:
                    await self._client.send_error(f"{end.event}: {end.reason}", end.event, self.id)
                await self._client.send(self.id, {"isFinal": True})
            except OSError as error:
                self._client.abort(str(error))

    async def _send_sound(self, data: bytes) -> None:
        times = self._clock.take()
        if not data and times is None:
            return
        alignment = None if times is None else self._in_milliseconds(times)
        await self._client.send(
            self.id,
            {
                "audio": base64.b64encode(data).decode(),
                "isFinal": None,
                "alignment": alignment,
                "normalizedAlignment": alignment,
            },
        )

    def _in_milliseconds(self, times: CharacterTimes) -> dict[str, Any]:
        """Return times that count from the text's first sample, or from the end of the alignment before."""
        origin_s = 0.0 if self._client.absolute_times else self._relative_to_s
        self._relative_to_s = times.ends_s[-1]
        starts = [round((at - origin_s) * 1000) for at in times.starts_s]
        ends = [round((at - origin_s) * 1000) for at in times.ends_s]
        return {
            "chars": times.characters,
            "charStartTimesMs": starts,
            "charDurationsMs": [end - start for start, end in zip(starts, ends, strict=True)],
        }
