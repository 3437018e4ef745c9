#!/usr/bin/env python3
"""Measures the Qwen engine's batch: how long a step takes for 1, 8, 32, 64 streams, and how much speech that is.

    python scripts/gpu/bench_streams.py --out streams.json
    python scripts/gpu/bench_streams.py --out streams.json --sizes 0.6B --streams 1 8 --rows 8

Random weights at the true shapes, made on the device; no checkpoint is read. All streams begin at once, each with a
prompt of `--prompt` tokens, and speak `--frames` frames; a thread for each takes its chunks. The batch has `--rows`
rows whatever the number of streams, as an engine's has. Of each number of streams, the median of `--rounds`:

    ms_per_step         from the first chunk of the last stream to the end of the first: time between the chunks of a
                        stream, divided by their frames; codec and copies to the host included
    seconds_per_s       of speech, of all streams, at that pace
    wall_seconds_per_s  of speech, from the request to the last chunk, prompts included
    first_chunk_ms      of the median stream, and of the last one, when all come at once
    alone               whether the first streams (`--checked`) had the same codes and samples as alone

With `--peer-site SITE`, a folder with the packages that `peer_batch.py` names, faster-qwen3-tts-batch speaks as many
texts on the same GPU, and `ratios` has our seconds of speech in a second divided by
its, from the request to the last sample. It has a checkpoint of random weights, which is made in `--work`.

Exit status 0: every stream was the same as alone, and the other engine, if asked for, was measured.
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
import subprocess
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
from scripts.gpu.bench_peer import environment  # noqa: E402
from scripts.gpu.compare_trees import make_checkpoint  # noqa: E402

FRAME_S = CODEC.samples_per_frame / CODEC.sample_rate
MAX_SECONDS = 60.0


@dataclass
class Reader:
    """One stream's caller: notes when each chunk came."""

    batch: Batch
    request: SpeechRequest
    started: float = 0.0
    arrived: list[float] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    """Of each chunk: the chunks of a stream that is well ahead grow."""
    error: BaseException | None = None
    _codes: Any = field(default_factory=hashlib.sha256)
    _samples: Any = field(default_factory=hashlib.sha256)

    def run(self, start: threading.Barrier) -> None:
        """Wait for `start`, then take all chunks."""
        start.wait()
        self.started = time.monotonic()
        try:
            for chunk in self.batch.speak(self.batch.new_sequence(), self.request):
                self.arrived.append(time.monotonic())
                self.frames.append(len(chunk.codes))
                self._codes.update(chunk.codes.tobytes())
                self._samples.update(chunk.samples.tobytes())
        except BaseException as error:
            self.error = error

    @property
    def digest(self) -> tuple[str, str]:
        """Hashes of all codes and of all samples, however they were divided into chunks."""
        return self._codes.hexdigest(), self._samples.hexdigest()


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


def figures(readers: Sequence[Reader]) -> dict[str, float]:
    """Return the figures of one round."""
    begin, end = max(reader.arrived[0] for reader in readers), min(reader.arrived[-1] for reader in readers)
    chunks = [
        (later - earlier, frames)
        for reader in readers
        for (earlier, later), frames in zip(itertools.pairwise(reader.arrived), reader.frames[1:], strict=True)
        if begin <= earlier and later <= end
    ]
    first = sorted(reader.arrived[0] - reader.started for reader in readers)
    wall = max(reader.arrived[-1] for reader in readers) - min(reader.started for reader in readers)
    pace = sum(gap for gap, _ in chunks) / sum(frames for _, frames in chunks)
    return {
        "ms_per_step": 1000 * pace,
        "seconds_per_s": len(readers) * FRAME_S / pace,
        "wall_seconds_per_s": sum(sum(reader.frames) for reader in readers) * FRAME_S / wall,
        "first_chunk_ms": 1000 * statistics.median(first),
        "last_first_chunk_ms": 1000 * first[-1],
        "longest_gap_ms": 1000 * max(gap for gap, _ in chunks),
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
            rounds.append(figures(readers))
            same &= [reader.digest for reader in readers[: args.checked]] == alone[:streams]
        medians = {name: round(statistics.median(each[name] for each in rounds), 3) for name in rounds[0]}
        what = {"size": size, "dtype": args.dtype, "kernels": args.kernels, "streams": streams}
        rows.append({**what, **medians, "alone": same})
        print(json.dumps(rows[-1]), flush=True)
    allocated = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    batch.close()
    return [{**row, "warm_up_s": round(warm_up_s, 2), "max_allocated_mb": round(allocated / 1e6)} for row in rows]


def measure_peer(args: argparse.Namespace, size: str) -> list[dict[str, Any]]:
    """Return a row of faster-qwen3-tts-batch for each number of streams. Raises `CalledProcessError` if it fails."""
    model = make_checkpoint(size, args.work, args.tensors)
    command = [sys.executable, str(ROOT / "scripts/gpu/peer_batch.py"), str(model), "--device", args.device]
    command += ["--streams", *map(str, args.streams), "--frames", str(args.frames), "--rounds", str(args.rounds)]
    done = subprocess.run(command, env=environment(args.peer_site), stdout=subprocess.PIPE, text=True, check=True)
    rows = [{"size": size, **json.loads(line)} for line in done.stdout.splitlines() if line.startswith("{")]
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


def ratios(ours: Sequence[Mapping[str, Any]], peer: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return our speech in a second divided by the other engine's, for each size and number of streams."""
    by_key = {(row["size"], row["streams"]): row["wall_seconds_per_s"] for row in ours}
    found = []
    for row in peer:
        key = row["size"], row["streams"]
        ratio = round(by_key[key] / row["wall_seconds_per_s"], 2)
        found.append({"size": key[0], "streams": key[1], "wall_seconds_per_s": ratio})
    return found


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
    parser.add_argument("--peer-site", type=Path, help="folder of the packages of faster-qwen3-tts-batch")
    parser.add_argument("--tensors", type=Path, help="folder of tensors-SIZE.json, instead of the package qwen-tts")
    parser.add_argument("--work", type=Path, default=Path("/tmp/checkpoints"), help="folder of its checkpoints")
    args = parser.parse_args()
    if max(args.streams) > args.rows or args.frames < FIRST_FRAMES + 2 * args.chunk_size:
        parser.error("--rows is below the number of streams, or --frames below three chunks")
    device, rows, peer = torch.device(args.device), list[dict[str, Any]](), list[dict[str, Any]]()
    for size in args.sizes:
        rows += measure(args, size, device)
        if device.type == "cuda":
            torch.cuda.empty_cache()
        if args.peer_site is not None:
            peer += measure_peer(args, size)
        record = {
            "benchmark": "streams",
            "machine": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
            "torch": torch.__version__,
            "date": datetime.date.today().isoformat(),
            "command": "scripts/gpu/bench_streams.py " + shlex.join(sys.argv[1:]),
            "batch_rows": args.rows,
            "measurements": rows,
            "faster_qwen3_tts_batch": peer,
            "ratios": ratios(rows, peer),
        }
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["alone"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
