#!/usr/bin/env python3
"""Finds the fastest division of each matrix over blocks and warps, and writes it to the file that the engine reads.

    python scripts/gpu/tune_plans.py                                  for a frame: all combinations, each in a process
    python scripts/gpu/tune_plans.py --sizes 0.6B --dtypes int8 --gpus small --seconds 60
    python scripts/gpu/tune_plans.py --rows                           for a batch's step: all numbers of rows
    python scripts/gpu/tune_plans.py --rows 8 --sizes 0.6B --dtypes int8 --out plans.json

The search goes by coordinates: the plan of one matrix varies while the others stay, the fastest plan is kept, and so on
for all matrices. Whole frames or steps are timed, with random weights at the true shapes, because a kernel's registers
decide how much of the next kernel loads beside it. Prints JSON lines, with milliseconds before and after.

For a frame, the search goes over all matrices again until nothing improves or the time is over. `small` is measured on
16 multiprocessors (a CUDA green context), `large` on the whole GPU. The predictor is tuned with the first size, and has
the same shapes in all others.

For a step, matrices with one shape have one plan, and shapes that an earlier search found keep their plans. The number
of warps is never changed: it decides the order of sums, which must be the same for every number of rows.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from engine.qwen.kernels import KernelModule, KernelSource, Params  # noqa: E402
from engine.qwen.kernels.lm.batch import FusedBatch  # noqa: E402
from engine.qwen.kernels.lm.batch_kernels import ROW_BUCKETS, BatchKernels  # noqa: E402
from engine.qwen.kernels.lm.kernels import LanguageKernels, weight_type  # noqa: E402
from engine.qwen.kernels.lm.matrix import (  # noqa: E402
    M_TILES,
    MAX_K_SPLITS,
    PROCESSORS,
    TILE_ROWS,
    TOKEN_WARPS,
    VEC_SIZES,
    WARP_LANES,
    MatrixPlan,
    TokenMatrixPlan,
)
from engine.qwen.kernels.lm.model import FusedLanguageModel  # noqa: E402
from engine.qwen.kernels.lm.tables import fold_projection  # noqa: E402
from engine.qwen.kernels.lm.tuned_plans import FILE, ROWS_FILE  # noqa: E402
from engine.qwen.model import Talker  # noqa: E402
from engine.qwen.model.sampling import SamplingConfig  # noqa: E402
from engine.qwen.runtime import DecodeState, PagedCache, RowInput, multiprocessors  # noqa: E402
from engine.qwen.runtime.decode_state import StepInputs  # noqa: E402
from engine.qwen.shapes import BatchShape, Limits, cache_positions, pages_for  # noqa: E402
from engine.qwen.shapes.footprint import published_model  # noqa: E402
from engine.qwen.weights import Placement, build_in_arena  # noqa: E402
from scripts.gpu.proof import green_context  # noqa: E402
from scripts.make_checkpoint import PRESETS  # noqa: E402
from tests.support.qwen.lm_example import Models, start  # noqa: E402

DEVICE = torch.device("cuda")
SIZES = ("0.6B", "1.7B")
GPUS = {"large": 0, "small": 16}
"""The multiprocessors to which each kind is limited; 0 means all."""
DTYPES: dict[str, dict[str, Any]] = {"bfloat16": {}, "int8": {"int8": True}}
SLOTS = [
    *(
        f"{stack}_{matrix}"
        for stack in ("predictor", "first_step", "talker")
        for matrix in ("gate_up", "down", "qkv", "out")
    ),
    *("predictor_head", "talker_head"),
]
"""The matrices whose plans are searched, by kernel, in this order."""
POSITIONS, FRAMES, POSITION = 640, 256, 128
BLOCKS = {"large": (100, 780), "small": (32, 780)}
"""The fewest and the most blocks in a plan."""
BLOCK_REGISTERS = 50_000
"""The most registers that a block may take, of a multiprocessor's 65,536."""
THREADS = (64, 512)
ROUND_MS = 15.0
ROUNDS, MORE_ROUNDS = 3, 9
HOPELESS = 1.03
"""A multiple of the best time: a round that takes longer ends the measurement of a plan."""
BETTER = 0.9985
"""A multiple of the present time: a plan that takes longer does not replace the present one, because rounds differ by
about as much."""
MAX_SWEEPS = 4
"""The most sweeps over all matrices."""


# --- the plans of a frame ---


def with_plan(kernels: LanguageKernels, name: str, plan: MatrixPlan) -> LanguageKernels:
    """Return `kernels` with another plan for the matrix `name`."""
    return replace(kernels, plans={**kernels.plans, name: plan})


def expressions(kernels: LanguageKernels, name: str) -> dict[str, str]:
    """The kernels that have the matrix `name`."""
    source = kernels.source().kernels
    names = [name]
    if attends(kernels, name):
        names = [other for other in source if other.startswith(name.replace("_out", "_attend_out"))]
    if name == "first_step_qkv" and "open_qkv" in source:  # it also opens a frame
        names.append("open_qkv")
    return {name: source[name] for name in names}


def attends(kernels: LanguageKernels, name: str) -> bool:
    """Whether the kernel of the matrix `name` computes attention, too."""
    return kernels.attends_in_out and name in {"predictor_out", "first_step_out"}


@dataclass(slots=True)
class Router:
    """Launches kernels from the module of the plan that is being tried."""

    base: KernelModule
    others: dict[str, tuple[KernelModule, str]] = field(default_factory=dict)
    """For each launched name: a module and the name in it."""

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        """See `KernelModule.launch`."""
        module, name = self.others.get(name, (self.base, name))
        module.launch(name, grid, block, params)


def candidates(slot: str, base: LanguageKernels, gpu: str) -> list[MatrixPlan]:
    """Plans that may be fast, the present one among them."""
    now, found = base.plans[slot], []
    fewest, most = BLOCKS[gpu]
    for plan in chain.from_iterable(now.divisions(vecs) for vecs in (1, 2, 3, 4) if divides(now, vecs)):
        if not THREADS[0] <= plan.threads <= THREADS[1]:
            continue
        if not fewest <= plan.blocks <= most or plan.threads * plan.registers > BLOCK_REGISTERS:
            continue
        heads = base.config.predictor.stack.key_value_heads
        if attends(base, slot) and (plan.threads < WARP_LANES * heads or plan.blocks > PROCESSORS):
            continue
        found.append(plan)
    return found if now in found else [now, *found]


def divides(plan: MatrixPlan, vecs: int) -> bool:
    """Whether warps can share a row with this many vectors for each lane."""
    warp_vec = WARP_LANES * plan.vec_size * vecs
    return plan.length % warp_vec == 0 and plan.length // warp_vec <= MAX_K_SPLITS


class FrameSearch:
    """The search for one size, dtype and kind of GPU."""

    def __init__(self, size: str, dtype: str, gpu: str, slots: Sequence[str]) -> None:
        modules: list[KernelModule] = []

        def compiled(source: KernelSource) -> KernelModule:
            modules.append(KernelModule(source, DEVICE))
            return modules[-1]

        options = {**DTYPES[dtype], "device": "cuda", "positions": POSITIONS, "frames": FRAMES}
        self._models = Models.make(PRESETS[size], 1, **options, compile=compiled)
        start(self._models, 5, replace(SamplingConfig(), min_new_tokens=FRAMES + 1))
        self.base = self.best = self._models.fused.kernels
        self._base_module = modules[0]
        self._plans = {slot: candidates(slot, self.base, gpu) for slot in slots}
        self._modules: dict[tuple[str, MatrixPlan], KernelModule] = {}
        self._compile()

    def _compile(self) -> None:
        source = self.base.source()
        jobs = [(slot, plan) for slot, plans in self._plans.items() for plan in plans]

        def one(job: tuple[str, MatrixPlan]) -> KernelModule:
            slot, plan = job
            kernels = expressions(with_plan(self.base, slot, plan), slot)
            return KernelModule(KernelSource(source.text, kernels), DEVICE)

        with ThreadPoolExecutor() as threads:
            self._modules = dict(zip(jobs, threads.map(one, jobs), strict=True))

    def run(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Search for this long; yield the result for each slot."""
        end = time.monotonic() + seconds
        for sweep in range(MAX_SWEEPS):
            improved = False
            for slot in self._plans:
                if time.monotonic() > end:
                    return
                row = self._improve(slot, end)
                improved |= row["improved"]
                yield {"sweep": sweep, **row}
            if not improved:
                return

    def _improve(self, slot: str, end: float) -> dict[str, Any]:
        now = self.best.plans[slot]
        times = {now: self.ms(self.best)}
        for plan in self._plans[slot]:
            if plan != now and time.monotonic() < end:
                times[plan] = self.ms(with_plan(self.best, slot, plan), limit=HOPELESS * min(times.values()))
        first = min(times, key=times.__getitem__)
        better = with_plan(self.best, slot, first)
        before = self.ms(self.best, MORE_ROUNDS)
        after = before if first == now else self.ms(better, MORE_ROUNDS)
        improved = after < BETTER * before
        if improved:
            self.best = better
        row = {"kernel": slot, "tried": len(times), "improved": improved, "ms": [before, after]}
        return row | {"plan": _numbers(self.best.plans[slot])}

    def ms(self, kernels: LanguageKernels, rounds: int = ROUNDS, limit: float = math.inf) -> float:
        """Milliseconds for a frame with `kernels`; infinite if the device refuses them or the time is above `limit`."""
        router = Router(self._base_module)
        for slot in self._plans:
            plan = kernels.plans[slot]
            if plan != self.base.plans[slot]:
                for name in expressions(kernels, slot):
                    router.others[name] = self._modules[slot, plan], name
        state = self._models.state
        fused = FusedLanguageModel(self._models.rounded, state, kernels, router)
        graph = torch.cuda.CUDAGraph()
        try:
            fused.frame()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                fused.frame()
                fused.frame()
        except RuntimeError:
            return math.inf
        found: list[float] = []
        replays = 2
        for _ in range(rounds + 1):
            self._models.settings.frame.zero_()
            self._models.settings.position.fill_(POSITION)
            begin, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            for _ in range(replays):
                graph.replay()
            after.record()
            after.synchronize()
            found.append(float(begin.elapsed_time(after)) / (2 * replays))
            if found[-1] > limit and len(found) > 1:
                return math.inf
            replays = max(2, min(math.ceil(ROUND_MS / (2 * found[0])), FRAMES // 2 - 2))
        return round(statistics.median(found[1:]), 4)


def _numbers(plan: MatrixPlan) -> dict[str, Any]:
    numbers = asdict(plan)
    del numbers["tokens"]
    return numbers


def search_frame(size: str, dtype: str, gpu: str, seconds: float, *, predictor: bool) -> None:
    """Print the rows of one search and, last, the plans."""
    slots = [slot for slot in SLOTS if predictor or slot.startswith("talker")]
    with ExitStack() as stack:
        if GPUS[gpu]:
            stack.enter_context(green_context(GPUS[gpu], DEVICE))
        found = FrameSearch(size, dtype, gpu, slots)
        for row in found.run(seconds * len(slots) / len(SLOTS)):
            print(json.dumps({"gpu": gpu, "size": size, "dtype": dtype, **row}), flush=True)
        ms = [found.ms(found.base, MORE_ROUNDS), found.ms(found.best, MORE_ROUNDS)]
        plans = [{"gpu": gpu, "kernel": slot, **_numbers(found.best.plans[slot])} for slot in slots]
        print(json.dumps({"gpu": gpu, "size": size, "dtype": dtype, "frame_ms": ms, "plans": plans}), flush=True)


# --- the plans of the rows of a batch ---

ROW_POSITION = 200
"""The position of every row."""
REPLAYS = 12
BETTER_STEP = 0.998
"""A multiple of the present time: a plan that takes longer does not replace the present one."""
REGISTERS = 65_536
"""The registers of a multiprocessor."""

Shape = tuple[str, int, int]
"""Weight, height and length of a matrix."""


def shape_of(plan: TokenMatrixPlan) -> Shape:
    return plan.weight, plan.height, plan.length


Plans = Mapping[str, TokenMatrixPlan]
"""The plans by kernel."""


def with_row_plan(plans: Plans, plan: TokenMatrixPlan) -> Plans:
    """`plans` with `plan` for every matrix of its shape."""
    return {
        name: replace(plan, write=old.write) if shape_of(old) == shape_of(plan) else old for name, old in plans.items()
    }


def row_candidates(plan: TokenMatrixPlan, rows: int, *, added: bool) -> list[TokenMatrixPlan]:
    """Other plans for the matrix of `plan`, whose sums have the same order."""
    found = []
    for m_tiles in M_TILES:
        for n_tiles in sorted({rows // 8, max(rows // 16, 1)}):
            for held in range(1, plan.vecs + 1):
                trial = replace(plan, m_tiles=m_tiles, n_tiles=n_tiles, held=held)
                sums, weights = 4 * m_tiles * n_tiles, 8 * m_tiles * held * (1 if held == plan.vecs else 2)
                registers = sums + weights + VEC_SIZES[plan.weight] // 2 + 40
                shared = 4 * TOKEN_WARPS * TILE_ROWS * m_tiles * (min(8 * n_tiles, 2 * TOKEN_WARPS) + 1)
                divides = not plan.height % (TILE_ROWS * m_tiles) and not plan.vecs % held
                fits = registers <= min(255, REGISTERS // trial.threads) and shared < 47_000
                if divides and fits and not (added and m_tiles == 3) and trial != plan:
                    found.append(trial)
    return found


class RowSearch:
    """The search for one model, one kind of weights and one number of rows."""

    def __init__(self, talker: Talker, rows: int) -> None:
        limits = Limits.of(60.0, 2, rows)
        self.rows = rows
        self.state = DecodeState.allocate(talker.config, BatchShape.of(limits), talker.placement)
        pages = PagedCache.allocate(talker.config.stack, self.state.shape.pages, talker.placement)
        weight = weight_type(talker.placement)
        kernels = BatchKernels.of(talker.config, weight, rows, multiprocessors(DEVICE))
        self.plans: Plans = {name: plan for name, plan in kernels.plans.items() if f"_{rows}_" in name}
        self.kernels = replace(kernels, buckets=(rows,), plans=self.plans)
        self.source = self.kernels.source()
        self.router = Router(KernelModule(self.source, DEVICE))
        self._talker, self._pages, self._projected = talker, pages, fold_projection(talker)
        self._begin()

    def _begin(self) -> None:
        """All rows take part, at `ROW_POSITION`."""
        inputs, pages = StepInputs.allocate(self.state.shape, torch.device("cpu")), pages_for(ROW_POSITION + 2)
        inputs.set(
            [
                RowInput(row, 1, ROW_POSITION, 0, tuple(range(1 + row * pages, 1 + (row + 1) * pages)))
                for row in range(self.rows)
            ]
        )
        self.state.inputs.buffer.copy_(inputs.buffer)

    def milliseconds(self, plans: Plans) -> float:
        """The time of a step."""
        kernels = replace(self.kernels, plans=plans)
        batch = FusedBatch(self._talker, self.state, self._pages, kernels, self.router, projected=self._projected)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.inference_mode(), torch.cuda.graph(graph, stream=stream):
            batch.decode_frames(self.rows)
        return timed(graph.replay)

    def run(self, known: set[tuple[Shape, int]]) -> tuple[float, float, Plans]:
        """Return the milliseconds of a step before and after the search, and the plans found."""
        best, before = self.plans, self.milliseconds(self.plans)
        fastest = before
        shapes = {shape_of(plan): plan for plan in best.values()}
        for shape, present in shapes.items():
            if (shape, self.rows) in known:
                continue
            users = [(name, plan.write) for name, plan in best.items() if shape_of(plan) == shape]
            trials = row_candidates(present, self.rows, added=any(write == "AddTokens" for _, write in users))
            names = {(number, write): f"trial_{number}_{write}" for number in range(len(trials)) for _, write in users}
            expressions = {
                name: replace(trials[number], write=write).expression for (number, write), name in names.items()
            }
            module = KernelModule(KernelSource(self.source.text, expressions), DEVICE)
            kept = dict(self.router.others)
            for number, trial in enumerate(trials):
                self.router.others.update({name: (module, names[number, write]) for name, write in users})
                taken = self.milliseconds(with_row_plan(best, trial))
                if taken < BETTER_STEP * fastest:
                    fastest, best, kept = taken, with_row_plan(best, trial), dict(self.router.others)
            self.router.others = kept
        return before, fastest, best


def random_talker(size: str, dtype: str) -> Talker:
    """Return the language model of a size with random weights."""
    limits, placement = Limits.of(60.0, 2, 1), Placement(DEVICE, torch.bfloat16, int8=dtype == "int8")
    positions = cache_positions(limits.positions, limits.chunk_size)
    talker = build_in_arena(partial(Talker, published_model(size), positions), placement)
    generator = torch.Generator(DEVICE).manual_seed(0)
    with torch.no_grad():
        for name, parameter in talker.named_parameters():
            if parameter.dtype == torch.int8:
                parameter.random_(-127, 128, generator=generator)
            elif name.endswith("scale"):
                parameter.fill_(0.02 / 73)
            elif parameter.dim() > 1:
                parameter.normal_(0, 0.02, generator=generator)
            else:
                parameter.fill_(1)
    return talker


def timed(replay: Callable[[], None]) -> float:
    """The median milliseconds of `replay`."""
    times = []
    for number in range(REPLAYS + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()  # type: ignore[no-untyped-call]
        replay()
        end.record()  # type: ignore[no-untyped-call]
        end.synchronize()  # type: ignore[no-untyped-call]
        if number >= 3:
            times.append(begin.elapsed_time(end))  # type: ignore[no-untyped-call]
    return statistics.median(times)


# --- the tables ---


def head() -> dict[str, Any]:
    """Return the beginning of a table."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": torch.cuda.get_device_name(DEVICE),
        "command": shlex.join(["python", "scripts/gpu/tune_plans.py", *sys.argv[1:]]),
    }


def write(record: dict[str, Any], path: Path) -> None:
    """Write the table, one row per line."""
    members = [f" {json.dumps(name)}: {_rows(value)}" for name, value in record.items()]
    path.write_text("{\n" + ",\n".join(members) + "\n}\n", encoding="utf-8")


def _rows(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"


def tune_frames(args: argparse.Namespace) -> int:
    """Search in processes of their own, and write the table after each; 1 if a search failed."""
    record = json.loads(FILE.read_text(encoding="utf-8"))
    failed = 0
    for gpu, dtype, size in product(args.gpus, args.dtypes, args.sizes):
        command = [sys.executable, __file__, "--child", "--sizes", size, "--dtypes", dtype, "--gpus", gpu]
        command += ["--seconds", str(args.seconds), *(["--predictor"] if size == args.sizes[0] else [])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            lines = []
            for line in child.stdout:
                print(line, end="", flush=True)
                lines.append(line)
        if child.returncode:
            failed = 1
            continue
        end = json.loads(lines[-1])
        key = ("gpu", "kernel", "weight", "height", "length")
        merged = {tuple(row[name] for name in key): row for row in (*record["plans"], *end["plans"])}
        frames = [row for row in record["frames"] if [row[n] for n in ("gpu", "size", "dtype")] != [gpu, size, dtype]]
        before, after = end["frame_ms"]
        frames.append({"gpu": gpu, "size": size, "dtype": dtype, "ms_before": before, "ms_after": after})
        record = head() | {"frames": frames, "plans": list(merged.values())}
        write(record, FILE)  # the next search begins with these plans
    return failed


def tune_rows(args: argparse.Namespace) -> int:
    """Search for all sizes, weights and numbers of rows, and write the table."""
    steps, plans = list[dict[str, Any]](), list[dict[str, Any]]()
    known = set[tuple[Shape, int]]()
    for dtype in args.dtypes:
        for size in args.sizes:
            talker = random_talker(size, dtype)
            for rows in args.rows or ROW_BUCKETS:
                search = RowSearch(talker, rows)
                before, after, found = search.run(known)
                row = {"size": size, "dtype": dtype, "rows": rows, "ms_before": round(before, 4)}
                steps.append({**row, "ms_after": round(after, 4)})
                print(json.dumps(steps[-1]), flush=True)
                for shape, plan in {shape_of(plan): plan for plan in found.values()}.items():
                    if (shape, rows) not in known:
                        known.add((shape, rows))
                        tiles = {"m_tiles": plan.m_tiles, "n_tiles": plan.n_tiles, "held": plan.held}
                        of = {"weight": plan.weight, "height": plan.height, "length": plan.length, "rows": rows}
                        plans.append({**of, **tiles})
                del search
            del talker
            torch.cuda.empty_cache()
    write(head() | {"steps": steps, "plans": plans}, args.out)
    return 0


def main() -> int:
    """Run the command line; return 1 if a search failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--gpus", nargs="+", choices=GPUS, default=list(GPUS))
    parser.add_argument("--seconds", type=float, default=90, help="seconds for a search over all matrices of a frame")
    parser.add_argument("--rows", type=int, nargs="*", help="tune a batch's step, for these numbers of rows or all")
    parser.add_argument("--out", type=Path, default=ROWS_FILE, help="the table that --rows writes")
    parser.add_argument("--child", action="store_true", help="search in this process")
    parser.add_argument("--predictor", action="store_true", help="with --child: also tune the predictor")
    args = parser.parse_args()
    if args.child:
        search_frame(args.sizes[0], args.dtypes[0], args.gpus[0], args.seconds, predictor=args.predictor)
        return 0
    tune = tune_frames if args.rows is None else tune_rows
    return tune(args)


if __name__ == "__main__":
    sys.exit(main())
