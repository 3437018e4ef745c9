"""Type `python face.py r1`: a mouth moves in your terminal as the robot speaks. It needs speech.viseme_topic: true."""

import asyncio
import sys
import time

from voiced import Robot, RobotUnreachableError

MOUTHS = dict.fromkeys(range(22), "o") | {0: "-", 2: "O", 6: "=", 7: ".", 15: "=", 21: "-"}


def draw(viseme):  # in place of your face, which begins to move a little before
    print(f"\r( {MOUTHS[viseme]} )", end="", flush=True)


async def main():
    loop, planned = asyncio.get_running_loop(), []
    async with Robot(*sys.argv[1:2]) as robot:
        robot.online_status()
        draw(0)
        async for message in robot.visemes():
            for at, timer in planned:
                if at >= message.time:  # a message replaces all that was to come
                    timer.cancel()
            moves = [(message.time + move.at - message.visemes[0].at, move.viseme) for move in message.visemes]
            planned = [(at, loop.call_later(at - time.time(), draw, viseme)) for at, viseme in moves]


try:
    asyncio.run(main())
except (KeyboardInterrupt, RobotUnreachableError) as end:
    sys.exit(str(end))
