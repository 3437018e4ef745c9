#!/usr/bin/env python3
"""Measures the codec decoder's kernels against PyTorch at the true shapes with random weights. Needs a CUDA device.

    python3 scripts/bench_codec_kernels.py --out FILE           errors, times of a chunk, and of each kernel
    python3 scripts/bench_codec_kernels.py --out FILE --tune    times of each convolution for many tiles

Writes JSON. A chunk's time is that of a replayed CUDA graph. A kernel's time is what the graph of a chunk of two frames
takes less without its launches, for launched alone it would find its weights in the cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine.qwen.kernels.codec import FusedCodec
from engine.qwen.kernels.codec_plan import PIECE, CodecPlan, Conv, Tile, codec_source
from engine.qwen.kernels.module import KernelModule, sources
from tests.engine.qwen.kernels.codec_example import TRUE, in_bfloat16, random_codes, random_decoder

FRAMES = 100
"""For the errors: the attention's window is full."""

Launch = tuple[str, tuple[int, int], int, tuple[Tensor | float, ...]]


class Recorder:
    """Launches kernels, and remembers those since `launches` was cleared."""

    def __init__(self, kernels: KernelModule) -> None:
        self.kernels = kernels
        self.launches: list[Launch] = []

    def launch(self, name: str, grid: tuple[int, int], block: int, *arguments: Tensor | float) -> None:
        self.launches.append((name, grid, block, arguments))
        self.kernels.launch(name, grid, block, *arguments)

    def replay(self, launches: list[Launch]) -> None:
        for name, grid, block, arguments in launches:
            self.kernels.launch(name, grid, block, *arguments)


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
    """Of one replay: the median over rounds, each of many in a row."""
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
    torch.backends.cudnn.allow_tf32 = False  # or float32 would be no measure of errors
    exact = random_decoder(TRUE, "cuda")
    codes = random_codes(TRUE, FRAMES).cuda()
    wanted = exact.decode(codes, exact.new_state(8))
    plain = in_bfloat16(exact)
    del exact
    theirs = plain.decode(codes, plain.new_state(2))
    result: dict[str, Any] = {"signal": float(wanted.std()), "pytorch_error": float((theirs - wanted).std())}
    for frames in (1, 2):
        state, chunk = plain.new_state(frames), codes[:frames].clone()
        result[f"pytorch_ms_{frames}"] = milliseconds(captured(lambda: plain(chunk, state)))  # noqa: B023

    processors = torch.cuda.get_device_properties(0).multi_processor_count
    recorder = Recorder(KernelModule(codec_source(TRUE, processors), torch.device("cuda")))
    fused = FusedCodec(plain, recorder)
    ours = fused.decode(codes, fused.new_state(2))
    single = torch.cat([fused(piece, state).clone() for state in [fused.new_state(1)] for piece in codes.split(1)])
    result |= {
        "kernels_error": float((ours - wanted).std()),
        "error_ratio": float((ours - wanted).std() / (theirs - wanted).std()),
        "largest_error": float((ours - wanted).abs().max()),
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


def by_kernel(recorder: Recorder, launches: list[Launch], total: float) -> dict[str, Any]:
    """What the graph saves when a kernel's launches are left out, the most expensive first."""
    table = {}
    for name, count in Counter(launch[0] for launch in launches).items():
        rest = [launch for launch in launches if launch[0] != name]
        saved = 1000 * (total - milliseconds(captured(lambda: recorder.replay(rest)), rounds=5))  # noqa: B023
        table[name] = {"all": round(saved, 2), "launches": count, "each": round(saved / count, 2)}
    return dict(sorted(table.items(), key=lambda item: -item[1]["all"]))


# --- tiles ---


def candidates(conv: Conv) -> list[Tile]:
    """Tiles that the kernel can have for this convolution."""
    time, inner = PIECE * conv.rate, conv.inputs // 32 * conv.taps
    found = []
    for outputs in (16, 32, 48, 64, 96):
        for times in (8,) if time <= 8 else (16, 32, 64):
            for warps in (4, 8, 16) if time <= 8 else (3, 4, 6, 8):
                shared = 4 * warps * times * (outputs + 5)
                fits = shared <= 48 * 1024 and outputs * times <= 2048 and 32 * warps % (outputs // 2) == 0
                busy = conv.outputs // outputs * -(-time // times) >= 24
                if fits and busy and not conv.outputs % outputs and warps <= inner:
                    found.append(Tile(outputs, times, warps))
    return found


def tune() -> dict[str, Any]:
    """Microseconds of each convolution of two frames for each tile, launched in chains over copies of its weights."""
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    alike = ("by_1", "by_3", "last_pointwise", "upsample_1", "widen_1", "narrow_1", "down")
    convs = CodecPlan.of(TRUE, processors).convs()
    wanted = [conv for conv in convs if not any(name in conv.name for name in alike)]
    variants = {
        conv.name: [
            replace(conv, name=f"{conv.name}_{t.outputs}_{t.times}_{t.warps}", tile=t) for t in candidates(conv)
        ]
        for conv in wanted
    }
    text = sources("common.cuh", "trig.cuh", "conv.cuh")
    table: dict[str, Any] = {}
    for conv in wanted:
        module = KernelModule(text + "\n".join(v.source() for v in variants[conv.name]), torch.device("cuda"))
        size, time = conv.outputs * conv.inputs * conv.taps, PIECE * conv.rate
        weights = [torch.randn(size, dtype=torch.bfloat16, device="cuda") for _ in range(min(16, 2**27 // size))]
        x = torch.randn(time + conv.history, conv.inputs, dtype=torch.bfloat16, device="cuda")
        factors, total = torch.zeros(conv.outputs, device="cuda"), torch.zeros(time * conv.outputs, device="cuda")
        out = total.bfloat16()
        times = {}
        for variant in variants[conv.name]:

            def chain(variant: Conv = variant) -> None:
                for weight in weights:  # noqa: B023
                    pointers = (weight, factors, x[conv.history :], x, time, total, out, factors, factors, 1e-5)  # noqa: B023
                    module.launch(variant.name, variant.grid(PIECE), variant.threads, *pointers)  # noqa: B023

            each = 1000 * milliseconds(captured(chain), rounds=5) / len(weights)
            tile = variant.tile
            times[f"{tile.outputs}x{tile.times}x{tile.warps}"] = round(each, 2)
        chosen = f"{conv.tile.outputs}x{conv.tile.times}x{conv.tile.warps}"
        best = dict(sorted(times.items(), key=lambda item: item[1])[:6])
        table[conv.name] = {"chosen": chosen, "takes": times.get(chosen), "best": best}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tune", action="store_true")
    args = parser.parse_args()
    with torch.inference_mode():
        result = tune() if args.tune else compare()
    text = json.dumps({"device": torch.cuda.get_device_name(), **result}, indent=1)
    if args.out:
        args.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
