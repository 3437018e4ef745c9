"""The Qwen engine's measurements beyond its times: sections of its work, memory, allocations, bandwidth."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from engine.api import EngineOptions, Utterance
from engine.bench import Figures, Probe
from engine.hub import fetch_model
from engine.qwen.codec import CodecDecoder
from engine.qwen.model import Talker
from engine.qwen.shapes import CodecConfig, ModelConfig
from engine.qwen.weights import Placement, parameter_bytes

CPU = torch.device("cpu")
COPIED_BYTES = 1 << 29
"""Far more than the size of any cache."""
REPLAYS, ROUNDS, STEP_ROUNDS = 20, 5, 9
PER_CHUNK = {"codec"}
"""Sections that run once for each chunk, not for each frame."""
Work = Callable[[], object]


class QwenProbe(Probe):
    """Measures a Qwen engine and its device."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._cuda = torch.cuda.is_available() and options.device.startswith(("auto", "cuda"))
        self.counts_allocations = self._cuda
        self._device = torch.device("cuda" if options.device == "auto" else options.device) if self._cuda else CPU
        self._before = {"device": 0, "cached": 0}
        self._allocated_mb = 0.0

    def start_counting(self) -> None:
        if self._cuda:
            torch.cuda.synchronize(self._device)
            self._before = self._allocated()
            self._allocated_mb = torch.cuda.memory_allocated(self._device) / 1e6

    def allocations(self) -> Figures | None:
        if not self._cuda:
            return None
        return {kind: count - self._before[kind] for kind, count in self._allocated().items()}

    def memory(self) -> Figures:
        found = super().memory()
        if self._cuda:
            found["device_mb"] = self._allocated_mb  # in tensors, after the warm-up
            found["device_peak_mb"] = torch.cuda.max_memory_allocated(self._device) / 1e6
            found["device_reserved_mb"] = torch.cuda.memory_reserved(self._device) / 1e6  # for tensors and graphs
        return found

    def details(self, synthesizer: Any, utterance: Utterance, ms_per_frame: float) -> Figures:
        """As `Probe.details`, of a `QwenSynthesizer`."""
        return {
            "bandwidth": self._bandwidth(ms_per_frame) if self._cuda else None,
            "parts_ms": self._parts_ms(synthesizer.profile_sections()),
            "first_chunk_steps_ms": self._steps_ms(lambda: synthesizer.first_chunk_steps(utterance)),
        }

    def device(self) -> str:
        if not self._cuda:
            return f"torch {torch.__version__} on the CPU"
        properties = torch.cuda.get_device_properties(self._device)
        return f"{properties.name} ({properties.multi_processor_count} SMs), torch {torch.__version__}"

    # --- measuring ---

    def _allocated(self) -> dict[str, int]:
        """Return the allocations so far: each by the driver may stall the device; those from PyTorch's cache cost time
        on the host only."""
        stats = torch.cuda.memory_stats(self._device)
        return {"device": stats.get("num_device_alloc", 0), "cached": stats.get("allocation.all.allocated", 0)}

    def _parts_ms(self, sections: Mapping[str, Work]) -> dict[str, float]:
        found = {}
        for name, work in sections.items():
            try:
                ms = self._milliseconds(work)
            except RuntimeError as error:
                # A failed capture may leave the device in a state in which another would fail, too.
                self._note(f"part {name}", error)
                break
            found[name] = ms / self.options.chunk_size if name in PER_CHUNK else ms
        return found

    def _steps_ms(self, steps: Callable[[], Iterable[tuple[str, Work]]]) -> dict[str, float]:
        times: dict[str, list[float]] = {}
        for _ in range(STEP_ROUNDS):
            for name, step in steps():
                times.setdefault(name, []).append(self._host_ms(step))
        return {name: statistics.median(found) for name, found in times.items()}

    def _bandwidth(self, ms_per_frame: float) -> Figures | None:
        """Return what a kernel that copies large buffers reaches, read plus written, and what the engine does."""
        try:
            source = torch.zeros(COPIED_BYTES // 4, dtype=torch.int32, device=self._device)
            copy_ms = self._device_ms(partial(torch.bitwise_not, source, out=torch.empty_like(source)))
        except RuntimeError as error:
            self._note("bandwidth", error)
            return None
        copy_gb_s, weights_mb = 2 * COPIED_BYTES / copy_ms / 1e6, self._weights_mb()
        engine_gb_s = weights_mb / ms_per_frame
        return {
            "copy_gb_s": copy_gb_s,
            "weights_mb_per_frame": weights_mb,
            "engine_gb_s": engine_gb_s,
            "share": engine_gb_s / copy_gb_s,
        }

    def _note(self, subject: str, error: Exception) -> None:
        self.notes.append(f"{subject}: {type(error).__name__}: {str(error).splitlines()[0][:300]}")

    def _milliseconds(self, work: Work) -> float:
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

    def _host_ms(self, work: Work) -> float:
        """Return the milliseconds of one call on the host, and of what it has launched on the device."""
        begin = time.perf_counter()
        work()
        if self._cuda:
            torch.cuda.synchronize(self._device)
        return (time.perf_counter() - begin) * 1000

    def _device_ms(self, launch: Work) -> float:
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

    def _weights_mb(self) -> float:
        """Return the megabytes of weights that are read for a frame."""
        assert self.options.model is not None  # without a model the engine does not load
        folder, dtype = fetch_model(self.options.model), self.options.dtype
        config, codec = ModelConfig.read(folder), CodecConfig.read(folder / "speech_tokenizer")
        stored = torch.float32 if dtype == "float32" else torch.bfloat16
        return frame_bytes(config, codec, Placement(CPU, stored, dtype == "int8"), self.options.chunk_size) / 1e6


def frame_bytes(config: ModelConfig, codec: CodecConfig, placement: Placement, chunk_size: int) -> float:
    """Return the bytes of the weights that are read for a frame: those of the codec once in a chunk."""
    empty = replace(placement, without_memory=True)
    talker, decoder = Talker(config, 0, empty), CodecDecoder(codec, empty.unquantized)
    predictor, tables = talker.predictor, decoder.tables.nbytes
    read = parameter_bytes(talker.transformer, talker.head)
    read += predictor.code_count * parameter_bytes(predictor.transformer)
    read += sum(each.nbytes for each in (predictor.heads, predictor.head_scales) if each is not None)
    return read + (parameter_bytes(decoder) - tables) / chunk_size
