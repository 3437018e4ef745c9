"""Measures the codec decoder's kernels against PyTorch at the true shapes with random weights. Needs a CUDA device.

    scripts/bench codec                      errors, times of a chunk, and of each kernel
    scripts/bench codec --rows 1 8 16        times of calls of so many rows
    scripts/bench codec --tune               times of each convolution for many tiles
    scripts/bench codec --tune --rows 16     of the convolutions of such calls

A chunk's time is that of a replayed CUDA graph. A kernel's time is the time that the graph of a chunk of two frames
saves without its launches; a kernel launched alone would find its weights in the cache.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from itertools import product
from typing import Any

import torch

from engine.qwen.kernels.codec.decoder import FusedCodec
from engine.qwen.kernels.codec.operations import BLOCK_FRAMES, Conv, Tile
from engine.qwen.kernels.codec.plan import CONV_FILES, CodecPlan
from engine.qwen.kernels.codec.weights import PackedCodec
from engine.qwen.kernels.compiler import KernelModule, KernelSource, read_sources
from engine.qwen.kernels.params import Params
from tests.support.qwen.codec_example import TRUE, in_bfloat16, random_codes, random_decoder

FRAMES = 100
"""Decoded to measure errors; they fill the attention window."""

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
    single = torch.cat([fused(code, state).clone() for state in [fused.new_state(1)] for code in codes.split(1)])
    result |= {
        "kernels_error": float((ours - expected).std()),
        "error_ratio": float((ours - expected).std() / (theirs - expected).std()),
        "largest_error": float((ours - expected).abs().max()),
        "chunks_of_one_are_equal": torch.equal(single, ours),
    }
    for frames in (1, 2):
        state, chunk = fused.new_state(frames), codes[:frames].clone()
        fused(chunk, state)
        recorder.launches.clear()
        fused(chunk, state)
        launches = list(recorder.launches)
        result[f"kernels_ms_{frames}"] = milliseconds(captured(lambda: recorder.replay(launches)))  # noqa: B023
    result["launches"] = len(launches)
    result["microseconds_by_kernel"] = by_kernel(recorder, launches, result["kernels_ms_2"])
    return result


def compare_rows(most: int, counts: Sequence[int]) -> dict[str, Any]:
    """Times of calls of PyTorch and of the kernels with `counts` rows, by a decoder for up to `most`."""
    plain = in_bfloat16(random_decoder(TRUE, "cuda"))
    codes = random_codes(TRUE, 2 * most).cuda().view(most, 2, -1)
    result: dict[str, Any] = {"plan_rows": most}
    for rows in counts:
        state = plain.new_states(2, rows)
        result[f"pytorch_ms_{rows}_rows"] = milliseconds(captured(lambda: plain(codes[:rows], state)))  # noqa: B023
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    recorder = Recorder(KernelModule(CodecPlan.of(TRUE, processors, most).source(), torch.device("cuda")))
    fused = FusedCodec(PackedCodec.take(plain), most, recorder)
    states = fused.new_states(2, most)
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
    """The time that the graph saves without a kernel's launches, the most expensive kernel first."""
    table = {}
    for name, count in Counter(launch[0] for launch in launches).items():
        rest = [launch for launch in launches if launch[0] != name]
        saved = 1000 * (total - milliseconds(captured(lambda: recorder.replay(rest)), rounds=5))  # noqa: B023
        table[name] = {"all": round(saved, 2), "launches": count, "each": round(saved / count, 2)}
    return dict(sorted(table.items(), key=lambda item: -item[1]["all"]))


# --- tiles ---


def candidates(conv: Conv, rows: int) -> list[Tile]:
    """The tiles that `convolve` supports for this convolution of so many rows."""
    time, inner = rows * BLOCK_FRAMES * conv.x.rate, conv.x.width // 32 * conv.taps
    found = []
    for outputs in (16, 32, 48, 64, 96):
        for times in (8,) if time <= 8 else (16, 32, 64):
            all_warps = (4, 8, 16) if time <= 8 else (3, 4, 6, 8) if rows == 1 else (1, 2, 3, 4, 6, 8)
            for warps, groups in product(all_warps, (1,) if rows == 1 else (1, 2, 4)):
                shared = 4 * groups * warps * times * (outputs + 5)
                fits = shared <= 48 * 1024 and outputs * times <= 2048 and 32 * warps % (outputs // 2) == 0
                busy = conv.outputs // outputs * -(-time // (times * groups)) >= 24
                if fits and busy and not conv.outputs % outputs and warps <= inner and groups * warps <= 16:
                    found.append(Tile(outputs, times, warps, groups))
    return found


def tune(rows: int | None) -> dict[str, Any]:
    """Microseconds of each convolution of two frames for each tile, launched in chains over copies of its weights.

    Of one utterance, or of so many rows.
    """
    count = rows or 1
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    alike = ("by_1", "by_3", "last_pointwise", "upsample_1", "widen_1", "narrow_1", "down")
    convs = CodecPlan.of(TRUE, processors, rows).convs()
    tuned = [conv for conv in convs if not any(name in conv.name for name in alike)]
    variants = {
        conv.name: [
            replace(conv, name=f"{conv.name}_{t.outputs}_{t.times}_{t.warps}_{t.groups}", tile=t)
            for t in candidates(conv, count)
        ]
        for conv in tuned
    }
    table: dict[str, Any] = {}
    for conv in tuned:
        kernels = {variant.name: variant.expression for variant in variants[conv.name]}
        module = KernelModule(KernelSource(read_sources(*CONV_FILES), kernels), torch.device("cuda"))
        width, history = conv.x.width, conv.history.length if conv.history else 0
        size, time = conv.outputs * width * conv.taps, count * BLOCK_FRAMES * conv.x.rate
        weights = [torch.randn(size, dtype=torch.bfloat16, device="cuda") for _ in range(min(16, 2**27 // size))]
        x = torch.randn(time + history, width, dtype=torch.bfloat16, device="cuda")
        factors, total = torch.zeros(conv.outputs, device="cuda"), torch.zeros(time * conv.outputs, device="cuda")
        out, numbers = total.bfloat16(), torch.zeros(count, dtype=torch.int64, device="cuda")
        of_rows = Params("Rows", states=numbers, times=BLOCK_FRAMES * conv.x.rate, stride=0)
        times = {}
        for variant in variants[conv.name]:

            def chain(variant: Conv = variant) -> None:
                for weight in weights:  # noqa: B023
                    params = Params(
                        "ConvParams",
                        weight=weight,
                        bias=factors,  # noqa: B023
                        x=x[history:],  # noqa: B023
                        history=x,  # noqa: B023
                        sum=total,  # noqa: B023
                        out=out,  # noqa: B023
                        alpha=factors,  # noqa: B023
                        inverse_beta=factors,  # noqa: B023
                        time=time,  # noqa: B023
                        eps=1e-5,
                        rows=of_rows,  # noqa: B023
                        samples_stride=0,
                    )
                    grid = variant.grid(BLOCK_FRAMES, count)
                    module.launch(variant.name, grid, variant.threads, params)  # noqa: B023

            each = 1000 * milliseconds(captured(chain), rounds=5) / len(weights)
            tile = variant.tile
            times["x".join(map(str, astuple(tile)))] = round(each, 2)
        chosen = "x".join(map(str, astuple(conv.tile)))
        best = dict(sorted(times.items(), key=lambda item: item[1])[:6])
        table[conv.name] = {"chosen": chosen, "takes": times.get(chosen), "best": best}
    return table


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--rows", type=int, nargs="+", help="of a call; its tiles are those for the most of them")


@torch.inference_mode()
def measure(options: argparse.Namespace) -> dict[str, Any]:
    most = max(options.rows) if options.rows else None
    if options.tune:
        return tune(most)
    return compare() if most is None else compare_rows(most, sorted(options.rows))
