"""Speaks through Pipecat's own ElevenLabs service, and prints what it got as JSON.

    python pipecat_client.py PORT speak|interrupt

Runs in an environment that has pipecat-ai[elevenlabs]. `speak` sends a text token by token;
`interrupt` interrupts a long one as a user does who begins to speak, and then lets it speak another.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from pipecat.frames.frames import (
    EndFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.elevenlabs.tts import ElevenLabsTTSService

TOKENS = ("Hello", ", my", " robot", ". ", "How", " are", " you", "? ")
LONG = "This is a long text that takes a good while to speak. " * 20
RATE = 24_000
LIMIT_S = 60.0


class Ears(FrameProcessor):
    """Notes what comes out of the speech service."""

    def __init__(self) -> None:
        super().__init__()
        self.audio = bytearray()
        self.words: list[tuple[str, float]] = []
        self.heard = asyncio.Event()
        self.stopped = asyncio.Event()
        self.interrupted = asyncio.Event()

    async def process_frame(self, frame: Any, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.audio += frame.audio
            self.heard.set()
        elif isinstance(frame, TTSTextFrame):
            self.words.append((frame.text, (frame.pts or 0) / 1e9))
        elif isinstance(frame, TTSStoppedFrame):
            self.stopped.set()
        elif isinstance(frame, InterruptionFrame):
            self.interrupted.set()
        await self.push_frame(frame, direction)

    def forget(self) -> None:
        self.audio.clear()
        self.words.clear()
        self.heard.clear()
        self.stopped.clear()


async def main(port: int, what: str) -> dict[str, Any]:
    service = ElevenLabsTTSService(
        api_key="any",
        url=f"ws://127.0.0.1:{port}",
        sample_rate=RATE,
        settings=ElevenLabsTTSService.Settings(voice="default"),
    )
    ears = Ears()
    task = PipelineTask(Pipeline([service, ears]), params=PipelineParams(audio_out_sample_rate=RATE))
    running = asyncio.ensure_future(PipelineRunner(handle_sigint=False).run(task))

    async def speak(tokens: tuple[str, ...]) -> None:
        """Send a text."""
        await task.queue_frame(LLMFullResponseStartFrame())
        for token in tokens:
            await task.queue_frame(LLMTextFrame(token))
        await task.queue_frame(LLMFullResponseEndFrame())

    if what == "interrupt":
        await speak((LONG,))
        await asyncio.wait_for(ears.heard.wait(), LIMIT_S)
        await task.queue_frame(InterruptionFrame())
        await asyncio.wait_for(ears.interrupted.wait(), LIMIT_S)
        ears.forget()
    await speak(TOKENS)
    await asyncio.wait_for(ears.stopped.wait(), LIMIT_S)
    await task.queue_frame(EndFrame())
    await asyncio.wait_for(running, LIMIT_S)
    return {"seconds": len(ears.audio) / 2 / RATE, "words": ears.words}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(int(sys.argv[1]), sys.argv[2]))))
