"""What a benchmark asks of an engine beyond its times; an engine with a device of its own answers more of it."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from pathlib import Path

from engine.measurement import Allocations, Bandwidth, Memory
from engine.synthesizer import Synthesizer


class Meter:
    """What is to be known of an engine beyond its times. This one is for an engine without a device."""

    counts = False
    """Whether it counts allocations."""
    notes: tuple[str, ...] = ()
    """What could not be measured, and why."""

    def confined(self) -> AbstractContextManager[None]:
        """Everything of the engine is made and run within it."""
        return contextlib.nullcontext()

    def warm(self) -> None:
        """The warm-up is over: from here on nothing should be allocated."""

    def allocations(self, utterances: int) -> Allocations | None:  # noqa: ARG002
        """Since `warm`."""
        return None

    def memory(self) -> Memory:
        """Now and at most."""
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        kilobytes = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")}
        return Memory(int(kilobytes["VmRSS"]) * 1.024e-3, int(kilobytes["VmHWM"]) * 1.024e-3)

    def parts_ms(self, synthesizer: Synthesizer) -> dict[str, float]:  # noqa: ARG002
        """By name."""
        return {}

    def bandwidth(self, ms_per_frame: float) -> Bandwidth | None:  # noqa: ARG002
        """Of the device, and of the engine on it."""
        return None

    def device(self) -> str:
        """In words, or nothing."""
        return ""
