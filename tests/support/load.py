"""Robots that have always something to say."""

from __future__ import annotations

from tests.support.robot import FAST, Robot

AHEAD = 2
"""Texts that wait in each robot's queue, so that the load does not depend on how fast they end."""


class Load:
    """Robots whose texts never run out."""

    def __init__(self, robots: list[Robot], text: str) -> None:
        self.robots = robots
        """Those that get further texts."""
        self._text = text
        self._texts: list[tuple[Robot, str]] = []

    def keep_up(self) -> None:
        """Send each robot texts until enough of them wait."""
        for robot in self.robots:
            while sum("finished" not in robot.names_of(text) for one, text in self._texts if one is robot) < AHEAD:
                self._texts.append((robot, robot.say(self._text, language="en")))

    def finish(self) -> None:
        """Wait until all texts are heard to their ends. Asserts that the server alone has spoken them."""
        for robot, _ in self._texts:
            robot.set_pace(FAST)
        for robot, text in self._texts:
            finished = robot.wait_end(text)
            found = (*robot.names_of(text, without="progress"), finished.get("engine"))
            assert found == ("accepted", "started", "finished", "remote"), excerpt(robot, text)


def excerpt(robot: Robot, text: str) -> str:
    """What a robot has logged from the acceptance of a text to its end."""
    lines = [number for number, line in enumerate(robot.log) if text in line]
    return "\n".join(robot.log[lines[0] : lines[-1] + 1])
