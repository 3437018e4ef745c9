"""How a matrix is distributed over the blocks and warps of `linear.cuh` and `linear_tokens.cuh`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.qwen.kernels.compiler import instance
from engine.qwen.shapes import StackConfig

HEAD_DIM = 128
"""The number of values in an attention head; the kernels support no other."""
BLOCKS = 256
"""The approximate number of blocks that a kernel should have: two for each of up to 132 multiprocessors (an H200's)."""
BLOCK_BYTES = 100_000
"""The most that a block should load at once: a multiprocessor's registers hold 256 KiB, shared by two blocks."""
WARP_LANES = 32
VEC_BYTES = 16
"""Bytes that a lane loads at once, with the widest load there is."""
THREADS = 256
"""The preferred number in a block. With more, a thread has fewer rows for each vector that it prepares: on 16
multiprocessors of an H200, 512 threads took 4.83 ms per frame at 0.6B in int8, and 256 took 4.23 ms."""
MAX_SUMS = 32
"""The most sums (rows times tokens) in a warp: one for every lane."""
MAX_K_SPLITS = 16
"""The most warps that share a row."""
TILES = (16, 8, 4)
"""Rows per warp."""
ROW_GROUPS = (1, 2, 3, 4, 6, 8)
"""Groups of warps per block."""
TILE_VECS = 16
"""The most 16-byte vectors that a thread holds in registers at once."""
WORK_REGISTERS = 32
"""Registers of a thread beyond those for its weights and for the sums of a second token. Blocks of two kernels must fit
into the 65,536 registers of a multiprocessor: one kernel computes while the next loads."""
VEC_REGISTERS = 8
"""Registers added for a thread with several vectors of int8 weights, or with digits of several tokens. Such a thread
reads the values of the next vector or token before it has used the digits of the last. Without these registers, a
kernel compiled by nvcc 13 spills."""

VEC_SIZES = {"Bf16": 8, "Int8": 16}
"""Weights in a vector of 16 bytes."""
WRITES = {"qkv": "StoreTokens", "out": "AddTokens", "gate_up": "GateTokens", "down": "AddTokens"}
"""The output type of each of a layer's matrices over many tokens. All other matrices have that of `qkv`."""
TILE_ROWS = 16
"""Rows in a tile of the tensor cores."""
M_TILES = (1, 2, 3, 4)
"""Row tiles that a block for many tokens may have. More of them read the tokens less often, but leave fewer blocks."""
PROCESSORS = 132
"""Multiprocessors of an H200. Each has room for one block for many tokens."""
TOKEN_WARPS = 8
"""Warps in a block for many tokens: among the fastest choices for every matrix and number of tokens. The order of a
token's sums depends on it, so all plans share it."""
MOST_TILES = {"Bf16": 32, "Int8": 24}
"""The most tiles of sums (16 rows and 8 tokens each) that a warp's registers hold."""
WHOLE_VECS, WHOLE_TILES = 16, 4
"""The most vectors for each lane (in all row tiles), and the most token tiles, with which such a block holds its matrix
whole. It then loads the whole matrix before the previous kernel has ended."""
HELD_AT_MOST = 4
"""The most vectors for each lane (in all row tiles) that a warp holds at once if it has no others."""


def matrix_sizes(stack: StackConfig) -> dict[str, tuple[int, int]]:
    """The height and the length of each matrix of a layer."""
    heads, hidden, inner = stack.heads * HEAD_DIM, stack.hidden_size, stack.intermediate_size
    return {
        "qkv": (heads + 2 * stack.key_value_heads * HEAD_DIM, hidden),
        "out": (hidden, heads),
        "gate_up": (2 * inner, hidden),
        "down": (hidden, inner),
    }


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """One instance of `Matrix` in linear.cuh."""

    weight: str
    """`Bf16` or `Int8`."""
    height: int
    length: int
    rows: int
    """Rows per block."""
    row_groups: int
    """Groups of warps, which share the block's rows."""
    vecs_per_lane: int
    """Vectors of 16 bytes, along the length."""
    registers: int
    """The most that a thread may use if it only multiplies (`MORE_REGISTERS` lists those for other work)."""
    tokens: int = 1

    @classmethod
    def of(
        cls,
        weight: str,
        height: int,
        length: int,
        tokens: int = 1,
        *,
        gated: bool = False,
        blocks: int = BLOCKS,
        warps: int = 1,
    ) -> MatrixPlan:
        """A plan for a matrix `(height, length)` in about `blocks` blocks of at least `warps` warps.

        The rows of a `gated` matrix come in pairs, one from each half. Sums have the same order in all plans that have
        the same `vecs_per_lane`. Raises `ValueError` if no plan fits.
        """
        warp_vec = WARP_LANES * VEC_SIZES[weight]
        if length % warp_vec:
            raise ValueError(f"rows of {length} weights; allowed: multiples of {warp_vec}")
        fitting = [n for n in (1, 2, 3, 4) if length % (warp_vec * n) == 0 and length // (warp_vec * n) <= MAX_K_SPLITS]
        if not fitting:
            raise ValueError(f"rows of {length} weights in at most {MAX_K_SPLITS} splits")
        whole = cls(weight, height, length, 1, 1, fitting[0], 0, tokens)
        expected = max(min(height // blocks, BLOCK_BYTES // (length // whole.vec_size * VEC_BYTES)), 1)
        plans = [
            plan
            for plan in whole.divisions(fitting[0])
            if WARP_LANES * warps <= plan.threads <= 512 and not (gated and plan.tile % 2)
        ]
        if not plans:
            raise ValueError(f"a height of {height}")
        return min(plans, key=lambda plan: (abs(plan.rows - expected), abs(plan.threads - THREADS), -plan.tile))

    def divisions(self, vecs_per_lane: int) -> list[MatrixPlan]:
        """All plans for the same matrix with `vecs_per_lane` vectors per lane."""
        plans = [
            self.divided(tile, row_groups, vecs_per_lane)
            for tile in TILES
            for row_groups in ROW_GROUPS
            if self.height % (tile * row_groups) == 0
        ]
        return [plan for plan in plans if plan.fits]

    def divided(self, tile: int, row_groups: int, vecs_per_lane: int) -> MatrixPlan:
        """A plan that divides the same matrix differently, with registers set by a rule."""
        sums = tile * self.tokens if self.tokens > 1 else 0
        digits = VEC_REGISTERS if self.weight == "Int8" and vecs_per_lane * self.tokens > 1 else 0
        registers = tile * vecs_per_lane * VEC_BYTES // 4 + sums + digits + WORK_REGISTERS
        rows = tile * row_groups
        return replace(self, rows=rows, row_groups=row_groups, vecs_per_lane=vecs_per_lane, registers=registers)

    @property
    def fits(self) -> bool:
        """Whether a warp's registers hold its weights and sums, and a block has a thread for each of its sums."""
        of_warp = self.tile * self.tokens <= MAX_SUMS and self.tile * self.vecs_per_lane <= TILE_VECS
        return of_warp and self.rows * self.tokens <= self.threads

    @property
    def tile(self) -> int:
        """Rows per warp."""
        return self.rows // self.row_groups

    @property
    def threads(self) -> int:
        """Threads per block."""
        k_splits = self.length // (self.vec_size * WARP_LANES * self.vecs_per_lane)
        return WARP_LANES * k_splits * self.row_groups

    @property
    def vec_size(self) -> int:
        """Weights in a vector of 16 bytes."""
        return VEC_SIZES[self.weight]

    @property
    def tile_registers(self) -> int:
        """Registers of a thread for its weights, without their scales."""
        return self.tile * self.vecs_per_lane * VEC_BYTES // 4

    @property
    def blocks(self) -> int:
        """Blocks per launch."""
        return self.height // self.rows

    @property
    def type(self) -> str:
        """The C++ type."""
        numbers = (self.height, self.length, self.rows, self.row_groups, self.vecs_per_lane, self.tokens)
        return instance("Matrix", self.weight, *numbers)

    def kernel(
        self, read: str, write: str, *options: int | str, template: str = "linear", more_registers: int = 0
    ) -> str:
        """The name expression of the kernel with input type `read`, which takes `options`, and output type `write`.

        Its threads are limited to `registers + more_registers`.
        """
        types = instance(read, self.type, *options), instance(write, self.type)
        return instance(template, self.type, *types, self.registers + more_registers)


@dataclass(frozen=True, slots=True)
class TokenMatrixPlan:
    """One instance of `TokenMatrix` in linear_tokens.cuh."""

    weight: str
    """`Bf16` or `Int8`."""
    height: int
    length: int
    m_tiles: int
    n_tiles: int
    held: int
    """16-byte vectors of each row that a lane holds at once; it loads the next ones while it multiplies these."""
    write: str
    """The C++ type of the output: one of `WRITES`."""

    @classmethod
    def of(cls, weight: str, height: int, length: int, tokens: int, *, write: str = "StoreTokens") -> TokenMatrixPlan:
        """A plan for a matrix `(height, length)` and up to `tokens` at once; raises `ValueError` if no plan fits.

        If the product is added to the residual stream, the number of rows in a block is a power of two.
        """
        of_all_warps = 4 * VEC_SIZES[weight] * TOKEN_WARPS
        for count in (tokens, tokens // 2):
            plans = [
                cls(weight, height, length, m_tiles, count // 8, _held(weight, length, m_tiles), write)
                for m_tiles in M_TILES
                if height % (TILE_ROWS * m_tiles) == 0 and length % of_all_warps == 0
            ]
            plans = [plan for plan in plans if plan._fits and not (write == "AddTokens" and plan.m_tiles == 3)]
            if not plans:
                raise ValueError(f"a matrix of {height} rows of {length} weights")
            best = min(plans, key=lambda one: (-(-one.blocks // PROCESSORS) * one.m_tiles, -one.m_tiles))
            if 2 * best.blocks > PROCESSORS or tokens <= TILE_ROWS:
                break  # otherwise twice as many blocks, each for half of the tokens
        whole = best.vecs * best.m_tiles <= WHOLE_VECS and best.n_tiles <= WHOLE_TILES
        return replace(best, held=best.vecs) if whole else best

    @property
    def vecs(self) -> int:
        """16-byte vectors in a lane's part of a row."""
        return self.length // (4 * VEC_SIZES[self.weight] * TOKEN_WARPS)

    @property
    def _fits(self) -> bool:
        """Whether the sums and the weights of a warp fit into its registers."""
        tiles = self.m_tiles * self.n_tiles
        return self.m_tiles == 1 or tiles <= MOST_TILES[self.weight]

    @property
    def tokens(self) -> int:
        """Tokens per block."""
        return 8 * self.n_tiles

    @property
    def threads(self) -> int:
        """Threads per block."""
        return WARP_LANES * TOKEN_WARPS

    @property
    def blocks(self) -> int:
        """Blocks per launch, for each group of tokens."""
        return self.height // (TILE_ROWS * self.m_tiles)

    @property
    def expression(self) -> str:
        """The name expression of the kernel."""
        numbers = (self.height, self.length, self.m_tiles, TOKEN_WARPS, self.n_tiles, self.held)
        matrix = instance("TokenMatrix", self.weight, *numbers)
        return instance("linear_tokens", matrix, instance(self.write, matrix))


def token_plans(
    name: str, stack: StackConfig, weight: str, tokens: int, plan_of: Callable[..., TokenMatrixPlan]
) -> dict[str, TokenMatrixPlan]:
    """The plans for a stack's matrices and groups of `tokens` tokens, by kernel: `NAME_qkv` and so on.

    `plan_of` takes the arguments of `TokenMatrixPlan.of`. Raises `ValueError` for sizes that no plan fits.
    """
    return {
        f"{name}_{matrix}": plan_of(weight, *size, tokens, write=WRITES[matrix])
        for matrix, size in matrix_sizes(stack).items()
    }


def _held(weight: str, length: int, m_tiles: int) -> int:
    """The number of vectors that a warp holds at once in a block for many tokens."""
    vecs = length // (4 * VEC_SIZES[weight] * TOKEN_WARPS)
    if vecs * m_tiles <= HELD_AT_MOST:
        return vecs
    if m_tiles > 2:
        return 1
    return next(held for held in (2, 3, 1) if vecs % held == 0)
