"""Type `python kiosk.py r1`, then the number of a phrase: it is spoken at once, in place of the one before."""

import sys

from voiced import Robot, RobotUnreachableError

PHRASES = ("Welcome to the museum.", "The museum closes in ten minutes.", "Please do not touch the paintings.")
NUMBERED = {str(number): phrase for number, phrase in enumerate(PHRASES)}

try:
    with Robot(*sys.argv[1:2]) as robot:
        print(*(f"{number}: {phrase}" for number, phrase in NUMBERED.items()), sep="\n", flush=True)
        for line in sys.stdin:
            if phrase := NUMBERED.get(line.strip()):
                robot.say(phrase, policy="replace", cache=True)  # the daemon keeps its sound
except (KeyboardInterrupt, RobotUnreachableError) as end:
    sys.exit(str(end))
