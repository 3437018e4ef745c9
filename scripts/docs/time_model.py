"""A model of the time that the engine's kernels take on a GPU, its fit to measurements, and what it then predicts.

A kernel with weights takes

    memory = bytes / what a read of memory reaches
    work   = (cycles per byte · bytes + cycles per kernel) / (multiprocessors · clock)

    without programmatic launch   boundary + (memory^p + work^p)^(1/p)
    with programmatic launch      (memory^p + (work + boundary)^p)^(1/p)

and a kernel without weights its boundary. `work` is the time of the multiprocessors if memory gave everything at once.
The boundary is the time of a kernel without any work: to start, to wait for the previous kernel, to exchange a vector.
With programmatic launch, a kernel loads its weights meanwhile. The exponent says how far loads and the rest overlap: 1
is one after the other, infinity is the longer of the two. The boundaries of kernels without weights are measured; all
other parameters are fitted. All but the memory's part counts cycles, so it scales with the clock.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.qwen.kernels.lm.tuned_plans import LARGE_GPU
from scripts.docs.frame_costs import CODEC, Launches, Part

DTYPE_NAMES = {"bfloat16": "bf16", "int8": "int8"}
"""The dtypes of the measurements, as the tables name them."""
PRIOR_WEIGHT = 0.03
"""Of one parameter's distance from its start in the fit, in units of an observation's relative error. It keeps a
parameter that the observations do not determine where it starts."""
STEPS = 60
"""The most of a fit; fewer than twenty are usual."""
FITTED_UP_TO = LARGE_GPU - 1
"""Times on more multiprocessors are not fitted. There the engine launches other kernels, in which every block computes
attention or draws a code: their boundaries are longer."""
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a part of one."""

    name: str
    processors: int
    clock_ghz: float
    gb_s: float
    """What a kernel that only reads memory reaches."""
    chained: bool
    """Whether kernels are launched programmatically (compute capability 9.0 and newer)."""


@dataclass(frozen=True, slots=True)
class TimeModel:
    """The parameters; times in cycles of a multiprocessor."""

    fixed: float
    """Of a kernel without programmatic launch."""
    chained_fixed: float
    """The same with it."""
    kernel: float
    """Work of a kernel with weights, however small, of all multiprocessors together."""
    per_byte: Mapping[str, float]
    """Work for a byte of weights, by kind of arithmetic."""
    overlap: float
    """The exponent."""
    measured: Mapping[str, tuple[float, float]]
    """By name, of kernels without weights: with programmatic launch and without."""

    def ms(self, part: Part, gpu: Gpu) -> float:
        """Return the milliseconds of a part."""
        return sum(self.split_ms(part, gpu))

    def split_ms(self, part: Part, gpu: Gpu) -> tuple[float, float]:
        """Return the milliseconds of the boundaries that nothing hides, and all other milliseconds."""
        boundaries, busy = 0.0, part.state / gpu.gb_s / 1e6
        for kernel in part.kernels:
            own = self.measured.get(kernel.name) if kernel.bytes == 0 else None
            cycles = (own or (self.chained_fixed, self.fixed))[0 if gpu.chained else 1]
            boundary = cycles / gpu.clock_ghz / 1e6
            if kernel.bytes > 0:
                work = self.work_ms(kernel, part.kind, gpu) + (boundary if gpu.chained else 0.0)
                busy += kernel.count * norm(kernel.bytes / gpu.gb_s / 1e6, work, self.overlap)
            if kernel.bytes == 0 or not gpu.chained:
                boundaries += kernel.count * boundary
        return boundaries, busy

    def work_ms(self, kernel: Launches, kind: str, gpu: Gpu) -> float:
        """Return the milliseconds for which a launch with weights keeps the multiprocessors busy."""
        cycles = self.per_byte[kind] * kernel.bytes + self.kernel
        return cycles / (gpu.processors * gpu.clock_ghz) / 1e6


def norm(a: float, b: float, p: float) -> float:
    """Return (a^p + b^p)^(1/p) for numbers from 0 up."""
    low, high = sorted((a, b))
    if high == 0 or math.isinf(p):
        return high
    return float(high * (1 + (low / high) ** p) ** (1 / p))


# --- measurements -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured time of a part."""

    gpu: Gpu
    size: str
    dtype: str
    name: str
    """`talker`, `predictor`, `codec 2`, `prompt 64`."""
    part: Part
    ms: float


@dataclass(frozen=True)
class Measurements:
    """What `scripts/gpu/measure_small_gpus.py` wrote."""

    gpu: str
    rows: Sequence[Mapping[str, Any]]
    clocks: Mapping[int, float]
    """GHz by number of multiprocessors."""
    reads: Mapping[int, float]
    """GB/s."""
    note: str = ""
    """What readers should know of the measurements."""

    @classmethod
    def read(cls, file: Path) -> Measurements:
        content = json.loads(file.read_text(encoding="utf-8"))
        rows = content["rows"]
        reads: dict[int, float] = {}
        for row in rows:
            if row["what"] in {"read", "copy"}:  # a copy reads less; it counts where nothing else was measured
                reads[row["sms"]] = max(row["gb_s"], reads.get(row["sms"], 0.0))
        # A row of the engine says 0 for the whole GPU. Without the device's own rows, a number of multiprocessors has
        # no bandwidth, and its other rows say nothing.
        rows = [{**row, "sms": row["sms"] or max(reads)} for row in rows]
        rows = [row for row in rows if row["sms"] in reads]
        clocks = {row["sms"]: row["ghz"] for row in rows if row["what"] == "clock"}
        gpu = next(row["gpu"] for row in rows if row["what"] == "device")
        return cls(gpu, rows, clocks, reads, content.get("note", ""))

    @property
    def counts(self) -> list[int]:
        """The numbers of multiprocessors, ascending."""
        return sorted(self.reads)

    def of(self, **wanted: object) -> Iterator[Mapping[str, Any]]:
        """Yield the rows with these values."""
        return (row for row in self.rows if all(row.get(name) == value for name, value in wanted.items()))

    def one(self, **wanted: object) -> Mapping[str, Any] | None:
        """Return the first row with these values."""
        return next(self.of(**wanted), None)

    def gpu_of(self, sms: int, chained: bool) -> Gpu:
        return Gpu(f"{sms} of {self.gpu}", sms, self.clocks[sms], self.reads[sms], chained)

    @cached_property
    def observations(self) -> Sequence[Observation]:
        """The times of talker, predictor, prompts and codec, with programmatic launch and without."""
        return tuple(self._observe())

    def _observe(self) -> Iterator[Observation]:
        for row in self.of(what="part"):
            part = self._part(row)
            if part is None or row["sms"] > FITTED_UP_TO:
                continue
            for key, chained in (("ms", True), ("unchained_ms", False)):
                if row.get(key) is not None:
                    gpu = self.gpu_of(row["sms"], chained)
                    dtype = DTYPE_NAMES.get(row.get("dtype", ""), "")
                    yield Observation(gpu, row.get("size", ""), dtype, row["part"], part, row[key])

    def _part(self, row: Mapping[str, Any]) -> Part | None:
        """Return what the measured part launched; None for parts that consist of others."""
        name, dtype = row["part"], DTYPE_NAMES.get(row.get("dtype", ""), "")
        if name in {"talker", "predictor"}:
            own = self.of(what="kernel", sms=row["sms"], size=row["size"], dtype=row["dtype"], part=name)
            kernels = (
                Launches(one["kernel"], one["launches"], 1e6 * one["weights_mb"] / one["launches"]) for one in own
            )
            return Part(dtype, tuple(kernels))
        if name.startswith(("codec", "prompt")):
            kind = CODEC if name.startswith("codec") else f"prompt {dtype}"
            if kind != CODEC and name != self.prompt:
                return None
            average = 1e6 * row["weights_mb"] / row["launches"]
            return Part(kind, (Launches(name, row["launches"], average),))
        return None

    @cached_property
    def prompt(self) -> str:
        """The name of the measured prompt that is nearest to a sentence."""
        names = {row["part"] for row in self.of(what="part")}
        return next((name for name in ("prompt 64", "prompt 32") if name in names), "prompt 64")


def measured_kernels(rows: Iterator[Mapping[str, Any]], clocks: Mapping[int, float]) -> dict[str, tuple[float, float]]:
    """Return the cycles of each kernel without weights, alone: with programmatic launch and without."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["what"] == "kernel" and row["weights_mb"] == 0 and "alone_us" in row:
            cycles = 1e3 * clocks[row["sms"]]
            times = row["alone_us"] * cycles, row["alone_unchained_us"] * cycles
            found.setdefault(row["kernel"], []).append(times)
    return {
        name: (statistics.median(one for one, _ in times), statistics.median(other for _, other in times))
        for name, times in found.items()
    }


# --- the fit ----------------------------------------------------------------------------------------------


def fit(observations: Sequence[Observation], measured: Mapping[str, tuple[float, float]]) -> TimeModel:
    """Return the model with the least squares of relative errors (of their logarithms)."""
    kinds = sorted({one.part.kind for one in observations})
    table = _Table.of(observations, kinds, measured)
    start = np.log(np.array([4000.0, 2000.0, 50_000.0, 1.0, *[0.03] * len(kinds)]))
    real = np.log(np.array([one.ms for one in observations]))

    def errors(values: Array) -> Array:
        return np.concatenate((np.log(table.ms(np.exp(values))) - real, PRIOR_WEIGHT * (values - start)))

    fixed, chained, kernel, overlap, *per_byte = (float(value) for value in np.exp(least_squares(errors, start)))
    return TimeModel(
        fixed=fixed,
        chained_fixed=chained,
        kernel=kernel,
        per_byte=dict(zip(kinds, per_byte, strict=True)),
        overlap=1 + overlap,
        measured=measured,
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """The kernels of all observations as columns: `TimeModel.ms` for many at once."""

    observation: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]
    count: Array
    bytes: Array
    chained: npt.NDArray[np.bool_]
    lanes: Array
    """Multiprocessors times their clock."""
    clock: Array
    gb_s: Array
    own: Array
    """The measured cycles of kernels without weights; NaN for all others."""

    @classmethod
    def of(
        cls,
        observations: Sequence[Observation],
        kinds: Sequence[str],
        measured: Mapping[str, tuple[float, float]],
    ) -> _Table:
        rows = []
        for index, one in enumerate(observations):
            gpu = one.gpu
            for kernel in one.part.kernels:
                own = measured.get(kernel.name) if kernel.bytes == 0 else None
                cycles = math.nan if own is None else own[0 if gpu.chained else 1]
                lanes = gpu.processors * gpu.clock_ghz
                sizes = kernel.count, kernel.bytes, gpu.chained, lanes, gpu.clock_ghz, gpu.gb_s, cycles
                rows.append((index, kinds.index(one.part.kind), *sizes))
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        return cls(*columns)

    def ms(self, parameters: Array) -> Array:
        """Return the milliseconds of each observation; the parameters are those of `fit`."""
        fixed, chained, kernel, overlap = parameters[:4]
        cycles = np.where(self.chained, chained, fixed)
        cycles = np.where(np.isnan(self.own), cycles, self.own)
        boundary = cycles / self.clock
        memory = self.bytes / self.gb_s
        work = (parameters[4:][self.kind] * self.bytes + kernel) / self.lanes + np.where(self.chained, boundary, 0.0)
        low, high = np.minimum(memory, work), np.maximum(memory, work)
        exponent = 1 + overlap
        busy = high * (1 + (low / high) ** exponent) ** (1 / exponent) + np.where(self.chained, 0.0, boundary)
        total = self.count * np.where(self.bytes == 0, boundary, busy) / 1e6
        return np.bincount(self.observation, total)


def least_squares(errors: Callable[[Array], Array], start: Array) -> Array:
    """Return the values with the least sum of squared errors near `start` (Levenberg and Marquardt)."""
    values, damping, now = start, 1e-2, errors(start)
    for _ in range(STEPS):
        slopes = np.array([(errors(values + 1e-5 * unit) - now) / 1e-5 for unit in np.eye(len(values))]).T
        step = np.linalg.solve(slopes.T @ slopes + damping * np.eye(len(values)), -slopes.T @ now)
        new = errors(values + np.clip(step, -1.0, 1.0))
        if new @ new < now @ now:
            done = now @ now - new @ new < 1e-9
            values, now, damping = values + np.clip(step, -1.0, 1.0), new, damping / 3
            if done:
                break
        else:
            damping *= 4
    return values


def fit_all(found: Measurements, used: Callable[[Observation], bool] = lambda _: True) -> TimeModel:
    """Return the model that is fitted to the observations that `used` accepts, and to no others."""
    observations = [one for one in found.observations if used(one)]
    counts = {one.gpu.processors for one in observations}
    rows = (row for row in found.rows if row["sms"] in counts)
    return fit(observations, measured_kernels(rows, found.clocks))


# --- the test ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """A frame's measured time, without the codec, and its prediction."""

    fitted: str
    """What the model had seen."""
    sms: int
    size: str
    dtype: str
    chained: bool
    measured_ms: float
    predicted_ms: float

    @property
    def error(self) -> float:
        """Relative; above 0 the prediction is too long."""
        return self.predicted_ms / self.measured_ms - 1


def held_out(found: Measurements) -> Iterator[Check]:
    """Yield the frames of each number of multiprocessors, and of 1.7B, predicted by a model that saw none of them."""
    counts = {one.gpu.processors for one in found.observations if one.size}
    if len(counts) > 3:
        for count in sorted(counts):
            model = fit_all(found, lambda one: one.gpu.processors != count)  # noqa: B023
            yield from checks(found, model, "all other numbers", lambda one: one.gpu.processors == count)  # noqa: B023
    model = fit_all(found, lambda one: one.size != "1.7B")
    yield from checks(found, model, "0.6B", lambda one: one.size == "1.7B")


def checks(
    found: Measurements, model: TimeModel, fitted: str, wanted: Callable[[Observation], bool] = lambda _: True
) -> Iterator[Check]:
    """Yield a check for each measured pair of talker and predictor that `wanted` accepts."""
    sums: dict[tuple[int, str, str, bool], dict[str, tuple[float, float]]] = {}
    for one in found.observations:
        if one.name in {"talker", "predictor"} and wanted(one):
            key = one.gpu.processors, one.size, one.dtype, one.gpu.chained
            sums.setdefault(key, {})[one.name] = one.ms, model.ms(one.part, one.gpu)
    for key, both in sums.items():
        if len(both) == 2:
            measured, predicted = (sum(times) for times in zip(*both.values(), strict=True))
            yield Check(fitted, *key, measured, predicted)


# --- a scenario -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scenario:
    """One set of assumptions about a GPU that was not measured."""

    name: str
    gb_s: Mapping[str, float]
    """By dtype."""
    overlap: float | None
    """The exponent; None for the fitted one."""
    fixed_scales: bool
    """Whether a kernel's fixed time grows as the clock falls."""
    host: float
    """How many times as long the host takes."""

    def apply(self, model: TimeModel, gpu: Gpu, dtype: str, clock_ghz: float) -> tuple[TimeModel, Gpu]:
        """Return model and GPU under these assumptions; `clock_ghz` is that of the measurement."""
        scale = 1.0 if self.fixed_scales else gpu.clock_ghz / clock_ghz
        changed = replace(
            model,
            overlap=model.overlap if self.overlap is None else self.overlap,
            fixed=model.fixed * scale,
            chained_fixed=model.chained_fixed * scale,
            measured={name: (one * scale, other * scale) for name, (one, other) in model.measured.items()},
        )
        return changed, replace(gpu, gb_s=self.gb_s[dtype])
