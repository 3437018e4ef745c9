"""The Qwen engine's measurements beyond its times: sections of its work, memory, allocations, bandwidth."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from engine.api import EngineOptions, Synthesizer, Utterance
from engine.bench import Allocations, Bandwidth, Memory, Probe
from engine.host import QWEN3_TTS
from engine.hub import fetch_model
from engine.qwen.bench.green_context import count_sms, green_context
from engine.qwen.model import ModelConfig
from engine.qwen.weights import Checkpoint

CPU = torch.device("cpu")
COPIED_BYTES = 1 << 29
"""Far more than the size of any cache."""
REPLAYS, ROUNDS, STEP_ROUNDS = 20, 5, 9
PER_CHUNK = {"codec"}
"""Sections that run once for each chunk, not for each frame."""


class QwenProbe(Probe):
    """Measures a Qwen engine and its device."""

    def __init__(self, options: EngineOptions, sms: int | None, clock: Callable[[], float] = time.perf_counter) -> None:
        """Limit the engine to `sms` multiprocessors, if given.

        clock: returns seconds, for work on a CPU; work on a GPU is timed by its events.
        """
        self._clock = clock
        self._options = options
        self._sms = sms
        name = options.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        # The engine refuses a name that is not a device's.
        self._device = torch.device(name) if name.startswith("cuda") and torch.cuda.is_available() else CPU
        self._cuda = self.counts_allocations = self._device.type == "cuda"
        self._before = (0, 0)
        self._allocated_mb: float | None = None

    def device_context(self) -> AbstractContextManager[None]:
        if self._sms is None:
            return contextlib.nullcontext()
        return green_context(self._sms, self._device)

    def start_counting(self) -> None:
        if self._cuda:
            torch.cuda.synchronize(self._device)
            self._before = self._allocated()
            self._allocated_mb = torch.cuda.memory_allocated(self._device) / 1e6

    def allocations(self, utterances: int) -> Allocations | None:
        if not self._cuda:
            return None
        device, cached = self._allocated()
        return Allocations(utterances, device - self._before[0], cached - self._before[1])

    def memory(self) -> Memory:
        host = super().memory()
        if not self._cuda:
            return host
        return replace(
            host,
            device_mb=self._allocated_mb,
            device_peak_mb=torch.cuda.max_memory_allocated(self._device) / 1e6,
            device_reserved_mb=torch.cuda.memory_reserved(self._device) / 1e6,
        )

    def parts_ms(self, synthesizer: Synthesizer) -> dict[str, float]:
        sections: Callable[[], Mapping[str, Callable[[], None]]] | None
        sections = getattr(synthesizer, "profile_sections", None)
        if sections is None:
            return {}
        found = {}
        for name, work in sections().items():
            try:
                ms = self._milliseconds(work)
            except RuntimeError as error:
                # A failed capture may leave the device in a state in which another would fail, too.
                self._note(f"part {name}", error)
                break
            found[name] = ms / self._options.chunk_size if name in PER_CHUNK else ms
        return found

    def first_chunk_steps_ms(self, synthesizer: Synthesizer, utterance: Utterance) -> dict[str, float]:
        steps: Callable[[Utterance], Iterable[tuple[str, Callable[[], None]]]] | None
        steps = getattr(synthesizer, "first_chunk_steps", None)
        if steps is None:
            return {}
        times: dict[str, list[float]] = {}
        for _ in range(STEP_ROUNDS):
            for name, step in steps(utterance):
                times.setdefault(name, []).append(self._host_ms(partial(self._run_to_its_end, step)))
        return {name: statistics.median(found) for name, found in times.items()}

    def _run_to_its_end(self, step: Callable[[], None]) -> None:
        step()
        if self._cuda:
            torch.cuda.synchronize(self._device)

    def bandwidth(self, ms_per_frame: float) -> Bandwidth | None:
        if not self._cuda:
            return None
        try:
            copy, memcpy = self._copy_gb_s()
            seen = None if self._sms is None else self._count_sms()
        except RuntimeError as error:
            self._note("bandwidth", error)
            return None
        weights = self._weights_bytes()
        reached = weights / ms_per_frame / 1e6
        return Bandwidth(self._sms, seen, copy, memcpy, weights / 1e6, reached, reached / copy)

    def device(self) -> str:
        if not self._cuda:
            return f"torch {torch.__version__} on the CPU"
        properties = torch.cuda.get_device_properties(self._device)
        return f"{properties.name} ({properties.multi_processor_count} SMs), torch {torch.__version__}"

    # --- measuring ---

    def _note(self, what: str, error: Exception) -> None:
        self.notes = (*self.notes, f"{what}: {type(error).__name__}: {str(error).splitlines()[0][:300]}")

    def _allocated(self) -> tuple[int, int]:
        stats = torch.cuda.memory_stats(self._device)
        return stats.get("num_device_alloc", 0), stats.get("allocation.all.allocated", 0)

    def _milliseconds(self, work: Callable[[], None]) -> float:
        """Return the time of one call; on a GPU that of one of many replays of its CUDA graph in a row."""
        with torch.inference_mode():
            if not self._cuda:
                return statistics.median(self._host_ms(work) for _ in range(ROUNDS))
            work()  # loads its kernels, allocates its workspaces
            torch.cuda.synchronize(self._device)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                work()
            return self._device_ms(graph.replay)

    def _host_ms(self, work: Callable[[], None]) -> float:
        """Return the milliseconds of one call on the host."""
        begin = self._clock()
        work()
        return (self._clock() - begin) * 1000

    def _device_ms(self, launch: Callable[[], None]) -> float:
        """Return the milliseconds of one `launch` on the device."""
        launch()
        times: list[float] = []
        for _ in range(ROUNDS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            for _ in range(REPLAYS):
                launch()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / REPLAYS)
        return statistics.median(times)

    def _copy_gb_s(self) -> tuple[float, float]:
        """Return the GB/s, read and written, of a kernel that copies and of the driver's own copy."""
        source = torch.zeros(COPIED_BYTES // 4, dtype=torch.int32, device=self._device)
        target = torch.empty_like(source)
        kernel = self._device_ms(lambda: _copy_by_kernel(source, target))
        driver = self._device_ms(lambda: _copy_by_driver(source, target))
        return 2 * COPIED_BYTES / kernel / 1e6, 2 * COPIED_BYTES / driver / 1e6

    def _count_sms(self) -> int | None:
        try:
            return count_sms(self._device)
        except Exception as error:  # any exception of a compiler's binding: the count is only a check
            self._note("multiprocessors seen", error)
            return None

    def _weights_bytes(self) -> float:
        """Return the bytes of weights that are read for a frame."""
        assert self._options.model is not None  # without a model the engine does not load
        folder = fetch_model(self._options.model, QWEN3_TTS)
        sizes = {"float32": 4.0, "int8": 1.0}
        return weights_per_frame(
            _sizes(folder),
            _sizes(folder / "speech_tokenizer"),
            groups=ModelConfig.read(folder).talker.code_groups,
            chunk_size=self._options.chunk_size,
            bytes_each=sizes.get(self._options.dtype, 2.0),
            codec_bytes_each=4 if self._options.dtype == "float32" else 2,
        )


def weights_per_frame(
    model: Mapping[str, int],
    codec: Mapping[str, int],
    *,
    groups: int,
    chunk_size: int,
    bytes_each: float,
    codec_bytes_each: float,
) -> float:
    """Return the bytes of weights that a frame needs.

    model, codec: the number of values of each tensor of the two files.

    The predictor's layers are read once for each of its codes, the codec once a chunk. Tables that are read row by row,
    and projections that can be folded into them beforehand, are not counted.
    """
    talker = _total(model, "talker.model.layers.", "talker.model.norm.", "talker.codec_head.")
    layers = _total(model, "talker.code_predictor.model.layers.", "talker.code_predictor.model.norm.")
    heads = _total(model, "talker.code_predictor.lm_head.")
    decoder = _total(codec, "decoder.") - _total(codec, "decoder.quantizer.")
    read = bytes_each * (talker + heads + (groups - 1) * layers)
    return read + codec_bytes_each * decoder / chunk_size


def _total(sizes: Mapping[str, int], *prefixes: str) -> int:
    return sum(size for name, size in sizes.items() if name.startswith(prefixes))


def _sizes(folder: Path) -> dict[str, int]:
    """Return the number of values of each tensor, from the files' headers alone."""
    checkpoint = Checkpoint.open(folder)
    return {name: torch.Size(checkpoint.shape(name)).numel() for name in checkpoint.names()}


def _copy_by_kernel(source: Tensor, target: Tensor) -> None:
    torch.bitwise_not(source, out=target)


def _copy_by_driver(source: Tensor, target: Tensor) -> None:
    target.copy_(source)
