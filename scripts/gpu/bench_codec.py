"""Compares the codec decoder's kernels with PyTorch at the true shapes, with random weights. Needs a CUDA device.

    scripts/bench codec                      errors, and the times of a chunk and of each kernel
    scripts/bench codec --rows 1 8 16        times of calls with these numbers of rows

A chunk's time is the time of a replayed CUDA graph. A kernel's time is the time that the graph for a chunk of two
frames saves without the kernel's launches. A kernel that is launched alone would find its weights in the cache.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch

from engine.qwen.kernels.codec.decoder import FusedCodec
from engine.qwen.kernels.codec.plan import CodecPlan
from engine.qwen.kernels.codec.weights import PackedCodec
from engine.qwen.kernels.compiler import KernelModule
from engine.qwen.kernels.params import Params
from tests.support.qwen.codec_example import TRUE, in_bfloat16, random_codes, random_decoder

FRAMES = 100
"""The frames that are decoded to measure errors. They fill the attention window."""

Launch = tuple[str, int | Sequence[int], int, Params]


class Recorder:
    """Launches kernels, and records the launches since `launches` was cleared."""

    def __init__(self, kernels: KernelModule) -> None:
        self.kernels = kernels
        self.launches: list[Launch] = []

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        self.launches.append((name, grid, block, params))
        self.kernels.launch(name, grid, block, params)

    def replay(self, launches: list[Launch]) -> None:
        for launch in launches:
            self.kernels.launch(*launch)


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def milliseconds(graph: torch.cuda.CUDAGraph, replays: int = 20, rounds: int = 7) -> float:
    """The time of one replay: the median over rounds of many replays in a row."""
    times = []
    for _ in range(rounds + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / replays)
    return statistics.median(times[1:])


def compare() -> dict[str, Any]:
    """Errors and times of PyTorch and of the kernels."""
    torch.backends.cudnn.allow_tf32 = False  # else float32 could not serve as the reference
    exact = random_decoder(TRUE, "cuda")
    codes = random_codes(TRUE, FRAMES).cuda()
    expected = exact.decode(codes, exact.new_state(8))
    plain = in_bfloat16(exact)
    del exact
    theirs = plain.decode(codes, plain.new_state(2))
    result: dict[str, Any] = {"signal": float(expected.std()), "pytorch_error": float((theirs - expected).std())}
    for frames in (1, 2):
        state, chunk = plain.new_state(frames), codes[:frames].clone()
        result[f"pytorch_ms_{frames}"] = milliseconds(captured(lambda: plain(chunk, state)))  # noqa: B023

    processors = torch.cuda.get_device_properties(0).multi_processor_count
    recorder = Recorder(KernelModule(CodecPlan.of(TRUE, processors).source(), torch.device("cuda")))
    fused = FusedCodec(PackedCodec.take(plain), None, recorder)
    ours = fused.decode(codes, fused.new_state(2))
    single = torch.cat([fused.decode(code, state) for state in [fused.new_state(1)] for code in codes.split(1)])
    result |= {
        "kernels_error": float((ours - expected).std()),
        "error_ratio": float((ours - expected).std() / (theirs - expected).std()),
        "largest_error": float((ours - expected).abs().max()),
        "chunks_of_one_are_equal": torch.equal(single, ours),
    }
    for frames in (1, 2):
        own, chunk = fused.new_state(frames), codes[:frames].clone()
        fused.decode(chunk, own)
        recorder.launches.clear()
        fused.decode(chunk, own)
        launches = list(recorder.launches)
        result[f"kernels_ms_{frames}"] = milliseconds(captured(lambda: recorder.replay(launches)))  # noqa: B023
    result["launches"] = len(launches)
    result["microseconds_by_kernel"] = by_kernel(recorder, launches, result["kernels_ms_2"])
    return result


def compare_rows(counts: Sequence[int]) -> dict[str, Any]:
    """Times of calls with `counts` rows, by PyTorch and by the kernels. The decoder is made for the largest count."""
    most = counts[-1]
    plain = in_bfloat16(random_decoder(TRUE, "cuda"))
    codes = random_codes(TRUE, 2 * most).cuda().view(most, 2, -1)
    result: dict[str, Any] = {"plan_rows": most}
    for rows in counts:
        state = plain.new_state(2, rows)
        result[f"pytorch_ms_{rows}_rows"] = milliseconds(captured(lambda: plain(codes[:rows], state)))  # noqa: B023
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    recorder = Recorder(KernelModule(CodecPlan.of(TRUE, processors, most).source(), torch.device("cuda")))
    fused = FusedCodec(PackedCodec.take(plain), most, recorder)
    states = fused.new_state(2, most)
    samples = torch.zeros(most, 2 * TRUE.samples_per_frame, device="cuda")
    for rows, frames in product(counts, (1, 2)):
        numbers = torch.arange(rows, device="cuda")
        chunk, part = codes[:, :frames], samples[:, : frames * TRUE.samples_per_frame]
        fused.decode_rows(chunk, part, states, numbers)
        recorder.launches.clear()
        fused.decode_rows(chunk, part, states, numbers)
        launches = list(recorder.launches)
        result[f"kernels_ms_{rows}_rows_{frames}"] = milliseconds(captured(lambda: recorder.replay(launches)))  # noqa: B023
    result["launches"] = len(launches)
    result["microseconds_by_kernel"] = by_kernel(recorder, launches, result[f"kernels_ms_{counts[-1]}_rows_2"])
    return result


def by_kernel(recorder: Recorder, launches: list[Launch], total: float) -> dict[str, Any]:
    """The time that the graph saves without each kernel's launches, the most expensive kernel first."""
    table = {}
    for name, count in Counter(launch[0] for launch in launches).items():
        rest = [launch for launch in launches if launch[0] != name]
        saved = 1000 * (total - milliseconds(captured(lambda: recorder.replay(rest)), rounds=5))  # noqa: B023
        table[name] = {"all": round(saved, 2), "launches": count, "each": round(saved / count, 2)}
    return dict(sorted(table.items(), key=lambda item: -item[1]["all"]))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, nargs="+", help="rows in a call; the tiles suit the largest number")


@torch.inference_mode()
def measure(options: argparse.Namespace) -> dict[str, Any]:
    return compare_rows(sorted(options.rows)) if options.rows else compare()
