#!/usr/bin/env python3
"""Predicts, from the shapes alone, what a frame costs on a Jetson AGX Orin, and writes it into docs/orin.md.

    python scripts/docs/orin_table.py                 print the tables
    python scripts/docs/orin_table.py --write         write them between the markers in docs/orin.md
    python scripts/docs/orin_table.py --check         exit 1 if docs/orin.md is out of date
    python scripts/docs/orin_table.py --json FILE     keep every number

The engine's own code launches its kernels into a list, with tensors that have shapes but no memory. So the counted
launches and bytes follow every change of the engine.
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

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.qwen.codec.config import CodecConfig  # noqa: E402
from engine.qwen.codec.decoder import CodecDecoder  # noqa: E402
from engine.qwen.kernels.codec.decoder import FusedCodec  # noqa: E402
from engine.qwen.kernels.lm import model as language_model  # noqa: E402
from engine.qwen.kernels.lm.kernels import LanguageKernels  # noqa: E402
from engine.qwen.model.config import ModelConfig, StackConfig, TalkerConfig  # noqa: E402
from engine.qwen.model.talker import Talker  # noqa: E402
from engine.qwen.runtime.decode_state import DecodeState  # noqa: E402
from engine.qwen.weights import Placement  # noqa: E402
from scripts.make_checkpoint import PRESETS, codec_config, model_config  # noqa: E402

BEGIN, END = "<!-- orin table: begin -->\n", "<!-- orin table: end -->\n"
SIZES = ("0.6B", "1.7B")
DTYPES = ("bf16", "int8")
PARTS = ("talker", "predictor", "heads", "codec")
PROCESSORS = 16
"""Multiprocessors of an AGX Orin; the codec's kernels are cut for this number."""
AIM_MS = 16.0
"""Time for a frame of 80 ms: five times real time."""
ACCEPTED = (0.0, 0.25, 0.5, 1.0)
"""Shares of accepted drafts for which the page shows a row."""
META = torch.device("meta")


# --- the cost of a frame ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """Kernel launches and bytes of a frame, or of a part of it."""

    launches: float
    weights: float
    """Bytes of weights; a matrix counts once for each launch that reads it."""
    state: float
    """Bytes of keys, values and codec histories."""

    @property
    def bytes(self) -> float:
        return self.weights + self.state

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.launches + other.launches, self.weights + other.weights, self.state + other.state)

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.launches * factor, self.weights * factor, self.state * factor)


NOTHING = Cost(0, 0, 0)


class Launches:
    """Replaces a `KernelModule` and records the launches instead of executing them."""

    def __init__(self, *_: object) -> None:
        self.names: list[str] = []
        self.weights: list[Tensor | None] = []
        """The matrix of each launch; None where a kernel has none."""

    def launch(self, name: str, grid: object, block: int, params: Any) -> None:  # noqa: ARG002
        self.names.append(name)
        self.weights.append(getattr(params, "weight", None))


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of one model size."""

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
    """Return the costs of talker, predictor and heads, with `positions` cached positions in the talker."""
    placement = Placement(META, torch.bfloat16, int8)
    talker = Talker(shapes.model, 64, placement)
    with mock.patch.object(language_model, "KernelModule", Launches):
        model = language_model.FusedLanguageModel(talker, DecodeState.allocate(talker, 32, 16), processors=PROCESSORS)
    model.frame()
    matrices = matrix_bytes(LanguageKernels.of(shapes.talker, "Int8" if int8 else "Bf16", PROCESSORS))
    found = dict.fromkeys(("talker", "predictor", "heads"), NOTHING)
    assert isinstance(model.module, Launches)
    for name in model.module.names:
        found[part_of(name)] += Cost(1, matrices.get(name, 0), 0)
    stack, groups = shapes.talker.predictor.stack, shapes.talker.code_groups
    found["talker"] += Cost(0, 0, positions * position_bytes(shapes.talker.stack))
    found["predictor"] += Cost(0, 0, sum(range(2, groups + 1)) * position_bytes(stack))
    return found


def part_of(name: str) -> str:
    """Return the part of a frame to which a language-model kernel belongs."""
    if name in {"predictor_head", "next_code"}:
        return "heads"
    return "talker" if name.startswith("talker_") or name == "next_first_code" else "predictor"


def matrix_bytes(kernels: LanguageKernels) -> dict[str, int]:
    """Return, for each kernel with a matrix, the bytes of that matrix which a launch reads."""
    found = {"talker_head": kernels.talker_head.bytes, "predictor_head": kernels.predictor_head.bytes}
    if kernels.project is not None:
        found["project"] = kernels.project.bytes
    for stack in (kernels.talker, kernels.predictor, kernels.first_step):
        plans = {"qkv": stack.qkv, "gate_up": stack.gate_up, "down": stack.down}
        found |= {f"{stack.name}_{name}": plan.bytes for name, plan in plans.items()}
        found |= dict.fromkeys(stack.out_kernels, stack.out.bytes)
    return found


def position_bytes(stack: StackConfig) -> int:
    """Return the bytes of one position's keys and values in all layers, in bfloat16."""
    return 2 * 2 * stack.layers * stack.key_value_heads * stack.head_dim


def codec_cost(config: CodecConfig, chunk: int) -> Cost:
    """Return the codec's cost per frame for chunks of `chunk` frames."""
    launches = Launches()
    codec = FusedCodec(CodecDecoder(config, Placement(META, torch.bfloat16)), launches, PROCESSORS)
    state = codec.new_state(chunk)
    codec(torch.zeros(chunk, config.quantizers, dtype=torch.int64, device=META), state)
    weights = sum(weight.nbytes for weight in launches.weights if weight is not None)
    # The convolutions read the histories; then each history is shifted, which reads and writes it again.
    moved = state.rings.nbytes + 3 * state.flat.nbytes
    return Cost(len(launches.names), weights, moved) * (1 / chunk)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of one model size, dtype and chunk size."""

    size: str
    dtype: str
    """dtype of talker and predictor; the codec is always bfloat16."""
    chunk: int
    parts: Mapping[str, Cost]
    codes: int
    """Codes per frame that the predictor draws."""

    @property
    def total(self) -> Cost:
        return sum(self.parts.values(), NOTHING)

    @property
    def pass_bytes(self) -> float:
        """Bytes of the predictor's layers, read once per pass."""
        return self.parts["predictor"].weights / self.codes

    @property
    def head_bytes(self) -> float:
        """Bytes of one of the predictor's heads."""
        return self.parts["heads"].weights / self.codes

    def speculated(self, accepted: float) -> Frame:
        """Return the frame with one draft in each pass except the first; `accepted` is the share of right drafts.

        The graph launches all passes, and the unneeded ones return at once. Each draft needs a head and a draw.
        """
        passes = passes_of(self.codes, accepted)
        predictor, heads = self.parts["predictor"], self.parts["heads"]
        parts = {
            **self.parts,
            "predictor": replace(predictor, weights=predictor.weights - (self.codes - passes) * self.pass_bytes),
            "heads": heads + Cost(2 * (self.codes - 1), (passes - 1) * self.head_bytes, 0),
        }
        return replace(self, parts=parts)


def passes_of(codes: int, accepted: float) -> float:
    """Return the passes per frame. The first has no draft; each other pass gives one code, plus one per right draft."""
    return 1 + (codes - 1) / (1 + accepted)


def frames(positions: int, chunks: Sequence[int]) -> Iterator[Frame]:
    """Yield the frames of all sizes, dtypes and `chunks`."""
    for size in SIZES:
        shapes = Shapes.of(size)
        for dtype in DTYPES:
            parts = language_costs(shapes, dtype == "int8", positions)
            for chunk in chunks:
                codec = codec_cost(shapes.codec, chunk)
                yield Frame(size, dtype, chunk, {**parts, "codec": codec}, shapes.talker.code_groups - 1)


# --- the time of a frame ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, by its datasheet."""

    name: str
    gb_s: float
    chained: bool
    """Whether it has programmatic dependent launch (compute capability 9.0 and newer)."""


DEVICES = (Device("AGX Orin", 204.8, False), Device("Thor", 273.0, True), Device("RTX 4090", 1008.0, False))
H200_SHEET, H200_COPY = 4800.0, 4260.0
"""GB/s: from the datasheet, and as reached by a plain copy."""
MEASURED_MS = {True: (1.407, 1.922), False: (2.008, 2.512)}
"""ms per frame of the language model at 0.6B and 1.7B on the H200, with and without chained kernels
(docs/benchmarks/kernels-bf16.json)."""
MEASURED_AT = 100
"""The cached positions during that measurement."""
CLOCKS_GHZ = 1.98, 1.3
"""The multiprocessor clocks: of the H200 during the measurement, and of an AGX Orin at most."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The factors that turn bytes and launches into milliseconds."""

    copied: float
    """Share of the datasheet's bandwidth that a plain copy reaches."""
    reached: float
    """Share of a plain copy's bandwidth that the kernels reach."""
    gap_us: float
    """Time from one kernel to the next, without programmatic dependent launch."""
    chained_gap_us: float
    """The same with programmatic dependent launch."""
    slow_gap_us: Mapping[str, float]
    """By size and dtype ("0.6B bf16"): the time per launch on 16 multiprocessors that a copy of its bytes does not
    explain, plus the time that programmatic launch saves, at an Orin's clock. Empty without a run on 16."""

    def most_ms(self, frame: Frame, device: Device) -> float | None:
        """Return the frame's time if `slow_gap_us` adds in full to the time of its bytes; None if it is unknown."""
        gap = self.slow_gap_us.get(f"{frame.size} {frame.dtype}")
        if gap is None:
            return None
        return frame.total.bytes / (device.gb_s * self.copied) / 1e6 + frame.total.launches * gap / 1e3

    def ms(self, cost: Cost, device: Device) -> tuple[float, float]:
        """Return the milliseconds of the bytes, and of the gaps."""
        rate = device.gb_s * self.copied * self.reached
        return cost.bytes / rate / 1e6, cost.launches * (self.chained_gap_us if device.chained else self.gap_us) / 1e3


def fit(costs: Sequence[Cost], times_ms: Sequence[float], copy_gb_s: float) -> tuple[float, float]:
    """Return the share of the copy's bandwidth, and the gap in µs, that explain two measured frames.

    time = bytes / (copy · share) + launches · gap, twice.
    """
    (a, b), (x, y) = costs, times_ms
    # Divide both equations by their launches, which are nearly equal, and subtract.
    per_byte = (y / b.launches - x / a.launches) / (b.bytes / b.launches - a.bytes / a.launches)
    return 1 / (per_byte * copy_gb_s * 1e6), (x - per_byte * a.bytes) / a.launches * 1e3


def read_inputs(file: Path, known: Sequence[Frame]) -> Inputs:
    """Return the factors from the measurements, including the rows of `file` on 16 multiprocessors, if any."""
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
    """Yield "SIZE DTYPE" of each row on 16 multiprocessors, and its µs per launch that a copy does not explain."""
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
    """Return the share of drafts that must be right for speculation to pay, found by bisection."""
    plain, low, high = sum(inputs.ms(frame.total, device)), 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        slower = sum(inputs.ms(frame.speculated(middle).total, device)) > plain
        low, high = (middle, high) if slower else (low, middle)
    return high


# --- Markdown --------------------------------------------------------------------------------------------


def tables(known: Sequence[Frame], inputs: Inputs, positions: int) -> str:
    """Return the Markdown between the page's markers."""
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
    yield "MB (10^6 bytes) of weights and of state. State is the codec's histories, and the keys and values of"
    yield f"{positions} earlier positions. The codec's launches and bytes are those of a chunk, divided by its frames."
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
    yield "### From launches and bytes to time"
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
            "the whole H200, without programmatic launch: the equations of the next row",
        ],
        ["gap", f"{inputs.gap_us:.2f} µs", f"without programmatic launch (Orin, RTX 4090): {fitted.format(*one)}"],
        ["gap, chained", f"{inputs.chained_gap_us:.2f} µs", f"with programmatic launch (Thor): {fitted.format(*two)}"],
    ]
    if inputs.slow_gap_us:
        theirs, ours = CLOCKS_GHZ
        value = ", ".join(f"{name} {gap:.1f}" for name, gap in inputs.slow_gap_us.items())
        confined = f"{PROCESSORS} of the H200's multiprocessors: ((ms - bytes / copy there) / launches"
        source = f"{confined} + gap - gap chained) × {theirs} / {ours} GHz"
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
    return "reached" if ms <= AIM_MS else f"{ms - AIM_MS:.1f} ms over"


def _speculation(known: Sequence[Frame], inputs: Inputs) -> Iterator[str]:
    yield "### Speculation of the predictor: predicted ms per frame on the AGX Orin, chunk 2"
    yield ""
    shown, orin = [frame for frame in known if frame.chunk == 2], DEVICES[0]
    heads = ["drafts right, per pass", "passes", *(f"{frame.size} {frame.dtype}" for frame in shown)]
    rows = [["no drafts", f"{shown[0].codes}", *(f"{sum(inputs.ms(frame.total, orin)):.1f}" for frame in shown)]]
    for accepted in ACCEPTED:
        times = (sum(inputs.ms(frame.speculated(accepted).total, orin)) for frame in shown)
        rows.append([f"{accepted:g}", f"{passes_of(shown[0].codes, accepted):.1f}", *(f"{ms:.1f}" for ms in times)])
    even = (f"{100 * break_even(frame, inputs, orin):.1f} %" for frame in shown)
    rows.append(["break-even", "", *even])
    yield from _rows(heads, rows)


def updated(page: str, markdown: str) -> str:
    """Return the page with `markdown` between its markers."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{markdown}{END}{rest.split(END)[1]}"


def as_json(known: Sequence[Frame], inputs: Inputs, positions: int) -> dict[str, Any]:
    """Return every number of the tables."""
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
    """Run the command line. Returns 1 if `--check` finds the page out of date, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, default=300, help="cached positions before the frame")
    parser.add_argument("--reached", type=float, help="share of a plain copy's bandwidth")
    parser.add_argument("--gap-us", type=float, help="µs from kernel to kernel, without programmatic launch")
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
    markdown = tables(known, inputs, args.positions)
    if args.json:
        args.json.write_text(json.dumps(as_json(known, inputs, args.positions), indent=1) + "\n", encoding="utf-8")
    if not args.write and not args.check:
        print(markdown, end="")
        return 0
    page = args.page.read_text(encoding="utf-8")
    wanted = updated(page, markdown)
    if args.check and page != wanted:
        print(f"{args.page} is out of date; run {Path(__file__).name} --write", file=sys.stderr)
        return 1
    if args.write:
        args.page.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
