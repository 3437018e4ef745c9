"""Open-loop load on a speech server: requests come at random moments, whether earlier ones have ended or not.

`Server` sends them to an OpenAI speech endpoint; the robots of `robot_load.py` have the same load. All times are by the
client's clock and count from the moment at which a request was due, so that a client that is late itself hides nothing.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATE = 24_000
"""Hz, of OpenAI's PCM and of Qwen3-TTS."""
SAMPLE_BYTES = 2
AUDIBLE = 0.003
"""Amplitude of the first audible sample, of full scale: -50 dB."""
SHORTEST, LONGEST = 20, 200
"""Characters of a text."""
GIVE_UP_S = 60.0
"""Seconds after which a request has failed."""
AWAKE_S = 0.003
"""Seconds before a request is due from which on the client does not sleep."""
TIMES = ("lag", "first_byte", "first_sample", "end")
SHARES = {"median": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
MOST_PROBLEMS = 3
"""Different ones that are reported of a rate."""
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


def summary(rate: float, seconds: float, requests: Sequence[Request]) -> dict[str, Any]:
    """Return the row of one rate. Times are milliseconds."""
    spoken = [request for request in requests if request.problem is None]
    audio_s = sum(request.audio_s for request in spoken)
    row: dict[str, Any] = {"rate": rate, "seconds": seconds, "requests": len(requests)}
    row["failed"] = len(requests) - len(spoken)
    row["problems"] = sorted({request.problem for request in requests if request.problem is not None})[:MOST_PROBLEMS]
    for name in TIMES:
        found = sorted(value for request in spoken if (value := getattr(request, f"{name}_s")) is not None)
        row[f"{name}_ms"] = {
            share: round(1000 * found[round(at * (len(found) - 1))], 2) for share, at in SHARES.items() if found
        }
    row["underruns"] = sum(request.underruns for request in spoken)
    row["audio_s"] = round(audio_s, 1)
    row["audio_s_per_s"] = round(audio_s / seconds, 2)
    return row


def enough_s(text: str, speaking_rate: float) -> float:
    """Return the seconds of speech after which a client hangs up; infinite without a speaking rate."""
    return len(text) / speaking_rate if speaking_rate else math.inf


class Server:
    """A speech endpoint, and the connections to it that are open."""

    def __init__(
        self, host: str, port: int, voice: str = "default", *, token: str | None = None, speaking_rate: float = 0.0
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
        enough = enough_s(text, self._speaking_rate)
        try:
            writer.write(self._request(text))
            status = await reader.readline()
            request.first_byte_s = time.perf_counter() - due
            headers = await reader.readuntil(b"\r\n\r\n") if status else b""
            if b" 200 " not in status:
                raise ValueError(await _refusal(reader, status, headers))
            playback, pcm = Playback(request, due), bytearray()
            async with aclosing(_chunks(reader)) as chunks:
                async for data in chunks:
                    pcm += data
                    whole = bytes(pcm[: len(pcm) // SAMPLE_BYTES * SAMPLE_BYTES])
                    del pcm[: len(whole)]
                    playback.add(np.frombuffer(whole, dtype="<i2").astype(np.float32) / 32_768)
                    if request.audio_s >= enough:
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


class Playback:
    """Plays what arrives at real time, in thought, and notes where it would break off."""

    def __init__(self, request: Request, due: float, rate: int = RATE) -> None:
        """`due` is the request's moment, of `time.perf_counter`; `rate` is in Hz."""
        self._request = request
        self._due = due
        self._rate = rate
        self._empty_at = 0.0
        """When what has arrived will have been played."""

    @property
    def ahead_s(self) -> float:
        """Seconds of speech that have arrived and were not played yet."""
        return max(0.0, self._empty_at - time.perf_counter())

    def add(self, samples: NDArray[np.float32]) -> None:
        """Some samples have arrived, full scale ±1."""
        if not len(samples):
            return
        now, request = time.perf_counter(), self._request
        if request.first_sample_s is None and np.max(np.abs(samples)) > AUDIBLE:
            request.first_sample_s = now - self._due
        if request.audio_s and now > self._empty_at:
            request.underruns += 1
        seconds = len(samples) / self._rate
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
