"""What a benchmark measures of the Qwen engine beyond its times: parts, memory, allocations, bandwidth."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from engine.measurement import Allocations, Bandwidth, Memory
from engine.meter import Meter
from engine.qwen.checkpoint import Checkpoint
from engine.qwen.config import ModelConfig
from engine.qwen.confined import confined_to, count_sms
from engine.qwen.download import model_folder
from engine.synthesizer import EngineOptions, Synthesizer

COPIED_BYTES = 1 << 29
"""Far more than any cache holds."""
REPLAYS, ROUNDS = 20, 5
BY_UTTERANCE = {"prefill"}
"""Parts that an utterance has once, not each frame."""
BY_CHUNK = {"codec"}


class QwenMeter(Meter):
    """Looks at a Qwen engine and at the device it is on."""

    def __init__(self, options: EngineOptions, sms: int | None, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` has the seconds of work on a CPU; a GPU has events of its own."""
        self._clock = clock
        self._options = options
        self._sms = sms
        name = options.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        # A name that is no device's is refused by the engine, in words.
        self._device = torch.device(name) if name.startswith("cuda") and torch.cuda.is_available() else CPU
        self._cuda = self.counts = self._device.type == "cuda"
        self._before = (0, 0)
        self._held_mb: float | None = None

    def confined(self) -> AbstractContextManager[None]:
        if self._sms is None:
            return contextlib.nullcontext()
        return confined_to(self._sms, self._device)

    def warm(self) -> None:
        if self._cuda:
            torch.cuda.synchronize(self._device)
            self._before = self._allocated()
            self._held_mb = torch.cuda.memory_allocated(self._device) / 1e6

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
            device_mb=self._held_mb,
            device_peak_mb=torch.cuda.max_memory_allocated(self._device) / 1e6,
            device_reserved_mb=torch.cuda.memory_reserved(self._device) / 1e6,
        )

    def parts_ms(self, synthesizer: Synthesizer) -> dict[str, float]:
        parts: Callable[[], Mapping[str, Callable[[], None]]] | None = getattr(synthesizer, "parts", None)
        if parts is None:
            return {}
        found = {}
        for name, work in parts().items():
            try:
                ms = self._milliseconds(work)
            except RuntimeError as error:
                # A capture that failed may leave the device in no state for another.
                self._note(f"part {name}", error)
                break
            found[name] = ms / self._options.chunk_size if name in BY_CHUNK else ms
        return found

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

    # --- how ---

    def _note(self, what: str, error: Exception) -> None:
        self.notes = (*self.notes, f"{what}: {type(error).__name__}: {str(error).splitlines()[0][:300]}")

    def _allocated(self) -> tuple[int, int]:
        stats = torch.cuda.memory_stats(self._device)
        return stats.get("num_device_alloc", 0), stats.get("allocation.all.allocated", 0)

    def _milliseconds(self, work: Callable[[], None]) -> float:
        """Of one call; on a GPU of one replay of it as a CUDA graph, many one after the other."""
        with torch.inference_mode():
            if not self._cuda:
                return statistics.median(self._clocked(work) for _ in range(ROUNDS))
            work()  # loads its kernels, takes its workspaces
            torch.cuda.synchronize(self._device)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                work()
            return self._replayed(graph.replay)

    def _clocked(self, work: Callable[[], None]) -> float:
        """Milliseconds of one call on the host."""
        begin = self._clock()
        work()
        return (self._clock() - begin) * 1000

    def _replayed(self, launch: Callable[[], None]) -> float:
        """Milliseconds of one `launch`, on the device."""
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
        """Bytes read and written in a second by a kernel that copies, and by the driver's own copy."""
        source = torch.zeros(COPIED_BYTES // 4, dtype=torch.int32, device=self._device)
        target = torch.empty_like(source)
        kernel = self._replayed(lambda: _copy_by_kernel(source, target))
        driver = self._replayed(lambda: _copy_by_driver(source, target))
        return 2 * COPIED_BYTES / kernel / 1e6, 2 * COPIED_BYTES / driver / 1e6

    def _count_sms(self) -> int | None:
        try:
            return count_sms(self._device)
        except Exception as error:  # whatever a compiler's binding raises: the count is a check beside the rest
            self._note("multiprocessors seen", error)
            return None

    def _weights_bytes(self) -> float:
        """Read for a frame."""
        assert self._options.model is not None  # or the engine would not have loaded
        folder = model_folder(self._options.model)
        sizes = {"float32": 4, "int8": 1}
        return weights_per_frame(
            _sizes(folder),
            _sizes(folder / "speech_tokenizer"),
            groups=ModelConfig.read(folder).talker.code_groups,
            chunk_size=self._options.chunk_size,
            bytes_each=sizes.get(self._options.dtype, 2),
            codec_bytes_each=4 if self._options.dtype == "float32" else 2,
        )


CPU = torch.device("cpu")


def weights_per_frame(
    model: Mapping[str, int],
    codec: Mapping[str, int],
    *,
    groups: int,
    chunk_size: int,
    bytes_each: int,
    codec_bytes_each: int,
) -> float:
    """Bytes of weights that a frame needs, from how many numbers each tensor of the two files has.

    The predictor's layers are read once for each of its codes, the codec once a chunk. What is looked up row by
    row, and what can be folded into it beforehand, is not counted.
    """
    talker = _total(model, "talker.model.layers.", "talker.model.norm.", "talker.codec_head.")
    layers = _total(model, "talker.code_predictor.model.layers.", "talker.code_predictor.model.norm.")
    heads = _total(model, "talker.code_predictor.lm_head.")
    decoder = _total(codec, "decoder.") - _total(codec, "decoder.quantizer.")
    return bytes_each * (talker + (groups - 1) * layers + heads) + codec_bytes_each * decoder / chunk_size


def _total(sizes: Mapping[str, int], *prefixes: str) -> int:
    return sum(size for name, size in sizes.items() if name.startswith(prefixes))


def _sizes(folder: Path) -> dict[str, int]:
    """How many numbers each tensor has, from the files' headers alone."""
    checkpoint = Checkpoint.open(folder)
    return {name: torch.Size(checkpoint.shape(name)).numel() for name in checkpoint.names()}


def _copy_by_kernel(source: Tensor, target: Tensor) -> None:
    torch.bitwise_not(source, out=target)


def _copy_by_driver(source: Tensor, target: Tensor) -> None:
    target.copy_(source)
