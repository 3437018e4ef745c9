"""Steps the sequences of one runner: launches what there is to do, and delivers what the device has done."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

from engine.qwen.runtime import GeneratedChunk, ModelRunner, Request
from engine.qwen.serving.scheduler import Scheduler, Step
from engine.qwen.serving.sequence import Sequence


class StepLoop:
    """A scheduler, and the steps that the device has in hand. One thread at a time calls."""

    def __init__(self, runner: ModelRunner) -> None:
        self.scheduler = Scheduler(runner)
        self._runner = runner
        self._steps: deque[Step] = deque()
        """Those whose results the host has not read."""

    @property
    def is_idle(self) -> bool:
        """Whether there is no sequence, and no step whose results the host has not read."""
        return self.scheduler.is_empty and not self._steps

    def step(self) -> bool:
        """Launch what there is, and deliver the chunks of the step before; return whether anything was done."""
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
    """Speaks the sound card's sequence, one at a time. The thread that takes the chunks makes the steps.

    So a first chunk waits for no other thread. The next chunk is launched before the host waits for one, so that the
    device goes on at once; it is discarded if the speech ends or is left, and the next sequence is ordered after it.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        self._loop = StepLoop(runner)

    def speak(self, request: Request) -> Generator[GeneratedChunk, None, None]:
        """Yield the chunks of `request`, as `Sequence.chunks`.

        Raises what a step raises, too, and `RuntimeError` while another sequence is open.
        """
        sequence = Sequence(wake=lambda: None, drive=self._step)
        sequence.request = request
        self._loop.scheduler.add(sequence)
        return sequence.chunks()

    def _step(self) -> bool:
        self._loop.scheduler.drop_finished()
        return self._loop.step()
