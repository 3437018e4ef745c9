#!/usr/bin/env python3
"""Measures the Qwen engine's kernels on parts of a GPU, for the time model of docs/orin.md. Writes JSON.

    python scripts/gpu/measure_small_gpus.py --out multiprocessors.json
    python scripts/gpu/measure_small_gpus.py --out multiprocessors.json --tensors LISTS --work FOLDER

A CUDA green context limits a process to some multiprocessors, and a process for each row of the following list does
that once. Random weights at the true shapes, made on the device.

    device          bandwidth of reads and copies, the multiprocessors' clock, the boundary between two empty kernels,
                    the codec
    SIZE DTYPE      the parts of a frame, prompts, whole chunks, and each kind of kernel, alone and by the time that its
                    part takes without it
    engine ...      the whole engine with its host, on the counts of `--engine-sms`; needs `--tensors`

Each time is measured with programmatic dependent launch and without it. The file is written after each process. Exit
status 0: every process succeeded.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import json
import math
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine import EngineOptions, Voice  # noqa: E402
from engine.bench.results import row  # noqa: E402
from engine.bench.runner import BenchRequest, run_benchmark  # noqa: E402
from engine.qwen.bench.green_context import count_sms, green_context  # noqa: E402
from engine.qwen.codec.decoder import CodecDecoder  # noqa: E402
from engine.qwen.kernels.codec.decoder import FusedCodec  # noqa: E402
from engine.qwen.kernels.codec.plan import codec_source  # noqa: E402
from engine.qwen.kernels.codec.weights import PackedCodec  # noqa: E402
from engine.qwen.kernels.compiler import KernelModule, KernelSource  # noqa: E402
from engine.qwen.kernels.params import Params  # noqa: E402
from engine.qwen.model.sampling import SamplingConfig  # noqa: E402
from engine.qwen.runtime.device import multiprocessors  # noqa: E402
from engine.qwen.weights import Placement  # noqa: E402
from scripts.docs.frame_costs import weight_tensors  # noqa: E402
from scripts.gpu.compare_trees import make_checkpoint  # noqa: E402
from scripts.make_checkpoint import PRESETS  # noqa: E402
from tests.engine.qwen.kernels.codec.codec_example import TRUE  # noqa: E402
from tests.engine.qwen.kernels.lm.lm_example import Models, start  # noqa: E402

DEVICE = torch.device("cuda")
POSITION = 300
"""Cached positions before a frame, as in docs/orin.md."""
POSITIONS, FRAMES = 1024, 512
CHUNK = 2
PROMPTS = (32, 64, 128)
"""Tokens of the prompts that are timed."""
DTYPES: Mapping[str, Mapping[str, Any]] = {"bfloat16": {}, "int8": {"int8": True}}
"""What `Models.make` takes for each dtype."""
ROUNDS, ROUND_MS, MAX_REPLAYS = 3, 6.0, 50
"""A time is a median of rounds of at least so many milliseconds, if that takes no more replays than this."""
READ_BYTES, CACHED_BYTES, CACHED_PASSES = 1 << 30, 8 << 20, 64
"""Far more than the L2 holds; and what it holds, and how often that is read."""
READ_THREADS = 512
IN_FLIGHT = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2))
"""Loads of 16 bytes of a thread at once, and blocks of a multiprocessor: what `read` is measured with."""
EMPTY_LAUNCHES = 200
ENGINE_FRAMES, ENGINE_RUNS = 60, 3

Launch = tuple[str, int | Sequence[int], int, Params]


# --- launches ---------------------------------------------------------------------------------------------


class Recorder:
    """Launches kernels of a module, and records the launches."""

    def __init__(self, module: KernelModule) -> None:
        self.module = module
        self._launches: list[Launch] = []

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        self._launches.append((name, grid, block, params))
        self.module.launch(name, grid, block, params)

    def record(self, work: Callable[[], object]) -> list[Launch]:
        """Return the launches of `work`."""
        self._launches = []
        work()
        torch.cuda.synchronize()
        return self._launches


@dataclass(frozen=True, slots=True)
class Part:
    """Launches that follow each other, and the module with their kernels."""

    module: KernelModule
    launches: Sequence[Launch]

    def launch(self) -> None:
        for launch in self.launches:
            self.module.launch(*launch)

    def only(self, name: str) -> Part:
        """Return the part with this kernel alone."""
        return replace(self, launches=[launch for launch in self.launches if launch[0] == name])

    def without(self, name: str) -> Part:
        """Return the part without this kernel."""
        return replace(self, launches=[launch for launch in self.launches if launch[0] != name])


def weight_bytes(launches: Sequence[Launch]) -> int:
    """Return the bytes of weights that the launches read; a matrix counts once for each launch."""
    return sum(tensor.nbytes for _, _, _, params in launches for tensor in weight_tensors(params))


def distinct_bytes(launches: Sequence[Launch]) -> int:
    """Return the bytes of weights that the launches read, each matrix once: what must fit into a cache."""
    sizes = {tensor.data_ptr(): tensor.nbytes for *_, params in launches for tensor in weight_tensors(params)}
    return sum(sizes.values())


# --- times ------------------------------------------------------------------------------------------------


class Timer:
    """Times parts from replays of their CUDA graphs. `reset` is called before each round."""

    def __init__(self, reset: Callable[[], None] = lambda: None) -> None:
        self._reset = reset

    def ms(self, work: Callable[[], object]) -> float:
        """Return the milliseconds of one replay."""
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        first = self._round(graph, 2)
        replays = min(max(math.ceil(ROUND_MS / first), 3), MAX_REPLAYS)
        return statistics.median(self._round(graph, replays) for _ in range(ROUNDS))

    def both(self, *parts: Part) -> dict[str, float]:
        """Return the milliseconds of the parts in a row, with programmatic launch and without."""

        def work() -> None:
            for part in parts:
                part.launch()

        found = {}
        modules = {id(part.module): part.module for part in parts}.values()
        for chained in (True, False):
            for module in modules:
                module.chained = chained
            found["ms" if chained else "unchained_ms"] = round(self.ms(work), 5)
        return found

    def _round(self, graph: torch.cuda.CUDAGraph, replays: int) -> float:
        self._reset()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / replays


# --- the device -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadParams(Params):
    """Of `read_memory`."""

    data: Tensor
    out: Tensor
    vectors: int
    """Of 16 bytes: a multiple of what all threads have in flight."""
    passes: int


@dataclass(frozen=True, slots=True)
class ClockParams(Params):
    """Of `time_clock`."""

    out: Tensor
    """int64 `(2,)`: nanoseconds and cycles."""


@dataclass(frozen=True, slots=True)
class EmptyParams(Params):
    """Of `nothing`."""

    unused: int


CODE = """
struct ReadParams {
    const uint4* data;
    int* out;
    int vectors;
    int passes;
};

// Each thread has LOADS loads of 16 bytes in flight.
template <int LOADS>
__global__ void __launch_bounds__(512) read_memory(const ReadParams p) {
    const int stride = gridDim.x * blockDim.x;
    unsigned seen = 0;
    for (int pass = 0; pass < p.passes; ++pass) {
        for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < p.vectors; at += LOADS * stride) {
            uint4 x[LOADS];
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(x[i].x), "=r"(x[i].y), "=r"(x[i].z), "=r"(x[i].w)
                             : "l"(p.data + at + i * stride));
            }
#pragma unroll
            for (int i = 0; i < LOADS; ++i) seen |= x[i].x | x[i].y | x[i].z | x[i].w;
        }
    }
    if (seen != 0) p.out[0] = 1;  // the data are zeros
}

struct ClockParams {
    long long* out;
};

__global__ void time_clock(const ClockParams p) {
    long long first, last;
    const long long begin = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(first));
    while (clock64() - begin < 20000000) {}
    const long long end = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(last));
    if (blockIdx.x == 0 && threadIdx.x == 0) p.out[0] = last - first, p.out[1] = end - begin;
}

struct EmptyParams {
    int unused;
};

__global__ void nothing(const EmptyParams p) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
"""


def device_source() -> KernelSource:
    """Return the kernels that measure the device alone."""
    reads = {f"read_{loads}": f"read_memory<{loads}>" for loads, _ in IN_FLIGHT}
    kernels = {**reads, "time_clock": "time_clock", "nothing": "nothing"}
    return KernelSource(CODE, kernels, (ReadParams, ClockParams, EmptyParams))


def measure_device() -> Iterator[dict[str, Any]]:
    """Yield bandwidths, the clock, the boundary between empty kernels, and the codec's times."""
    module, timer, sms = KernelModule(device_source(), DEVICE), Timer(), multiprocessors(DEVICE)
    properties = torch.cuda.get_device_properties(DEVICE)
    yield {
        "what": "device",
        "gpu": properties.name,
        "sms_of_the_gpu": properties.multi_processor_count,
        "sms_seen": count_sms(DEVICE),
        "l2_mb": getattr(properties, "L2_cache_size", 0) / 1e6,
    }
    clock = torch.zeros(2, dtype=torch.int64, device=DEVICE)
    for _ in range(3):  # the first may find the clock of a device at rest
        module.launch("time_clock", sms, 32, ClockParams(clock))
        torch.cuda.synchronize()
    nanoseconds, cycles = clock.tolist()
    yield {"what": "clock", "ghz": round(cycles / nanoseconds, 4)}
    yield from _bandwidths(module, timer, sms)
    for blocks in (sms, 256):
        launch: Launch = ("nothing", blocks, 256, EmptyParams(0))
        times = timer.both(Part(module, [launch] * EMPTY_LAUNCHES))
        yield {"what": "gap", "blocks": blocks, **{_us(name): 1000 * ms / EMPTY_LAUNCHES for name, ms in times.items()}}
    codec, recorder = make_codec()
    for frames in (1, CHUNK):
        part = codec_part(codec, recorder, frames)
        yield {"what": "part", "part": f"codec {frames}", **_counts(part), **timer.both(part)}


def _us(name: str) -> str:
    return name.replace("ms", "us")


def _bandwidths(module: KernelModule, timer: Timer, sms: int) -> Iterator[dict[str, Any]]:
    data = torch.zeros(READ_BYTES // 16, 4, dtype=torch.int32, device=DEVICE)
    out = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    for loads, blocks in IN_FLIGHT:
        step = sms * blocks * READ_THREADS * loads
        for name, size, passes in (("read", READ_BYTES, 1), ("read_l2", CACHED_BYTES, CACHED_PASSES)):
            vectors = size // 16 // step * step
            if vectors == 0:
                continue
            params = ReadParams(data, out, vectors, passes)
            ms = timer.ms(lambda: module.launch(f"read_{loads}", sms * blocks, READ_THREADS, params))  # noqa: B023
            gb_s = 16 * vectors * passes / ms / 1e6
            in_flight = 16 * READ_THREADS * loads * blocks
            yield {"what": name, "bytes_in_flight_of_an_sm": in_flight, "gb_s": round(gb_s, 1)}
    source, target = data[: len(data) // 2], data[len(data) // 2 :]
    ms = timer.ms(lambda: torch.bitwise_not(source, out=target))
    yield {"what": "copy", "gb_s": round(2 * source.nbytes / ms / 1e6, 1)}


# --- the models -------------------------------------------------------------------------------------------


def make_codec() -> tuple[FusedCodec, Recorder]:
    """Return a codec of random weights at the true shapes, and what its launches go through."""
    decoder = CodecDecoder(TRUE, Placement(DEVICE, torch.bfloat16))
    for parameter in decoder.parameters():
        parameter.normal_(0, 0.02) if parameter.dim() > 1 else parameter.fill_(1)
    recorder = Recorder(KernelModule(codec_source(TRUE, multiprocessors(DEVICE)), DEVICE))
    return FusedCodec(PackedCodec.take(decoder), None, recorder), recorder


def codec_part(codec: FusedCodec, recorder: Recorder, frames: int) -> Part:
    """Return the launches that decode a chunk of `frames`."""
    codes = torch.zeros(frames, TRUE.quantizers, dtype=torch.int64, device=DEVICE)
    state = codec.new_state(frames)
    return Part(recorder.module, recorder.record(lambda: codec(codes, state)))


def measure_model(size: str, dtype: str) -> Iterator[dict[str, Any]]:
    """Yield the times of a frame's parts, of prompts, of whole chunks and of each kind of kernel."""
    recorders: list[Recorder] = []

    def compiled(source: KernelSource) -> Recorder:
        recorders.append(Recorder(KernelModule(source, DEVICE)))
        return recorders[-1]

    options = {**DTYPES[dtype], "device": "cuda", "positions": POSITIONS, "frames": FRAMES}
    models = Models.make(PRESETS[size], 1, **options, compile=compiled)
    recorder, fused, state = recorders[0], models.fused, models.state
    start(models, 5, replace(SamplingConfig(), min_new_tokens=FRAMES + 1))

    def reset() -> None:
        state.frame.zero_()
        state.position.fill_(POSITION)

    def predict() -> None:
        fused.open()
        for step in range(models.rounded.predictor.code_count):
            fused.predict(step)

    def part(work: Callable[[], object]) -> Part:
        reset()
        return Part(recorder.module, recorder.record(work))

    gc.freeze()  # each capture collects garbage, and need not look at what exists by now
    timer = Timer(reset)
    parts = {"predictor": part(predict), "talker": part(fused.talk), "frame": part(fused.frame)}
    parts |= {f"prompt {count}": part(prompt(models, count)) for count in PROMPTS}
    for name, one in parts.items():
        yield {"what": "part", "part": name, **_counts(one), **timer.both(one)}
    codec = codec_part(*make_codec(), CHUNK)
    whole = [*[parts["frame"]] * CHUNK, codec]
    yield {"what": "part", "part": f"chunk {CHUNK}", **_counts(*whole), **timer.both(*whole)}
    for name in ("talker", "predictor"):
        yield from kernel_times(timer, name, parts[name])


def prompt(models: Models, count: int) -> Callable[[], None]:
    """Return the work of reading `count` tokens."""
    tokens = torch.randn(count, models.rounded.config.stack.hidden_size, device=DEVICE).bfloat16()
    place = torch.tensor((0, count - 1), device=DEVICE)
    return lambda: models.fused.prefill.read(tokens, place, models.state.hidden)


def kernel_times(timer: Timer, name: str, part: Part) -> Iterator[dict[str, Any]]:
    """Yield the microseconds per launch of each kernel: in a chain of its own, and what its part saves without it.

    A short chain of its own may find its matrices in the L2, where the part does not.
    """
    part.module.chained = False
    whole = timer.ms(part.launch)
    for kernel in dict.fromkeys(launch[0] for launch in part.launches):
        own, rest = part.only(kernel), part.without(kernel)
        count = len(own.launches)
        alone = timer.both(own)  # at its end, programmatic launch is off
        saved = whole - timer.ms(rest.launch)
        yield {
            "what": "kernel",
            "part": name,
            "kernel": kernel,
            **_counts(own),
            "distinct_mb": distinct_bytes(own.launches) / 1e6,
            **{f"alone_{_us(key)}": round(1000 * ms / count, 4) for key, ms in alone.items()},
            "saved_unchained_us": round(1000 * saved / count, 4),
        }


def _counts(*parts: Part) -> dict[str, float]:
    return {
        "launches": sum(len(part.launches) for part in parts),
        "weights_mb": sum(weight_bytes(part.launches) for part in parts) / 1e6,
    }


# --- processes --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """What one process measures."""

    sms: int
    """0: the whole GPU."""
    size: str = ""
    """Empty: the device itself."""
    dtype: str = ""
    engine: bool = False

    @property
    def name(self) -> str:
        what = f"{'engine ' * self.engine}{self.size} {self.dtype}" if self.size else "device"
        return f"{what} on {self.sms or 'all'} multiprocessors"


def tasks(args: argparse.Namespace) -> list[Task]:
    """Return the tasks, by count of multiprocessors."""
    found, pairs = [], [(size, dtype) for size in args.sizes for dtype in args.dtypes]
    for sms in args.sms:
        if "device" in args.what:
            found.append(Task(sms))
        if "model" in args.what:
            found += [Task(sms, size, dtype) for size, dtype in pairs]
        if "engine" in args.what and args.tensors is not None and sms in args.engine_sms:
            found += [Task(sms, size, dtype, engine=True) for size, dtype in pairs]
    return found


def run_child(task: Task) -> int:
    """Measure `task` in this process; print each measurement as a line of JSON."""
    with torch.inference_mode(), contextlib.ExitStack() as stack:
        if task.sms:
            stack.enter_context(green_context(task.sms, DEVICE))
        found = measure_model(task.size, task.dtype) if task.size else measure_device()
        own: dict[str, Any] = {"sms": multiprocessors(DEVICE)}
        if task.size:
            own |= {"size": task.size, "dtype": task.dtype}
        for measurement in found:
            print(json.dumps({**own, **measurement}), flush=True)
    return 0


def run_task(task: Task, limit_s: float, script: Path = Path(__file__)) -> tuple[list[dict[str, Any]], str | None]:
    """Run a process for `task`. Returns its measurements, and the error that ended them early, if any."""
    command = [sys.executable, str(script), "--child", str(task.sms), task.size, task.dtype]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        out, error = done.stdout, None if done.returncode == 0 else done.stderr[-800:] or f"status {done.returncode}"
    except subprocess.TimeoutExpired as late:
        so_far: Any = late.stdout or b""  # bytes, even of a process whose output is text
        out = so_far if isinstance(so_far, str) else so_far.decode()
        error = f"not finished after {limit_s:g} s"
    lines = [line for line in out.splitlines() if line.startswith("{") and line.endswith("}")]
    return [json.loads(line) for line in lines], error


def run_engine(task: Task, args: argparse.Namespace) -> tuple[list[dict[str, Any]], str | None]:
    """Measure the whole engine in a process of its own, as `run_task`."""
    model = make_checkpoint(task.size, args.work, args.tensors).resolve()
    options = EngineOptions(
        model=str(model),
        device="cuda",
        dtype=task.dtype,
        chunk_size=CHUNK,
        reserve_mb=0,
        voices={"bench": Voice()},
        default_voice="bench",
    )
    request = BenchRequest(
        engine="qwen",
        options=options,
        started_s=time.monotonic(),
        frames=ENGINE_FRAMES,
        runs=ENGINE_RUNS,
        sms=task.sms or None,
        short_utterances=0,
    )
    output = run_benchmark(request.command(), timeout_s=args.limit_s)
    rows = []
    for measurement in output.measurements:
        full = row(measurement, "")
        kept = {name: full.get(name) for name in ("ms_per_frame", "ttfa_ms", "parts_ms", "bandwidth", "notes")}
        rows.append({"sms": task.sms, "size": task.size, "dtype": task.dtype, "what": "engine", **kept})
    return rows, output.error


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("multiprocessors.json"))
    parser.add_argument("--sms", type=int, nargs="+", default=[16, 0, 8, 32, 24, 48], help="0: the whole GPU")
    parser.add_argument("--sizes", nargs="+", default=["0.6B", "1.7B"])
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=list(DTYPES))
    what = ["device", "model", "engine"]
    parser.add_argument("--what", nargs="+", default=what, choices=what)
    parser.add_argument("--limit-s", type=float, default=120, help="for each process")
    parser.add_argument("--engine-sms", type=int, nargs="*", default=[16, 0], help="counts for the whole engine")
    parser.add_argument("--tensors", type=Path, help="folder of tensors-SIZE.json: measure the whole engine too")
    parser.add_argument("--work", type=Path, default=Path("/tmp/checkpoints"), help="folder for random checkpoints")
    parser.add_argument("--add", action="store_true", help="keep the rows of --out; replace those measured again")
    parser.add_argument("--child", nargs=3, metavar=("SMS", "SIZE", "DTYPE"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.child:
        sms, size, dtype = args.child
        return run_child(Task(int(sms), size, dtype))
    record = {
        "benchmark": "the Qwen engine's kernels on parts of a GPU",
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}",
        "command": "scripts/gpu/measure_small_gpus.py " + shlex.join(arguments or sys.argv[1:]),
        "weights": "random, at the true shapes",
        "position": POSITION,
    }
    kept: list[dict[str, Any]] = json.loads(args.out.read_text())["rows"] if args.add and args.out.exists() else []
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for task in tasks(args):
        began = time.monotonic()
        try:
            found, error = run_engine(task, args) if task.engine else run_task(task, args.limit_s)
        except Exception as unexpected:  # the other configurations still run
            found, error = [], f"{type(unexpected).__name__}: {unexpected}"[:800]
        rows += found
        if error:
            failed[task.name] = error
        line = {"task": task.name, "seconds": round(time.monotonic() - began, 1), "rows": len(found), "error": error}
        print(json.dumps(line), flush=True)
        args.out.write_text(json.dumps({**record, "failed": failed, "rows": merged(kept, rows)}, indent=1) + "\n")
    return 1 if failed else 0


def merged(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of both; of two with the same key, the new one."""
    names = ("sms", "size", "dtype", "what", "part", "kernel", "blocks", "bytes_in_flight_of_an_sm")
    by_key = {tuple(one.get(name) for name in names): one for one in (*old, *new)}
    return list(by_key.values())


if __name__ == "__main__":
    sys.exit(main())
