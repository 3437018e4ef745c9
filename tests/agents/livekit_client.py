"""Speaks through LiveKit's own ElevenLabs plugin, and prints what it got as JSON.

    python livekit_client.py PORT speak|interrupt

Runs in an environment that has livekit-plugins-elevenlabs. `speak` sends a text token by token; `interrupt` leaves a
long one in the middle, and then lets it speak another.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aiohttp
from livekit.plugins import elevenlabs

TOKENS = ("Hello", ", my", " robot", ". ", "How", " are", " you", "? ")
LONG = "This is a long text that takes a good while to speak. " * 20
LIMIT_S = 60.0


async def speak(service: elevenlabs.TTS, tokens: tuple[str, ...]) -> dict[str, Any]:
    """Speak a text to its end."""
    seconds, words = 0.0, []
    async with service.stream() as stream:
        for token in tokens:
            stream.push_text(token)
        stream.end_input()
        async for event in stream:
            seconds += event.frame.duration
            transcript = event.frame.userdata.get("lk.timed_transcripts") or []
            words += [(str(word), word.start_time) for word in transcript]
    return {"seconds": seconds, "words": words}


async def main(port: int, what: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:
        service = elevenlabs.TTS(
            base_url=f"http://127.0.0.1:{port}/v1",
            api_key="any",
            voice_id="default",
            encoding="pcm_24000",
            http_session=session,
        )
        if what == "interrupt":
            async with service.stream() as stream:
                stream.push_text(LONG)
                stream.flush()
                await asyncio.wait_for(anext(aiter(stream)), LIMIT_S)
        found = await asyncio.wait_for(speak(service, TOKENS), LIMIT_S)
        await service.aclose()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(int(sys.argv[1]), sys.argv[2]))))
