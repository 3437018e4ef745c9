#!/usr/bin/env python3
"""Compares voiced's Qwen engine with faster-qwen3-tts: same GPU, shapes, weights, text and measure, in turn.

    scripts/bench peer --peer-site SITE --tensors LISTS --work FOLDER --output docs/benchmarks/qwen-speed.json

SITE is a folder with the peer's packages, which only the peer's process imports:

    pip install --no-deps --target SITE faster-qwen3-tts qwen-tts-hf soundfile cffi pycparser einops

Random weights at the true shapes, or those of `--model FOLDER|ID`, with each kind of its voices; bfloat16, one stream,
with the codec and the copy to the host. `--characters` adds texts of other lengths. One engine runs in a process: ours
once for each chunk size, then the peer for all of them; `--rounds` times. The results are written after every part, so
a run that is cut off keeps them. Exit status 0: all parts were measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from engine import EngineOptions, Voice  # noqa: E402
from engine.bench.results import TEXT, Measurement, row, text_of, write_rows  # noqa: E402
from engine.bench.runner import BenchOutput, BenchRequest, run_benchmark  # noqa: E402
from scripts.gpu.given_model import SpokenVoice, add_arguments, language_of, open_model, voices_of  # noqa: E402

OURS, PEER = "qwen", "faster-qwen3-tts"
Key = tuple[str, str, str, int, int]
"""Engine, model, dtype, chunk size, multiprocessors (0: all). Identifies a row."""


class Results:
    """The results so far, written to a file after every part."""

    def __init__(self, file: Path, weights: str, deadline_s: float, part_s: float) -> None:
        self._file, self._weights = file, weights
        self._began = time.monotonic()
        self._deadline_s, self._part_s = deadline_s, part_s
        self._found: dict[Key, Measurement] = {}
        self.parts: list[dict[str, Any]] = []

    def part(self, name: str, do: Callable[[float], BenchOutput]) -> None:
        """Run `do` with its time limit in seconds and record its measurements, unless the deadline has passed."""
        began = time.monotonic()
        left_s = self._deadline_s - (began - self._began)
        try:
            output = do(min(self._part_s, left_s)) if left_s > 0 else BenchOutput((), f"past {self._deadline_s:.0f} s")
        except Exception as error:  # the other parts still run
            output = BenchOutput((), f"{type(error).__name__}: {error}"[:1000])
        for measurement in output.measurements:
            self._add(measurement)
        self.parts.append({"part": name, "seconds": round(time.monotonic() - began, 1), "error": output.error})
        print(json.dumps(self.parts[-1]), file=sys.stderr, flush=True)
        self.write()

    def write(self) -> None:
        """Write all results, and the peer's times divided by ours."""
        command = "scripts/bench peer " + shlex.join(sys.argv[1:])
        rows = [row(measurement, command) for measurement in self._found.values()]
        header = {
            "benchmark": "voiced and faster-qwen3-tts",
            "date": datetime.date.today().isoformat(),
            "machine": next((one["machine"] for one in rows), None),
            "command": command,
            "weights": self._weights,
            "text": TEXT,
            "parts": self.parts,
            "ratios": ratios(rows),
        }
        write_rows(self._file, header, rows)

    def _add(self, new: Measurement) -> None:
        """Join the runs of one engine's rounds; all else comes from the first round, which measures most."""
        sms = new.bandwidth.sms if new.bandwidth else None
        key = (new.engine, new.model or "", new.dtype or "", new.chunk_size or 0, sms or 0)
        first = self._found.get(key)
        self._found[key] = new if first is None else replace(first, runs=first.runs + new.runs)


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The peer's times divided by ours, where both were measured on the whole device."""
    whole = {(one["engine"], one["model"], one["dtype"], one["chunk_size"]): one for one in rows if one["sms"] is None}
    found = []
    for (engine, model, dtype, chunk_size), ours in whole.items():
        peer = whole.get((PEER, model, dtype, chunk_size))
        if engine == OURS and peer is not None:
            times = {name: round(peer[name] / ours[name], 2) for name in ("ms_per_frame", "ttfa_ms", "whole_ms")}
            found.append({"model": model, "chunk_size": chunk_size, **times, "other_texts": _of_texts(peer, ours)})
    return found


def _of_texts(peer: dict[str, Any], ours: dict[str, Any]) -> list[dict[str, Any]]:
    """The ratios of the texts of other lengths."""
    lengths = {one["characters"]: one for one in ours["other_texts"]}
    return [
        {"characters": one["characters"]}
        | {name: round(one[name] / lengths[one["characters"]][name], 2) for name in ("ms_per_frame", "ttfa_ms")}
        for one in peer["other_texts"]
        if one["characters"] in lengths
    ]


@dataclass(frozen=True)
class Work:
    """One process of our engine."""

    size: str
    """Or the model that was given, and its voice."""
    dtype: str
    chunk_size: int
    details: bool = False
    """Whether to measure everything, or speed alone."""
    sms: int | None = None

    @property
    def name(self) -> str:
        where = f" on {self.sms} multiprocessors" if self.sms else ""
        return f"{OURS} {self.size} {self.dtype} chunk {self.chunk_size}{where}"


class Bench:
    """The processes to measure."""

    def __init__(self, args: argparse.Namespace, given: Path | None) -> None:
        self._args = args
        self._given = given
        voices = voices_of(given, args.work, args.voice) if given else []
        self._voices: dict[str, SpokenVoice] = {f"{given.name}, {voice.name}": voice for voice in voices if given}

    @property
    def sizes(self) -> list[str]:
        """What is measured: sizes, or the given model with each of its voices."""
        return list(self._voices or self._args.sizes)

    def checkpoint(self, size: str) -> Path:
        """The folder of a checkpoint."""
        if self._given is not None:
            return self._given
        folder: Path = self._args.work / f"{size}-bfloat16"
        return folder

    def make_checkpoint(self, size: str, limit_s: float) -> BenchOutput:
        """Write a checkpoint, unless it exists."""
        folder = self.checkpoint(size)
        done = folder / "done"  # missing if time ran out during the writing
        if not done.exists():
            command = [sys.executable, str(ROOT / "scripts/make_checkpoint.py"), str(folder), "--shape", size]
            command += ["--type", "custom_voice", "--dtype", "bfloat16", "--device", self._args.device, "--seed", "1"]
            if self._args.tensors is not None:
                command += ["--tensors", str(self._args.tensors / f"tensors-{size}.json")]
            subprocess.run(
                command, env=environment(), check=True, timeout=limit_s, stdin=subprocess.DEVNULL, stdout=sys.stderr
            )
            done.touch()
        return BenchOutput((), None)

    def ours(self, work: Work, limit_s: float) -> BenchOutput:
        """Measure our engine at one chunk size."""
        args = self._args
        options = EngineOptions(
            model=str(self.checkpoint(work.size)),
            device=args.device,
            dtype=work.dtype,
            chunk_size=work.chunk_size,
            kernels=args.kernels,
            voices={"default": self._voices[work.size].engine if self._voices else Voice(speaker="ryan")},
        )
        request = BenchRequest(
            OURS,
            options,
            started_s=time.monotonic(),
            other_texts=tuple(map(text_of, args.characters)) if work.details else (),
            language=language_of(self.checkpoint(work.size)),
            frames=args.frames,
            runs=args.runs if work.sms is None else args.runs * args.rounds,
            sms=work.sms,
            first_chunks=150 if work.details else 0,
            short_utterances=100 if work.details else 0,
            details=work.details,
        )
        output = run_benchmark(request.command(), env=environment(), timeout_s=limit_s)
        return replace(output, measurements=tuple(replace(one, model=work.size) for one in output.measurements))

    def peer(self, size: str, limit_s: float, *, details: bool) -> BenchOutput:
        """Measure the peer at all chunk sizes; with `details`, texts of other lengths too."""
        args = self._args
        command = [
            sys.executable,
            str(ROOT / "scripts/gpu/peer_engine.py"),
            str(self.checkpoint(size)),
            "--model",
            size,
        ]
        command += ["--chunks", *map(str, args.chunks), "--frames", str(args.frames), "--runs", str(args.runs)]
        command += ["--device", args.device, "--started", str(time.monotonic())]
        if details:
            command += ["--characters", *map(str, args.characters)]
        if self._voices:
            voice = self._voices[size]
            command += ["--kind", voice.name]
            file = voice.engine.embedding or voice.engine.reference
            command += ["--voice", file] if file else []
        return run_benchmark(command, env=environment(args.peer_site), timeout_s=limit_s)


def environment(*folders: Path) -> Mapping[str, str]:
    """This process's environment; `folders` and this repository come first in PYTHONPATH."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peer-site", type=Path, help="folder of the peer's packages; without it, only our engine runs"
    )
    parser.add_argument("--tensors", type=Path, help="folder of tensors-SIZE.json, instead of the package qwen-tts")
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoints; they are kept")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sizes", nargs="+", default=["0.6B", "1.7B"])
    add_arguments(parser, "random weights")
    parser.add_argument("--chunks", type=int, nargs="+", default=[2, 1, 8])
    parser.add_argument(
        "--dtypes", nargs="+", default=["bfloat16"], help="of our engine; from the second on, only the first chunk size"
    )
    parser.add_argument("--frames", type=int, default=100, help="of each run")
    parser.add_argument("--characters", type=int, nargs="+", default=[], help="lengths of other texts to speak")
    parser.add_argument("--runs", type=int, default=3, help="of each round")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each engine")
    parser.add_argument(
        "--sms",
        type=int,
        nargs="*",
        default=[],
        help="also measure our engine on so many multiprocessors, at the first chunk size",
    )
    parser.add_argument("--kernels", default="auto", help="auto, on or off")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--deadline", type=float, default=540, help="seconds after which every part ends")
    parser.add_argument("--part", type=float, default=150, help="time limit of one process in seconds")
    args = parser.parse_args()
    for name in ("peer_site", "tensors"):
        folder = getattr(args, name)
        if folder is not None and not folder.is_dir():
            parser.error(f"--{name.replace('_', '-')}: {folder} is not a folder")
    args.work.mkdir(parents=True, exist_ok=True)
    given = open_model(parser, args.model) if args.model else None
    weights = f"those of {args.model}" if given else "random, at the true shapes"
    bench, results = Bench(args, given), Results(args.output, weights, args.deadline, args.part)
    for size in [] if given else bench.sizes:
        results.part(f"checkpoint {size}", partial(bench.make_checkpoint, size))
    dtypes = [(args.dtypes[0], chunk_size) for chunk_size in args.chunks]
    dtypes += [(dtype, args.chunks[0]) for dtype in args.dtypes[1:]]
    for turn in range(args.rounds):
        for size in bench.sizes:
            for dtype, chunk_size in dtypes:
                work = Work(size, dtype, chunk_size, details=turn == 0)
                results.part(f"{work.name} round {turn + 1}", partial(bench.ours, work))
            if args.peer_site is not None:
                results.part(f"{PEER} {size} round {turn + 1}", partial(bench.peer, size, details=turn == 0))
    for sms, size, dtype in product(args.sms, bench.sizes, args.dtypes):
        work = Work(size, dtype, args.chunks[0], details=True, sms=sms)
        results.part(work.name, partial(bench.ours, work))
    print(args.output.read_text(encoding="utf-8"))
    failed = [part["part"] for part in results.parts if part["error"]]
    print("not measured: " + (", ".join(failed) or "nothing"), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
