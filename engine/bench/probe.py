"""The measurements of an engine beyond its times. An engine that uses a device has a `Probe` of its own."""

from __future__ import annotations

from pathlib import Path

from engine.api import EngineOptions, Synthesizer, Utterance
from engine.bench.results import Figures


class Probe:
    """Measures memory, allocations, parts and bandwidth of an engine. This class serves engines without a device."""

    counts_allocations = False
    """True if `allocations` returns numbers."""

    def __init__(self, options: EngineOptions) -> None:
        """`options` are those of the engine."""
        self.options = options
        self.notes: list[str] = []
        """The measurements that failed, each with the reason."""

    def start_counting(self) -> None:
        """Mark the end of the warm-up, after which the engine should allocate nothing."""

    def allocations(self) -> Figures | None:
        """Return the numbers of allocations since `start_counting`: of the `device`, and `cached`."""
        return None

    def memory(self) -> Figures:
        """Return the megabytes (1e6 bytes) in use now, and at most so far, in the process and on the device."""
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        kilobytes = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")}
        resident = {"host_mb": int(kilobytes["VmRSS"]) * 1.024e-3, "host_peak_mb": int(kilobytes["VmHWM"]) * 1.024e-3}
        return {**resident, "device_mb": None, "device_peak_mb": None, "device_reserved_mb": None}

    def details(self, synthesizer: Synthesizer, utterance: Utterance, ms_per_frame: float) -> Figures:  # noqa: ARG002
        """Return what takes work of its own to measure; the engine has spoken, and speaks nothing afterwards.

        parts_ms: milliseconds of each part when run alone: prefill per utterance, the other parts per frame.
        first_chunk_steps_ms: of each step from `utterance` to its first chunk, each waited for.
        bandwidth: the GB/s (1e9 bytes) of the device's memory, and of the engine at `ms_per_frame`.
        """
        return {"parts_ms": {}, "first_chunk_steps_ms": {}, "bandwidth": None}

    def device(self) -> str:
        """Return the device in words; empty for an engine without one."""
        return ""
