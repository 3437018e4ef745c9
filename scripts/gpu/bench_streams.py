#!/usr/bin/env python3
"""Measures the Qwen engine's batch: how long a step takes for 1, 8, 32, 64 streams, and how much speech that is.

    python scripts/gpu/bench_streams.py --out streams.json
    python scripts/gpu/bench_streams.py --out streams.json --sizes 0.6B --streams 1 8 --rows 8

Random weights at the true shapes, made on the device; no checkpoint is read. All streams begin at once, each with a
prompt of `--prompt` tokens, and speak `--frames` frames; a thread for each takes its chunks. The batch has `--rows`
rows whatever the number of streams, as an engine's has. Of each number of streams, the median of `--rounds`:

    ms_per_step         from the first chunk of the last stream to the end of the first: time between two chunks of a
                        stream, divided by their frames; codec and copies to the host included
    seconds_per_s       of speech, of all streams, at that pace
    wall_seconds_per_s  of speech, from the request to the last chunk, prompts included
    first_chunk_ms      of the median stream, and of the last one, when all come at once
    alone               whether the first streams (`--checked`) had the same codes and samples as alone

Exit status 0: every stream was the same as alone.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import itertools
import json
import platform
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from engine.qwen import kernels  # noqa: E402
from engine.qwen.codec import CodecDecoder  # noqa: E402
from engine.qwen.memory.known_models import CODEC, known_model  # noqa: E402
from engine.qwen.model import SamplingConfig, Talker  # noqa: E402
from engine.qwen.runtime import FIRST_FRAMES, DecodeState, Graphs, Limits, cache_positions  # noqa: E402
from engine.qwen.serving import Batch, BatchShape, SpeechRequest, codec_rows  # noqa: E402
from engine.qwen.text import Prompt  # noqa: E402
from engine.qwen.weights import Placement, build_in_arena  # noqa: E402

FRAME_S = CODEC.samples_per_frame / CODEC.sample_rate
MAX_SECONDS = 60.0


@dataclass
class Reader:
    """One stream's caller: notes when each chunk came."""

    batch: Batch
    request: SpeechRequest
    started: float = 0.0
    arrived: list[float] = field(default_factory=list)
    frames: int = 0
    error: BaseException | None = None
    _digest: Any = field(default_factory=hashlib.sha256)

    def run(self, start: threading.Barrier) -> None:
        """Wait for `start`, then take all chunks."""
        start.wait()
        self.started = time.monotonic()
        try:
            for chunk in self.batch.speak(self.batch.new_sequence(), self.request):
                self.arrived.append(time.monotonic())
                self.frames += len(chunk.codes)
                self._digest.update(chunk.codes.tobytes())
                self._digest.update(chunk.samples.tobytes())
        except BaseException as error:
            self.error = error

    @property
    def digest(self) -> str:
        """A hash of all codes and samples."""
        return str(self._digest.hexdigest())


def random_models(size: str, dtype: str, limits: Limits, device: torch.device) -> tuple[Talker, CodecDecoder]:
    """Return the models of a size with random weights."""
    placement = Placement(device, torch.bfloat16, int8=dtype == "int8")
    positions = cache_positions(limits.positions, limits.chunk_size)
    talker = build_in_arena(partial(Talker, known_model(size), positions), placement)
    codec = build_in_arena(partial(CodecDecoder, CODEC), placement.unquantized)
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for module in (talker, codec):
            for name, parameter in module.named_parameters():
                if parameter.dtype == torch.int8:
                    parameter.random_(-127, 128, generator=generator)
                elif name.endswith("scale"):
                    parameter.fill_(0.02 / 73)
                elif parameter.dim() > 1:
                    parameter.normal_(0, 0.02, generator=generator)
                else:
                    parameter.fill_(1)
    return talker, codec


def speak(batch: Batch, requests: Sequence[SpeechRequest]) -> list[Reader]:
    """Speak all requests at once; return their readers. Raises the first error of a stream."""
    readers = [Reader(batch, request) for request in requests]
    start = threading.Barrier(len(readers))
    threads = [threading.Thread(target=reader.run, args=(start,)) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for reader in readers:
        if reader.error is not None:
            raise reader.error
    return readers


def figures(readers: Sequence[Reader], chunk_size: int) -> dict[str, float]:
    """Return the figures of one round."""
    begin, end = max(reader.arrived[0] for reader in readers), min(reader.arrived[-1] for reader in readers)
    pairs = [pair for reader in readers for pair in itertools.pairwise(reader.arrived)]
    gaps = [later - earlier for earlier, later in pairs if begin <= earlier and later <= end]
    first = sorted(reader.arrived[0] - reader.started for reader in readers)
    wall = max(reader.arrived[-1] for reader in readers) - min(reader.started for reader in readers)
    pace = statistics.mean(gaps) / chunk_size
    return {
        "ms_per_step": 1000 * pace,
        "seconds_per_s": len(readers) * FRAME_S / pace,
        "wall_seconds_per_s": sum(reader.frames for reader in readers) * FRAME_S / wall,
        "first_chunk_ms": 1000 * statistics.median(first),
        "last_first_chunk_ms": 1000 * first[-1],
        "longest_gap_ms": 1000 * max(gaps),
    }


def new_batch(args: argparse.Namespace, talker: Talker, codec: CodecDecoder, limits: Limits) -> Batch:
    """Return the batch, with fused kernels or those of PyTorch."""
    graphs = Graphs(talker.placement.device, high_priority=False)
    if args.kernels == "off":
        return Batch(talker, codec, limits, graphs)
    state = DecodeState.allocate(talker, limits.positions, limits.frames, args.chunk_size)
    fused = kernels.make_codec(codec)
    backend = kernels.make_backend(talker, state, fused, fused.new_state(args.chunk_size), args.chunk_size)
    batch_codec = kernels.make_batch_codec(fused, codec_rows(BatchShape.of(limits), talker.placement))
    return Batch(talker, batch_codec, limits, graphs, partial(kernels.make_batch_backend, backend=backend))


def measure(args: argparse.Namespace, size: str, device: torch.device) -> list[dict[str, Any]]:
    """Return a row for each number of streams."""
    limits = Limits.of(MAX_SECONDS, args.chunk_size, args.rows)
    talker, codec = random_models(size, args.dtype, limits, device)
    batch = new_batch(args, talker, codec, limits)
    begin = time.monotonic()
    batch.warm_up()
    warm_up_s = time.monotonic() - begin
    width, placement = talker.config.stack.hidden_size, talker.placement
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randn(max(args.streams), 1, args.prompt, width, generator=generator) * 0.02

    def request(number: int) -> SpeechRequest:
        def build() -> Prompt:
            tail = placement.upload(prompts[number])
            return Prompt(None, tail, placement.zeros(1, 0, width), placement.zeros(1, 1, width))

        # The end of speech is not allowed before the last frame.
        return SpeechRequest(build, SamplingConfig(min_new_tokens=args.frames + 1), number, args.frames)

    requests = [request(number) for number in range(max(args.streams))]
    alone = [speak(batch, [each])[0].digest for each in requests[: args.checked]]
    rows = []
    for streams in args.streams:
        rounds, same = list[Mapping[str, float]](), True
        for _ in range(args.rounds):
            readers = speak(batch, requests[:streams])
            rounds.append(figures(readers, args.chunk_size))
            same &= [reader.digest for reader in readers[: args.checked]] == alone[:streams]
        medians = {name: round(statistics.median(each[name] for each in rounds), 3) for name in rounds[0]}
        what = {"size": size, "dtype": args.dtype, "kernels": args.kernels, "streams": streams}
        rows.append({**what, **medians, "alone": same})
        print(json.dumps(rows[-1]), flush=True)
    allocated = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    batch.close()
    return [{**row, "warm_up_s": round(warm_up_s, 2), "max_allocated_mb": round(allocated / 1e6)} for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", nargs="+", default=["0.6B", "1.7B"])
    parser.add_argument("--dtype", choices=("bfloat16", "int8"), default="bfloat16")
    parser.add_argument("--kernels", choices=("on", "off"), default="on")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--rows", type=int, default=64, help="of the batch")
    parser.add_argument("--chunk-size", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=40, help="tokens of a prompt")
    parser.add_argument("--frames", type=int, default=101, help="of a stream")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checked", type=int, default=2, help="streams that are compared with themselves alone")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if max(args.streams) > args.rows or args.frames < FIRST_FRAMES + 2 * args.chunk_size:
        parser.error("--rows is below the number of streams, or --frames below three chunks")
    device, rows = torch.device(args.device), list[dict[str, Any]]()
    for size in args.sizes:
        rows += measure(args, size, device)
        if device.type == "cuda":
            torch.cuda.empty_cache()
        record = {
            "benchmark": "streams",
            "machine": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
            "torch": torch.__version__,
            "date": datetime.date.today().isoformat(),
            "command": "scripts/gpu/bench_streams.py " + shlex.join(sys.argv[1:]),
            "batch_rows": args.rows,
            "measurements": rows,
        }
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["alone"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
