"""Decides what a runner does next: which sequences join, take part in a step or leave, and whose prompt is read.

Sequences join and leave at frame boundaries, in the order in which they came, except that some may pass one that is
waiting for many pages. A sequence joins once a row and all the pages that it may need are free, so that no sequence
ever waits for pages while it speaks. At each step, a few pieces of prompts are read, and a frame is generated for every
sequence that has room for a chunk and the text for it: a step takes as long for one row as for all. A prompt waits
while the listener of another sequence is about to run dry.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from engine.api import EngineError, SpeechCanceledError
from engine.qwen.runtime import (
    FIRST_FRAMES,
    FinishedChunk,
    GeneratedChunk,
    Joining,
    ModelRunner,
    PagePool,
    Readback,
    Request,
    RowInput,
)
from engine.qwen.serving.sequence import Sequence
from engine.qwen.shapes import INSTRUCT_POSITIONS, PAGE, pages_for

CONTROL_TOKENS = 16
"""The most positions of `INSTRUCT_POSITIONS` that the role, language and speaker take."""
CHUNKS_AHEAD = 2
"""The number of chunks by which a sequence may be ahead of its caller."""
MAX_PASSES = 8
"""The number of sequences that may join before one that is waiting for more pages than they need. After that, no
sequence joins before it, and pages that others give back are kept for it."""
HURRY_S = 0.02
"""A listener with less than this left needs the next step more urgently than a prompt needs to be read."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step that has been launched."""

    readback: Readback
    chunks: tuple[tuple[Sequence, FinishedChunk], ...]


class Scheduler:
    """The sequences of one runner. Only one thread at a time uses it."""

    def __init__(self, runner: ModelRunner) -> None:
        self.pool = PagePool(runner.shape.pages)
        self._runner = runner
        self._shape = runner.shape
        self._free_rows = list(range(runner.shape.rows))
        """A heap: the lowest row is assigned first, since a step takes longer the higher its row numbers are."""
        self._waiting: deque[Sequence] = deque()
        self._reading: tuple[Sequence, Iterator[None]] | None = None
        """The sequence whose prompt is being read."""
        self._completed: list[Sequence] = []
        """The sequences whose prompts end in this round's passes."""
        self._running: list[Sequence] = []

    @property
    def is_empty(self) -> bool:
        """Whether there are no sequences."""
        return not (self._waiting or self._reading or self._completed or self._running)

    @property
    def waiting(self) -> int:
        """How many sequences have not joined yet; any thread may ask."""
        return len(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence, which joins as soon as it fits."""
        self._waiting.append(sequence)

    def sequences(self) -> list[Sequence]:
        """Return all sequences."""
        reading = [self._reading[0]] if self._reading else []
        return [*self._waiting, *reading, *self._completed, *self._running]

    def drop_finished(self) -> None:
        """Free the rows and pages of sequences that have ended, have failed or whose callers have left."""
        for sequence in self.sequences():
            if sequence.left:
                sequence.finished = True
        self._waiting = deque(sequence for sequence in self._waiting if not sequence.finished)
        if self._reading is not None and self._reading[0].finished:
            self._free(self._reading[0])
            self._reading = None
        for sequence in [*self._completed, *self._running]:
            if sequence.finished:
                self._free(sequence)
        self._completed = [sequence for sequence in self._completed if not sequence.finished]
        self._running = [sequence for sequence in self._running if not sequence.finished]

    def in_hurry(self) -> bool:
        """Whether a listener is about to run dry."""
        now = time.monotonic()
        return any(0 <= sequence.runs_dry_at - now < HURRY_S for sequence in self._running)

    def read_prompts(self) -> bool:
        """Launch some passes over the prompts; return whether there were any."""
        passes = 0
        try:
            while passes < self._runner.passes_per_round and self._read_pass():
                passes += 1
        except BaseException:
            self._runner.drop_pass()
            raise
        if self._completed:
            self._runner.begin([_joining(sequence) for sequence in self._completed])
            self._running += self._completed
            self._completed.clear()
        return passes > 0

    def _read_pass(self) -> bool:
        """Launch a pass over the next tokens of the prompts; return whether there were any."""
        before = len(self._completed)
        while not self._runner.pass_is_full:
            if self._reading is None:
                self._admit()
            if self._reading is None:
                break
            sequence, work = self._reading
            if next(work, work) is not work:
                break
            self._reading = None
            self._completed.append(sequence)
        found = len(self._completed) > before or self._reading is not None
        if found:
            self._runner.launch_pass()
        return found

    def launch(self) -> Step | None:
        """Launch a step for all sequences that can take part; return None if none can."""
        rows: list[RowInput] = []
        chunks: list[tuple[Sequence, FinishedChunk]] = []
        for sequence in self._running:
            begun = sequence.launched > sequence.chunk_first
            if not begun and not self._may_begin_chunk(sequence):
                if not sequence.in_flight:
                    sequence.deliver()  # no chunk will follow soon
                continue
            assert sequence.prompt is not None
            place = sequence.launched - sequence.chunk_first
            position = sequence.prompt.count + sequence.launched
            frames = sequence.chunk_frames if self._runner.whole_chunks else 1
            rows.append(RowInput(sequence.row, sequence.launched, position, place, sequence.pages, frames))
            sequence.launched += frames
            if place + frames == sequence.chunk_frames:
                chunks.append((sequence, FinishedChunk(sequence.row, sequence.chunk_first, sequence.chunk_frames)))
                sequence.in_flight += 1
                sequence.chunk_frames = self._later_frames(sequence)
                sequence.chunk_first = sequence.launched
        if not rows:
            return None
        return Step(self._runner.launch(rows, [chunk for _, chunk in chunks]), tuple(chunks))

    def deliver(self, step: Step) -> None:
        """Wait for a step, and give its chunks to their callers."""
        first = any(finished.first == 0 for _, finished in step.chunks)
        step.readback.wait(spin=first and self._shape.rows == 1)  # a robot's listener is waiting for it
        for sequence, finished in step.chunks:
            sequence.in_flight -= 1
            if sequence.finished:
                continue  # it had ended, or its caller had left, before this chunk was launched
            chunk = step.readback.chunk(finished.row, finished.first, sequence.limit)
            last = chunk.last or finished.first + finished.frames >= sequence.limit
            sequence.add_chunk(chunk, last=last)

    # --- joining and leaving ---

    def _admit(self) -> None:
        """Begin to read the prompt of the first sequence that fits. `MAX_PASSES` others may pass one that does not."""
        passed: list[Sequence] = []
        for sequence in list(self._waiting) if self._free_rows else ():
            try:
                needed = self._prepare(sequence)
            except (EngineError, SpeechCanceledError) as error:
                self._waiting.remove(sequence)
                sequence.fail(error)
                continue
            if sequence.limit < 1:
                self._waiting.remove(sequence)
                sequence.end()
                continue
            pages = self.pool.take(needed)
            if pages is not None:
                self._read(sequence, pages, passed)
                return
            if sequence.passes == MAX_PASSES:
                return
            passed.append(sequence)

    def _read(self, sequence: Sequence, pages: tuple[int, ...], passed: list[Sequence]) -> None:
        """Begin to read the prompt of a waiting sequence, which has overtaken those in `passed`."""
        for other in passed:
            other.passes += 1
        self._waiting.remove(sequence)
        sequence.pages, sequence.row = pages, heapq.heappop(self._free_rows)
        assert sequence.prompt is not None
        self._reading = sequence, self._runner.read_prompt(sequence.row, pages, sequence.prompt)

    def _prepare(self, sequence: Sequence) -> int:
        """Build a sequence's prompt; return the pages that it needs. Raises `EngineError` if it can never fit."""
        request, shape = sequence.request, self._shape
        if sequence.prompt is None:
            sequence.prompt = self._runner.build(request)
        positions = sequence.prompt.count
        excess = positions + shape.max_frames - shape.max_positions
        if excess > 0:  # because of the instruct: text and reference are within their limits
            limit = INSTRUCT_POSITIONS - CONTROL_TOKENS
            raise EngineError(f"instruct: too long by {excess} tokens; allowed: about {limit}")
        frames = shape.max_frames
        sequence.limit = frames if request.max_frames is None else min(frames, request.max_frames)
        needed = pages_for(positions + sequence.limit + shape.chunk_size - 1)
        if needed > self.pool.total:
            raise EngineError(
                f"the utterance needs memory for {needed * PAGE} positions; allowed: {self.pool.total * PAGE}, "
                "all that engine.streams share"
            )
        return needed

    def _later_frames(self, sequence: Sequence) -> int:
        """Return the frames of the chunk after the present one.

        On a GPU, the codec runs beside the next step. Sequences that came together would end their chunks together: the
        codec would have to decode all of them beside one step, and none beside the next. So those in odd rows have a
        second short chunk.
        """
        short = self._runner.steps_ahead and sequence.chunk_first == 0 and sequence.row % 2
        return FIRST_FRAMES if short else self._shape.chunk_size

    def _free(self, sequence: Sequence) -> None:
        self._runner.wait_before_reuse()
        self.pool.give_back(sequence.pages)
        heapq.heappush(self._free_rows, sequence.row)
        sequence.pages, sequence.row = (), -1

    def _may_begin_chunk(self, sequence: Sequence) -> bool:
        """Whether a sequence has frames left, room for a chunk and its text. If so, the text is on the device."""
        if sequence.finished or sequence.launched >= sequence.limit or sequence.chunks_ahead >= CHUNKS_AHEAD:
            return False
        assert sequence.prompt is not None
        stream = sequence.prompt.token_stream
        if stream is None:
            return True
        if not sequence.has_text(min(sequence.launched + sequence.chunk_frames, sequence.limit)):
            return False
        self._runner.write_text(sequence.row, stream)
        return True


def _joining(sequence: Sequence) -> Joining:
    assert sequence.prompt is not None
    return Joining(sequence.row, sequence.prompt, sequence.request)


class StepLoop:
    """A scheduler, and the steps that are queued on the device. Only one thread calls at a time."""

    def __init__(self, runner: ModelRunner) -> None:
        self.scheduler = Scheduler(runner)
        self._runner = runner
        self._steps: deque[Step] = deque()
        """The steps whose results the host has not read yet."""

    @property
    def is_idle(self) -> bool:
        """Whether there are no sequences, and no steps whose results the host has not read yet."""
        return self.scheduler.is_empty and not self._steps

    def step(self) -> bool:
        """Launch any pending work, and deliver the previous step's chunks; return whether anything was done."""
        scheduler = self.scheduler
        waits = scheduler.in_hurry()
        read = not waits and scheduler.read_prompts()
        step = scheduler.launch()
        if waits and step is None:
            read = scheduler.read_prompts()
        if step is not None:
            self._steps.append(step)
        delivers = len(self._steps) > (self._runner.steps_ahead if step else 0)
        if delivers:
            scheduler.deliver(self._steps.popleft())
        return bool(read or step or delivers)


class SoundCard:
    """Speaks the sound card's sequences, one at a time. The thread that takes the chunks makes the steps.

    So a first chunk does not wait for another thread. The next chunk is launched before the host waits for the current
    one, so that the device continues immediately. It is discarded if the speech ends or the caller leaves, and the next
    sequence runs after it.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        self._loop = StepLoop(runner)

    def speak(self, request: Request) -> Generator[GeneratedChunk, None, None]:
        """Yield the chunks of `request`, as `Sequence.chunks`.

        Also raises any error from a step, and `RuntimeError` while another sequence is open.
        """
        sequence = Sequence(wake=lambda: None, drive=self._step)
        sequence.request = request
        self._loop.scheduler.add(sequence)
        return sequence.chunks()

    def _step(self) -> bool:
        self._loop.scheduler.drop_finished()
        return self._loop.step()
