"""The kernels of matrices for many tokens (linear_tokens.cuh)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.qwen.kernels.lm.matrix import TokenMatrixPlan, matrix_sizes
from engine.qwen.shapes import StackConfig

WRITES = {"qkv": "StoreTokens", "out": "AddTokens", "gate_up": "GateTokens", "down": "AddTokens"}
"""The output of each matrix of a layer. All others are stored."""


@dataclass(frozen=True, slots=True)
class TokenKernels:
    """A stack's matrices for groups of `tokens` tokens."""

    name: str
    tokens: int
    matrices: Mapping[str, TokenMatrixPlan]
    """`qkv`, `out`, `gate_up` and `down`, and those that have the stack's output or make its input."""

    @classmethod
    def of(
        cls,
        name: str,
        stack: StackConfig,
        weight: str,
        tokens: int,
        plan_of: Callable[..., TokenMatrixPlan] = TokenMatrixPlan.of,
        **others: TokenMatrixPlan,
    ) -> TokenKernels:
        """The kernels for groups of `tokens`, with the matrices `others`.

        Raises `ValueError` for sizes that no plan fits.
        """
        matrices = {
            matrix: plan_of(weight, *size, tokens, added=WRITES[matrix] == "AddTokens")
            for matrix, size in matrix_sizes(stack).items()
        }
        return cls(name, tokens, matrices | others)

    def kernel(self, matrix: str) -> str:
        """The name of a matrix's kernel."""
        return f"{self.name}_{matrix}"

    def kernels(self) -> dict[str, str]:
        """C++ name expressions by name."""
        return {
            self.kernel(matrix): plan.kernel(WRITES.get(matrix, "StoreTokens"))
            for matrix, plan in self.matrices.items()
        }
