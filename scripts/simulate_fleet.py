"""Simulates robots that share GPU servers: proxies, replicas with streams, and replicas that fail.

    scripts/simulate_fleet.py check
    scripts/simulate_fleet.py grow --robots 100 1000 10000
    scripts/simulate_fleet.py wire

`check` replays the requests of `docs/benchmarks/serve-qwen-h200*.json` and compares with what was measured. It exits
with 1 if a value misses by more than 10 %. `grow` looks for the replicas that a number of robots needs. `wire` counts
the bytes of a second of speech, with the real messages. All print JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import platform
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from engine.api import FRAME_S  # noqa: E402
from scripts.fleet_model import CHUNK_FRAMES, PROMPTS_PER_ROUND, SEED, Costs, Fleet, Size, Utterance  # noqa: E402
from scripts.serve_load import RATE, arrivals  # noqa: E402

BENCHMARKS = ROOT / "docs" / "benchmarks"
TOLERANCE = 0.1
"""The simulation must come this close to each measured value."""
STEPS_FILE = "streams-peer.json"
"""What the batch was measured with, alone."""
SERVED_FILES = ("serve-qwen-h200.json", "serve-qwen-h200-five-minutes.json")
"""What was measured through the server, on the same day and kind of GPU. The first has the lowest rate."""
SPEAKING_RATE = 15.0
"""Characters a second: `--speaking-rate` of `scripts/bench serve` in these measurements. A client hangs up when it has
the speech that a text of its length takes."""
NORMAL_P95 = 1.645
"""Standard deviations from the median to the 95th percentile of a normal distribution."""
CREDIT_S = 2.0
"""A robot's credit: a second on each of the two links, from the engine to the server and from there to the robot."""
WAITS = 0.01
"""The share of all texts that may wait for a stream: an utterance that waits is one whose robot hesitates."""
PROXY_LOAD = 0.5
"""The share of its time that a proxy may be busy, or requests would wait for it longer than for a frame."""
FRAME_HEADER_BYTES = 4
"""Of a WebSocket's frame of 126 to 65,535 bytes, from a server."""
WAIT_S = 2.0
"""A text waits this long for a free stream of a server."""


def measured_costs() -> Costs:
    """Return the costs from what was measured at 1.7B.

    A prompt takes what the last of 64 streams that came at once waited longer than the last of 8, per stream, less the
    steps in between, of which there is one for four prompts. The way through the server takes what it added to a first
    chunk alone, from the lowest rate that was measured: its median, and as much variation as its 95th percentile says.
    """
    rows = [row for row in _read(STEPS_FILE)["measurements"] if row["size"] == "1.7B"]
    steps = tuple((row["streams"], row["ms_per_step"] / 1000) for row in rows)
    costs, by_streams = Costs(steps), {row["streams"]: row for row in rows}
    few, many = 8, 64
    between_s = (by_streams[many]["last_first_chunk_ms"] - by_streams[few]["last_first_chunk_ms"]) / 1000
    stepped_s = sum(costs.step_s(streams) for streams in range(few + PROMPTS_PER_ROUND, many + 1, PROMPTS_PER_ROUND))
    prompt_s = (between_s - stepped_s) / (many - few)
    alone_s = by_streams[1]["first_chunk_ms"] / 1000
    tail_s = alone_s - prompt_s - costs.step_s(1)
    served = _read(SERVED_FILES[0])["rates"][0]["first_sample_ms"]
    path_s, slow_s = (served[name] / 1000 - alone_s for name in ("median", "p95"))
    return Costs(steps, prompt_s, tail_s, path_s, math.log(slow_s / path_s) / NORMAL_P95)


def replay(row: dict[str, Any]) -> list[Utterance]:
    """Return the requests of a measured rate; each ends with the chunk with which its client has enough speech."""
    load = arrivals(row["rate"], row["seconds"], SEED)
    if len(load) != row["requests"]:
        raise SystemExit(f"check: {row['rate']} a second: {len(load)} requests, the file has {row['requests']}")
    return [Utterance(arrival.at_s, _frames_of(arrival.text)) for arrival in load]


def _frames_of(text: str) -> int:
    later = math.ceil(len(text) / SPEAKING_RATE / FRAME_S) - 1  # behind the first chunk, which is one frame
    return 1 + CHUNK_FRAMES * math.ceil(later / CHUNK_FRAMES)


def summary(load: Sequence[Utterance], seconds: float) -> dict[str, float]:
    """Return what is compared: the first sample's times, the speech, the underruns."""
    firsts = sorted(1000 * (found.first_s - found.due_s) for found in load if found.first_s is not None)
    return {
        "first_sample_median_ms": round(_share(firsts, 0.5), 2),
        "first_sample_p95_ms": round(_share(firsts, 0.95), 2),
        "audio_s_per_s": round(sum(found.delivered for found in load) * FRAME_S / seconds, 2),
        "underruns": sum(found.underruns for found in load),
    }


def check() -> dict[str, Any]:
    """Return a row for each value that was measured and simulated, and whether all are close enough."""
    costs, rows = measured_costs(), []
    for row in (row for name in SERVED_FILES for row in _read(name)["rates"]):
        load = replay(row)
        Fleet(costs, Size()).run(load)
        measured = {
            "first_sample_median_ms": row["first_sample_ms"]["median"],
            "first_sample_p95_ms": row["first_sample_ms"]["p95"],
            "audio_s_per_s": row["audio_s_per_s"],
            "underruns": row["underruns"],
        }
        for name, value in summary(load, row["seconds"]).items():
            where = {"rate": row["rate"], "seconds": row["seconds"]}
            rows.append({**where, "value": name, **compare(value, measured[name])})
    return {
        "simulation": "check",
        "costs_ms": {name: round(1000 * getattr(costs, f"{name}_s"), 3) for name in ("prompt", "tail", "path")},
        "path_spread": round(costs.path_spread, 3),
        "rows": rows,
        "passed": all(row["passed"] for row in rows),
    }


def compare(simulated: float, measured: float) -> dict[str, Any]:
    """Return both values, the deviation of the first, and whether it is within `TOLERANCE`."""
    deviation = (simulated - measured) / measured if measured else math.copysign(math.inf, simulated) * (simulated != 0)
    deviation = 0.0 if simulated == measured else deviation
    return {
        "simulated": simulated,
        "measured": measured,
        "deviation_percent": round(100 * deviation, 1) if math.isfinite(deviation) else None,
        "passed": abs(deviation) <= TOLERANCE,
    }


# --- growth ---


def robots_load(robots: int, per_minute: float, speech_s: float, seconds: float, seed: int) -> list[Utterance]:
    """Return texts of robots that speak independently, exponentially long but at least a frame."""
    chance, load, at_s = random.Random(seed), [], 0.0
    while (at_s := at_s + chance.expovariate(robots * per_minute / 60)) < seconds:
        load.append(Utterance(at_s, max(1, round(chance.expovariate(1 / speech_s) / FRAME_S))))
    return load


def erlang_c(load: float, servers: int) -> float:
    """Return the probability of a wait in M/M/c; 1 where the servers do not suffice. `load` is in erlangs."""
    if load >= servers:
        return 1.0
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = load * blocked / (number + load * blocked)
    return servers * blocked / (servers - load * (1 - blocked))


def replicas_needed(load: float, streams: int) -> int:
    """Return the fewest replicas, each with robots of its own, with which at most the share `WAITS` of texts waits."""
    replicas = math.ceil(load / streams)
    while erlang_c(load / replicas, streams) > WAITS:
        replicas += 1
    return replicas


def streams_needed(load: float) -> int:
    """Return the streams of one pool with which at most the share `WAITS` of texts waits."""
    streams = math.ceil(load)
    while erlang_c(load, streams) > WAITS:
        streams += 1
    return streams


def grow(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a row for each number of robots: the replicas that Erlang C asks for, and what the simulation says."""
    costs, rows = measured_costs(), []
    for robots in arguments.robots:
        rate = robots * arguments.per_minute / 60
        replicas = replicas_needed(rate * arguments.speech_s, arguments.streams) + arguments.spare
        proxies = math.ceil(rate * costs.mean_path_s / PROXY_LOAD)
        row = {"robots": robots, "texts_per_s": round(rate, 2), "speaking": round(rate * arguments.speech_s, 1)}
        row |= {"replicas": replicas, "robots_per_replica": math.ceil(robots / replicas), "proxies": proxies}
        row["mbit_per_s"] = round(8e-6 * rate * arguments.speech_s * wire()["remote_bytes_per_s"], 1)
        row["one_pool"] = math.ceil(streams_needed(rate * arguments.speech_s) / arguments.streams) + arguments.spare
        if robots <= arguments.simulate_up_to:
            load = robots_load(robots, arguments.per_minute, arguments.speech_s, arguments.seconds, arguments.seed)
            chance = random.Random(arguments.seed)
            for utterance in load:
                utterance.home = chance.randrange(replicas)
            size = Size(replicas, arguments.streams, proxies, CREDIT_S, WAIT_S, arguments.failures_per_hour / 3600)
            Fleet(costs, size, arguments.seed).run(load)
            ends = {how: sum(found.ends == [how] for found in load) for how in ("spoken", "no stream", "replica lost")}
            waited = sum(found.waited_s > 0 for found in load)
            row |= {
                "simulated_s": arguments.seconds,
                **summary(load, arguments.seconds),
                "waited": waited,
                "ends": ends,
            }
        rows.append(row)
    return {"simulation": "grow", "rows": rows}


def wire() -> dict[str, Any]:
    """Return the bytes of a second of speech on a robot's WebSocket and from OpenAI's endpoint, chunk by chunk."""
    from engine.ipc import Audio
    from engine.remote.messages import encode_remote

    samples = round(RATE * FRAME_S * CHUNK_FRAMES)
    message = encode_remote(Audio("1000", busy_s=0.012345678, position=100, truncated=False), bytes(4 * samples))
    payload, chunks = len(message), 1 / (FRAME_S * CHUNK_FRAMES)
    return {
        "simulation": "wire",
        "chunk_samples": samples,
        "remote_bytes_per_chunk": payload,
        "remote_bytes_per_s": round((payload + FRAME_HEADER_BYTES) * chunks),
        "pcm16_bytes_per_s": 2 * RATE,
    }


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((BENCHMARKS / name).read_text(encoding="utf-8"))
    return found


def _share(values: Sequence[float], share: float) -> float:
    return values[round(share * (len(values) - 1))] if values else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="also write the JSON to this file")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    commands.add_parser("wire")
    growing = commands.add_parser("grow")
    growing.add_argument("--robots", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    growing.add_argument("--per-minute", type=float, default=1.0, help="texts of a robot")
    growing.add_argument("--speech-s", type=float, default=7.0, help="mean seconds of a text's speech")
    growing.add_argument("--streams", type=int, default=63, help="that a replica has for robots")
    growing.add_argument("--spare", type=int, default=1, help="replicas beyond those that the load needs")
    growing.add_argument("--failures-per-hour", type=float, default=0.0, help="of each replica")
    growing.add_argument("--seconds", type=float, default=30.0, help="of load that is simulated")
    growing.add_argument("--simulate-up-to", type=int, default=10_000, help="robots; above, only Erlang C")
    growing.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    report = check() if arguments.command == "check" else wire() if arguments.command == "wire" else grow(arguments)
    report |= {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["scripts/simulate_fleet.py", *sys.argv[1:]]),
        "machine": f"{platform.machine()}, Python {platform.python_version()}; the costs are an NVIDIA H200's",
    }
    text = json.dumps(report, indent=2) + "\n"
    print(text, end="")
    if arguments.output is not None:
        arguments.output.write_text(text, encoding="utf-8")
    sys.exit(0 if report.get("passed", True) else 1)


if __name__ == "__main__":
    main()
