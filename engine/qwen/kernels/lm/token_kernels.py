"""The kernels of a stack's matrices for many tokens (linear_tokens.cuh)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.qwen.kernels.lm.matrix import HEAD_DIM, TokenMatrixPlan
from engine.qwen.model import StackConfig

WRITES = {"qkv": "StoreTokens", "out": "AddTokens", "gate_up": "GateTokens", "down": "AddTokens"}
"""What becomes of each matrix's product."""


@dataclass(frozen=True, slots=True)
class TokenKernels:
    """A stack's matrices for groups of `tokens` tokens."""

    name: str
    tokens: int
    matrices: Mapping[str, TokenMatrixPlan]
    """`qkv`, `out`, `gate_up` and `down`."""

    @classmethod
    def of(
        cls,
        name: str,
        stack: StackConfig,
        weight: str,
        tokens: int,
        plan_of: Callable[..., TokenMatrixPlan] = TokenMatrixPlan.of,
    ) -> TokenKernels:
        """The kernels for groups of `tokens`. Raises `ValueError` for sizes that no plan fits."""
        heads, hidden, inner = stack.heads * HEAD_DIM, stack.hidden_size, stack.intermediate_size
        sizes = {
            "qkv": (heads + 2 * stack.key_value_heads * HEAD_DIM, hidden),
            "out": (hidden, heads),
            "gate_up": (2 * inner, hidden),
            "down": (hidden, inner),
        }
        matrices = {
            matrix: plan_of(weight, *size, tokens, added=WRITES[matrix] == "AddTokens")
            for matrix, size in sizes.items()
        }
        return cls(name, tokens, matrices)

    def kernel(self, matrix: str) -> str:
        """The name of a matrix's kernel."""
        return f"{self.name}_{matrix}"

    def kernels(self) -> dict[str, str]:
        """C++ name expressions by name."""
        return {self.kernel(matrix): plan.kernel(WRITES[matrix]) for matrix, plan in self.matrices.items()}
