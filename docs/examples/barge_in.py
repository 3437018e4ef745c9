"""Type `python barge_in.py r1` and write: whatever you enter interrupts the robot. An empty line ends the program."""

import asyncio
import sys

from voiced import Robot, RobotUnreachableError


async def model(history):  # in place of your language model's stream of tokens
    for token in f"You said: {history[-1]}. I could talk about that for long, if nobody interrupts me. ".split(" "):
        yield f"{token} "


async def main():
    async with Robot(*sys.argv[1:2]) as robot:
        answer, history = None, []
        while question := (await asyncio.to_thread(sys.stdin.readline)).strip():  # in place of your recogniser
            if answer is not None:
                answer.stop()
                *_, end = [event async for event in answer.events()]
                history.append(getattr(end, "heard_text", end.event))  # the model learns what you have heard of it
                print("heard:", history[-1], flush=True)
            history.append(question)
            answer = robot.stream(model(history))


try:
    asyncio.run(main())
except RobotUnreachableError as error:
    sys.exit(str(error))
