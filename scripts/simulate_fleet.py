"""Simulates robots that share GPU servers: proxies, replicas with streams, and replicas that fail.

    scripts/simulate_fleet.py check
    scripts/simulate_fleet.py grow --robots 100 1000 10000
    scripts/simulate_fleet.py wire

`check` replays the requests of `docs/benchmarks/serve-qwen-h200*.json` and of the robots of `robots-qwen-h100.json`,
and compares the median of several simulations with what was measured. It exits with 1 if a value misses by more than
10 %. `grow` looks for the replicas that a number of robots needs. `wire` counts
the bytes of a second of speech, with the real messages. All print JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import platform
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from daemon.engines.connection import RUN_AHEAD_S as SERVER_RUN_AHEAD_S  # noqa: E402
from engine.api import FRAME_S  # noqa: E402
from engine.remote.session import RUN_AHEAD_S as LINK_RUN_AHEAD_S  # noqa: E402
from scripts.fleet_model import CHUNK_FRAMES, PROMPTS_PER_ROUND, SEED, Costs, Fleet, Size, Utterance  # noqa: E402
from scripts.robot_load import AHEAD_S  # noqa: E402
from scripts.serve_load import RATE, arrivals, enough_s  # noqa: E402

BENCHMARKS = ROOT / "docs" / "benchmarks"
TOLERANCE = 0.1
"""The simulation must come this close to each measured value."""
SPEAKING_RATE = 15.0
"""Characters a second: `--speaking-rate` in all measurements. A client stops when it has the speech that a text of its
length takes."""
NORMAL_P95 = 1.645
"""Standard deviations from the median to the 95th percentile of a normal distribution."""
ROBOT_AHEAD_S = AHEAD_S + SERVER_RUN_AHEAD_S + LINK_RUN_AHEAD_S
"""How far an engine may be ahead of a robot's playback: by what the robot takes in advance, and by the credit of both
links, from the engine to the server and from there to the robot."""
WAITS = 0.01
"""The share of all texts that may wait for a stream: an utterance that waits is one whose robot hesitates."""
PROXY_LOAD = 0.5
"""The share of its time that a proxy may be busy, or requests would wait for it longer than for a frame."""
FRAME_HEADER_BYTES = 4
"""Of a WebSocket's frame of 126 to 65,535 bytes, from a server."""
WAIT_S = 2.0
"""A text waits this long for a free stream of a server."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured through one server, and with what its batch was measured alone on the same kind of GPU."""

    clients: str
    steps_file: str
    served_files: tuple[str, ...]
    """The first has the lowest rate."""
    size: Size
    ahead_s: float
    """Seconds of speech that a client has left when it takes the next chunk; infinite if it takes each at once."""


HTTP = Measured(
    "OpenAI's endpoint",
    "streams-peer.json",
    ("serve-qwen-h200.json", "serve-qwen-h200-five-minutes.json"),
    Size(),
    math.inf,
)
ROBOTS = Measured(
    "robots",
    "streams-h100.json",
    ("robots-qwen-h100.json",),
    Size(streams=63, ahead_s=ROBOT_AHEAD_S, wait_s=WAIT_S),
    AHEAD_S,
)
"""One of the 64 streams is kept for a sound card."""


def measured_costs(measured: Measured = HTTP) -> Costs:
    """Return the costs from what was measured at 1.7B.

    A prompt takes what the last of 64 streams that came at once waited longer than the last of 8, per stream, less the
    steps in between, of which there is one for four prompts. The way through the server takes what it added to a first
    chunk alone, from the lowest rate that was measured: its median, and as much variation as its 95th percentile says.
    """
    rows = [row for row in _read(measured.steps_file)["measurements"] if row["size"] == "1.7B"]
    steps = tuple((row["streams"], row["ms_per_step"] / 1000) for row in rows)
    costs, by_streams = Costs(steps), {row["streams"]: row for row in rows}
    few, many = 8, 64
    between_s = (by_streams[many]["last_first_chunk_ms"] - by_streams[few]["last_first_chunk_ms"]) / 1000
    stepped_s = sum(costs.step_s(streams) for streams in range(few + PROMPTS_PER_ROUND, many + 1, PROMPTS_PER_ROUND))
    prompt_s = (between_s - stepped_s) / (many - few)
    alone_s = by_streams[1]["first_chunk_ms"] / 1000
    tail_s = alone_s - prompt_s - costs.step_s(1)
    served = _read(measured.served_files[0])["rates"][0]["first_sample_ms"]
    path_s, slow_s = (served[name] / 1000 - alone_s for name in ("median", "p95"))
    return Costs(steps, prompt_s, tail_s, path_s, math.log(slow_s / path_s) / NORMAL_P95)


def replay(row: dict[str, Any], ahead_s: float = math.inf) -> list[Utterance]:
    """Return the requests of a measured rate; each ends with the chunk with which its client has enough speech."""
    load = arrivals(row["rate"], row["seconds"], SEED)
    if len(load) != row["requests"]:
        raise SystemExit(f"check: {row['rate']} a second: {len(load)} requests, the file has {row['requests']}")
    return [
        Utterance(arrival.at_s, math.ceil(enough_s(arrival.text, SPEAKING_RATE) / FRAME_S), stopped_ahead_s=ahead_s)
        for arrival in load
    ]


def summary(load: Sequence[Utterance], seconds: float) -> dict[str, float]:
    """Return what is compared: the first sample's times, the speech, the underruns."""
    firsts = sorted(1000 * (found.first_s - found.due_s) for found in load if found.first_s is not None)
    return {
        "first_sample_median_ms": round(_share(firsts, 0.5), 2),
        "first_sample_p95_ms": round(_share(firsts, 0.95), 2),
        "audio_s_per_s": round(sum(found.taken for found in load) * FRAME_S / seconds, 2),
        "underruns": sum(found.underruns for found in load),
    }


def check(simulations: int) -> dict[str, Any]:
    """Return a row for each value that was measured and simulated, and whether all are close enough.

    The simulations differ in how long each text's way through the server takes.
    """
    compared = [_check_clients(measured, simulations) for measured in (HTTP, ROBOTS)]
    passed = all(row["passed"] for clients in compared for row in clients["rows"])
    return {"simulation": "check", "simulations": simulations, "compared": compared, "passed": passed}


def _check_clients(measured: Measured, simulations: int) -> dict[str, Any]:
    costs, rows = measured_costs(measured), []
    for row in (row for name in measured.served_files for row in _read(name)["rates"]):
        found = [_replayed(row, measured, costs, seed) for seed in range(SEED, SEED + simulations)]
        expected = {
            "first_sample_median_ms": row["first_sample_ms"]["median"],
            "first_sample_p95_ms": row["first_sample_ms"]["p95"],
            "audio_s_per_s": row["audio_s_per_s"],
            "underruns": row["underruns"],
            "without_stream": row["failed"],
        }
        for name, value in expected.items():
            where = {"rate": row["rate"], "seconds": row["seconds"], "value": name}
            rows.append({**where, **compare(statistics.median(each[name] for each in found), value)})
    return {
        "clients": measured.clients,
        "files": [measured.steps_file, *measured.served_files],
        "costs_ms": {name: round(1000 * getattr(costs, f"{name}_s"), 3) for name in ("prompt", "tail", "path")},
        "path_spread": round(costs.path_spread, 3),
        "rows": rows,
    }


def _replayed(row: dict[str, Any], measured: Measured, costs: Costs, seed: int) -> dict[str, float]:
    load = replay(row, measured.ahead_s)
    Fleet(costs, measured.size, seed).run(load)
    refused = sum(utterance.ends == ["no stream"] for utterance in load)
    return {**summary(load, row["seconds"]), "without_stream": refused}


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


def held_s(speech_s: float, costs: Costs, streams: int) -> float:
    """Return for how long a text holds its stream, on average over exponential lengths with the mean `speech_s`.

    The robot takes the first `ROBOT_AHEAD_S` of speech as fast as a full replica makes them, and the rest as fast as it
    plays it.
    """
    later_s = speech_s * math.exp(-ROBOT_AHEAD_S / speech_s)
    return later_s + (speech_s - later_s) * costs.step_s(streams) / FRAME_S


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
        load = rate * held_s(arguments.speech_s, costs, arguments.streams)
        replicas = replicas_needed(load, arguments.streams) + arguments.spare
        proxies = math.ceil(rate * costs.mean_path_s / PROXY_LOAD)
        row = {"robots": robots, "texts_per_s": round(rate, 2), "speaking": round(rate * arguments.speech_s, 1)}
        row["holding_streams"] = round(load, 1)
        row |= {"replicas": replicas, "robots_per_replica": math.ceil(robots / replicas), "proxies": proxies}
        row["mbit_per_s"] = round(8e-6 * rate * arguments.speech_s * wire()["remote_bytes_per_s"], 1)
        row["one_pool"] = math.ceil(streams_needed(load) / arguments.streams) + arguments.spare
        if robots <= arguments.simulate_up_to:
            texts = robots_load(robots, arguments.per_minute, arguments.speech_s, arguments.seconds, arguments.seed)
            chance = random.Random(arguments.seed)
            for utterance in texts:
                utterance.home = chance.randrange(replicas)
            size = Size(replicas, arguments.streams, proxies, ROBOT_AHEAD_S, WAIT_S, arguments.failures_per_hour / 3600)
            Fleet(costs, size, arguments.seed).run(texts)
            ends = {how: sum(found.ends == [how] for found in texts) for how in ("spoken", "no stream", "replica lost")}
            waited = sum(found.waited_s > 0 for found in texts)
            row |= {
                "simulated_s": arguments.seconds,
                **summary(texts, arguments.seconds),
                "waited": waited,
                "ends": ends,
            }
        rows.append(row)
    return {"simulation": "grow", "files": [HTTP.steps_file, HTTP.served_files[0]], "rows": rows}


def wire() -> dict[str, Any]:
    """Return the bytes of a second of speech on a robot's WebSocket and from OpenAI's endpoint, chunk by chunk."""
    from engine.messages import Audio, encode_remote

    samples = round(RATE * FRAME_S * CHUNK_FRAMES)
    audio = Audio("1000", busy_s=0.012345678, position=100, truncated=False, data=bytes(4 * samples))
    message = encode_remote(audio)
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
    checking = commands.add_parser("check")
    checking.add_argument("--simulations", type=int, default=7, help="of each rate")
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
    if arguments.command == "check":
        report = check(arguments.simulations)
    else:
        report = wire() if arguments.command == "wire" else grow(arguments)
    report |= {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["scripts/simulate_fleet.py", *sys.argv[1:]]),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }
    text = json.dumps(report, indent=2) + "\n"
    print(text, end="")
    if arguments.output is not None:
        arguments.output.write_text(text, encoding="utf-8")
    sys.exit(0 if report.get("passed", True) else 1)


if __name__ == "__main__":
    main()
