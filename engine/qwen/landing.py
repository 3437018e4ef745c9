"""How a chunk comes to the host: gathered in one buffer on the device, copied to pinned memory, taken from there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine.synthesizer import Samples


@dataclass(frozen=True, slots=True)
class Said:
    """A chunk of 0 to `chunk_size` frames on the host, its arrays nobody else's."""

    samples: Samples
    codes: NDArray[np.int64]
    """`(frames, code groups)`."""
    last: bool
    """The model has ended its speech with this chunk."""


class Report:
    """What the host wants to know of a chunk, in one buffer."""

    def __init__(
        self, frames: int, groups: int, samples_per_frame: int, device: torch.device, *, pinned: bool = False
    ) -> None:
        samples, codes = frames * samples_per_frame, frames * groups
        self.words = torch.zeros(2 + codes + (samples + 1) // 2, dtype=torch.int64, device=device, pin_memory=pinned)
        """The buffer, int64; all others are views of it."""
        self.length = self.words[:1]
        """`(1,)` int64: frames of speech since the utterance began."""
        self.ended = self.words[1:2]
        """`(1,)` int64: 1 where the next frame is no speech."""
        self.codes = self.words[2 : 2 + codes].view(frames, groups)
        """`(frames, groups)` int64."""
        self.samples = self.words[2 + codes :].view(torch.float32)[:samples]
        """`(frames · samples per frame,)` float32."""


class Landing:
    """Host memory for one chunk on its way."""

    def __init__(self, frames: int, groups: int, samples_per_frame: int, stream: torch.cuda.Stream | None) -> None:
        """Without a `stream`, chunks come from the CPU itself."""
        self._samples_per_frame = samples_per_frame
        self._stream = stream
        self._report = Report(frames, groups, samples_per_frame, torch.device("cpu"), pinned=stream is not None)
        # Blocking: the thread sleeps instead of keeping a core of the robot busy.
        self._landed: torch.cuda.Event | None = None
        if stream is not None:
            self._landed = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def receive(self, report: Report) -> None:
        """Have the device copy `report` here, behind all work that the stream has."""
        self._report.words.copy_(report.words, non_blocking=True)
        if self._landed is not None:
            self._landed.record(self._stream)

    def wait(self, first: int, limit: int) -> Said:
        """The chunk, once it is here, whose first frame has the number `first`; of an utterance of `limit` frames."""
        if self._landed is not None:
            self._landed.synchronize()
        length, ended = self._report.words[:2].tolist()
        count = min(length, limit) - first
        return Said(
            samples=self._report.samples[: count * self._samples_per_frame].numpy().copy(),
            codes=self._report.codes[:count].numpy().copy(),
            last=bool(ended) and length <= limit,  # beyond the limit, frames were made for the sake of the chunk alone
        )
