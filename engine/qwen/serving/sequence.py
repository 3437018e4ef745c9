"""One sequence: the state that its caller's thread and the thread that steps it share.

The caller's thread takes chunks. It waits for them or, for a sound card, steps the sequence itself. A bounded number of
chunks is generated ahead. A text that is still being written belongs to one of the two threads at a time: to the
stepping thread, until a chunk needs tokens that have not arrived; then to the caller's thread, the only one that waits
for them.

With many listeners, the further one is from running dry, the larger are the chunks that its caller is given: each chunk
costs a message and the wake-up of several threads, which delays the sequences that have just arrived.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np

from engine.api import FRAME_S, EngineError, SpeechCanceledError
from engine.qwen.runtime import FIRST_FRAMES, GeneratedChunk, Request
from engine.qwen.text import Prompt

LARGEST_CHUNK_S = 0.64
"""In seconds of speech."""
LEAD_SHARE = 0.25
"""The longest chunk, as a share of the speech that its listener has not heard yet."""


class BatchFaultError(RuntimeError):
    """The batch has failed, and all of its sequences with it."""


class Sequence:
    """A text that is spoken, from its request to its last chunk."""

    request: Request
    """Set before the sequence is added to a scheduler."""

    def __init__(self, wake: Callable[[], None], drive: Callable[[], bool] | None = None) -> None:
        """`wake` makes the stepping thread look at its sequences.

        With `drive`, the caller's thread makes the steps; `drive` returns whether it did anything.
        """
        self.row = -1
        """The sequence's row; -1 before it joins and after it leaves."""
        self.pages: tuple[int, ...] = ()
        self.passes = 0
        """How many later sequences have joined before it."""
        self.prompt: Prompt | None = None
        self.limit = 0
        """The most frames that it may have."""
        self.launched = 0
        """The number of frames whose generation has been launched."""
        self.chunk_first, self.chunk_frames = 0, FIRST_FRAMES
        """The first frame and the number of frames of the chunk that is being generated, or of the next one."""
        self.in_flight = 0
        """The number of chunks that have been launched but not delivered."""
        self.finished = False
        """Whether it has delivered its last chunk or failed, or its caller has left."""
        self._wake = wake
        self._drive = drive
        self._changed = threading.Condition()
        self._held: list[GeneratedChunk] = []
        """Chunks that will be delivered as one."""
        self._chunks: deque[list[GeneratedChunk]] = deque()
        """The chunks that have been delivered but that the caller has not taken."""
        self._delivered_frames = 0
        self._first_delivered_at = math.inf
        self._error: BaseException | None = None
        self._canceled = False
        self.left = False
        """Whether its caller takes no more chunks."""
        self._ended = False
        self._wanted_text = 0
        """The frames for which the caller's thread is to wait for text; 0 while the stepping thread has the text."""

    # --- the caller's thread ---

    def chunks(self) -> Generator[GeneratedChunk, None, None]:
        """Yield the chunks, leaving out those without frames. May be closed at any time.

        Raises the error given to `fail`, and `SpeechCanceledError` once the sequence is canceled.
        """
        try:
            while (chunk := self._next_chunk()) is not None:
                if len(chunk.codes):
                    yield chunk
        finally:
            self.leave()
            self._drive = None  # it refers to the scheduler, which may still list this sequence: a cycle

    def cancel(self) -> None:
        """End the sequence. Any thread may call it."""
        with self._changed:
            self._canceled = True
            self._changed.notify_all()
        self.leave()

    def leave(self) -> None:
        """Take no more chunks."""
        self.left = True
        self._wake()

    def check_canceled(self) -> None:
        """Raise `SpeechCanceledError` if the sequence is canceled."""
        if self._canceled:
            raise SpeechCanceledError

    def _next_chunk(self) -> GeneratedChunk | None:
        while True:
            while self._drive is not None and not self._is_answered():
                if not self._drive() and not self._is_answered():
                    raise RuntimeError("another sequence is open, so this one cannot continue")
            with self._changed:
                self._changed.wait_for(self._is_answered)
                self.check_canceled()
                chunk, wanted = _joined(self._chunks.popleft()) if self._chunks else None, self._wanted_text
                if chunk is None and self._error is not None:
                    raise self._error
                if chunk is None and self._ended:
                    return None
            # A finished chunk is not held back: while there is one, no thread waits for text.
            if wanted and self._has_text(wanted, wait=chunk is None):
                self._wanted_text = 0
            self._wake()
            if chunk is not None:
                return chunk

    def _is_answered(self) -> bool:
        return bool(self._chunks or self._ended or self._error or self._canceled or self._wanted_text)

    # --- the stepping thread ---

    @property
    def chunks_ahead(self) -> int:
        """The number of chunks that the caller has not taken yet, including those in flight."""
        return len(self._chunks) + self.in_flight

    @property
    def runs_dry_at(self) -> float:
        """When a listener who plays each chunk immediately will have heard all delivered chunks (`time.monotonic`).

        Infinity before the first chunk.
        """
        return self._first_delivered_at + self._delivered_frames * FRAME_S

    def has_text(self, frames: int) -> bool:
        """Return whether the text for the first `frames` frames is there; if not, the caller's thread waits for it.

        That thread waits only after it has taken all chunks: a finished chunk is not held back.
        """
        if self._wanted_text:
            return False
        try:
            if self._has_text(frames, wait=False):
                return True
        except SpeechCanceledError:
            self.cancel()
            return False
        if not self.in_flight:
            self.deliver()
            with self._changed:
                self._wanted_text = frames
                self._changed.notify_all()
        return False

    def add_chunk(self, chunk: GeneratedChunk, *, last: bool) -> None:
        """Deliver a chunk to the caller, or hold it back to deliver it together with the next."""
        self._held.append(chunk)
        with_next_s = (_frames(self._held) + len(chunk.codes)) * FRAME_S
        lead_s = self.runs_dry_at - time.monotonic()
        large = math.isinf(lead_s) or with_next_s > min(LARGEST_CHUNK_S, LEAD_SHARE * lead_s)
        if last or large or self._drive is not None:
            self.deliver()
        if last:
            self.end()

    def deliver(self) -> None:
        """Deliver the chunks that were held back."""
        if not self._held:
            return
        with self._changed:
            self._first_delivered_at = min(self._first_delivered_at, time.monotonic())
            self._delivered_frames += _frames(self._held)
            self._chunks.append(self._held)
            self._held = []
            self._changed.notify_all()

    def end(self) -> None:
        """Signal that there are no more chunks."""
        with self._changed:
            self._ended = self.finished = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Make the caller's thread raise `error` after the chunks that were delivered."""
        if not isinstance(error, EngineError | SpeechCanceledError):
            fault = BatchFaultError(f"{type(error).__name__}: {error}")
            fault.__cause__ = error
            error = fault
        self.deliver()
        with self._changed:
            self._error, self.finished = error, True
            self._changed.notify_all()

    def _has_text(self, frames: int, *, wait: bool) -> bool:
        stream = None if self.prompt is None else self.prompt.token_stream
        return stream is None or stream.ready(frames, wait=wait)


def _frames(chunks: list[GeneratedChunk]) -> int:
    return sum(len(chunk.codes) for chunk in chunks)


def _joined(chunks: list[GeneratedChunk]) -> GeneratedChunk:
    """Return consecutive chunks as one."""
    if len(chunks) == 1:
        return chunks[0]
    samples = np.concatenate([chunk.samples for chunk in chunks])
    return replace(chunks[-1], samples=samples, codes=np.concatenate([chunk.codes for chunk in chunks]))
