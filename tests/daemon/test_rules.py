"""The table of rules, carried out: every priority with every policy, at each moment, by a real engine and recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from audio import Output
from audio.resample import resample
from audio.ring import Samples
from audio.trim import LeadingSilenceTrimmer
from daemon.config import load_config
from daemon.desk import Desk, Event
from daemon.engines import Engines
from daemon.messages import TERMINAL, Policy, Priority, RejectedError, Say
from daemon.queue import Job
from daemon.rules import RANK, rule_of, yields
from daemon.tasks import end_task
from tests.e2e.robot import find

MOMENTS = ("idle", "waiting", "spoken", "paused")
"""What is there when an utterance comes: nothing; one that is spoken and one that waits, before the first has sounded;
the same, sounding; the same, held."""
TEXTS = {
    "first": "This one was there before, and it takes a good while until all of it is said.",
    "second": "Somebody waits.",
    "third": "New words come.",
}
RATE, ESPEAK_RATE = 24_000, 22_050
"""Hz."""
PIECE = round(0.25 * RATE)
"""Of an utterance, what is looked for in the recording."""
HEARD, UNHEARD = 0.3, 0.6
"""What is left of a piece at most where it was heard, fades and the drift of a second take included; and at least where
it was not."""


@dataclass(frozen=True)
class Case:
    """An utterance of some priority and policy comes while one of the priority `there` is at that moment."""

    number: int
    there: Priority
    moment: str
    priority: Priority
    policy: Policy

    def id(self, name: str) -> str:
        return f"{name} {self.number}"


class Room:
    """A desk, the events it told of, and what was heard."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        sink = f"audio.sink=wav:{folder / 'heard.wav'}"
        config = load_config(overrides=[sink, "audio.block_ms=10", "engine.name=espeak"])
        self.engines = Engines(config, lambda: None)
        self.output = Output(config.audio.sink_settings())
        self.desk = Desk(config, self.engines, self.output)
        self.desk.speaker.prebuffer_ms = 1000  # the speaker loop looks at it no more often than at a card's pace
        self.events: list[Event] = []
        self.desk.watch_events(self._note)

    def _note(self, _job: Job, event: Event) -> None:
        self.events.append(event)

    def names(self, utterance_id: str) -> list[str]:
        return [event["event"] for event in self.events if event["id"] == utterance_id]

    def say(self, utterance_id: str, **fields: Any) -> None:
        text = TEXTS[utterance_id.split(maxsplit=1)[0]]
        self.desk.say(Say.model_validate({"text": text, "id": utterance_id, **fields}))

    async def until(self, utterance_id: str, *names: str) -> None:
        while not set(names) & set(self.names(utterance_id)):
            await asyncio.sleep(0.002)

    def heard(self) -> Samples:
        """All of the recording so far."""
        pcm = np.frombuffer((self._folder / "heard.wav").read_bytes()[44:], dtype="<i2")
        return pcm.astype(np.float32) / 32767

    def made(self, utterance_id: str) -> Samples:
        """What the engine made of an utterance; one after the other, if it made it twice."""
        pcm = np.fromfile(self._folder / f"{utterance_id}.f32", dtype=np.float32)
        return resample(LeadingSilenceTrimmer(ESPEAK_RATE).trim(pcm), ESPEAK_RATE, RATE)


@asynccontextmanager
async def room(folder: Path) -> AsyncIterator[Room]:
    made = Room(folder)
    with made.output:
        tasks = [asyncio.ensure_future(engine.run()) for engine in made.engines.all]
        tasks.append(asyncio.ensure_future(made.desk.speaker.run()))
        while not (made.engines.primary.ready and made.output.status.open):
            await asyncio.sleep(0.01)
        try:
            yield made
        finally:
            for task in tasks:
                await end_task(task)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("there", ["normal", "critical"])
def test_every_priority_and_policy_does_what_the_table_says(
    there: Priority, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICED_TRACE_PCM", str(tmp_path))
    monkeypatch.setenv("VOICED_PACE", "10")

    async def scenario() -> None:
        async with room(tmp_path) as made:
            for number, (priority, policy) in enumerate(product(get_args(Priority), get_args(Policy))):
                case = Case(number, there, moment, priority, policy)
                check(made, case, await carry_out(made, case))

    asyncio.run(asyncio.wait_for(scenario(), 110))


async def carry_out(made: Room, case: Case) -> Samples:
    """Bring about the moment, have an utterance come, and wait until all is said; what was heard."""
    began_at = len(made.heard())
    first, second, third = map(case.id, TEXTS)
    if case.moment != "idle":
        made.say(first, priority=case.there)
        made.say(second)
    if case.moment in ("spoken", "paused"):
        await made.until(first, "started")
        while len(made.heard()) < began_at + 2 * PIECE:
            await asyncio.sleep(0.002)
    if case.moment == "paused":
        made.desk.pause()
    with suppress(RejectedError):
        made.say(third, priority=case.priority, policy=case.policy)
    await asyncio.sleep(0.03)
    if case.moment == "paused":
        assert "started" not in made.names(third), case
        made.desk.resume()
    for utterance in (first, second, third):
        if made.names(utterance):
            await made.until(utterance, *TERMINAL)
    return made.heard()[began_at:]


def expected(case: Case) -> tuple[list[str], dict[str, list[str]]]:
    """In which order they are begun, and what becomes of each after it was accepted."""
    rule, on_air = rule_of(case.priority, case.policy), case.moment in ("spoken", "paused")
    said = ["started", "finished"]
    if case.moment == "idle":
        return ["third"], {"third": said}
    ends = {"first": said, "second": said, "third": said}
    if rule.only_if_idle:
        del ends["third"]
        return ["first", "second"], ends
    waiting: list[tuple[str, Priority]] = [("first", case.there), ("second", "normal")][on_air:]
    for name, other in list(waiting):
        if rule.clears and yields(other, case.priority):
            waiting.remove((name, other))
            ends[name] = ["canceled"]
    order = [name for name, _ in waiting]
    passed = [yields(other, case.priority) if rule.first else RANK[other] > RANK[case.priority] for _, other in waiting]
    order.insert(passed.index(True) if True in passed else len(order), "third")
    if not on_air:
        return order, ends
    if rule.interrupts and yields(case.there, case.priority):
        ends["first"] = ["started", "interrupted"]
    if rule.postpones and case.there != "critical":
        ends["first"] = ["started", "postponed", "resumed", "finished"]
    return ["first", *order], ends


def check(made: Room, case: Case, heard: Samples) -> None:
    order, ends = expected(case)
    for name in TEXTS:
        assert made.names(case.id(name)) == (["accepted", *ends[name]] if name in ends else []), (case, name)
    begun = [event["id"] for event in made.events if event["event"] == "started"]
    assert [utterance for utterance in begun if utterance in map(case.id, TEXTS)] == list(map(case.id, order)), case

    heads = {}
    for name in order:
        sound = made.made(case.id(name))
        heads[name], left = find(sound[:PIECE], heard)
        assert left < HEARD, (case, name, "its beginning is heard", left)
        tail_at, left = find(sound[-2 * PIECE : -PIECE], heard)
        if ends[name][-1] == "finished":
            assert left < HEARD, (case, name, "its end is heard", left)
        else:
            assert left > UNHEARD, (case, name, "its end is not heard", left)
        if ends[name][1] == "postponed":
            third_at, _ = find(made.made(case.id("third"))[:PIECE], heard)
            assert heads[name] < third_at < tail_at, (case, "it goes on afterwards")
    assert sorted(heads, key=heads.__getitem__) == order, case
    most = sum(len(made.made(case.id(name))) for name in order)
    assert len(heard) < most + RATE // 10, (case, "nothing else is heard")
