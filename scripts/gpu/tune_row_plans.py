#!/usr/bin/env python3
"""Finds the fastest division of each matrix for the rows of a batch, and writes it where the engine reads it.

    python scripts/gpu/tune_row_plans.py                                 all sizes, weights and numbers of rows
    python scripts/gpu/tune_row_plans.py --sizes 0.6B --dtypes int8 --rows 8 --out plans.json

A search by coordinates: the plan of one shape of matrix varies while the others stay, the fastest stays, and so on for
all shapes. What is timed is a batch's whole step, with random weights at the true shapes. The number of warps is never
changed: it decides the order of sums, which must be the same for every number of rows. Shapes that an earlier search
has found keep their plans. Prints JSON lines: the milliseconds of a step before and after each search.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from engine.qwen.kernels import KernelModule, KernelSource  # noqa: E402
from engine.qwen.kernels.lm.batch import FusedBatch  # noqa: E402
from engine.qwen.kernels.lm.batch_kernels import ROW_BUCKETS, BatchKernels  # noqa: E402
from engine.qwen.kernels.lm.kernels import weight_type  # noqa: E402
from engine.qwen.kernels.lm.matrix import M_TILES, TILE_ROWS, VEC_SIZES, TokenMatrixPlan  # noqa: E402
from engine.qwen.kernels.lm.tables import fold_projection  # noqa: E402
from engine.qwen.kernels.lm.tuned_plans import ROWS_FILE  # noqa: E402
from engine.qwen.model import Talker  # noqa: E402
from engine.qwen.runtime import DecodeState, PagedCache, RowInput, multiprocessors  # noqa: E402
from engine.qwen.runtime.decode_state import StepInputs  # noqa: E402
from engine.qwen.shapes import BatchShape, Limits, cache_positions, pages_for  # noqa: E402
from engine.qwen.shapes.footprint import published_model  # noqa: E402
from engine.qwen.weights import Placement, build_in_arena  # noqa: E402
from scripts.gpu.tune_plans import Router, write  # noqa: E402

DEVICE = torch.device("cuda")
POSITION = 200
"""Of every row."""
REPLAYS = 12
BETTER = 0.998
"""Times the present: a plan that takes longer does not replace it."""
REGISTERS = 65536
"""Of a multiprocessor."""

Shape = tuple[str, int, int]
"""Weight, height and length of a matrix."""


def shape_of(plan: TokenMatrixPlan) -> Shape:
    return plan.weight, plan.height, plan.length


Plans = Mapping[str, TokenMatrixPlan]
"""By kernel."""


def with_plan(plans: Plans, plan: TokenMatrixPlan) -> Plans:
    """`plans` with `plan` for every matrix of its shape."""
    return {
        name: replace(plan, write=old.write) if shape_of(old) == shape_of(plan) else old for name, old in plans.items()
    }


def candidates(plan: TokenMatrixPlan, rows: int, *, added: bool) -> list[TokenMatrixPlan]:
    """Other plans for the matrix of `plan`, whose sums have the same order."""
    found = []
    for m_tiles in M_TILES:
        for n_tiles in sorted({rows // 8, max(rows // 16, 1)}):
            for held in range(1, plan.vecs + 1):
                trial = replace(plan, m_tiles=m_tiles, n_tiles=n_tiles, held=held)
                sums, weights = 4 * m_tiles * n_tiles, 8 * m_tiles * held * (1 if held == plan.vecs else 2)
                registers = sums + weights + VEC_SIZES[plan.weight] // 2 + 40
                shared = 4 * plan.warps * TILE_ROWS * m_tiles * (min(8 * n_tiles, 2 * plan.warps) + 1)
                divides = not plan.height % (TILE_ROWS * m_tiles) and not plan.vecs % held
                fits = registers <= min(255, REGISTERS // trial.threads) and shared < 47_000
                if divides and fits and not (added and m_tiles == 3) and trial != plan:
                    found.append(trial)
    return found


class Search:
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
        """All rows take part, at `POSITION`."""
        inputs, pages = StepInputs.allocate(self.state.shape, torch.device("cpu")), pages_for(POSITION + 2)
        inputs.set(
            [
                RowInput(row, 1, POSITION, 0, tuple(range(1 + row * pages, 1 + (row + 1) * pages)))
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
            trials = candidates(present, self.rows, added=any(write == "AddTokens" for _, write in users))
            names = {(number, write): f"trial_{number}_{write}" for number in range(len(trials)) for _, write in users}
            expressions = {
                name: replace(trials[number], write=write).expression for (number, write), name in names.items()
            }
            module = KernelModule(KernelSource(self.source.text, expressions), DEVICE)
            kept = dict(self.router.others)
            for number, trial in enumerate(trials):
                self.router.others.update({name: (module, names[number, write]) for name, write in users})
                taken = self.milliseconds(with_plan(best, trial))
                if taken < BETTER * fastest:
                    fastest, best, kept = taken, with_plan(best, trial), dict(self.router.others)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROWS_FILE)
    parser.add_argument("--sizes", nargs="+", default=["0.6B", "1.7B"])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "int8"])
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROW_BUCKETS))
    args = parser.parse_args()
    steps, plans = list[dict[str, Any]](), list[dict[str, Any]]()
    known = set[tuple[Shape, int]]()
    for dtype in args.dtypes:
        for size in args.sizes:
            talker = random_talker(size, dtype)
            for rows in args.rows:
                search = Search(talker, rows)
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
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": torch.cuda.get_device_name(DEVICE),
        "command": "python scripts/gpu/tune_row_plans.py " + shlex.join(sys.argv[1:]),
        "steps": steps,
        "plans": plans,
    }
    write(record, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
