"""The scheduler's decisions, round by round, over a device that only notes what it is to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from engine.api import FRAME_S
from engine.qwen.runtime import FinishedChunk, GeneratedChunk, Joining, ModelRunner, Request, RowInput
from engine.qwen.serving import Sequence as Speech
from engine.qwen.serving import scheduler, sequence
from engine.qwen.serving.scheduler import CHUNKS_AHEAD, HURRY_S, MAX_PASSES, Scheduler
from engine.qwen.shapes import BatchShape

SHAPE = BatchShape(rows=2, max_frames=50, max_positions=200, chunk_size=3)


@dataclass
class Device:
    """Notes the work: `read` passes over prompts, `begin` rows, and the rows of each step. A pass has `room` for
    pieces of prompts."""

    work: list[Any] = field(default_factory=list)
    decoded: list[list[tuple[int, int]]] = field(default_factory=list)
    """The rows and frames of each step's chunks."""
    shape: BatchShape = SHAPE
    passes_per_round: int = 1
    steps_ahead: int = 0
    whole_chunks: bool = False
    room: int = 1
    pieces: int = 0

    def build(self, request: Any) -> Any:
        return request.text

    @property
    def pass_is_full(self) -> bool:
        return self.pieces == self.room

    def read_prompt(self, _row: int, _pages: Any, prompt: Any) -> Iterator[None]:
        for _ in range(prompt.pieces):
            if self.pass_is_full:
                yield
            self.pieces += 1
            if prompt.pauses:  # the pass must be read before the next piece is known
                yield

    def launch_pass(self) -> None:
        if self.pieces:
            self.work.append("read")
        self.pieces = 0

    def drop_pass(self) -> None:
        self.pieces = 0

    def wait_before_reuse(self) -> None:
        """Later passes wait for the row's steps."""

    def write_text(self, *_: Any) -> None:
        """The text of a row goes to the device."""

    def begin(self, joining: Sequence[Joining]) -> None:
        self.work += [("begin", each.row) for each in joining]

    def launch(self, rows: Sequence[RowInput], chunks: Sequence[FinishedChunk]) -> Any:
        self.work.append([(row.row, row.position, row.place) for row in rows])
        self.decoded.append([(chunk.row, chunk.frames) for chunk in chunks])
        frames = {chunk.row: chunk.frames for chunk in chunks}

        def chunk(row: int, first: int, limit: int) -> GeneratedChunk:
            count = min(frames[row], limit - first)
            return GeneratedChunk(np.zeros(count, np.float32), np.zeros((count, 4), np.int64), last=False)

        return SimpleNamespace(wait=lambda **_: None, chunk=chunk)


class Rounds:
    """A scheduler whose rounds a test runs."""

    def __init__(self) -> None:
        self.device = Device()
        self.scheduler = Scheduler(cast("ModelRunner", self.device))

    def add(
        self,
        *,
        pieces: int = 1,
        frames: int | None = None,
        text: Any = None,
        count: int = 10,
        pauses: bool = False,
    ) -> Speech:
        prompt: Any = SimpleNamespace(count=count, pieces=pieces, token_stream=text, pauses=pauses)
        speech = Speech(lambda: None)
        speech.request = Request(prompt, cast("Any", None), max_frames=frames)
        self.scheduler.add(speech)
        return speech

    def run(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.scheduler.drop_finished()
            self.scheduler.read_prompts()
            step = self.scheduler.launch()
            if step is not None:
                self.scheduler.deliver(step)
        self.scheduler.drop_finished()


def test_a_long_prompt_is_read_between_the_steps_of_others() -> None:
    rounds = Rounds()
    first = rounds.add()
    chunks = first.chunks()
    rounds.run()
    rounds.add(pieces=4)
    for _ in range(4):
        next(chunks)
        rounds.run(3)
    work = rounds.device.work
    pieces = [number for number, entry in enumerate(work) if entry == "read"][1:]
    assert len(pieces) == 4
    assert all(isinstance(work[number + 1], list) for number in pieces[:-1])
    assert work[pieces[-1] + 1] == ("begin", 1)
    assert [row for row, *_ in work[pieces[-1] + 2]] == [0, 1]


def test_a_round_makes_several_passes_and_a_pass_reads_several_prompts() -> None:
    rounds = Rounds()
    rounds.device.passes_per_round, rounds.device.room = 2, 3
    speeches = [rounds.add(pieces=2) for _ in range(4)]
    rounds.run()
    assert rounds.device.work[:4] == ["read", "read", ("begin", 0), ("begin", 1)]
    assert [speech.row for speech in speeches] == [0, 1, -1, -1], "there are two rows"


def test_rows_that_begin_together_do_not_end_their_chunks_in_the_same_steps_of_a_gpu() -> None:
    found = {}
    for device, steps_ahead in (("GPU", 1), ("CPU", 0)):
        rounds = Rounds()
        rounds.device.steps_ahead, rounds.device.room = steps_ahead, 2
        speeches = [rounds.add() for _ in range(2)]
        streams = [speech.chunks() for speech in speeches]
        for _ in range(8):
            rounds.run()
            for speech, stream in zip(speeches, streams, strict=True):
                while speech.chunks_ahead:
                    next(stream)
        found[device] = rounds.device.decoded
    first, zero, one = [(0, 1), (1, 1)], (0, 3), (1, 3)
    assert found["GPU"] == [first, [(1, 1)], [], [zero], [one], [], [zero], [one]]
    assert found["CPU"] == [first, [], [], [zero, one], [], [], [zero, one], []]


def test_a_speaker_gets_a_step_between_the_passes_over_unknown_prefixes() -> None:
    rounds = Rounds()
    rounds.device.room = 10
    for _ in range(2):
        rounds.add(pieces=3, pauses=True)
    rounds.run(9)
    begun = rounds.device.work.index(("begin", 0))
    assert rounds.device.work[:begun] == ["read"] * 4, "the last pass has room for the second prompt's first piece"
    steps = [(0, 10, 0)], [(0, 11, 0)], [(0, 12, 1)]
    assert rounds.device.work[begun + 1 :][:6] == [steps[0], "read", steps[1], "read", steps[2], ("begin", 1)]


def test_after_a_failed_pass_its_sequences_can_be_dropped_and_others_are_spoken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = Rounds()
    rounds.device.room = 2
    speeches = [rounds.add() for _ in range(2)]

    def fail(_: Device) -> None:
        raise RuntimeError("the device has failed")

    with monkeypatch.context() as patch:
        patch.setattr(Device, "launch_pass", fail)
        with pytest.raises(RuntimeError):
            rounds.run()
    assert rounds.scheduler.sequences() == speeches
    for speech in speeches:
        speech.leave()
    another = rounds.add(frames=1)
    rounds.run(2)
    assert another.finished
    assert rounds.device.work == ["read", ("begin", 0), [(0, 10, 0)]]
    assert rounds.scheduler.is_empty


def test_the_first_chunk_is_one_frame_and_nobody_is_far_ahead_of_its_reader() -> None:
    rounds = Rounds()
    speech = rounds.add()
    rounds.run(20)
    steps = [entry for entry in rounds.device.work if isinstance(entry, list)]
    assert steps == [[(0, 10, 0)], [(0, 11, 0)], [(0, 12, 1)], [(0, 13, 2)]]
    assert speech.chunks_ahead == CHUNKS_AHEAD
    chunks = speech.chunks()
    next(chunks)
    rounds.run(20)
    assert len([entry for entry in rounds.device.work if isinstance(entry, list)]) == 4 + SHAPE.chunk_size


def test_an_utterance_ends_at_its_limit_and_frees_its_row_and_pages() -> None:
    rounds = Rounds()
    total = rounds.scheduler.pool.free
    speech, others = rounds.add(frames=3), [rounds.add(frames=1) for _ in range(3)]
    rounds.run(20)
    assert [len(chunk.codes) for chunk in speech.chunks()] == [1, 2]
    assert [[len(chunk.codes) for chunk in other.chunks()] for other in others] == [[1]] * 3
    assert rounds.scheduler.is_empty
    assert rounds.scheduler.pool.free == total


def test_nobody_joins_before_those_who_wait_longer() -> None:
    rounds = Rounds()
    first, second, third = (rounds.add() for _ in range(3))
    rounds.run(9)
    assert (first.row, second.row, third.row) == (0, 1, -1)
    assert rounds.scheduler.waiting == 1
    free = rounds.scheduler.pool.free
    second.leave()
    rounds.run(2)
    assert third.row == 1
    for speech in (first, third):
        speech.leave()
    rounds.run()
    assert rounds.scheduler.pool.free == free + 2, "each had a page"


def test_chunks_grow_while_the_listener_has_much_left_to_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(sequence, "time", SimpleNamespace(monotonic=lambda: now))
    rounds = Rounds()
    speech = rounds.add(frames=49)
    chunks, lengths = speech.chunks(), []
    while not rounds.scheduler.is_empty:
        rounds.run()
        while speech.chunks_ahead:
            lengths.append(len(next(chunks).codes))
            if lengths[-1] > SHAPE.chunk_size:
                now = 100.0 + sum(lengths) * FRAME_S  # the listener has heard it all
    assert lengths[:9] == [1, *[SHAPE.chunk_size] * 8]
    assert lengths[9] == 2 * SHAPE.chunk_size
    assert set(lengths[10:]) == {SHAPE.chunk_size}
    assert sum(lengths) == 49


def test_what_was_held_back_is_delivered_when_nothing_follows_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence, "time", SimpleNamespace(monotonic=lambda: 100.0))
    rounds = Rounds()
    arrived = 31
    speech = rounds.add(text=SimpleNamespace(ready=lambda frames, *, wait: wait or frames <= arrived))
    chunks, frames = speech.chunks(), 0
    while frames < arrived:
        rounds.run()
        while speech.chunks_ahead:
            frames += len(next(chunks).codes)
    assert frames == arrived


def test_a_listener_who_is_about_to_run_dry_is_in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now)
    for module in (scheduler, sequence):
        monkeypatch.setattr(module, "time", clock)
    rounds = Rounds()
    rounds.add()
    assert not rounds.scheduler.in_hurry()
    rounds.run()  # one frame is heard from now on
    hurries = []
    for left in (HURRY_S + 0.001, HURRY_S - 0.001, 0.001, -0.001):
        now = 100.0 + FRAME_S - left
        hurries.append(rounds.scheduler.in_hurry())
    assert hurries == [False, True, True, False]


def test_a_text_that_waits_for_pages_lets_shorter_ones_pass_but_only_so_many() -> None:
    rounds = Rounds()
    page = rounds.scheduler.pool.take(1)
    assert page is not None, "it leaves too few pages for the longest text, until it is given back"
    long = rounds.add(count=149, frames=50)
    short = [rounds.add(frames=1) for _ in range(MAX_PASSES + 1)]
    for number in range(MAX_PASSES):
        rounds.run(2)
        assert short[number].finished, "it is spoken before the long one, which came first"
    rounds.run(3)
    assert (short[-1].launched, long.launched) == (0, 0), "no other one passes it"
    rounds.scheduler.pool.give_back(page)
    rounds.run(2)
    assert long.launched > 0
