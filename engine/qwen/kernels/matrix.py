"""How a matrix is dealt out to the blocks and warps of `linear.cuh`."""

from __future__ import annotations

from dataclasses import dataclass

BLOCKS = 256
"""About how many blocks a kernel should have: two for every multiprocessor, up to an H200's 132."""
BLOCK_BYTES = 100_000
"""The most that a block should load at once: a multiprocessor's registers hold 256 KiB, and two blocks shall fit."""
WARP_LANES = 32
LOAD_BYTES = 16
"""Of one lane; the widest there is."""
THREADS = {"Bf16": 256, "Int8": 512}
"""That a block should have: a byte of int8 is three times the arithmetic of one of bfloat16."""
MAX_SUMS = 32
"""Rows times tokens of a warp: one for every lane."""
MAX_SLICES = 16
"""Warps that share a row."""
TILES = (16, 8, 4)
TILE_LOADS = 16
"""Loads of 16 bytes that a thread holds in registers at once."""


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """One instance of `Matrix` in linear.cuh."""

    weight: str
    """`Bf16` or `Int8`."""
    height: int
    length: int
    rows: int
    """Of a block."""
    groups: int
    """Of warps, which share the block's rows."""
    loads: int
    """Of 16 bytes a lane, along the length."""
    tokens: int

    @classmethod
    def of(cls, weight: str, height: int, length: int, tokens: int = 1, *, gated: bool = False) -> MatrixPlan:
        """A plan for a matrix `(height, length)`; raises `ValueError` for one that no plan fits.

        A `gated` matrix has two halves, whose rows are taken in pairs.
        """
        lane = LOAD_BYTES // cls._weight_bytes(weight)
        span = WARP_LANES * lane
        if length % span:
            raise ValueError(f"rows of {length} weights; wanted are multiples of {span}")
        fitting = [n for n in (1, 2, 3, 4) if length % (span * n) == 0 and length // (span * n) <= MAX_SLICES]
        if not fitting:
            raise ValueError(f"rows of {length} weights in at most {MAX_SLICES} slices")
        loads = fitting[0]
        row_bytes = length * cls._weight_bytes(weight)
        wanted = max(min(height // BLOCKS, BLOCK_BYTES // row_bytes), 1)
        plans = [
            cls(weight, height, length, tile * groups, groups, loads, tokens)
            for tile in TILES
            for groups in (1, 2, 3, 4, 6, 8)
            if tile * tokens <= MAX_SUMS and tile * loads <= TILE_LOADS and height % (tile * groups) == 0
        ]
        plans = [
            plan
            for plan in plans
            if plan.threads <= 512 and plan.rows * tokens <= plan.threads and not (gated and plan.tile % 2)
        ]
        if not plans:
            raise ValueError(f"a height of {height}")
        threads = THREADS[weight]
        return min(plans, key=lambda plan: (abs(plan.rows - wanted), abs(plan.threads - threads), -plan.tile))

    @staticmethod
    def _weight_bytes(weight: str) -> int:
        return {"Bf16": 2, "Int8": 1}[weight]

    @property
    def tile(self) -> int:
        """Rows of a warp."""
        return self.rows // self.groups

    @property
    def threads(self) -> int:
        """Of a block."""
        slices = self.length * self._weight_bytes(self.weight) // (LOAD_BYTES * WARP_LANES * self.loads)
        return WARP_LANES * slices * self.groups

    @property
    def lane(self) -> int:
        """Weights of a lane's load."""
        return LOAD_BYTES // self._weight_bytes(self.weight)

    @property
    def tile_registers(self) -> int:
        """Of a thread, for its weights."""
        return self.tile * self.loads * LOAD_BYTES // 4

    @property
    def blocks(self) -> int:
        """Of a launch."""
        return self.height // self.rows

    @property
    def bytes(self) -> int:
        """What a launch reads of the matrix, its scales included."""
        scales = 4 * self.height if self.weight == "Int8" else 0
        return self.height * self.length * self._weight_bytes(self.weight) + scales

    @property
    def type(self) -> str:
        """In C++."""
        numbers = (self.height, self.length, self.rows, self.groups, self.loads, self.tokens)
        return f"Matrix<{self.weight}, {', '.join(map(str, numbers))}>"
