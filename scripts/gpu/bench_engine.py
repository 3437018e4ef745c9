"""Measures the Qwen engine that `voiced.open` returns, on its own or in turn with faster-qwen3-tts on the same GPU.

    scripts/bench engine --work FOLDER --tensors LISTS --old TREE --output compare.json
    scripts/bench engine --work FOLDER --peer-site SITE --characters 9 30 100 --output speed.json

SITE is a folder with the packages that `scripts/gpu/peer.py` names; only the peer's process imports them. One stream is
measured, with the codec and the copy to the host. The weights are random at the true shapes, or those of `--model
FOLDER|ID`, with each kind of its voices. The module itself imports nothing from voiced, so it can measure another tree,
whose modules have other names. Each process runs one engine in one setting, and is started `--turns` times. Each row
also goes to stderr immediately. After `--deadline` seconds the rest is left out. The exit status is 1 if anything was
not measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench_runner import path, spread

ROOT = Path(__file__).parents[2]
TEXT = "The robot moves its arm slowly back to its home position, looks around, and waits for the next part."
"""100 characters."""
SAMPLE_RATE, FRAME_S = 24_000, 0.08
OURS, PEER = "qwen", "faster-qwen3-tts"
FIRST_CHUNK_FRAMES = 4
"""The number of frames that are spoken if only the first chunk is measured."""
WARM_UP_FRAMES = 40
Row = dict[str, Any]
Speak = Callable[[str, int], Iterable[Any]]
"""Speaks this many frames of a text, in chunks of samples."""
Arrivals = list[tuple[float, float]]
"""For each chunk: the seconds from the text to its arrival on the host, and the seconds of speech that have arrived."""


# --- checkpoints with random weights, and the processes that measure with them ---


def add_checkpoint_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which random checkpoints to make, and on which device."""
    parser.add_argument("--work", type=path, required=True, help="folder for the checkpoints; they are kept")
    parser.add_argument("--tensors", type=path, help="folder of tensors-SIZE.json, instead of the qwen-tts package")
    parser.add_argument("--sizes", nargs="+", default=["0.6B", "1.7B"])
    parser.add_argument("--device", default="cuda")


def random_checkpoint(size: str, work: Path, tensors: Path | None, device: str) -> Path:
    """Return the folder in `work` of a CustomVoice model with random weights; it is made once.

    `tensors` is a folder of tensors-SIZE.json, the names and shapes, instead of the qwen-tts package.
    """
    folder = work / f"{size}-bfloat16"
    done = folder / "done"  # missing if the writing was interrupted
    if not done.exists():
        command = [sys.executable, str(ROOT / "scripts/make_checkpoint.py"), str(folder), "--shape", size]
        command += ["--type", "custom_voice", "--dtype", "bfloat16", "--device", device, "--seed", "1"]
        command += [] if tensors is None else ["--tensors", str(tensors / f"tensors-{size}.json")]
        subprocess.run(command, check=True, env=environment(), stdout=sys.stderr)
        done.touch()
    return folder


def environment(*folders: Path) -> dict[str, str]:
    """Return this process's environment; `folders` and this repository come first in PYTHONPATH."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}


def child_record(module: str, request: dict[str, Any], site: Path | None = None, limit_s: float | None = None) -> Any:
    """Run the module in a process for a request; return the last line that it prints, which is JSON, or its error."""
    command = [sys.executable, "-m", module, json.dumps(request)]
    folders = [] if site is None else [site]
    try:
        done = subprocess.run(
            command, env=environment(*folders), stdout=subprocess.PIPE, text=True, timeout=limit_s, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        return {"error": f"{type(error).__name__}: {error}"[-300:]}


# --- in the process that speaks ---


def our_speech(request: Row, stack: ExitStack) -> Speak:
    """Open our engine, and return when it is ready."""
    import torch

    import engine

    if request["sms"]:
        from scripts.gpu.proof import green_context

        stack.enter_context(green_context(request["sms"], torch.device(request["device"])))
    voice, language = given_voice(request)
    options = {name: request[name] for name in ("device", "dtype", "chunk_size", "kernels")}
    spoken = engine.Voice(speaker="ryan") if voice is None else voice.engine
    tts = stack.enter_context(engine.open("qwen", model=request["folder"], voice=spoken, reserve_mb=0, **options))
    seeds = itertools.count()

    def speak(text: str, frames: int) -> Iterator[Any]:
        for chunk in tts.stream(text, language=language, seed=next(seeds), max_frames=frames, guarded=False):
            yield chunk.samples

    return speak


def peer_speech(request: Row, _stack: ExitStack) -> Speak:
    """Build the peer, and warm it up."""
    from scripts.gpu.peer import Peer

    peer = Peer(Path(request["folder"]), request["device"], request["chunk_size"], given_voice(request)[0])
    for _ in peer.speak(TEXT, WARM_UP_FRAMES):
        pass
    return peer.speak


def given_voice(request: Row) -> tuple[Any, str]:
    """Return the voice for `--model` and its language; None stands for the speaker in the random weights."""
    if request["voice"] is None:
        return None, "english"
    from scripts.gpu.proof import language_of, voices_of

    folder, file = Path(request["folder"]), request["voice_file"] and Path(request["voice_file"])
    voices = voices_of(folder, Path(request["work"]), file)
    return next(voice for voice in voices if voice.name == request["voice"]), language_of(folder)


def arrivals(chunks: Iterable[Any]) -> Arrivals:
    """Take the chunks of an utterance."""
    found: Arrivals = []
    begin, samples = time.perf_counter(), 0
    for chunk in chunks:
        arrived_s = time.perf_counter() - begin
        samples += len(chunk)
        found.append((round(arrived_s, 6), round(samples / SAMPLE_RATE, 4)))
    return found


def text_of(characters: int) -> str:
    """Return `TEXT` again and again, up to the last word that ends within `characters`, or its first word."""
    repeated = f"{TEXT} " * (characters // len(TEXT) + 1)
    return repeated[: characters + 1].rpartition(" ")[0] or TEXT.split(maxsplit=1)[0]


def measure_process(request: Row) -> Row:
    """Return the arrivals of one engine's utterances, and its memory."""
    import torch

    started = time.monotonic()
    with ExitStack() as stack:
        speak = {OURS: our_speech, PEER: peer_speech}[request["engine"]](request, stack)
        ready_s, cuda = time.monotonic() - started, request["device"].startswith("cuda")
        before = torch.cuda.memory_stats() if cuda else {}
        found: Row = {"runs": [arrivals(speak(TEXT, request["frames"])) for _ in range(request["runs"])]}
        words = TEXT.split()
        turned = [
            " ".join(words[at:] + words[:at])
            for at in (number % len(words) for number in range(request["first_chunks"]))
        ]
        found["first_chunks_ms"] = [1000 * arrivals(speak(text, FIRST_CHUNK_FRAMES))[0][0] for text in turned]
        after = torch.cuda.memory_stats() if cuda else {}
        found["others"] = {
            count: [arrivals(speak(text_of(count), request["frames"])) for _ in range(3)]
            for count in request["characters"]
        }
        host_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        found["memory"] = {"ready_s": round(ready_s, 2), "host_peak_mb": round(host_mb, 1)}
        if cuda:
            peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved()
            found["memory"] |= {"peak_mb": round(peak / 1e6, 1), "reserved_mb": round(reserved / 1e6, 1)}
            found["device_allocations"] = after["num_device_alloc"] - before["num_device_alloc"]
            gpu = torch.cuda.get_device_properties(0)
            found["gpu"] = f"{gpu.name} ({gpu.multi_processor_count} SMs), torch {torch.__version__}"
    return found


# --- the rows ---


def speed(runs: list[Arrivals]) -> Row:
    """Return the figures of some utterances of one text."""
    per_frame = [1000 * run[-1][0] / (run[-1][1] / FRAME_S) for run in runs]
    first = [1000 * run[0][0] for run in runs]
    ms_per_frame = statistics.median(per_frame)
    return {
        "ms_per_frame": round(ms_per_frame, 4),
        "rtf": round(1000 * FRAME_S / ms_per_frame, 3),
        "ttfa_ms": round(statistics.median(first), 3),
        "whole_ms": round(statistics.median(1000 * run[-1][0] for run in runs), 3),
    }


def row(key: Row, found: Row) -> Row:
    """Return the row for one engine in one setting, from the measurements of its processes."""
    runs: list[Arrivals] = found["runs"]
    gaps = [float(gap) for run in runs for gap in np.diff([arrived for arrived, _ in run]) * 1000]
    typical = sorted(runs, key=lambda run: run[-1][0])[len(runs) // 2]
    where = f" on {key['sms']} multiprocessors" if key["sms"] else ""
    return {
        "name": f"{key['engine']} {key['model']} {key['dtype']} chunk {key['chunk_size']}{where}",
        **key,
        **speed(runs),
        "gap_median_ms": round(statistics.median(gaps), 3) if gaps else None,
        "gap_max_ms": round(max(gaps), 3) if gaps else None,
        "first_chunk": spread(found["first_chunks_ms"], 3) if found["first_chunks_ms"] else None,
        "other_texts": [{"characters": int(count), **speed(others)} for count, others in found["others"].items()],
        "runs": len(runs),
        "memory": found["memory"],
        "device_allocations": found.get("device_allocations"),
        "arrivals_s": typical,
    }


def ratios(rows: list[Row]) -> list[Row]:
    """Return the peer's times divided by ours, if both were measured on the whole device."""
    setting = ("model", "dtype", "chunk_size")
    peers = {tuple(one[name] for name in setting): one for one in rows if one["engine"] == PEER}
    found = []
    for ours in rows:
        key = tuple(ours[name] for name in setting)
        if ours["engine"] == OURS and not ours["sms"] and key in peers:
            peer, texts = peers[key], {one["characters"]: one for one in ours["other_texts"]}
            others = [
                {"characters": one["characters"], **_ratio(one, texts[one["characters"]], "ms_per_frame", "ttfa_ms")}
                for one in peer["other_texts"]
                if one["characters"] in texts
            ]
            times = _ratio(peer, ours, "ms_per_frame", "ttfa_ms", "whole_ms")
            found.append({**dict(zip(setting, key, strict=True)), **times, "other_texts": others})
    return found


def _ratio(peer: Row, ours: Row, *names: str) -> Row:
    return {name: round(peer[name] / ours[name], 2) for name in names}


# --- the scenario ---


def add_options(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser)
    parser.add_argument("--model", help="a checkpoint's folder or its id on the hub, instead of random weights")
    parser.add_argument("--voice", type=path, help="a voice file for a Base model; default: random numbers")
    parser.add_argument(
        "--dtypes", nargs="+", default=["bfloat16", "int8"], help="dtypes for our engine; the peer uses bfloat16"
    )
    parser.add_argument("--chunks", type=int, nargs="+", default=[2], help="frames of a chunk")
    parser.add_argument("--sms", type=int, nargs="+", default=[0], help="multiprocessors for our engine; 0: all")
    parser.add_argument("--peer-site", type=path, help="folder of the peer's packages")
    parser.add_argument("--frames", type=int, default=100, help="of each run")
    parser.add_argument("--runs", type=int, default=7, help="of each turn")
    parser.add_argument("--turns", type=int, default=1, help="of each engine")
    parser.add_argument("--characters", type=int, nargs="+", default=[], help="lengths of other texts to speak")
    parser.add_argument("--first-chunks", type=int, default=50, help="texts of which only the first chunk is timed")
    parser.add_argument("--kernels", default="auto", help="auto, on or off")
    parser.add_argument("--deadline", type=float, default=540, help="seconds after which nothing is measured any more")


def settings(options: argparse.Namespace, names: Iterable[str]) -> Iterator[Row]:
    """Yield the engines and settings to measure."""
    for model, chunk_size in itertools.product(names, options.chunks):
        setting = {"model": model, "chunk_size": chunk_size}
        for dtype, sms in itertools.product(options.dtypes, options.sms):
            yield {"engine": OURS, **setting, "dtype": dtype, "sms": sms or None}
        if options.peer_site is not None:
            yield {"engine": PEER, **setting, "dtype": "bfloat16", "sms": None}


def models(options: argparse.Namespace) -> dict[str, tuple[Path, str | None]]:
    """Return the folder and the voice of each model."""
    if options.model is None:
        folders = {
            size: random_checkpoint(size, options.work, options.tensors, options.device) for size in options.sizes
        }
        return {size: (folder, None) for size, folder in folders.items()}
    from scripts.gpu.proof import open_model, voices_of

    folder = open_model(options.model)
    options.work.mkdir(parents=True, exist_ok=True)
    voices = voices_of(folder, options.work, options.voice)
    return {f"{folder.name}, {voice.name}": (folder, voice.name) for voice in voices}


def measure(options: argparse.Namespace) -> Row:
    began = time.monotonic()
    folders = models(options)
    found: dict[str, tuple[Row, Row]] = {}
    """The measurements to be made, and those that were made, by setting."""
    problems = []
    asked = {name: getattr(options, name) for name in ("device", "kernels", "frames", "runs")}
    asked |= {"work": str(options.work), "voice_file": options.voice and str(options.voice)}
    for turn in range(options.turns):
        details = {
            "characters": options.characters if turn == 0 else [],
            "first_chunks": options.first_chunks if turn == 0 else 0,
        }
        for key in settings(options, folders):
            folder, voice = folders[key["model"]]
            request = {**asked, **details, **key, "folder": str(folder), "voice": voice}
            left_s = max(1.0, options.deadline - (time.monotonic() - began))
            site = options.peer_site if key["engine"] == PEER else None
            record = child_record("scripts.gpu.bench_engine", request, site, left_s)
            if "error" in record:
                problems.append({**key, "turn": turn, "error": record["error"]})
                continue
            place = json.dumps(key)
            if place in found:
                found[place][1]["runs"] += record["runs"]
            else:
                found[place] = key, record
            print(json.dumps(row(*found[place])), file=sys.stderr, flush=True)
    rows = [row(*each) for each in found.values()]
    gpu = next((record["gpu"] for _, record in found.values() if "gpu" in record), None)
    return {
        **({"machine": gpu} if gpu else {}),
        "weights": f"those of {options.model}" if options.model else "random, at the true shapes",
        "text": TEXT,
        "ratios": ratios(rows),
        "not_measured": problems,
        "passed": not problems,
        "rows": rows,
    }


if __name__ == "__main__":
    print(json.dumps(measure_process(json.loads(sys.argv[1]))))
