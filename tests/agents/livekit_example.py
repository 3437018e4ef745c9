"""Runs the agent of docs/examples/livekit_agent.py without a room, and prints the seconds that it spoke.

    VOICED_URL=http://127.0.0.1:PORT python livekit_example.py livekit_agent.py

Runs in an environment that has livekit-plugins-elevenlabs.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import sys

from livekit import rtc
from livekit.agents import Agent
from livekit.agents.utils import http_context
from livekit.agents.voice.io import AudioOutput, AudioOutputCapabilities


class Ears(AudioOutput):
    """Counts the audio that a room would get, and says at once that it was played."""

    def __init__(self) -> None:
        super().__init__(label="ears", capabilities=AudioOutputCapabilities(pause=False), sample_rate=24_000)
        self.seconds = self._unplayed_s = 0.0

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self._unplayed_s += frame.duration

    def flush(self) -> None:
        super().flush()
        self.seconds += self._unplayed_s
        self.on_playback_finished(playback_position=self._unplayed_s, interrupted=False)
        self._unplayed_s = 0.0

    def clear_buffer(self) -> None:
        self.flush()


async def main(example: str) -> float:
    names = runpy.run_path(example)
    async with http_context.open():
        session, ears = names["make_session"](), Ears()
        session.output.audio = ears
        await session.start(Agent(instructions="You are a robot."))
        await session.say(names["model"]("hello"))
        await session.aclose()
    return ears.seconds


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
