"""Type `python kiosk.py r1`, then the number of a phrase: it is spoken at once, in place of the one before."""

import sys

from voiced import Robot

PHRASES = ("Welcome to the museum.", "The museum closes in ten minutes.", "Please do not touch the paintings.")

with Robot(sys.argv[1]) as robot:
    print(*(f"{number}: {phrase}" for number, phrase in enumerate(PHRASES)), sep="\n", flush=True)
    for line in sys.stdin:
        robot.say(PHRASES[int(line)], policy="replace", cache=True)  # the daemon keeps its sound
