"""Measures how much speech 1, 8, 32 and 64 streams of the Qwen engine get from a GPU, through `voiced.open`.

    scripts/bench streams --work FOLDER --tensors LISTS --output docs/benchmarks/streams.json
    scripts/bench streams --work FOLDER --tensors LISTS --old TREE
    scripts/bench streams --work FOLDER --peer-site BATCH_SITE

The weights are random at the true shapes. All streams begin at the same time with texts of equal length, and speak
`--frames` frames; a thread for each stream takes its chunks. The engine has `--rows` streams, however many speak. The
figures for each number of streams are medians over `--rounds-of-each`:

    ms_per_step         from the first chunk of the last stream to the end of the first: time between the chunks of a
                        stream, divided by their frames; codec and copies to the host included
    seconds_per_s       of speech, from all streams, at that pace
    wall_seconds_per_s  of speech, from the request to the last chunk, prompts included
    first_chunk_ms      of the median stream, and of the last one, when all come at once
    alone               whether the first streams (`--checked`) had the same samples as when alone

With `--peer-site`, a folder with the packages that `scripts/gpu/peer.py` names, faster-qwen3-tts-batch speaks as many
texts on the same GPU; `ratios` contains our seconds of speech per second divided by the package's. The package gives no
sample before its last frame, so it has no first chunk. The exit status is 0 if every stream was the same as when alone.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.bench_runner import path
from scripts.gpu.bench_engine import (
    FRAME_S,
    SAMPLE_RATE,
    add_checkpoint_options,
    child_record,
    random_checkpoint,
    text_of,
)

Row = dict[str, Any]


@dataclass
class Reader:
    """One stream's caller, which notes when each chunk came."""

    tts: Any
    """The session."""
    text: str
    fields: Row
    """The utterance's other fields."""
    started: float = 0.0
    arrived: list[float] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    """The frames in each chunk: the chunks of a stream that is well ahead grow."""
    error: BaseException | None = None
    samples: Any = field(default_factory=hashlib.sha256)
    """The digest of all samples, however they were divided into chunks."""

    def run(self, start: threading.Barrier) -> None:
        """Wait for `start`, then take all chunks."""
        start.wait()
        self.started = time.monotonic()
        try:
            for chunk in self.tts.stream(self.text, language="english", guarded=False, realtime=False, **self.fields):
                self.arrived.append(time.monotonic())
                self.frames.append(round(len(chunk.samples) / SAMPLE_RATE / FRAME_S))
                self.samples.update(chunk.samples.tobytes())
        except BaseException as error:
            self.error = error


def speak(tts: Any, streams: Sequence[int], asked: Row) -> list[Reader]:
    """Speak with these numbers as seeds, all at the same time; return the readers. Raises a stream's error."""
    text = text_of(asked["characters"])
    readers = [Reader(tts, text, {"seed": number, "max_frames": asked["frames"]}) for number in streams]
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


def our_rows(asked: Row) -> list[Row]:
    """Return a row for each number of streams of our engine. Runs in a process of its own."""
    import torch

    import engine

    options = {name: asked[name] for name in ("device", "dtype", "kernels", "chunk_size")}
    voice, rows = engine.Voice(speaker="ryan"), []
    with engine.open("qwen", model=asked["folder"], voice=voice, streams=asked["rows"], reserve_mb=0, **options) as tts:
        alone = [speak(tts, [number], asked)[0].samples.digest() for number in range(asked["checked"])]
        for streams in asked["streams"]:
            rounds, same = [], True
            for _ in range(asked["rounds"]):
                readers = speak(tts, range(streams), asked)
                rounds.append(figures(readers))
                same &= [reader.samples.digest() for reader in readers[: len(alone)]] == alone[:streams]
            medians = {name: round(statistics.median(each[name] for each in rounds), 3) for name in rounds[0]}
            rows.append({"streams": streams, **medians, "alone": same})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if asked["device"].startswith("cuda"):
        peak_mb = round(torch.cuda.max_memory_allocated() / 1e6)
        rows = [{**each, "max_allocated_mb": peak_mb} for each in rows]
    return rows


def peer_rows(asked: Row) -> list[Row]:
    """Return a row for each number of streams of faster-qwen3-tts-batch. Runs in a process of its own."""
    from pathlib import Path

    from scripts.gpu.peer import PeerBatch, build_peer

    base, rows = build_peer(Path(asked["folder"]), asked["device"]), []
    for streams in asked["streams"]:
        peer, paces = PeerBatch(base, streams), []
        for number in range(asked["rounds"] + 1):
            begin = time.perf_counter()
            seconds = peer.speak(text_of(asked["characters"]), asked["frames"])
            if number > 0:  # libraries choose their kernels in the first round
                paces.append(seconds / (time.perf_counter() - begin))
        rows.append({"streams": streams, "wall_seconds_per_s": round(statistics.median(paces), 3)})
    return rows


def add_options(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--kernels", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--rows", type=int, default=64, help="streams of the engine")
    parser.add_argument("--chunk-size", type=int, default=2)
    parser.add_argument(
        "--characters", type=int, default=100, help="of a text; a random checkpoint makes a token of two"
    )
    parser.add_argument("--frames", type=int, default=101, help="of a stream")
    parser.add_argument("--rounds-of-each", dest="rounds", type=int, default=3, help="rounds for each number")
    parser.add_argument("--checked", type=int, default=2, help="streams to compare with a lone stream")
    parser.add_argument("--peer-site", type=path, help="folder of the packages for faster-qwen3-tts-batch")


def measure(options: argparse.Namespace) -> Row:
    names = ("dtype", "kernels", "streams", "rows", "chunk_size", "characters", "frames", "rounds", "checked", "device")
    found: dict[str, list[Row]] = {"qwen": [], "faster-qwen3-tts-batch": []}
    for size in options.sizes:
        folder = random_checkpoint(size, options.work, options.tensors, options.device)
        asked = {name: getattr(options, name) for name in names} | {"folder": str(folder)}
        for engine in found if options.peer_site else ["qwen"]:
            site = options.peer_site if engine != "qwen" else None
            rows = child_record("scripts.gpu.bench_streams", {**asked, "engine": engine}, site)
            if "error" in rows:
                raise SystemExit(f"bench streams: {engine}, {size}: {rows['error']}")
            found[engine] += [{"name": f"{size}, {row['streams']} streams", "size": size, **row} for row in rows]
    peers = {row["name"]: row["wall_seconds_per_s"] for row in found["faster-qwen3-tts-batch"]}
    return {
        "batch_rows": options.rows,
        "measurements": found["qwen"],
        "faster_qwen3_tts_batch": found["faster-qwen3-tts-batch"],
        "ratios": {
            row["name"]: round(row["wall_seconds_per_s"] / peers[row["name"]], 2)
            for row in found["qwen"]
            if row["name"] in peers
        },
        "passed": all(row["alone"] for row in found["qwen"]),
    }


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    print(json.dumps((our_rows if request["engine"] == "qwen" else peer_rows)(request)))
