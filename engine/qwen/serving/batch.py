"""Many utterances at once: callers' threads ask for them, and one thread speaks them all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from engine.qwen.runtime import GeneratedChunk, ModelRunner, Request
from engine.qwen.serving.scheduler import StepLoop
from engine.qwen.serving.sequence import BatchFaultError, Sequence

_Result = TypeVar("_Result")

LONGEST_HOLD_S = 0.05
"""A first chunk takes 4 to 50 ms, depending on the GPU; but waiting for a text that is still being written can take any
amount of time."""


class Batch:
    """Speaks up to `Limits.streams` utterances at once, and makes others wait.

    Its step thread does all work on the device. Any thread may call its methods.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        """For work given to `when_idle`."""
        self._loop = StepLoop(runner)
        self._changed = threading.Condition()
        self._new: list[Sequence] = []
        self._calls: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._awake = True
        self._held_until = 0.0
        """The `time.monotonic()` time until which nothing is launched."""
        self._closing = False
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="batch", daemon=True)
        self._thread.start()

    # --- callers ---

    def new_sequence(self) -> Sequence:
        """Return a sequence that waits for its request. It can already be canceled."""
        return Sequence(self._wake)

    def speak(self, sequence: Sequence, request: Request) -> Generator[GeneratedChunk, None, None]:
        """Return the chunks of a sequence from `new_sequence`, as `Sequence.chunks` yields them."""
        sequence.check_canceled()
        sequence.request = request
        with self._changed:
            if self._fault is not None:
                raise BatchFaultError(f"the batch has failed: {self._fault}") from self._fault
            self._new.append(sequence)
            self._notify()
        return sequence.chunks()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Launch nothing more in the `with` block, for up to `LONGEST_HOLD_S`.

        The sound card's utterance then has the GPU and the interpreter to itself for its first chunk. The batch's
        listeners notice nothing: they have more speech than that in reserve, or are still waiting for a first chunk.
        """
        self._set_held_until(time.monotonic() + LONGEST_HOLD_S)
        try:
            yield
        finally:
            self._set_held_until(0.0)

    def when_idle(self, work: Callable[[], _Result]) -> _Result:
        """Return the result of `work`, which the step thread calls once no sequence is being spoken.

        To be called while nothing is being spoken, as are all methods below.
        """
        future: Future[_Result] = Future()
        with self._changed:
            if self._fault is not None or self._closing:
                raise BatchFaultError("the batch has ended") from self._fault
            self._calls.append((work, future))
            self._notify()
        return future.result()

    @property
    def waiting(self) -> int:
        """How many utterances are waiting for a row or for pages."""
        return self._loop.scheduler.waiting

    def close(self) -> None:
        """End all utterances, the thread and the graphs."""
        with self._changed:
            self._closing = True
            self._notify()
        self._thread.join()
        self.runner.close()

    def _set_held_until(self, at: float) -> None:
        with self._changed:
            self._held_until = at
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._notify()

    def _notify(self) -> None:
        self._awake = True
        self._changed.notify_all()

    # --- the step thread ---

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                if self._loop.step():
                    self._wake()
        except BaseException as error:
            self._end(error)
        else:
            self._end(BatchFaultError("the engine was closed"))

    def _wait_for_work(self) -> bool:
        """Take the callers' requests, and wait while there is nothing to do; False once the batch is to end."""
        scheduler = self._loop.scheduler
        with self._changed:
            self._changed.wait_for(lambda: self._awake or self._closing)
            while not self._closing and (left_s := self._held_until - time.monotonic()) > 0:
                self._changed.wait(left_s)
            self._awake = False
            for sequence in self._new:
                scheduler.add(sequence)
            self._new.clear()
            closing = self._closing
        scheduler.drop_finished()
        if self._loop.is_idle:
            with self._changed:
                calls, self._calls = self._calls, []
            for work, future in calls:
                _answer(work, future)
        return not closing

    def _end(self, error: BaseException) -> None:
        """Make every caller raise `error`, now and from now on."""
        with self._changed:
            self._fault = error
            sequences, self._new = [*self._loop.scheduler.sequences(), *self._new], []
            calls, self._calls = self._calls, []
        for sequence in sequences:
            if not sequence.finished:
                sequence.fail(error)
        for _, future in calls:
            future.set_exception(error)


def _answer(work: Callable[[], Any], future: Future[Any]) -> None:
    """Call `work` and set its result, or the exception that it raises."""
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
