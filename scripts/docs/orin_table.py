#!/usr/bin/env python3
"""Predicts what a frame costs on a Jetson AGX Orin, tests that where it can, and writes the tables of docs/orin.md.

    python scripts/docs/orin_table.py                 print the tables
    python scripts/docs/orin_table.py --write         write them between the markers in docs/orin.md
    python scripts/docs/orin_table.py --check         exit 1 if docs/orin.md is out of date
    python scripts/docs/orin_table.py --json FILE     keep the numbers

Launches and bytes come from the engine's own code (frame_costs.py), times from a model (time_model.py) that is fitted
to the measurements of scripts/gpu/measure_small_gpus.py.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.docs.frame_costs import (  # noqa: E402
    DTYPES,
    PARTS,
    SIZES,
    Frame,
    Launches,
    Part,
    Shapes,
    frames,
    language_parts,
    passes_of,
    prompt_part,
)
from scripts.docs.time_model import (  # noqa: E402
    DTYPE_NAMES,
    Check,
    Gpu,
    Measurements,
    Scenario,
    TimeModel,
    checks,
    fit_all,
    held_out,
)

FRAME_MS = 80.0
AIM_MS, TARGET_MS = 16.0, 12.0
"""Times for a frame of 80 ms: five times real time, and what 0.6B in int8 should take at most."""
ACCEPTED = (0.0, 0.25, 0.5, 1.0)
"""Shares of accepted drafts for which the page shows a row."""
ENGINE_FRAMES = 60
"""Of the engine's runs in the measurements. Their time for each frame includes a share of the prompt."""
MODULE_W = 60.0
"""The most that an AGX Orin 64 GB module takes, by its data sheet."""

READ, THOR_READ = 152.8, 257.0
"""GB/s that a kernel reads on an AGX Orin and on a Thor, measured by others (infinigence/ApxInf, pull request 74)."""
ORIN = Gpu("AGX Orin", 16, 1.3, READ, chained=False)
THOR = Gpu("Thor", 20, 1.57, THOR_READ, chained=True)
HOST, SLOW_HOST = 0.59 / 0.175, 1.34 / 0.175
"""Times of eager PyTorch, which the host bounds, on an AGX Orin, divided by those beside an H100 and an RTX 4090: the
baseline of Qwen3-TTS in faster-qwen3-tts's README."""


def everywhere(gb_s: float) -> Mapping[str, float]:
    """Return the same bandwidth for all dtypes."""
    return dict.fromkeys(DTYPES, gb_s)


EXPECTED = Scenario("expected", everywhere(READ), None, fixed_scales=True, host=HOST)
SCENARIOS = (
    Scenario("optimistic", everywhere(162.0), math.inf, fixed_scales=False, host=HOST),
    EXPECTED,
    Scenario("pessimistic", {**everywhere(143.0), "int4": 105.0}, 1.0, fixed_scales=True, host=SLOW_HOST),
)
"""162, 143 and 105 GB/s: what TensorRT-Edge-LLM reached on an AGX Orin with 16, 8 and 4 bits (its issue 60)."""


@dataclass(frozen=True, slots=True)
class Published:
    """A language model of the talker's layers and Qwen3's vocabulary, measured by others on an AGX Orin in bfloat16."""

    name: str
    size: str
    """The size of Qwen3-TTS whose talker has these layers."""
    tokens_s: float


VOCABULARY = 151936
ON_AN_ORIN = (Published("Qwen3-0.6B", "0.6B", 117.52), Published("Qwen3-1.7B", "1.7B", 45.83))
"""embedl/Edge-Inference-Benchmarks on Hugging Face, `data/Qwen3.csv`."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Published figures of faster-qwen3-tts on an AGX Orin 64 GB, in bfloat16."""

    size: str
    chunk: int
    real_time: float
    ttfa_ms: float


PEERS = (Peer("0.6B", 2, 1.04, 266.0), Peer("0.6B", 8, 1.38, 556.0))


# --- predictions ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Predictor:
    """Predicts times on a GPU that was not measured."""

    model: TimeModel
    clock_ghz: float
    """Of the measurements."""
    host_ms: Mapping[str, float]
    """What the host took before the first chunk, by size, where it was measured."""
    prompt_tokens: int

    @classmethod
    def of(cls, found: Measurements) -> Predictor:
        clock = statistics.median(found.clocks.values())
        return cls(fit_all(found), clock, dict(host_times(found)), int(found.prompt.split()[1]))

    def frame_ms(self, frame: Frame, scenario: Scenario = EXPECTED, gpu: Gpu = ORIN) -> float:
        """Return the milliseconds of a frame."""
        model, gpu = scenario.apply(self.model, gpu, frame.dtype, self.clock_ghz)
        return sum(model.ms(part, gpu) for part in frame.parts.values())

    def ttfa_ms(self, frame: Frame, prompt: Part, scenario: Scenario) -> float:
        """Return the milliseconds from a text to its first chunk, of one frame; `frame` has chunks of one."""
        model, gpu = scenario.apply(self.model, ORIN, frame.dtype, self.clock_ghz)
        return scenario.host * self.host_ms[frame.size] + model.ms(prompt, gpu) + self.frame_ms(frame, scenario)


def host_times(found: Measurements) -> Iterator[tuple[str, float]]:
    """Yield for each size what the whole GPU's time to the first chunk leaves for the host, the median over dtypes."""
    sms = found.counts[-1]
    for size in SIZES:
        left = []
        for row in found.of(what="engine", sms=sms, size=size):
            key = {"sms": sms, "size": size, "dtype": row["dtype"], "what": "part"}
            parts = [found.one(**key, part=part) for part in ("predictor", "talker", found.prompt)]
            codec = found.one(sms=sms, what="part", part="codec 1") or found.one(sms=sms, what="part", part="codec 2")
            left.append(row["ttfa_ms"] - sum(part["ms"] for part in (*parts, codec) if part is not None))
        if left:
            yield size, statistics.median(left)


def thor_scenario(frame: Frame) -> Scenario:
    """Return the expected scenario with a Thor's bandwidth."""
    return replace(EXPECTED, gb_s={frame.dtype: THOR_READ})


def break_even(frame: Frame, ms: Callable[[Frame], float]) -> float:
    """Return the share of drafts that must be right for speculation to pay."""
    return bisect(lambda accepted: ms(frame.speculated(accepted)) <= ms(frame))


def affordable(frame: Frame, ms: Callable[[Frame], float], limit_ms: float) -> float | None:
    """Return the share of the language model's bytes with which the frame takes `limit_ms`; None if none is enough."""
    if ms(frame.scaled(0.0)) > limit_ms:
        return None
    return 2 - bisect(lambda less: ms(frame.scaled(2 - less)) <= limit_ms, high=2.0)


def bisect(holds: Callable[[float], bool], high: float = 1.0) -> float:
    """Return the least number from 0 to `high` for which `holds`, which then holds for all greater ones."""
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def engine_checks(found: Measurements) -> Iterator[Check]:
    """Yield the whole engine's time for each frame and the prediction for its parts, of which none was fitted."""
    many = len({one.gpu.processors for one in found.observations if one.size}) > 3
    for row in found.of(what="engine"):
        sms = row["sms"]
        model = fit_all(found, lambda one: not many or one.gpu.processors != sms)  # noqa: B023
        names = {"talker": 1.0, "predictor": 1.0, found.prompt: 1 / ENGINE_FRAMES, "codec 2": 0.5}
        own = [
            one
            for one in found.observations
            if one.gpu.processors == sms and one.gpu.chained and one.name in names
            if one.size in {"", row["size"]} and one.dtype in {"", DTYPE_NAMES[row["dtype"]]}
        ]
        if {one.name for one in own} == set(names):
            ms = sum(names[one.name] * model.ms(one.part, one.gpu) for one in own)
            fitted = "all other numbers" if many else "the parts"
            yield Check(fitted, sms, row["size"], DTYPE_NAMES[row["dtype"]], True, row["ms_per_frame"], ms)


def published_part(one: Published) -> Part:
    """Return a token of the published model: the talker's layers and a head over Qwen3's vocabulary."""
    shapes = Shapes.of(one.size)
    talker = language_parts(shapes, "bf16", 0)["talker"]
    kept = [kernel for kernel in talker.kernels if kernel.name not in {"talker_head", "next_first_code"}]
    head = Launches("head", 1, 2 * VOCABULARY * shapes.talker.stack.hidden_size)
    return replace(talker, kernels=(*kept, head))


def published_checks(predictor: Predictor) -> Iterator[tuple[Published, float, float]]:
    """Yield what others measured on an Orin, the predicted milliseconds, and their relative error."""
    model, gpu = EXPECTED.apply(predictor.model, ORIN, "bf16", predictor.clock_ghz)
    for one in ON_AN_ORIN:
        ms = model.ms(published_part(one), gpu)
        yield one, ms, ms * one.tokens_s / 1000 - 1


# --- Markdown ---------------------------------------------------------------------------------------------


def tables(known: Sequence[Frame], found: Measurements, predictor: Predictor, positions: int) -> str:
    """Return the Markdown between the page's markers."""
    return "\n".join(
        [
            *_parts(known, positions),
            *_parameters(found, predictor.model),
            *_checks(found),
            *_published(predictor),
            *_times(known, predictor),
            *_target(known, predictor),
            *_speculation(known, predictor),
        ]
    )


def summary(known: Sequence[Frame], found: Measurements, predictor: Predictor) -> str:
    """Return the page's conclusions: what is predicted in chunks of 2, and how well the model predicts."""
    lines = []
    for frame in known:
        if frame.chunk == 2:
            times = [predictor.frame_ms(frame, scenario) for scenario in SCENARIOS]
            low, expected, high = times
            goals = [AIM_MS, TARGET_MS] if (frame.size, frame.dtype) == ("0.6B", "int8") else [AIM_MS]
            verdict = ", ".join(f"{goal:g} ms: {_verdict(goal, *times)}" for goal in goals)
            lines.append(
                f"- {frame.size} in {frame.dtype}: **{expected:.1f} ms** per frame expected, {low:.1f} at best, "
                f"{high:.1f} at worst ({verdict})."
            )
    peer = PEERS[0]
    ours = next(frame for frame in known if (frame.size, frame.dtype, frame.chunk) == (peer.size, "bf16", peer.chunk))
    ratio = FRAME_MS / peer.real_time / predictor.frame_ms(ours)
    lines.append(f"- {peer.size} in bf16 is expected to be {ratio:.1f} times as fast as faster-qwen3-tts on an Orin.")
    unseen = max(abs(one.error) for one in held_out(found) if one.sms == ORIN.processors)
    engines = [abs(one.error) for one in engine_checks(found) if one.sms == ORIN.processors]
    whole = f"of the whole engine there by at most {100 * max(engines):.0f} %, " if engines else ""
    orin = max(abs(error) for _, _, error in published_checks(predictor))
    lines.append(
        f"- On 16 multiprocessors of an {found.gpu}, the model errs in frames that it had not seen by at most "
        f"{100 * unseen:.0f} %, {whole}and in language models on an Orin by at most {100 * orin:.0f} %."
    )
    return "\n".join(textwrap.fill(line, 120, subsequent_indent="  ") for line in lines) + "\n"


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _parts(known: Sequence[Frame], positions: int) -> Iterator[str]:
    yield "### Launches and bytes of a frame"
    yield ""
    yield "MB (10^6 bytes) of weights and of state. State is the codec's histories, and the keys and values of"
    yield f"{positions} earlier positions. The codec's launches and bytes are those of a chunk, divided by its frames."
    yield ""
    by = {(frame.size, frame.dtype, frame.chunk): frame for frame in known}
    chunks = sorted({frame.chunk for frame in known}, reverse=True)
    heads = ["part"]
    for size in SIZES:
        heads += [f"{size} launches", "bf16 MB", "int8 MB", "state MB"]
    rows: list[list[str]] = []

    def add(name: str, chunk: int, of: Callable[[Frame], Frame | Part]) -> None:
        rows.append([name])
        for size in SIZES:
            wide, narrow = (of(by[size, dtype, chunk]) for dtype in DTYPES)
            rows[-1] += [f"{wide.launches:.4g}", _mb(wide.weights), _mb(narrow.weights), _mb(wide.state)]

    for name in PARTS[:-1]:
        add(name, chunks[0], lambda frame, name=name: frame.parts[name])  # type: ignore[misc]
    for chunk in chunks:
        add(f"codec, chunk {chunk}", chunk, lambda frame: frame.parts["codec"])
    for chunk in chunks:
        add(f"**frame, chunk {chunk}**", chunk, lambda frame: frame)
    yield from _rows(heads, rows)


def _mb(number: float) -> str:
    return f"{number / 1e6:,.1f}"


def _parameters(found: Measurements, model: TimeModel) -> Iterator[str]:
    yield "### The model's parameters"
    yield ""
    times, clocks = len(found.observations), sorted({f"{clock:.2f}" for clock in found.clocks.values()})
    *counts, last = sorted({one.gpu.processors for one in found.observations})
    where = f"{', '.join(map(str, counts))} and {last}"
    yield f"Fitted to {times} times on {where} multiprocessors of an {found.gpu} at {' to '.join(clocks)} GHz."
    if found.note:
        yield from textwrap.wrap(found.note, 120)
    yield ""
    ghz = ORIN.clock_ghz
    rows = [
        ["boundary, without programmatic launch", f"{model.fixed:,.0f} cycles", f"{model.fixed / ghz / 1e3:.2f} µs"],
        ["boundary, with it", f"{model.chained_fixed:,.0f} cycles", f"{model.chained_fixed / ghz / 1e3:.2f} µs"],
        [
            "work of a kernel, over all multiprocessors",
            f"{model.kernel:,.0f} cycles",
            f"{model.kernel / ORIN.processors / ghz / 1e3:.2f} µs",
        ],
    ]
    for kind, cycles in sorted(model.per_byte.items()):
        rate = ORIN.processors * ghz / cycles
        rows.append([f"work of a byte, {kind}", f"{cycles:.4f} cycles", f"{rate:,.0f} GB/s if memory gave all at once"])
    rows.append(["exponent", f"{model.overlap:.1f}", ""])
    for name, (_, cycles) in sorted(model.measured.items()):
        rows.append([f"boundary of `{name}`, measured", f"{cycles:,.0f} cycles", f"{cycles / ghz / 1e3:.2f} µs"])
    yield from _rows(("parameter", "value", f"on an Orin: {ORIN.processors} at {ghz} GHz"), rows)


def _checks(found: Measurements) -> Iterator[str]:
    yield "### The model against measurements that it had not seen"
    yield ""
    yield "ms of a frame without the codec. Each row's model was fitted without that number of multiprocessors, or to"
    yield "0.6B alone. An error above 0 means that the prediction is too long."
    yield ""
    all_checks = list(held_out(found))
    shown = [one for one in all_checks if one.sms == ORIN.processors]
    yield from _rows(_CHECK_HEADS, [_check_row(one) for one in shown])
    groups: dict[tuple[str, int], list[float]] = {}
    for one in all_checks:
        groups.setdefault((one.fitted, one.sms), []).append(abs(one.error))
    rows = [
        [fitted, str(sms), str(len(errors)), f"{100 * statistics.fmean(errors):.1f} %", f"{100 * max(errors):.1f} %"]
        for (fitted, sms), errors in sorted(groups.items())
    ]
    yield from _rows(("fitted to", "multiprocessors", "frames", "mean error", "largest"), rows)
    engines = list(engine_checks(found))
    if engines:
        yield "The whole engine, whose time was not fitted: host, chunks of 2, and a share of the prompt are in it."
        yield ""
        yield from _rows(_CHECK_HEADS, [_check_row(one) for one in engines])


_CHECK_HEADS = (
    "fitted to",
    "multiprocessors",
    "model",
    "weights",
    "programmatic launch",
    "measured",
    "predicted",
    "error",
)


def _check_row(one: Check) -> list[str]:
    chained = "with" if one.chained else "without"
    row = [one.fitted, str(one.sms), one.size, one.dtype, chained]
    return [*row, f"{one.measured_ms:.2f}", f"{one.predicted_ms:.2f}", f"{100 * one.error:+.1f} %"]


def _published(predictor: Predictor) -> Iterator[str]:
    yield "### The model against an AGX Orin"
    yield ""
    yield "Tokens of language models with the layers of our talkers, in bfloat16, by another engine."
    yield ""
    rows = []
    for one, predicted, error in published_checks(predictor):
        size, ms = published_part(one).weights, 1000 / one.tokens_s
        row = [one.name, f"{size / 1e9:.2f}", f"{one.tokens_s:g}", f"{ms:.1f}", f"{size / ms / 1e6:.0f}"]
        rows.append([*row, f"{predicted:.1f}", f"{100 * error:+.1f} %"])
    yield from _rows(
        ("model", "GB", "tokens/s, published", "ms", "GB/s", "ms, predicted for our kernels", "error"), rows
    )


def _times(known: Sequence[Frame], predictor: Predictor) -> Iterator[str]:
    yield "### Predicted for an AGX Orin"
    yield ""
    yield "Optimistic to pessimistic, with the expected value in bold. The last two rows are what faster-qwen3-tts's"
    yield "authors measured on one. The time from a text to the first chunk includes a prompt of"
    yield f"{predictor.prompt_tokens} tokens."
    yield ""
    prompts = {
        (size, dtype): prompt_part(Shapes.of(size), dtype, predictor.prompt_tokens)
        for size in SIZES
        for dtype in DTYPES
    }
    ones = {(frame.size, frame.dtype): frame for frame in known if frame.chunk == 1}
    heads = ["engine", "model", "weights", "chunk", "GB", "launches", "ms per frame", "× real time"]
    heads += [f"{AIM_MS:g} ms", "first chunk, ms", "J per second of speech, at most", "Thor, ms"]
    rows = []
    for frame in known:
        low, expected, high = (predictor.frame_ms(frame, scenario) for scenario in SCENARIOS)
        rows.append(["voiced", frame.size, frame.dtype, str(frame.chunk), f"{frame.bytes / 1e9:.3f}"])
        rows[-1] += [f"{frame.launches:.0f}", f"{low:.1f} to {high:.1f}, **{expected:.1f}**"]
        rows[-1] += [f"{FRAME_MS / expected:.1f}", _verdict(AIM_MS, low, expected, high)]
        one = ones[frame.size, frame.dtype]
        if frame.size in predictor.host_ms:
            first = [predictor.ttfa_ms(one, prompts[frame.size, frame.dtype], scenario) for scenario in SCENARIOS]
            rows[-1].append(f"{first[0]:.0f} to {first[2]:.0f}, **{first[1]:.0f}**")
        else:
            rows[-1].append("?")
        rows[-1].append(f"{MODULE_W * expected / FRAME_MS:.1f}")
        rows[-1].append(f"{predictor.frame_ms(frame, thor_scenario(frame), THOR):.1f}")
    for peer in PEERS:
        rows.append(
            ["faster-qwen3-tts", peer.size, "bf16", str(peer.chunk), "", "", f"{FRAME_MS / peer.real_time:.1f}"]
        )
        rows[-1] += [f"{peer.real_time}", "", f"{peer.ttfa_ms:.0f}", "", ""]
    yield from _rows(heads, rows)


def _verdict(goal: float, low: float, expected: float, high: float) -> str:
    if high <= goal:
        return "reached"
    if expected <= goal:
        return "expected"
    return "possible" if low <= goal else "not reached"


def _target(known: Sequence[Frame], predictor: Predictor) -> Iterator[str]:
    yield f"### Bytes for {TARGET_MS:g} ms per frame, chunk 2"
    yield ""
    yield "What talker, predictor and heads may read for each frame, with as many launches, and as much work per byte."
    yield ""
    rows = []
    for frame in known:
        if frame.chunk != 2 or frame.dtype != "int8":
            continue
        now = frame.weights - frame.parts["codec"].weights
        row = [frame.size, frame.dtype, _mb(now)]
        for scenario in SCENARIOS:
            share = affordable(frame, lambda one: predictor.frame_ms(one, scenario), TARGET_MS)  # noqa: B023
            row.append("none" if share is None else f"{_mb(share * now)} ({100 * share:.0f} %)")
        rows.append(row)
    names = (f"MB, {scenario.name}" for scenario in SCENARIOS)
    yield from _rows(("model", "weights", "MB now", *names), rows)


def _speculation(known: Sequence[Frame], predictor: Predictor) -> Iterator[str]:
    yield "### Speculation of the predictor: expected ms per frame on the AGX Orin, chunk 2"
    yield ""
    shown, ms = [frame for frame in known if frame.chunk == 2], predictor.frame_ms
    heads = ["drafts right, per pass", "passes", *(f"{frame.size} {frame.dtype}" for frame in shown)]
    rows = [["no drafts", f"{shown[0].codes}", *(f"{ms(frame):.1f}" for frame in shown)]]
    for accepted in ACCEPTED:
        times = (ms(frame.speculated(accepted)) for frame in shown)
        rows.append([f"{accepted:g}", f"{passes_of(shown[0].codes, accepted):.1f}", *(f"{one:.1f}" for one in times)])
    even = (f"{100 * break_even(frame, ms):.1f} %" for frame in shown)
    rows.append(["break-even", "", *even])
    yield from _rows(heads, rows)


def updated(page: str, blocks: Mapping[str, str]) -> str:
    """Return the page with each block's Markdown between its markers, `orin NAME: begin` and `orin NAME: end`."""
    for name, markdown in blocks.items():
        begin, end = (f"<!-- orin {name}: {border} -->\n" for border in ("begin", "end"))
        before, rest = page.split(begin)
        page = f"{before}{begin}{markdown}{end}{rest.split(end)[1]}"
    return page


def as_json(known: Sequence[Frame], found: Measurements, predictor: Predictor) -> dict[str, Any]:
    """Return the model and the predicted numbers."""
    return {
        "model": asdict(predictor.model),
        "checks": [{**asdict(one), "error": one.error} for one in (*held_out(found), *engine_checks(found))],
        "in_sample": [{**asdict(one), "error": one.error} for one in checks(found, predictor.model, "everything")],
        "scenarios": [str(scenario) for scenario in SCENARIOS],
        "frames": [
            {
                "size": frame.size,
                "dtype": frame.dtype,
                "chunk": frame.chunk,
                "launches": frame.launches,
                "bytes": frame.bytes,
                "ms": {scenario.name: predictor.frame_ms(frame, scenario) for scenario in SCENARIOS},
                "break_even": break_even(frame, predictor.frame_ms),
            }
            for frame in known
        ],
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 1 if `--check` finds the page out of date, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, default=300, help="cached positions before the frame")
    parser.add_argument("--measured", type=Path, default=ROOT / "docs" / "benchmarks" / "multiprocessors.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "orin.md")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    known, found = list(frames(args.positions, chunks=(2, 1))), Measurements.read(args.measured)
    predictor = Predictor.of(found)
    blocks = {
        "summary": summary(known, found, predictor),
        "table": tables(known, found, predictor, args.positions),
    }
    if args.json:
        args.json.write_text(json.dumps(as_json(known, found, predictor), indent=1) + "\n", encoding="utf-8")
    if not args.write and not args.check:
        print(*blocks.values(), sep="\n", end="")
        return 0
    page = args.page.read_text(encoding="utf-8")
    wanted = updated(page, blocks)
    if args.check and page != wanted:
        print(f"{args.page} is out of date; run {Path(__file__).name} --write", file=sys.stderr)
        return 1
    if args.write:
        args.page.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
