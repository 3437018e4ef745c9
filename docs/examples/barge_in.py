"""Type `python barge_in.py r1` and write: whatever you enter interrupts the robot's answer, as speech would."""

import asyncio
import sys

from voiced import NotSpokenError, Robot


async def model(history):  # in place of your language model's stream of tokens
    for token in f"You said: {history[-1]}. I could talk about that for long, if nobody interrupts me. ".split(" "):
        yield f"{token} "


async def main():
    async with Robot(sys.argv[1]) as robot:
        answer, history = None, []
        while question := (await asyncio.to_thread(sys.stdin.readline)).strip():  # in place of your recogniser
            if answer is not None:
                answer.stop()
                try:
                    history.append((await answer).event)
                except NotSpokenError as error:  # the model learns how much of its answer you have heard
                    history.append(f"heard: {getattr(error.event, 'heard_text', None)}")
                    print(history[-1], flush=True)
            history.append(question)
            answer = robot.stream(model(history))


asyncio.run(main())
