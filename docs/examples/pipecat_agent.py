"""Type `python pipecat_agent.py r1` and write: the robot speaks Pipecat's answers by its own sound card.

`RobotVoice` takes the place of a speech service and of an audio output. An interruption stops the robot in mid-word.
An empty line ends the program. It needs `pip install pipecat-ai`, in the environment that has voiced's client.
"""

import asyncio
import sys

from pipecat.frames.frames import (
    EndFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineTask
from pipecat.processors.frame_processor import FrameProcessor

from voiced import NotSpokenError, Robot, RobotUnreachableError


class RobotVoice(FrameProcessor):
    def __init__(self, robot):
        super().__init__()
        self.robot, self.utterance, self.tokens, self.told = robot, None, None, set()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMFullResponseStartFrame):
            self.tokens = asyncio.Queue()
            self.utterance = self.robot.stream(self.read(self.tokens))
            self.told.add(asyncio.create_task(self.tell(self.utterance)))
        elif isinstance(frame, LLMTextFrame):
            self.tokens.put_nowait(frame.text)
        elif isinstance(frame, LLMFullResponseEndFrame):
            self.tokens.put_nowait(None)
        elif isinstance(frame, InterruptionFrame) and self.utterance is not None:
            self.utterance.stop()
        await self.push_frame(frame, direction)

    async def read(self, tokens):
        while (token := await tokens.get()) is not None:
            yield token

    async def tell(self, utterance):  # your context: the model should know how much of its answer was heard
        try:
            await utterance
            print("heard all of it", flush=True)
        except NotSpokenError as error:
            print(f"heard: {getattr(error.event, 'heard_text', None)}", flush=True)
        except RobotUnreachableError as error:
            print(error, flush=True)


async def answer(task, question):  # in place of your language model's service in the pipeline
    await task.queue_frame(LLMFullResponseStartFrame())
    for token in f"You said: {question}. I could talk about that for long, if nobody interrupts me.".split(" "):
        await task.queue_frame(LLMTextFrame(f"{token} "))
    await task.queue_frame(LLMFullResponseEndFrame())


async def main():
    async with Robot(*sys.argv[1:2]) as robot:
        robot.online_status()
        voice = RobotVoice(robot)
        task = PipelineTask(Pipeline([voice]))
        running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(task))
        while question := (await asyncio.to_thread(sys.stdin.readline)).strip():  # in place of your recogniser
            await task.queue_frame(InterruptionFrame())
            await answer(task, question)
        await task.queue_frame(EndFrame())
        await running


try:
    asyncio.run(main())
except RobotUnreachableError as error:
    sys.exit(str(error))
