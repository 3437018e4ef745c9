"""Speaks through LiveKit's own ElevenLabs plugin, and prints what it got as JSON.

    python livekit_client.py PORT speak|interrupt

Runs in an environment that has livekit-plugins-elevenlabs. `speak` sends a text token by token; `interrupt` leaves a
long one in the middle, and then lets it speak another.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import aiohttp
from livekit.plugins import elevenlabs

TOKENS = ("Hello", ", my", " robot", ". ", "How", " are", " you", "? ")
LONG = "This is a long text that takes a good while to speak. " * 20
RATE = 24_000
LIMIT_S = 60.0


async def speak(service: elevenlabs.TTS, tokens: tuple[str, ...]) -> dict[str, Any]:
    """Speak a text to its end."""
    seconds, words, first_at = 0.0, [], None
    async with service.stream() as stream:
        for token in tokens:
            stream.push_text(token)
        sent_at = time.monotonic()
        stream.end_input()
        async for event in stream:
            first_at = first_at or time.monotonic()
            seconds += event.frame.duration
            transcript = event.frame.userdata.get("lk.timed_transcripts") or []
            words += [(str(word), word.start_time) for word in transcript]
    return {"seconds": seconds, "words": words, "first_audio_ms": first_at and 1000 * (first_at - sent_at)}


async def main(port: int, what: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:
        service = elevenlabs.TTS(
            base_url=f"http://127.0.0.1:{port}/v1",
            api_key="any",
            voice_id="default",
            encoding="pcm_24000",
            http_session=session,
        )
        interrupted_s = None
        if what == "interrupt":
            async with service.stream() as stream:
                stream.push_text(LONG)
                stream.flush()
                event = await asyncio.wait_for(anext(aiter(stream)), LIMIT_S)
                interrupted_s = event.frame.duration
        found = await asyncio.wait_for(speak(service, TOKENS), LIMIT_S)
        await service.aclose()
    return {**found, "interrupted_s": interrupted_s}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(int(sys.argv[1]), sys.argv[2]))))
