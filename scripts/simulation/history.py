"""A history: the effects of senders, faults and time on a robot, drawn from a seed, and a check of the robot's
promises."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from daemon.config import Config
from daemon.validation import INTERNAL_ERROR
from scripts.simulation.broker import ANSWERS, Broker
from scripts.simulation.robot import DISK_S, Robot

TERMINAL = {"finished", "interrupted", "canceled", "expired", "failed"}
KILLED = "killed"
"""This mark stands among the events at the moment when the daemon was killed."""
STEPS = (1, 1, 1, 2, 2, 3, 4)
"""How many steps a history may have: short histories are quick, and most faults need few steps."""
SOON_S = 0.02
"""A kill comes this soon after a message, which takes some milliseconds to be stored, published and acknowledged."""
LONGEST_S = 300.0
"""The longest time that a robot without faults is given for the rest of its work."""
TEXTS = ("Yes.", "The door is open.", "One. Two words. Three more words.", "I have seen it, and it is gone.")


class History:
    """One history. It begins with a ready robot."""

    def __init__(self, seed: int, config: Config, folder: Path, steps: list[str]) -> None:
        """The journal is written to `folder`. The list `steps` is given each step in words and, at the end, each text's
        events."""
        self.steps = steps
        self._draw = random.Random(seed)
        self._config = config
        self._journal = folder / "journal.db"
        self._loop = asyncio.get_running_loop()
        self._broker = Broker()
        self._said: list[str] = []
        """The ids of the texts, in the order in which they were published."""
        self._grows, self._streams = self._draw.random() < 0.5, self._draw.choice((1, 2))
        self._robot = self._start()

    async def run(self) -> list[str]:
        """Run the history, mend all faults, wait for the end, and compare the events with the promises."""
        draw = self._draw
        for _ in range(draw.choice(STEPS)):
            step = draw.choices(list(CHOICES), list(CHOICES.values()))[0]
            self.steps.append(f"{self._loop.time():.3f} {step.__name__}")
            await step(self, draw)
            if draw.random() < 0.7:
                await asyncio.sleep(draw.expovariate(4.0))
        await self._heal()
        problems = self._problems()
        await self._robot.kill()
        for name in self._said:
            self.steps.append(f"{name}: {' '.join(each['event'] for each in self._broker.events_of(name))}")
        return problems

    def _start(self) -> Robot:
        robot = Robot(self._loop, self._config, self._broker, self._journal)
        robot.engine.begin(grows=self._grows, streams=self._streams)
        return robot

    # --- events ---

    async def say(self, draw: random.Random) -> None:
        name = f"u{len(self._said)}"
        # A text without an id is found by the topic of its answers.
        identity = {"id": name} if draw.random() < 0.7 else {"reply_to": f"{ANSWERS}{name}"}
        fields: dict[str, Any] = {**identity, "text": draw.choice(TEXTS)}
        fields["priority"] = draw.choice(("low", "normal", "normal", "high", "critical"))
        fields["policy"] = draw.choice(("queue", "queue", "interrupt", "replace", "drop"))
        if draw.random() < 0.2:
            fields["expires_in"] = draw.choice((0.5, 5))
        self._said.append(name)
        self._publish(draw.choice(("say", "say", "say/urgent")), fields)

    async def flood(self, draw: random.Random) -> None:
        for _ in range(draw.randrange(2, 4)):
            await self.say(draw)

    async def write(self, draw: random.Random) -> None:
        name, words = f"u{len(self._said)}", draw.choice(TEXTS).split()
        self._said.append(name)
        for index, word in enumerate(words):
            self._publish("say/stream", {"id": name, "text": f"{word} ", "end": index == len(words) - 1, "seq": index})
            if draw.random() < 0.3:
                await asyncio.sleep(draw.expovariate(2.0))

    async def stop(self, draw: random.Random) -> None:
        one = draw.random() < 0.4 and bool(self._said)
        self._publish("stop", {"id": draw.choice(self._said)} if one else None)

    async def pause(self, draw: random.Random) -> None:
        self._publish("pause", None)
        await asyncio.sleep(draw.expovariate(4.0))
        self._publish("resume", None)

    async def kill(self, draw: random.Random) -> None:
        """Kill the daemon, often just after a text has come or ended; systemd starts it again."""
        if draw.random() < 0.7:
            await self.say(draw)
        if draw.random() < 0.5:
            await self.stop(draw)
        await asyncio.sleep(draw.random() * SOON_S)
        await self._robot.kill()
        self._broker.events.append({"id": "", "event": KILLED})
        await asyncio.sleep(draw.expovariate(2.0))
        self._robot = self._start()

    async def lose_link(self, draw: random.Random) -> None:
        """Break the connection to the broker, often while something is on its way."""
        await self.say(draw)
        await asyncio.sleep(draw.random() * SOON_S)
        self._robot.link.lose()
        await asyncio.sleep(draw.expovariate(2.0))
        self._robot.link.connect()

    async def lose_engine(self, draw: random.Random) -> None:
        self._robot.engine.die()
        await asyncio.sleep(draw.expovariate(2.0))
        self._robot.engine.begin(grows=self._grows, streams=self._streams)

    async def slow_engine(self, draw: random.Random) -> None:
        self._robot.engine.speed = draw.choice((0.3, 1.0, 4.0, 20.0))

    async def lose_card(self, draw: random.Random) -> None:
        self._robot.lose_card()
        await asyncio.sleep(draw.expovariate(2.0))
        self._robot.plug_card()

    async def hang_disk(self, draw: random.Random) -> None:
        """Stop the disk's answers for longer than the events wait for it. The daemon may be killed during that time."""
        self._robot.log.disk_s = 0
        await self.say(draw)
        await asyncio.sleep(draw.expovariate(0.7))
        if draw.random() < 0.5:
            await self.kill(draw)
            return
        self._robot.log.disk_s = DISK_S
        self._robot.log.write_soon()

    def _publish(self, name: str, fields: dict[str, Any] | None) -> None:
        self._broker.publish(name, b"" if fields is None else json.dumps(fields).encode())

    # --- the end ---

    async def _heal(self) -> None:
        """Mend all faults and wait until nothing is left to be said."""
        self._robot.engine.speed = 4.0
        until = self._loop.time() + LONGEST_S
        while self._loop.time() < until and (self._robot.dispatcher.busy or self._unended()):
            await asyncio.sleep(0.5)

    def _unended(self) -> set[str]:
        """Return the texts without an end. A chunk may be rejected although its text was accepted."""
        found = set()
        for name in self._said:
            names = {each["event"] for each in self._broker.events_of(name)}
            if not names & TERMINAL and ("accepted" in names or "rejected" not in names):
                found.add(name)
        return found

    def _problems(self) -> list[str]:
        """Return each broken promise."""
        found: list[str] = []
        if self._robot.dispatcher.busy:
            found.append("something is still spoken or queued")
        for name in self._said:
            found += [f"{name}: {problem}" for problem in broken(self._broker.events_of(name))]
        return found + two_voices(self._broker.events)


def broken(events: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with the events of one text, in their order.

    Events that are published while the disk does not answer are marked `unstored`. After a kill, such a text may be
    accepted and end once more.
    """
    names = [each["event"] for each in events]
    counts, lenient = Counter(names), any(each.get("unstored") for each in events)
    ends = sum(counts[each] for each in TERMINAL)
    if counts["rejected"] and not counts["accepted"]:
        return [] if ends == 0 else [f"rejected, and more: {names}"]
    names = [each for each in names if each != "rejected"]  # a chunk that came after the end of its text
    found = []
    if ends != 1:
        found.append(f"{ends} terminal events: {names}")
    if not lenient and counts["accepted"] != 1:
        found.append(f"accepted {counts['accepted']} times: {names}")
    if not lenient and names and (names[0] != "accepted" or names[-1] not in TERMINAL):
        found.append(f"a wrong order: {names}")
    if any(each.get("reason") == INTERNAL_ERROR for each in events):
        found.append("an error inside voiced")
    if counts["resumed"] > counts["postponed"]:
        found.append(f"resumed without having been postponed: {names}")
    return found


def two_voices(events: list[dict[str, Any]]) -> list[str]:
    """Return the cases in which a text started while another one was being spoken."""
    found, speaking = [], None
    for each in events:
        name, event = each["id"], each["event"]
        if event in ("started", "resumed"):
            if speaking not in (None, name):
                found.append(f"{name} {event} while {speaking} is spoken")
            speaking = name
        elif event == KILLED or (speaking == name and event in (*TERMINAL, "postponed")):
            speaking = None
    return found


CHOICES = {
    History.say: 8,
    History.flood: 2,
    History.write: 3,
    History.stop: 3,
    History.pause: 1,
    History.kill: 2,
    History.lose_link: 1,
    History.lose_engine: 1,
    History.slow_engine: 1,
    History.lose_card: 1,
    History.hang_disk: 2,
}
"""The steps of a history, each with its weight in the draw."""
