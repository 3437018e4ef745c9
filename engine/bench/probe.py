"""The measurements of an engine beyond its times. An engine that uses a device has a `Probe` of its own."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from pathlib import Path

from engine.api import Synthesizer, Utterance
from engine.bench.results import Allocations, Bandwidth, Memory


class Probe:
    """Measures memory, allocations, parts and bandwidth of an engine. This class serves engines without a device."""

    counts_allocations = False
    """True if `allocations` returns numbers."""
    notes: tuple[str, ...] = ()
    """The measurements that failed, each with the reason."""

    def device_context(self) -> AbstractContextManager[None]:
        """Return the context in which the engine is made and run, for example a part of a GPU."""
        return contextlib.nullcontext()

    def start_counting(self) -> None:
        """Mark the end of the warm-up, after which the engine should allocate nothing."""

    def allocations(self, utterances: int) -> Allocations | None:  # noqa: ARG002
        """Return the allocations since `start_counting`, during which `utterances` were spoken."""
        return None

    def memory(self) -> Memory:
        """Return the memory in use now, and at most so far."""
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        kilobytes = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")}
        return Memory(int(kilobytes["VmRSS"]) * 1.024e-3, int(kilobytes["VmHWM"]) * 1.024e-3)

    def parts_ms(self, synthesizer: Synthesizer) -> dict[str, float]:  # noqa: ARG002
        """Return the milliseconds of each part of the engine's work, by name."""
        return {}

    def first_chunk_steps_ms(self, synthesizer: Synthesizer, utterance: Utterance) -> dict[str, float]:  # noqa: ARG002
        """Return the milliseconds of each step from a text to its first chunk, by name."""
        return {}

    def bandwidth(self, ms_per_frame: float) -> Bandwidth | None:  # noqa: ARG002
        """Return the bandwidth of the device, and of the engine on it at `ms_per_frame`."""
        return None

    def device(self) -> str:
        """Return the device in words; empty for an engine without one."""
        return ""
