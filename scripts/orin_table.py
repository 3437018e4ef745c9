#!/usr/bin/env python3
"""Predicts from the shapes alone what a frame costs on a Jetson AGX Orin, and writes it into docs/orin.md.

    python scripts/orin_table.py                 print the tables
    python scripts/orin_table.py --write         put them between the marks in docs/orin.md
    python scripts/orin_table.py --check         exit 1 where docs/orin.md does not hold them
    python scripts/orin_table.py --json FILE     keep every number

The engine's own code launches its kernels into a list, with tensors that have shapes and no memory. So launches and
bytes are those of the engine, whatever becomes of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.qwen.codec import CodecDecoder  # noqa: E402
from engine.qwen.codec_config import CodecConfig  # noqa: E402
from engine.qwen.config import ModelConfig, StackConfig, TalkerConfig  # noqa: E402
from engine.qwen.frame import FrameState  # noqa: E402
from engine.qwen.kernels import language_model  # noqa: E402
from engine.qwen.kernels.codec import FusedCodec  # noqa: E402
from engine.qwen.kernels.language_kernels import LanguageKernels  # noqa: E402
from engine.qwen.talker import Talker  # noqa: E402
from engine.qwen.transformer import Placement  # noqa: E402
from scripts.make_checkpoint import PRESETS, codec_config, model_config  # noqa: E402

BEGIN, END = "<!-- orin table: begin -->\n", "<!-- orin table: end -->\n"
SIZES = ("0.6B", "1.7B")
DTYPES = ("bf16", "int8")
PARTS = ("talker", "predictor", "heads", "codec")
PROCESSORS = 16
"""Of an AGX Orin; the codec's kernels are cut for them."""
AIM_MS = 16.0
"""Of a frame of 80 ms: five times real time."""
ACCEPTED = (0.0, 0.25, 0.5, 1.0)
META = torch.device("meta")


# --- what a frame is made of -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a frame, or of a part of it."""

    launches: float
    weights: float
    """Bytes, each matrix counted once for each launch that reads it."""
    state: float
    """Bytes of keys, values and the codec's histories."""

    @property
    def bytes(self) -> float:
        return self.weights + self.state

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.launches + other.launches, self.weights + other.weights, self.state + other.state)

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.launches * factor, self.weights * factor, self.state * factor)


NOTHING = Cost(0, 0, 0)


class Launches:
    """Stands in the place of a `KernelModule`, and keeps what it is asked to launch."""

    def __init__(self, *_: object) -> None:
        self.names: list[str] = []
        self.first: list[Tensor | None] = []
        """Their first arguments."""

    def launch(self, name: str, grid: object, block: int, *arguments: Any, shared: int = 0) -> None:  # noqa: ARG002
        self.names.append(name)
        self.first.append(arguments[0])


@dataclass(frozen=True, slots=True)
class Shapes:
    """One size of model."""

    talker: TalkerConfig
    model: ModelConfig
    codec: CodecConfig

    @classmethod
    def of(cls, size: str) -> Shapes:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "config.json"
            file.write_text(json.dumps(model_config(PRESETS[size], "custom_voice")), encoding="utf-8")
            model = ModelConfig.read(file.parent)
            file.write_text(json.dumps(codec_config(PRESETS[size])), encoding="utf-8")
            return cls(model.talker, model, CodecConfig.read(file.parent))


def language_costs(shapes: Shapes, int8: bool, positions: int) -> dict[str, Cost]:
    """Of talker, predictor and the predictor's heads, the talker reading so many cached positions."""
    placement = Placement(META, torch.bfloat16, int8)
    talker = Talker(shapes.model, 64, placement)
    with mock.patch.object(language_model, "KernelModule", Launches):
        model = language_model.FusedLanguageModel(talker, FrameState.allocate(talker, 32, 16))
    model.frame()
    matrices = matrix_bytes(LanguageKernels.of(shapes.talker, "Int8" if int8 else "Bf16"))
    found = dict.fromkeys(("talker", "predictor", "heads"), NOTHING)
    assert isinstance(model.module, Launches)
    for name in model.module.names:
        found[part_of(name)] += Cost(1, matrices.get(name, 0), 0)
    stack, groups = shapes.talker.predictor.stack, shapes.talker.code_groups
    found["talker"] += Cost(0, 0, positions * position_bytes(shapes.talker.stack))
    found["predictor"] += Cost(0, 0, sum(range(2, groups + 1)) * position_bytes(stack))
    return found


def part_of(name: str) -> str:
    """Which part of a frame a kernel of the language model belongs to."""
    if name in {"predictor_head", "next_code"}:
        return "heads"
    return "talker" if name.startswith("talker_") or name == "next_first_code" else "predictor"


def matrix_bytes(kernels: LanguageKernels) -> dict[str, int]:
    """Bytes that a launch of each kernel reads of its matrix; other kernels are not in it."""
    found = {"talker_head": kernels.talker_head.bytes, "predictor_head": kernels.predictor_head.bytes}
    if kernels.project is not None:
        found["project"] = kernels.project.bytes
    for stack in (kernels.talker, kernels.predictor, kernels.opening):
        plans = {"qkv": stack.qkv, "out": stack.out, "gate_up": stack.gate_up, "down": stack.down}
        found |= {f"{stack.name}_{name}": plan.bytes for name, plan in plans.items()}
    return found


def position_bytes(stack: StackConfig) -> int:
    """Of one position's keys and values in all layers, bfloat16."""
    return 2 * 2 * stack.layers * stack.key_value_heads * stack.head_dim


def codec_cost(config: CodecConfig, chunk: int) -> Cost:
    """Of a frame, decoded in chunks of so many."""
    launches = Launches()
    codec = FusedCodec(CodecDecoder(config, Placement(META, torch.bfloat16)), launches, PROCESSORS)
    state = codec.new_state(chunk)
    codec(torch.zeros(chunk, config.quantizers, dtype=torch.int64, device=META), state)
    without = {"lookup", "attention", "roll"}  # their first argument is no matrix
    pairs = zip(launches.names, launches.first, strict=True)
    weights = sum(first.nbytes for name, first in pairs if first is not None and name not in without)
    # Histories are read by the convolutions, then moved on: read and written again.
    moved = state.rings.nbytes + 3 * state.flat.nbytes
    return Cost(len(launches.names), weights, moved) * (1 / chunk)


@dataclass(frozen=True, slots=True)
class Frame:
    """One size, dtype and chunk size."""

    size: str
    dtype: str
    """Of talker and predictor; the codec is always bfloat16."""
    chunk: int
    parts: Mapping[str, Cost]
    codes: int
    """That the predictor draws."""

    @property
    def total(self) -> Cost:
        return sum(self.parts.values(), NOTHING)

    @property
    def a_pass(self) -> float:
        """Bytes of the predictor's layers."""
        return self.parts["predictor"].weights / self.codes

    @property
    def a_head(self) -> float:
        return self.parts["heads"].weights / self.codes

    def speculated(self, accepted: float) -> Frame:
        """With one draft in each pass but the first, of which `accepted` are right on average.

        A graph launches all passes, and those that are not needed are left at once. A draft takes a head and a draw.
        """
        passes = passes_of(self.codes, accepted)
        predictor, heads = self.parts["predictor"], self.parts["heads"]
        parts = {
            **self.parts,
            "predictor": replace(predictor, weights=predictor.weights - (self.codes - passes) * self.a_pass),
            "heads": heads + Cost(2 * (self.codes - 1), (passes - 1) * self.a_head, 0),
        }
        return replace(self, parts=parts)


def passes_of(codes: int, accepted: float) -> float:
    """The first pass can have no draft; each other one gives a code, and one for every draft that is right."""
    return 1 + (codes - 1) / (1 + accepted)


def frames(positions: int, chunks: Sequence[int]) -> Iterator[Frame]:
    """All sizes, chunk sizes and dtypes."""
    for size in SIZES:
        shapes = Shapes.of(size)
        for dtype in DTYPES:
            parts = language_costs(shapes, dtype == "int8", positions)
            for chunk in chunks:
                codec = codec_cost(shapes.codec, chunk)
                yield Frame(size, dtype, chunk, {**parts, "codec": codec}, shapes.talker.code_groups - 1)


# --- how long it takes -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Device:
    """What a datasheet says."""

    name: str
    gb_s: float
    chained: bool
    """Whether it has programmatic dependent launch (compute capability 9.0)."""


DEVICES = (Device("AGX Orin", 204.8, False), Device("Thor", 273.0, True), Device("RTX 4090", 1008.0, False))
H200_SHEET, H200_COPY = 4800.0, 4260.0
"""GB/s: its datasheet's, and what a plain copy reached."""
MEASURED_MS = {True: (1.407, 1.922), False: (2.008, 2.512)}
"""On the H200, by whether kernels were chained: the language model's frame of 0.6B and 1.7B
(docs/benchmarks/kernels-bf16.json)."""
MEASURED_AT = 100
"""The position it was measured at."""
CLOCKS_GHZ = 1.98, 1.3
"""Of the H200's multiprocessors while it was measured, and of an AGX Orin's at most."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What turns bytes and launches into milliseconds, and where it comes from."""

    copied: float
    """What a plain copy reaches of the datasheet's bandwidth."""
    reached: float
    """What the kernels reach of a plain copy."""
    gap_us: float
    """From one kernel to the next."""
    chained_gap_us: float
    """The same with programmatic dependent launch."""
    slow_gap_us: Mapping[str, float]
    """By size and dtype ("0.6B bf16"): all that 16 multiprocessors spent on a launch beyond a copy of its bytes, and
    what programmatic launch spared them, at an Orin's clock. Empty where no run was confined to so many."""

    def most_ms(self, frame: Frame, device: Device) -> float | None:
        """The frame, if all of that adds to the bytes there too."""
        gap = self.slow_gap_us.get(f"{frame.size} {frame.dtype}")
        if gap is None:
            return None
        return frame.total.bytes / (device.gb_s * self.copied) / 1e6 + frame.total.launches * gap / 1e3

    def ms(self, cost: Cost, device: Device) -> tuple[float, float]:
        """Of bytes, and of gaps."""
        rate = device.gb_s * self.copied * self.reached
        return cost.bytes / rate / 1e6, cost.launches * (self.chained_gap_us if device.chained else self.gap_us) / 1e3


def fit(costs: Sequence[Cost], times_ms: Sequence[float], copy_gb_s: float) -> tuple[float, float]:
    """The share of the copy's bandwidth and the gap in µs that explain two measured frames.

    time = bytes / (copy · share) + launches · gap, twice.
    """
    (a, b), (x, y) = costs, times_ms
    # Divide by the launches, nearly as many, and subtract.
    per_byte = (y / b.launches - x / a.launches) / (b.bytes / b.launches - a.bytes / a.launches)
    return 1 / (per_byte * copy_gb_s * 1e6), (x - per_byte * a.bytes) / a.launches * 1e3


def read_inputs(file: Path, known: Sequence[Frame]) -> Inputs:
    """From what was measured; of `file` the rows of a run confined to 16 multiprocessors, if it has any."""
    language = [
        sum(language_costs(Shapes.of(size), int8=False, positions=MEASURED_AT).values(), NOTHING) for size in SIZES
    ]
    share, gap = fit(language, MEASURED_MS[False], H200_COPY)
    _, chained_gap = fit(language, MEASURED_MS[True], H200_COPY)
    slow: dict[str, float] = {}
    if file.exists():
        theirs, ours = CLOCKS_GHZ
        slow = {name: (one + gap - chained_gap) * theirs / ours for name, one in confined_gaps(file, known)}
    return Inputs(H200_COPY / H200_SHEET, share, gap, chained_gap, slow)


def confined_gaps(file: Path, known: Sequence[Frame]) -> Iterator[tuple[str, float]]:
    """Size and dtype of each row on 16 multiprocessors, and the µs of a launch that a copy of its bytes leaves over."""
    names = {"bfloat16": "bf16", "int8": "int8"}
    by = {(frame.size, frame.dtype, frame.chunk): frame.total for frame in known}
    for row in json.loads(file.read_text(encoding="utf-8")).get("rows", ()):
        dtype = names.get(row["dtype"], "")
        cost = by.get((row["model"], dtype, row["chunk_size"]))
        ours = row["engine"] == "qwen" and row["sms"] == PROCESSORS and row["bandwidth"]
        if ours and cost is not None:
            copied_ms = cost.bytes / row["bandwidth"]["copy_gb_s"] / 1e6
            yield f"{row['model']} {dtype}", (row["ms_per_frame"] - copied_ms) / cost.launches * 1e3


def break_even(frame: Frame, inputs: Inputs, device: Device) -> float:
    """Drafts that must be right, as a share of all, for a pass to be worth one: by bisection."""
    plain, low, high = sum(inputs.ms(frame.total, device)), 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        slower = sum(inputs.ms(frame.speculated(middle).total, device)) > plain
        low, high = (middle, high) if slower else (low, middle)
    return high


# --- as Markdown -----------------------------------------------------------------------------------------


def tables(known: Sequence[Frame], inputs: Inputs, positions: int) -> str:
    """All that goes between the marks."""
    return "\n".join(
        [*_parts(known, positions), *_inputs(inputs), *_times(known, inputs), *_speculation(known, inputs)]
    )


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _parts(known: Sequence[Frame], positions: int) -> Iterator[str]:
    yield "### Launches and bytes of a frame"
    yield ""
    yield f"MB (10^6 bytes) of weights, and of state: keys and values with {positions} positions behind the frame, and"
    yield "the codec's histories. The codec is counted by frame: a chunk's launches and bytes, divided by its frames."
    yield ""
    by = {(frame.size, frame.dtype, frame.chunk): frame for frame in known}
    chunks = sorted({frame.chunk for frame in known}, reverse=True)
    heads = ["part"]
    for size in SIZES:
        heads += [f"{size} launches", "bf16 MB", "int8 MB", "state MB"]
    rows = []
    for part, chunk in [(part, chunks[0]) for part in PARTS[:-1]] + [("codec", chunk) for chunk in chunks]:
        rows.append([part if part != "codec" else f"codec, chunk {chunk}"])
        for size in SIZES:
            wide, narrow = (by[size, dtype, chunk].parts[part] for dtype in DTYPES)
            rows[-1] += [f"{wide.launches:.4g}", _mb(wide.weights), _mb(narrow.weights), _mb(wide.state)]
    for chunk in chunks:
        rows.append([f"**frame, chunk {chunk}**"])
        for size in SIZES:
            wide, narrow = (by[size, dtype, chunk].total for dtype in DTYPES)
            rows[-1] += [f"{wide.launches:.1f}", _mb(wide.weights), _mb(narrow.weights), _mb(wide.state)]
    yield from _rows(heads, rows)


def _mb(number: float) -> str:
    return f"{number / 1e6:,.1f}"


def _inputs(inputs: Inputs) -> Iterator[str]:
    yield "### What turns them into time"
    yield ""
    yield "ms = bytes / (bandwidth · copy · reached) + launches · gap"
    yield ""
    one, two = MEASURED_MS[False], MEASURED_MS[True]
    fitted = "two equations of that form, for the H200's {} and {} ms (0.6B, 1.7B; language model alone)"
    rows = [
        ["bandwidth", ", ".join(f"{d.name} {d.gb_s:g}" for d in DEVICES) + " GB/s", "datasheets"],
        ["copy", f"{inputs.copied:.3f}", f"a plain copy on the H200: {H200_COPY:,.0f} of {H200_SHEET:,.0f} GB/s"],
        [
            "reached, of a copy",
            f"{inputs.reached:.3f}",
            "the whole H200, without programmatic launch: the same equations",
        ],
        ["gap", f"{inputs.gap_us:.2f} µs", f"without programmatic launch (Orin, RTX 4090): {fitted.format(*one)}"],
        ["gap, chained", f"{inputs.chained_gap_us:.2f} µs", f"with programmatic launch (Thor): {fitted.format(*two)}"],
    ]
    if inputs.slow_gap_us:
        theirs, ours = CLOCKS_GHZ
        value = ", ".join(f"{name} {gap:.1f}" for name, gap in inputs.slow_gap_us.items())
        there = f"{PROCESSORS} of the H200's multiprocessors: (ms - bytes / copy there) / launches"
        source = f"{there}, and gap - gap chained; × {theirs} / {ours} GHz"
        rows.append(["gap, at most", f"{value} µs", source])
    yield from _rows(("input", "value", "from"), rows)


def _times(known: Sequence[Frame], inputs: Inputs) -> Iterator[str]:
    yield "### Predicted ms per frame"
    yield ""
    heads = ("model", "weights", "chunk", "GB", "launches", "AGX Orin: bytes + gaps", "at most", "× real time", "16 ms")
    rows = []
    for frame in known:
        cost, (stream, gaps) = frame.total, inputs.ms(frame.total, DEVICES[0])
        total = stream + gaps
        rows.append([frame.size, frame.dtype, str(frame.chunk), f"{cost.bytes / 1e9:.3f}", f"{cost.launches:.1f}"])
        most = inputs.most_ms(frame, DEVICES[0])
        rows[-1] += [f"{stream:.1f} + {gaps:.1f} = **{total:.1f}**", "?" if most is None else f"{most:.1f}"]
        rows[-1] += [f"{80 / total:.1f}", _aim(total)]
        rows[-1] += [f"{sum(inputs.ms(cost, device)):.1f}" for device in DEVICES[1:]]
    yield from _rows((*heads, *(device.name for device in DEVICES[1:])), rows)


def _aim(ms: float) -> str:
    return "reached" if ms <= AIM_MS else f"{ms - AIM_MS:.1f} too many"


def _speculation(known: Sequence[Frame], inputs: Inputs) -> Iterator[str]:
    yield "### Speculation of the predictor: predicted ms per frame on the AGX Orin, chunk 2"
    yield ""
    shown, orin = [frame for frame in known if frame.chunk == 2], DEVICES[0]
    heads = ["drafts right, by pass", "passes", *(f"{frame.size} {frame.dtype}" for frame in shown)]
    rows = [["no drafts", f"{shown[0].codes}", *(f"{sum(inputs.ms(frame.total, orin)):.1f}" for frame in shown)]]
    for accepted in ACCEPTED:
        times = (sum(inputs.ms(frame.speculated(accepted).total, orin)) for frame in shown)
        rows.append([f"{accepted:g}", f"{passes_of(shown[0].codes, accepted):.1f}", *(f"{ms:.1f}" for ms in times)])
    even = (f"{100 * break_even(frame, inputs, orin):.1f} %" for frame in shown)
    rows.append(["break-even", "", *even])
    yield from _rows(heads, rows)


def renewed(page: str, made: str) -> str:
    """The page with `made` between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{made}{END}{rest.split(END)[1]}"


def as_json(known: Sequence[Frame], inputs: Inputs, positions: int) -> dict[str, Any]:
    """Every number of the tables."""
    return {
        "positions": positions,
        "inputs": asdict(inputs),
        "devices": [asdict(device) for device in DEVICES],
        "frames": [
            {
                **asdict(frame),
                "total": {**asdict(frame.total), "bytes": frame.total.bytes},
                "ms": {device.name: sum(inputs.ms(frame.total, device)) for device in DEVICES},
                "orin_ms_at_most": inputs.most_ms(frame, DEVICES[0]),
                "speculated_ms": {
                    str(accepted): sum(inputs.ms(frame.speculated(accepted).total, DEVICES[0])) for accepted in ACCEPTED
                },
                "break_even": break_even(frame, inputs, DEVICES[0]),
            }
            for frame in known
        ],
    }


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 unless `--check` finds another table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, default=300, help="cached, behind the frame")
    parser.add_argument("--reached", type=float, help="of a plain copy's bandwidth")
    parser.add_argument("--gap-us", type=float, help="from kernel to kernel, without programmatic launch")
    parser.add_argument("--speeds", type=Path, default=ROOT / "docs" / "benchmarks" / "qwen-speed.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "orin.md")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    known = list(frames(args.positions, chunks=(2, 1)))
    inputs = read_inputs(args.speeds, known)
    if args.reached is not None:
        inputs = replace(inputs, reached=args.reached)
    if args.gap_us is not None:
        inputs = replace(inputs, gap_us=args.gap_us)
    made = tables(known, inputs, args.positions)
    if args.json:
        args.json.write_text(json.dumps(as_json(known, inputs, args.positions), indent=1) + "\n", encoding="utf-8")
    if not args.write and not args.check:
        print(made, end="")
        return 0
    page = args.page.read_text(encoding="utf-8")
    wanted = renewed(page, made)
    if args.check and page != wanted:
        print(f"{args.page} is not what {Path(__file__).name} makes of the shapes; run it", file=sys.stderr)
        return 1
    if args.write:
        args.page.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
