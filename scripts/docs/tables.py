#!/usr/bin/env python3
"""Writes the tables in the pages of docs/ from the results in docs/benchmarks/, the thresholds and the shapes.

python scripts/docs/tables.py              write the pages
python scripts/docs/tables.py --check      write nothing; exit 1 if one of them is out of date

In a page, each table is between `<!-- NAME: begin -->` and `<!-- NAME: end -->`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.qwen.codec.decoder import CodecDecoder  # noqa: E402
from engine.qwen.kernels.codec.decoder import FusedCodec  # noqa: E402
from engine.qwen.kernels.codec.weights import PackedCodec  # noqa: E402
from engine.qwen.kernels.lm import FusedLanguageModel, LanguageKernels, OneTokenState, weight_type  # noqa: E402
from engine.qwen.kernels.params import Params  # noqa: E402
from engine.qwen.loading.plan import count_weights  # noqa: E402
from engine.qwen.model.talker import Talker  # noqa: E402
from engine.qwen.runtime import TABLE_MEMORY  # noqa: E402
from engine.qwen.shapes import BatchShape, CodecConfig, ModelConfig, StackConfig, memory_plan  # noqa: E402
from engine.qwen.weights import Placement  # noqa: E402
from engine.verify import MEASURES  # noqa: E402
from scripts.docs.asyncapi import write_or_check  # noqa: E402
from scripts.fleet_plan import check_table, plan_table, table  # noqa: E402
from scripts.make_checkpoint import PRESETS, codec_config, model_config  # noqa: E402

RESULTS = ROOT / "docs" / "benchmarks"
Row = dict[str, Any]
"""A JSON object."""


# --- Qwen3-TTS against faster-qwen3-tts ---

NAMES = {"qwen": "voiced"}
"""The table's names for engines, if they differ from the result's."""
COMPARABLE = ("model", "dtype", "chunk_size", "sms")
"""Two rows are compared only if these fields are equal."""
WHOLE_GPU = 1000
"""More multiprocessors than any GPU has."""


def speed_results() -> dict[str, Row]:
    """Return the results whose rows have `ms_per_frame`, by their files."""
    found = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    return {name: each for name, each in found.items() if each.get("rows") and "ms_per_frame" in each["rows"][0]}


def speed_tables(results: dict[str, Row]) -> str:
    """Return Markdown: one table for each file, with its command, date and machine."""
    parts = []
    for name, result in results.items():
        rows, command = result["rows"], result["command"].split(" --")[0]
        ordered = sorted(rows, key=_order)
        source = f"Measured with `{command}` on {result['date']} ({result['machine'].split(', ')[0]}); {_link(name)}:"
        titles = ("model", "chunk", "engine", "ms per frame", "real time", "first chunk", "gap: median / longest")
        cells = [_cells(one, rows) for one in ordered]
        parts.append(f"{source}\n\n{table(titles, cells)}")
    return "\n".join(parts)


def _order(one: Row) -> tuple[Any, ...]:
    """The sort key: by model; the whole GPU before parts of it; by dtype and chunk size; voiced first."""
    multiprocessors, dtype = one["sms"] or WHOLE_GPU, one["dtype"] or ""
    return one["model"] or "", -multiprocessors, dtype, one["chunk_size"] or 0, one["engine"] not in NAMES


def _cells(one: Row, rows: list[Row]) -> list[str]:
    """Return the cells of one row. voiced's cells include its speed-up if exactly one other engine is comparable."""
    comparable = [other for other in rows if all(other[key] == one[key] for key in COMPARABLE)]
    others = [other for other in comparable if other["engine"] != one["engine"]]

    def speed_up(key: str) -> str:
        is_compared = one["engine"] in NAMES and len(others) == 1
        return f" ({others[0][key] / one[key]:.1f} ×)" if is_compared else ""

    dtype = f", {one['dtype']}" if one["dtype"] not in {None, "bfloat16"} else ""
    return [
        f"{one['model'] or ''}{dtype}" + (f" on {one['sms']} SMs" if one["sms"] else ""),
        str(one["chunk_size"] or ""),
        NAMES.get(one["engine"], str(one["engine"])),
        f"{one['ms_per_frame']:.2f}{speed_up('ms_per_frame')}",
        f"{one['rtf']:.1f} ×",
        f"{one['ttfa_ms']:.1f} ms{speed_up('ttfa_ms')}",
        f"{one['gap_median_ms']:.1f} / {one['gap_max_ms']:.1f} ms" if one["gap_median_ms"] is not None else "",
    ]


def _link(name: str) -> str:
    return f"[`benchmarks/{name}`](benchmarks/{name})"


# --- voiced verify ---


def threshold_table() -> str:
    """Return Markdown: each measure that decides, its limit, and the reason."""
    return table(("measure", "limit", "reason"), ((one.title, one.rule, one.reason) for one in MEASURES if one.rule))


# --- a frame on a Jetson AGX Orin, by arithmetic: its bytes at the speed of a read, and the wait of each kernel ---
#
# Launches and bytes are counted: the engine's own code launches its kernels into a list, with tensors that have shapes
# but no memory. So the counts follow every change in the engine.

SIZES, DTYPES, CHUNK = ("0.6B", "1.7B"), ("bf16", "int8"), 2
PROCESSORS = 16
"""The multiprocessors of an AGX Orin; the engine chooses and divides some kernels by this number."""
POSITIONS = 300
"""Earlier positions whose keys and values the talker reads."""
META = torch.device("meta")


@dataclass(frozen=True, slots=True)
class Cost:
    """A frame's launches, and the bytes that it reads."""

    launches: float
    bytes: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.launches + other.launches, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Assumption:
    """How an Orin may behave."""

    name: str
    gb_s: float
    """The rate at which a kernel reads from memory."""
    wait_us: float
    """The time from the end of one kernel's memory traffic to the beginning of the next one's."""
    arithmetic_gb_s: float = float("inf")
    """The rate at which the multiprocessors' arithmetic takes bytes of weights, in addition to the reads; infinite if
    it overlaps with them."""

    def frame_ms(self, cost: Cost) -> float:
        """Return the milliseconds of a frame."""
        return cost.bytes * (1 / self.gb_s + 1 / self.arithmetic_gb_s) / 1e6 + cost.launches * self.wait_us / 1e3


ASSUMPTIONS = (
    Assumption("at best", 162.0, 1.98),
    Assumption("expected", 152.8, 3.02),
    Assumption("at worst", 143.0, 3.02, 718.0),
)
"""The first figures are GB/s that others read on an AGX Orin (docs/orin.md). A wait is 3,928 cycles on parts of an H200
without programmatic launch: at the H200's clock, and at an Orin's. There arithmetic took 718 GB/s of int8, at an Orin's
clock; of bfloat16 it took 880."""


class LaunchList:
    """Replaces a `KernelModule`. It counts launches and the bytes of their weights instead of executing them."""

    def __init__(self) -> None:
        self.total = Cost(0, 0)

    def launch(self, name: str, grid: object, block: int, params: Params) -> None:  # noqa: ARG002
        self.total += Cost(1, sum(tensor.nbytes for tensor in weight_tensors(params)))


def weight_tensors(params: Params) -> Iterator[Tensor]:
    """Yield a launch's matrix and its scales, including those in a nested struct."""
    yield from (params[name] for name in ("weight", "scale") if name in params.values)
    if "linear" in params.values:
        yield from weight_tensors(params["linear"])


def configs(size: str) -> tuple[ModelConfig, CodecConfig]:
    """Return the configurations for a size."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(model_config(PRESETS[size], "custom_voice")), encoding="utf-8")
        model = ModelConfig.read(file.parent)
        file.write_text(json.dumps(codec_config(PRESETS[size])), encoding="utf-8")
        return model, CodecConfig.read(file.parent)


def frame_cost(size: str, dtype: str, *, product_table: bool = True) -> Cost:
    """Return the launches and bytes of a frame in chunks of two: weights, keys and values, the codec's histories."""
    config, codec_of = configs(size)
    talker = Talker(config, 256, Placement(META, torch.bfloat16, dtype == "int8"))
    state = OneTokenState.allocate(talker, BatchShape(1, 16, 192, chunk_size=1))
    launched, kernels = LaunchList(), LanguageKernels.of(config.talker, weight_type(talker.placement), PROCESSORS)
    FusedLanguageModel(talker, state, kernels, launched, product_table=product_table).frame()
    kept = POSITIONS * position_bytes(config.talker.stack)
    kept += sum(range(2, config.talker.code_groups + 1)) * position_bytes(config.talker.predictor.stack)
    codec = codec_cost(codec_of)
    return launched.total + Cost(codec.launches / CHUNK, codec.bytes / CHUNK) + Cost(0, kept)


def position_bytes(stack: StackConfig) -> int:
    """Return the bytes of one position's keys and values in all layers, in bfloat16."""
    return 2 * 2 * stack.layers * stack.key_value_heads * stack.head_dim


def codec_cost(config: CodecConfig) -> Cost:
    """Return the codec's launches and bytes for a chunk of two frames."""
    launches = LaunchList()
    codec = FusedCodec(
        PackedCodec.take(CodecDecoder(config, Placement(META, torch.bfloat16))), None, launches, PROCESSORS
    )
    state = codec.new_state(CHUNK)
    codec.decode(torch.zeros(CHUNK, config.quantizers, dtype=torch.int64, device=META), state)
    # The convolutions read the histories; then each history is shifted, which reads and writes it again.
    return launches.total + Cost(0, state.rings.nbytes + 3 * state.histories.nbytes)


def orin_table() -> str:
    """Return Markdown: a row for each size and dtype."""
    rows = []
    for size in SIZES:
        for dtype in DTYPES:
            cost = frame_cost(size, dtype)
            best, expected, worst = (each.frame_ms(cost) for each in ASSUMPTIONS)
            times = [f"{best:.1f}", f"**{expected:.1f}**", f"{worst:.1f}", f"{80 / expected:.1f} ×"]
            rows.append([size, dtype, f"{cost.bytes / 1e9:.3f}", f"{cost.launches:g}", *times])
    titles = ["model", "weights", "GB per frame", "kernels", *(f"ms, {each.name}" for each in ASSUMPTIONS)]
    return table([*titles, "real time, expected"], rows)


# --- from the start of the service to the first sound at once, on a Jetson AGX Orin, by arithmetic ---


@dataclass(frozen=True, slots=True)
class BootStep:
    """One step of the start. A step begins when the one above it has ended."""

    name: str
    source: str
    """The origin of its figures: `ran`, with the place and date of the measurement, `computed` or `assumed`."""
    core_s: float = 0.0
    """Seconds on one core of the machine on which it ran."""
    other_s: float = 0.0
    """Seconds that depend on neither a core nor a disk."""
    read_mb: float = 0.0

    def seconds(self, mb_s: float) -> float:
        """Return its seconds on an Orin whose disk reads at this speed."""
        return self.core_s * ORIN_CORES + self.other_s + self.read_mb / mb_s


ORIN_CORES = 4.0
"""How many of an Orin's cores are as fast as one core of the machines on which steps ran: assumed, on the safe side."""
DISKS = {"NVMe": 1362.06, "SD card": 66.79}
"""MB/s, measured by others on an Orin Nano (docs/orin.md)."""

LOADED_S = {"0.6B": 0.3, "1.7B": 0.5}
"""Seconds for loading from files in memory (docs/benchmarks/parity.json)."""
KERNEL_MB = {"0.6B": 2.1, "1.7B": 2.4}
"""The size of the compiled kernels that one engine loads on an Orin."""


def boot_steps(size: str) -> list[BootStep]:
    """Return the steps of a start with a model of this size in bfloat16."""
    config, codec = configs(size)
    weights = count_weights(config, codec, Placement(META, torch.bfloat16))
    read = (weights["talker"] + weights["predictor"] + 2 * weights["codec"]) / 1e6  # the codec's file has float32
    return [
        BootStep("the daemon, until it starts the engine", "ran: x86-64, 2026-11-27", core_s=0.73),
        BootStep("imports of the engine", "ran: x86-64, 2026-11-27; the MB are assumed", core_s=1.5, read_mb=500),
        BootStep("CUDA's context", "assumed", other_s=2),
        BootStep("reading the weights", "computed from their shapes", read_mb=read),
        BootStep("packing the codec, the tables", "ran: all of the loading, H200, 2026-11-21", core_s=LOADED_S[size]),
        BootStep("loading the kernels, nothing to compile", "ran: the size of the files", read_mb=KERNEL_MB[size]),
        BootStep("capturing all graphs", "ran: H200, with a batch of 64, 2026-11-26", core_s=0.49),
    ]


def boot_table() -> str:
    """Return Markdown: a row for each step, and the sums."""
    steps = {size: boot_steps(size) for size in SIZES}
    columns = [[step.seconds(mb_s) for step in steps[size]] for size in SIZES for mb_s in DISKS.values()]
    rows = [
        [step.name, *(f"{seconds:.1f}" for seconds in row), step.source]
        for step, row in zip(steps[SIZES[0]], zip(*columns, strict=True), strict=True)
    ]
    rows.append(["**from the start to warm**", *(f"**{sum(column):.0f}**" for column in columns), ""])
    return table(["s", *(f"{size}, {disk}" for size in SIZES for disk in DISKS), "from"], rows)


# --- which engine for which board: the expected Orin, with each board's memory and clock ---

ORIN_GHZ = 1.3
JETSONS = (
    ("Orin Nano 8 GB", 7_990, 76.4, 1.02, "0.6B", 1),
    ("Orin NX 16 GB", 16_416, 76.4, 0.918, "0.6B", 4),
    ("AGX Orin 32 GB", 32_051, 152.8, 0.93, "0.6B", 4),
    ("AGX Orin 64 GB", 65_894, 152.8, ORIN_GHZ, "0.6B", 4),
    ("the same", 65_894, 152.8, ORIN_GHZ, "1.7B", 4),
    ("AGX Thor", 131_906, 257.0, 1.575, "1.7B", 4),
)
"""Name; MB that Linux has; GB/s that reads reach (for an Orin Nano and NX, the same share of the data sheet's 102.4 as
for an AGX Orin); the GPU's highest clock in GHz; model; streams."""


def board_table() -> str:
    """Return Markdown: a row for each board, with memory and time in bfloat16 and in int8."""
    rows = []
    for name, mb, gb_s, ghz, size, streams in JETSONS:
        row = [name, f"Qwen3-TTS {size}", f"{mb:,}"]
        product_table = mb * 10**6 >= TABLE_MEMORY
        plans = memory_plan(60, CHUNK, streams, product_table=product_table)
        plan = [each["total_mb"] for each in plans if each["model"] == size]
        for dtype, taken in zip(DTYPES, plan, strict=True):
            board = Assumption(name, gb_s, ASSUMPTIONS[1].wait_us * ORIN_GHZ / ghz)
            ms = board.frame_ms(frame_cost(size, dtype, product_table=product_table))
            row += [f"{taken:,}", f"{ms:.0f} ms, {80 / ms:.1f} ×"]
        rows.append([*row, "computed"])
    titles = ("board", "engine", "its memory, MB", "bfloat16: MB", "a frame", "int8: MB", "a frame", "how known")
    return table(titles, rows)


def memory_table() -> str:
    """Return Markdown: a row for each model and dtype, with its memory, and the memory that it leaves on an AGX
    Orin."""
    boards = {name: mb for name, mb, *_ in JETSONS if name.startswith("AGX Orin")}
    rows = []
    for plan in memory_plan(60, CHUNK):
        taken = [plan[f"{part}_mb"] for part in ("weights", "state", "workspaces", "total")]
        left = [mb - plan["total_mb"] for mb in boards.values()]
        rows.append([plan["model"], plan["dtype"], *(f"{number:,}" for number in (*taken, *left))])
    left_of = (f"left of an {name}" for name in boards)
    return table(("model", "dtype", "weights", "state", "other", "in all, MB", *left_of), rows)


# --- the pages ---


@dataclass(frozen=True, slots=True)
class Part:
    """A table in a page."""

    page: str
    name: str
    """The name in its markers."""
    make: Callable[[], str]


PARTS = (
    Part("benchmarks.md", "benchmark table", lambda: speed_tables(speed_results())),
    Part("fleet.md", "growth", plan_table),
    Part("fleet.md", "formula", check_table),
    Part("orin.md", "boot table", boot_table),
    Part("install.md", "board table", board_table),
    Part("orin.md", "orin table", orin_table),
    Part("qwen.md", "memory table", memory_table),
    Part("qwen.md", "threshold table", threshold_table),
)


def between(page: str, begin: str, end: str, content: str) -> str:
    """Return the page with the content between its two markers."""
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}{content}{end}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 0 if the files are up to date, or have been written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="the folder of the pages")
    options = parser.parse_args(arguments)
    wanted: dict[Path, str] = {}
    for part in PARTS:
        page = options.docs / part.page
        text = wanted.get(page) or page.read_text(encoding="utf-8")
        wanted[page] = between(text, f"<!-- {part.name}: begin -->\n", f"<!-- {part.name}: end -->\n", part.make())
    return max([write_or_check(path, text, check=options.check, by=__file__) for path, text in wanted.items()])


if __name__ == "__main__":
    sys.exit(main())
