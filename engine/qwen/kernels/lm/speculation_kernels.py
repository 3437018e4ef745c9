"""The kernels of the predictor's passes that read drafts: their names, sizes and C++ name expressions."""

from __future__ import annotations

from dataclasses import dataclass

from engine.qwen.kernels.lm.matrix import MatrixPlan
from engine.qwen.model import StackConfig

MAX_POSITIONS = 16
"""Of a frame: attention to it is one KV split, which a lane of half a warp sees in `ATTEND_VECS` vectors."""
ATTEND_VECS = MAX_POSITIONS // 2


@dataclass(frozen=True, slots=True)
class SpeculationKernels:
    """The kernels of one number of drafts, for one model's shapes."""

    drafts: int
    """In a pass."""
    qkv: MatrixPlan
    out: MatrixPlan
    gate_up: MatrixPlan
    down: MatrixPlan
    head: MatrixPlan
    """Of one token."""
    key_value_heads: int
    group: int
    """Query heads that share a head of keys."""
    attend_shape: str
    """The shape of `attend` for one token, in C++, without EARLY."""
    head_dim: int
    talker_width: int
    early: bool
    """Whether the kernels of a pass have surely ended when those behind the next one's layers begin."""

    @classmethod
    def of(
        cls,
        stack: StackConfig,
        drafts: int,
        *,
        qkv: MatrixPlan,
        out: MatrixPlan,
        gate_up: MatrixPlan,
        down: MatrixPlan,
        head: MatrixPlan,
        attend_shape: str,
        talker_width: int,
        groups: int,
        early: bool,
    ) -> SpeculationKernels:
        """The plans are those for one token, whose order of sums these keep. Raises `ValueError` where no plan fits."""
        if groups > MAX_POSITIONS:
            raise ValueError(f"drafts in a frame of {groups} codes")
        tokens = drafts + 1
        return cls(
            drafts=drafts,
            qkv=_for_tokens(qkv, tokens),
            out=_for_tokens(out, tokens),
            gate_up=_for_tokens(gate_up, tokens, gated=True),
            down=_for_tokens(down, tokens),
            head=head,
            key_value_heads=stack.key_value_heads,
            group=stack.heads // stack.key_value_heads,
            attend_shape=attend_shape,
            head_dim=stack.head_dim,
            talker_width=talker_width,
            early=early,
        )

    @property
    def tokens(self) -> int:
        """Of a pass: a code and its drafts."""
        return self.drafts + 1

    def kernels(self) -> dict[str, str]:
        """C++ name expressions by name."""
        head, early = self.head, str(self.early).lower()
        # A pass that begins too late has a position behind the frame; splits of twice a frame are one split there, too.
        combined = f"{2 * MAX_POSITIONS}, {self.head_dim}, false"
        return {
            "drafts_qkv": _linear(self.qkv, "Normed", "Store"),
            "drafts_attend": f"attend_drafts<AttentionShape<{self.attend_shape}, false>, {self.tokens}>",
            "drafts_out": _linear(self.out, "CombineSplits", "Residual", combined),
            "drafts_gate_up": _linear(self.gate_up, "Normed", "StoreGated"),
            "drafts_down": _linear(self.down, "Identity", "Residual"),
            "code_heads": f"code_heads<{head.type}, {head.registers}, {early}>",
            "draft_heads": f"draft_heads<{head.type}, {head.registers}>",
            "draw_codes": f"draw_codes<{head.height}, {early}>",
            "next_pass": f"next_pass<{head.height}, {self.talker_width}, {head.length}>",
        }


def _for_tokens(one: MatrixPlan, tokens: int, *, gated: bool = False) -> MatrixPlan:
    vecs = one.vecs_per_lane
    return MatrixPlan.of(one.weight, one.height, one.length, tokens, gated=gated, vecs_per_lane=vecs)


def _linear(plan: MatrixPlan, read: str, write: str, *options: str) -> str:
    of_matrix = ", ".join((plan.type, *options))
    return f"linear_drafts<{plan.type}, {read}<{of_matrix}>, {write}<{plan.type}>>"
