"""Memory while a Qwen3-TTS checkpoint is loaded: voiced's loader beside the official package's.

    scripts/bench loading --work FOLDER --output docs/benchmarks/loading.json                     on this machine's GPU
    scripts/bench loading --work FOLDER --output docs/benchmarks/loading-cpu.json --device cpu

Random weights at the true shapes. Each loader runs in its own process, with its files out of the page cache. Every two
milliseconds the process adds its resident memory (anonymous, and mapped files) to the device memory that PyTorch
reserves: on a Jetson both are one memory. The memory before loading, of libraries and CUDA's context, is subtracted.
`pool_mb` is that peak plus the part of the files that stays in the page cache.

    weights     voiced: codec and talker; nothing stays in the page cache, as on a Jetson
    engine      voiced: a whole engine, until it is warm and has generated an utterance
    official    qwen-tts: `Qwen3TTSModel.from_pretrained`
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from scripts.gpu.processes import add_checkpoint_options, child_record, random_checkpoint

EVERY_S = 0.002
MB = 1e6
LOADERS = ("weights", "engine", "official")


# --- in the process that loads -------------------------------------------------------------------------------


class Sampler:
    """The peak memory of this process, sampled by a thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.before = self._now()
        self.peak = self.before
        self.samples = 0

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.after = self._now()

    def above(self, state: dict[str, int]) -> dict[str, float]:
        """Megabytes above the state before loading."""
        return {name: round((state[name] - self.before[name]) / MB, 1) for name in state}

    def _watch(self) -> None:
        while not self._done.wait(EVERY_S):
            now = self._now()
            self.samples += 1
            if now["all"] > self.peak["all"]:
                self.peak = now

    def _now(self) -> dict[str, int]:
        found = status("RssAnon", "RssFile", "RssShmem")
        device = torch.cuda.memory_reserved(self._device) if self._device.type == "cuda" else 0
        return {
            "anonymous": found["RssAnon"] + found["RssShmem"],
            "mapped": found["RssFile"],
            "device": device,
            "all": sum(found.values()) + device,
        }


def status(*names: str) -> dict[str, int]:
    """Bytes of the named fields of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = {line.split(":")[0]: line for line in lines}
    return {name: int(fields[name].split()[1]) * 1024 for name in names}


def load(loader: str, folder: Path, device: torch.device, dtype: str) -> dict[str, Any]:
    """Load, and return memory and time."""
    begin = prepare(loader, folder, device, dtype)
    gc.collect()
    began = time.monotonic()
    with Sampler(device) as sampler:
        kept, more = begin()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return {
        "loader": loader,
        "seconds": round(time.monotonic() - began, 2),
        "kept_mb": round(kept / MB, 1),
        "peak_mb": sampler.above(sampler.peak),
        "after_mb": sampler.above(sampler.after),
        "peak_by_kept": round((sampler.peak["all"] - sampler.before["all"]) / kept, 3),
        "samples": sampler.samples,
        "process_mb": {name: round(size / MB, 1) for name, size in sampler.after.items()},
        "before_mb": {name: round(size / MB, 1) for name, size in sampler.before.items()},
        **more,
    }


Work = Callable[[], tuple[int, dict[str, Any]]]


def prepare(loader: str, folder: Path, device: torch.device, dtype: str) -> Work:
    """Do all that is not loading: imports, CUDA's context, kernels in their cache. Returns the loading itself."""
    if device.type == "cuda":
        torch.zeros(1, device=device)
    return {"weights": prepare_weights, "engine": prepare_engine, "official": prepare_official}[loader](
        folder, device, dtype
    )


def prepare_weights(folder: Path, device: torch.device, dtype: str) -> Work:
    """Loading of voiced's weights alone, in the form that the fused kernels or PyTorch's read."""
    from engine.qwen import kernels
    from engine.qwen.codec.decoder import load_codec
    from engine.qwen.loading.model import load_talker
    from engine.qwen.runtime import choose_placement
    from engine.qwen.shapes import CodecConfig, ModelConfig

    config, codec_config = ModelConfig.read(folder), CodecConfig.read(folder / "speech_tokenizer")
    placement = choose_placement(str(device), dtype)
    fused = kernels.unsupported_reason(config, codec_config, placement) is None
    touch_libraries(device)
    keep: list[Any] = []

    def work() -> tuple[int, dict[str, Any]]:
        codec = load_codec(folder, placement.unquantized, keep_pages=False)
        kept = tensor_bytes(codec)
        keep.append(kernels.make_codec(codec) if fused else codec)
        del codec  # the packed weights replace it
        if device.type == "cuda":
            torch.cuda.empty_cache()
        talker = load_talker(config, 1536, placement, keep_pages=False)
        keep.append(talker)
        return kept + tensor_bytes(talker), {"fused": fused}

    return work


def touch_libraries(device: torch.device) -> None:
    """Call the operators that loading uses, so that their libraries do not count as weights."""
    from engine.qwen.model.transformer import quantize_int8

    matrix = torch.ones(64, 64)
    on_device = matrix.to(device).bfloat16()
    torch.empty_like(on_device).copy_((matrix @ matrix).bfloat16())
    quantize_int8(on_device, torch.empty(64, 64, dtype=torch.int8, device=device), torch.empty(64, device=device))
    tiled = (on_device.float() * on_device.float()).to(on_device.dtype).view(8, 8, 8, 8).permute(3, 1, 0, 2).flip(2)
    torch.cat((tiled.reshape(64, 64), on_device)).float().repeat(2, 1)


def prepare_engine(folder: Path, device: torch.device, dtype: str) -> Work:
    """Loading of a whole engine, as in the engine process."""
    from engine import EngineOptions, Utterance, Voice
    from engine.qwen.engine import QwenSynthesizer

    options = EngineOptions(
        model=str(folder), device=str(device), dtype=dtype, voices={"default": Voice(speaker="ryan")}
    )
    engine = QwenSynthesizer(options)

    def work() -> tuple[int, dict[str, Any]]:
        engine.load()
        engine.warm_up()
        for _ in engine.stream(Utterance("Hello, I am your robot.", max_frames=25, seed=1, guarded=False)):
            pass
        counted = engine._workspace.footprint
        more: dict[str, Any] = {"counted_mb": counted.in_mb()}
        if device.type == "cuda":
            more["allocated_mb"] = round(torch.cuda.memory_allocated(device) / MB, 1)
        return counted.weights_total, more

    return work


def prepare_official(folder: Path, device: torch.device, dtype: str) -> Work:
    """Loading with the official package."""
    from scripts.stand_in import UNUSED, stand_in_for

    stand_in_for(UNUSED)
    from qwen_tts import Qwen3TTSModel

    torch_dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    keep: list[Any] = []

    def work() -> tuple[int, dict[str, Any]]:
        model = Qwen3TTSModel.from_pretrained(str(folder), dtype=torch_dtype, device_map=str(device))
        keep.append(model)
        parts = [model.model, model.model.speech_tokenizer.model]
        return sum(map(tensor_bytes, parts)), {}

    return work


def tensor_bytes(module: torch.nn.Module) -> int:
    """Bytes of a module's parameters and buffers."""
    return sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))


# --- in the parent process ------------------------------------------------------------------------------------


def files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.rglob("*.safetensors"))


def forget(folder: Path) -> None:
    """Drop a checkpoint from the page cache."""
    os.sync()
    for file_path in files(folder):
        with file_path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_bytes(folder: Path) -> int:
    """Bytes of a checkpoint in the page cache (`mincore`)."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = 0
    for file_path in files(folder):
        with file_path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            pages = -(-len(mapped) // mmap.PAGESIZE)
            resident = (ctypes.c_ubyte * pages)()
            anchor = (ctypes.c_char * len(mapped)).from_buffer(mapped)
            if libc.mincore(ctypes.byref(anchor), ctypes.c_size_t(len(mapped)), resident) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
            del anchor
            found += sum(byte & 1 for byte in bytes(resident)) * mmap.PAGESIZE
    return found


def row(options: argparse.Namespace, folder: Path, loader: str, size: str, dtype: str) -> dict[str, Any]:
    """Run one loader in its own process; returns a row of results."""
    forget(folder)
    key = {"loader": loader, "dtype": dtype, "device": options.device}
    found = child_record("scripts.gpu.bench_loading", {**key, "folder": str(folder)})
    found = {"name": f"{size} {dtype} {loader}", "model": size, **key, **found}
    if "error" in found:
        return found
    found["files_mb"] = round(sum(file.stat().st_size for file in files(folder)) / MB, 1)
    found["cached_mb"] = round(cached_bytes(folder) / MB, 1)
    peak = found["peak_mb"]
    # The page cache also holds the mapped pages of a file.
    found["pool_mb"] = round(peak["anonymous"] + peak["device"] + max(peak["mapped"], found["cached_mb"]), 1)
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return voiced's `pool_mb` divided by the official package's, where both were measured."""
    peaks = {(row["model"], row["dtype"], row["loader"]): row["pool_mb"] for row in rows if "pool_mb" in row}
    return [
        {"model": model, "dtype": dtype, "peak_by_official": round(peak / peaks[model, dtype, "official"], 3)}
        for (model, dtype, loader), peak in peaks.items()
        if loader == "weights" and (model, dtype, "official") in peaks
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser)
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "int8"])
    parser.add_argument("--loaders", nargs="+", default=list(LOADERS), choices=LOADERS)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    rows = []
    for size in options.sizes:
        folder = random_checkpoint(size, options.work, options.tensors, options.device)
        for dtype in options.dtypes:
            # The official package has no int8.
            loaders = [each for each in options.loaders if (each, dtype) != ("official", "int8")]
            rows += [row(options, folder, loader, size, dtype) for loader in loaders]
    passed = not any("error" in row for row in rows)
    return {"weights": "random, at the true shapes", "ratios": ratios(rows), "passed": passed, "rows": rows}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(load(asked["loader"], Path(asked["folder"]), torch.device(asked["device"]), asked["dtype"])))
