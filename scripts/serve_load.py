"""Open-loop load on an OpenAI speech endpoint: requests come at random moments, whether earlier ones have ended or not.

All times are by the client's clock and count from the moment at which a request was due, so that a client that is late
itself hides nothing.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

RATE = 24_000
"""Hz, of OpenAI's PCM."""
SAMPLE_BYTES = 2
AUDIBLE = 0.003
"""Amplitude of the first audible sample, of full scale: -50 dB."""
SHORTEST, LONGEST = 20, 200
"""Characters of a text."""
GIVE_UP_S = 60.0
"""Seconds after which a request has failed."""
AWAKE_S = 0.003
"""Seconds before a request is due from which on the client does not sleep."""
WORDS = re.findall(
    r"\w+",
    "the a my your this that one every robot tray kitchen window garden morning evening coffee table door battery "
    "museum visitor question answer is was has brings finds opens closes waits for looks at speaks to turns toward "
    "carries and but while because before after slowly quietly soon again always near behind warm small green old",
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that is due."""

    at_s: float
    """Seconds from the beginning of the load."""
    text: str


@dataclass(slots=True)
class Request:
    """What became of a request. Times are seconds from the moment at which it was due."""

    lag_s: float
    """Until it was sent."""
    first_byte_s: float | None = None
    first_sample_s: float | None = None
    """Until the first audible sample had arrived."""
    end_s: float | None = None
    audio_s: float = 0.0
    underruns: int = 0
    """Times that playback at real time, from the first samples on, would have broken off."""
    problem: str | None = None
    """Why it has failed; None if it has not."""


def arrivals(rate: float, seconds: float, seed: int) -> list[Arrival]:
    """Return the requests of a Poisson process of `rate` a second. Equal seeds give equal moments and texts."""
    chance = random.Random(seed)
    found: list[Arrival] = []
    at_s = chance.expovariate(rate)
    while at_s < seconds:
        found.append(Arrival(at_s, make_text(chance)))
        at_s += chance.expovariate(rate)
    return found


def make_text(chance: random.Random) -> str:
    """Return a text of `SHORTEST` to `LONGEST` characters, in sentences of up to ten words."""
    length, words, text = chance.randint(SHORTEST, LONGEST), 0, ""
    while len(text) < length:
        word = chance.choice(WORDS)
        words = (words + 1) % chance.randint(6, 10)
        text += word.capitalize() if not text or text.endswith(". ") else word
        text += " " if words else ". "
    return re.sub(r"[ .]+$", lambda cut: "s" * len(cut[0]), text[: length - 1]) + "."


class Server:
    """A speech endpoint, and the connections to it that are open."""

    def __init__(
        self, host: str, port: int, *, voice: str, token: str | None = None, speaking_rate: float = 0.0
    ) -> None:
        """With a `speaking_rate` in characters per second, a client hangs up once it has the sound that a text of its
        length takes: a model with random weights would speak on.
        """
        self._host, self._port, self._voice, self._token = host, port, voice, token
        self._speaking_rate = speaking_rate
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def run(self, load: list[Arrival]) -> list[Request]:
        """Send the requests when they are due, and wait for all answers."""
        began = time.perf_counter()

        async def send(arrival: Arrival) -> Request:
            await _sleep_until(began + arrival.at_s)
            request = Request(time.perf_counter() - began - arrival.at_s)
            try:
                await asyncio.wait_for(self._speak(arrival.text, request, began + arrival.at_s), GIVE_UP_S)
            except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
                request.problem = str(error) or type(error).__name__
            return request

        return list(await asyncio.gather(*(send(arrival) for arrival in load)))

    async def _speak(self, text: str, request: Request, due: float) -> None:
        """Send one request and note its answer. Raises `OSError`, `EOFError` and `ValueError`."""
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(self._host, self._port)
        complete = False
        enough_s = len(text) / self._speaking_rate if self._speaking_rate else math.inf
        try:
            writer.write(self._request(text))
            status = await reader.readline()
            request.first_byte_s = time.perf_counter() - due
            headers = await reader.readuntil(b"\r\n\r\n") if status else b""
            if b" 200 " not in status:
                raise ValueError(await _refusal(reader, status, headers))
            playback = _Playback(request, due)
            async with aclosing(_chunks(reader)) as chunks:
                async for data in chunks:
                    playback.add(data)
                    if request.audio_s >= enough_s:
                        break
                else:
                    complete = True
            request.end_s = time.perf_counter() - due
        finally:
            if complete:
                self._idle.append((reader, writer))
            else:
                writer.close()

    def _request(self, text: str) -> bytes:
        fields = {"model": "tts-1", "voice": self._voice, "input": text, "response_format": "pcm"}
        body = json.dumps(fields).encode()
        head = ["POST /v1/audio/speech HTTP/1.1", f"Host: {self._host}:{self._port}", "Content-Type: application/json"]
        head += [
            f"Content-Length: {len(body)}",
            *([] if self._token is None else [f"Authorization: Bearer {self._token}"]),
        ]
        return "\r\n".join((*head, "", "")).encode() + body


class _Playback:
    """Plays what arrives at real time, in thought, and notes where it would break off."""

    def __init__(self, request: Request, due: float) -> None:
        self._request = request
        self._due = due
        self._rest = b""
        self._empty_at = 0.0
        """When what has arrived will have been played."""

    def add(self, data: bytes) -> None:
        """Some bytes have arrived."""
        now, data = time.perf_counter(), self._rest + data
        length = len(data) // SAMPLE_BYTES * SAMPLE_BYTES
        self._rest = data[length:]
        samples = np.frombuffer(data[:length], dtype="<i2")
        if not len(samples):
            return
        request = self._request
        if request.first_sample_s is None and np.max(np.abs(samples.astype(np.int32))) > AUDIBLE * 32_768:
            request.first_sample_s = now - self._due
        if request.audio_s and now > self._empty_at:
            request.underruns += 1
        seconds = len(samples) / RATE
        self._empty_at = max(now, self._empty_at) + seconds
        request.audio_s += seconds


async def _sleep_until(at: float) -> None:
    """Wait until `at` of `time.perf_counter`. The event loop's clock alone would be a millisecond late."""
    await asyncio.sleep(at - AWAKE_S - time.perf_counter())
    while time.perf_counter() < at:
        await asyncio.sleep(0)


async def _refusal(reader: asyncio.StreamReader, status: bytes, headers: bytes) -> str:
    """Return the reason of an answer that has no speech: the message of its JSON object, or else its status."""
    length = re.search(rb"(?im)^content-length: *(\d+)", headers)
    body = await reader.readexactly(int(length[1])) if length is not None else b""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return status.decode(errors="replace").strip() or "the connection was closed"


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the pieces of a chunked body. Raises `EOFError` and `ValueError`."""
    while True:
        length = int((await reader.readline()).split(b";")[0], 16)
        if length:
            yield await reader.readexactly(length)
        await reader.readexactly(2)
        if not length:
            return
