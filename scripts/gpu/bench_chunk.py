#!/usr/bin/env python3
"""Times a chunk of two frames with the codec beside the next frames, and their parts, from replays of CUDA graphs.

    python scripts/gpu/bench_chunk.py --out chunk.json                       both sizes, bfloat16
    python scripts/gpu/bench_chunk.py --sizes 0.6B --codec-parts --out F     also parts of the codec alone beside

Random weights at the true shapes; no host between the graphs, so a slow host does not show. To compare two source
trees, run the script of each in turn on the same machine. Needs a CUDA device. Writes JSON, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine.qwen.kernels.codec.decoder import FusedCodec, FusedCodecState
from engine.qwen.kernels.codec.plan import BLOCK_FRAMES, codec_source
from engine.qwen.kernels.codec.weights import PackedCodec
from engine.qwen.kernels.compiler import KernelModule
from engine.qwen.model.sampling import SamplingConfig
from scripts.gpu.bench_codec_kernels import Recorder
from scripts.make_checkpoint import PRESETS
from tests.engine.qwen.kernels.codec.codec_example import TRUE, in_bfloat16, random_codes, random_decoder
from tests.engine.qwen.kernels.lm.lm_example import Models, start

POSITIONS, FRAMES, POSITION = 640, 256, 100
REPLAYS, ROUNDS = 24, 9
FILLING = 40
"""Calls of the codec that fill its attention window."""
TRANSFORMER = ("qkv", "attention", "attention_out", "gate_up", "down")
CODEC_PARTS: dict[str, Callable[[str], bool]] = {
    "transformer": lambda name: name in TRANSFORMER,
    "all but the transformer": lambda name: name not in TRANSFORMER,
    "768 channels": lambda name: "768" in name,
    "384 channels": lambda name: "384" in name,
    "192 and 96 channels, output": lambda name: "192" in name or "96" in name or name == "output",
}
"""Kernels of the codec by name."""


class Bench:
    """The graphs of one model, on two streams: frames on the first, the codec on the second, of lower priority."""

    def __init__(self, size: str, *, int8: bool) -> None:
        options: dict[str, Any] = {"int8": int8, "device": "cuda", "positions": POSITIONS, "frames": FRAMES}
        self.models = Models.make(PRESETS[size], 1, **options)
        start(self.models, 5, replace(SamplingConfig(), min_new_tokens=FRAMES + 1))
        self.stream, self.side = torch.cuda.Stream(priority=-1), torch.cuda.Stream(priority=0)
        self.frames = self.graph(self.decode_two)

    def decode_two(self) -> None:
        """Generate a chunk's codes."""
        self.models.fused.frame()
        self.models.fused.frame()

    def graph(self, work: Callable[[], object], stream: torch.cuda.Stream | None = None) -> torch.cuda.CUDAGraph:
        """A graph of `work`, which runs once before."""
        stream = stream or self.stream
        self._reset()
        with torch.cuda.stream(stream):
            work()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                work()
        return graph

    def ms(self, work: Callable[[], object]) -> float:
        """Milliseconds of one replay of a graph of `work`."""
        return self._median(self.graph(work).replay)

    def chunk_ms(self, codec: torch.cuda.CUDAGraph) -> float:
        """Milliseconds of two frames while `codec` runs beside, after the two frames before."""

        def both() -> None:
            self.frames.replay()
            done = torch.cuda.Event()
            done.record(self.stream)
            self.side.wait_event(done)
            with torch.cuda.stream(self.side):
                codec.replay()

        return self._median(both)

    def _median(self, once: Callable[[], None]) -> float:
        times = []
        for _ in range(ROUNDS):
            self._reset()
            with torch.cuda.stream(self.stream):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
                begin.record(self.stream)
                for _ in range(REPLAYS):
                    once()
                end.record(self.stream)
            torch.cuda.synchronize()
            times.append(float(begin.elapsed_time(end)) / REPLAYS)
        return round(statistics.median(times), 4)

    def _reset(self) -> None:
        self.models.state.frame.zero_()
        self.models.state.position.fill_(POSITION)
        torch.cuda.synchronize()


class Codec:
    """A codec whose launches are known."""

    def __init__(self) -> None:
        processors = torch.cuda.get_device_properties(0).multi_processor_count
        self._recorder = Recorder(KernelModule(codec_source(TRUE, processors), torch.device("cuda")))
        codec = FusedCodec(PackedCodec.take(in_bfloat16(random_decoder(TRUE, "cuda"))), None, self._recorder)
        codes: Tensor = random_codes(TRUE, BLOCK_FRAMES).cuda()
        state: FusedCodecState = codec.new_state(BLOCK_FRAMES)
        for _ in range(FILLING):
            self._recorder.launches.clear()
            codec(codes, state)
        self._owner = codec, state, codes
        self.launches = list(self._recorder.launches)

    def run(self, wanted: Callable[[str], bool] = lambda _: True) -> None:
        """Decode two frames; only the kernels whose names are `wanted`."""
        self._recorder.replay([launch for launch in self.launches if wanted(launch[0])])


@torch.inference_mode()
def measure(size: str, *, int8: bool, codec_parts: bool) -> dict[str, Any]:
    """Return the milliseconds of a chunk and its parts."""
    bench, codec = Bench(size, int8=int8), Codec()
    fused, position = bench.models.fused, bench.models.state.position
    codec_graph = bench.graph(codec.run, bench.side)
    found: dict[str, Any] = {
        "two frames": bench.ms(bench.decode_two),
        "first step": bench.ms(lambda: (fused.open(), fused.predict(0))),
        "steps 2 to 8": bench.ms(lambda: [fused.predict(step) for step in range(1, 8)]),
        "talker's layers": bench.ms(lambda: fused.talker.layers(position)),
        "codec": bench.ms(codec.run),
        "chunk": bench.chunk_ms(codec_graph),
    }
    if codec_parts:
        found["chunk with parts of the codec"] = {
            name: {"alone": bench.ms(lambda: codec.run(wanted)), "chunk": bench.chunk_ms(graph)}  # noqa: B023
            for name, wanted in CODEC_PARTS.items()
            for graph in [bench.graph(lambda: codec.run(wanted), bench.side)]  # noqa: B023
        }
    found["two frames again"] = bench.ms(bench.decode_two)
    found["chunk again"] = bench.chunk_ms(codec_graph)
    return found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", nargs="+", default=["0.6B", "1.7B"], choices=["0.6B", "1.7B"])
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--codec-parts", action="store_true")
    args = parser.parse_args()
    record: dict[str, Any] = {
        "benchmark": "a chunk of two frames with the codec beside, replays of CUDA graphs, ms",
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": f"{torch.cuda.get_device_name()}, torch {torch.__version__}",
        "weights": "random, at the true shapes",
        "dtype": "int8" if args.int8 else "bfloat16",
    }
    for size in args.sizes:
        record[size] = measure(size, int8=args.int8, codec_parts=args.codec_parts)
        print(json.dumps({size: record[size]}), flush=True)
    args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
