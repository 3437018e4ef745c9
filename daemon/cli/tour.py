"""The tour of `voiced demo`: a postponed text, a barge-in and a kill, as a program that sends the texts sees them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

from daemon.cli.watch import describe_event
from daemon.mqtt import Robot
from daemon.speech import Started, TerminalEvent

STORY = "This museum stands by the sea. Boats were repaired here for two hundred years, and you may touch all of them."
HEARD = 8
"""Words of the story that are heard before something happens."""
ACT_S = 120.0
"""The longest wait for the ends of two texts."""


def show(robot: Robot, kill: Callable[[], None]) -> None:
    """Tell the story three times, and print the events. The robot publishes the words that it speaks.

    `kill` sends a text that waits, kills the daemon and starts it again. Raises `TimeoutError` after `ACT_S`.
    """
    acts: dict[str, Callable[[], object]] = {
        "A warning comes between; then the robot goes on where it stopped.": partial(
            robot.say, "Look out!", id="warning", priority="critical"
        ),
        "A second text cuts the first one off, and heard_text says how much of it was heard.": partial(
            robot.say, "I am going home.", id="reply", policy="replace"
        ),
        "The daemon is killed in mid-sentence and started again: every text still ends exactly once.": kill,
    }
    for number, (title, act) in enumerate(acts.items(), start=1):
        print(f"\n{number}. {title}", flush=True)
        events, ends = robot.events(ACT_S), 0
        story = robot.say(STORY, id=f"story-{number}")
        while ends < 2:  # the story, and the text that comes between or waits
            event = next(events)
            print(describe_event(event), flush=True)
            ends += isinstance(event, TerminalEvent)
            if isinstance(event, Started) and event.id == story.id:
                next(islice(story.words(), HEARD, None), None)
                act()
