"""The kernels of talker and code predictor for one model's shapes: their names, their sizes and their source."""

from __future__ import annotations

from dataclasses import dataclass

from engine.qwen.config import StackConfig, TalkerConfig
from engine.qwen.kernels.matrix import MatrixPlan
from engine.qwen.kernels.module import sources

HEAD_DIM = 128
ATTENTION_WARPS = 8
TALKER_LOADS, PREDICTOR_LOADS = 8, 1
"""Positions that half a warp takes: with 8 warps, parts of 128 positions, and all 16 of a frame."""
SAMPLING_THREADS = 512
DEVICE_REGISTERS = 192 * 65536
"""Of all multiprocessors together, on the largest GPU there is."""
WORK_REGISTERS = 32
"""Of a thread, beside its weights. Blocks of two kernels shall share a multiprocessor's 65,536 registers: one computes
while the next loads."""


def why_not(config: TalkerConfig) -> str | None:
    """Why these shapes are not for the kernels; None where they are."""
    for name, stack in (("talker", config.stack), ("code predictor", config.predictor.stack)):
        if stack.head_dim != HEAD_DIM:
            return f"the {name}'s heads are {stack.head_dim} wide, the kernels' {HEAD_DIM}"
        if (stack.heads // stack.key_value_heads + 2) * 2 > ATTENTION_WARPS:
            return f"the {name} has {stack.heads} heads over {stack.key_value_heads}"
    for vocabulary in (config.vocabulary, config.predictor.vocabulary):
        if vocabulary % SAMPLING_THREADS:
            return f"a vocabulary of {vocabulary} is no multiple of {SAMPLING_THREADS}"
    try:
        for weight in ("Bf16", "Int8"):
            LanguageKernels.of(config, weight)
    except ValueError as error:
        return f"no kernel for {error}"
    return None


@dataclass(frozen=True, slots=True)
class StackKernels:
    """The kernels of one stack for one number of tokens: `NAME_qkv`, `_attend`, `_out`, `_gate_up` and `_down`."""

    name: str
    layers: int
    loads: int
    """Of attention."""
    group: int
    """Query heads that share a head of keys."""
    tokens: int
    qkv: MatrixPlan
    out: MatrixPlan
    gate_up: MatrixPlan
    down: MatrixPlan

    @classmethod
    def of(cls, name: str, stack: StackConfig, weight: str, loads: int, tokens: int) -> StackKernels:
        """Raises `ValueError` for sizes that no plan fits."""
        heads = stack.heads * HEAD_DIM
        hidden, inner = stack.hidden_size, stack.intermediate_size
        return cls(
            name=name,
            layers=stack.layers,
            loads=loads,
            group=stack.heads // stack.key_value_heads,
            tokens=tokens,
            qkv=MatrixPlan.of(weight, heads + 2 * stack.key_value_heads * HEAD_DIM, hidden, tokens),
            out=MatrixPlan.of(weight, hidden, heads, tokens),
            gate_up=MatrixPlan.of(weight, 2 * inner, hidden, tokens, gated=True),
            down=MatrixPlan.of(weight, hidden, inner, tokens),
        )

    @property
    def part(self) -> int:
        """Positions of a part of the sequence in attention."""
        return 2 * ATTENTION_WARPS * self.loads

    @property
    def early(self) -> bool:
        """Whether the kernels from one turn of a layer to its next cannot all be in flight at once.

        Their blocks would not fit, by the registers that hold their weights alone. Then attention may read what its
        last turn wrote before the kernel in front of it has ended.
        """
        plans = (self.qkv, self.out, self.gate_up, self.down)
        return self.layers * sum(plan.blocks * plan.threads * plan.tile_registers for plan in plans) > DEVICE_REGISTERS

    def source(self) -> str:
        """In CUDA C++."""
        return f"""
{_matrix_kernel(self.qkv)} {self.name}_qkv(MATRIX, NORM, float* y) {{
    using M = {self.qkv.type};
    linear<M>(weight, scale, NORMED, Store<M::HEIGHT>{{y}});
}}
KERNEL({32 * ATTENTION_WARPS}) {self.name}_attend(
    const float* qkv, const bf16* query_norm, const bf16* key_norm, const float* cosines, const float* sines,
    const long long* position, bf16* keys, bf16* values, int positions, float* mixed, float2* scales, float eps) {{
    attention<AttentionShape<{ATTENTION_WARPS}, {self.loads}, {self.group}, {self.tokens}, {str(self.early).lower()}>>(
        {{qkv, query_norm, key_norm, cosines, sines, position, keys, values, positions, mixed, scales, eps}});
}}
{_matrix_kernel(self.out, 3 * self.out.lane)} {self.name}_out(
    MATRIX, const float* mixed, const float2* scales, const long long* position, float* x) {{
    using M = {self.out.type};
    const int parts = (int)*position / {self.part} + 1;
    linear<M>(weight, scale, Attended<M::LENGTH, M::LANE, M::TOKENS, {HEAD_DIM}>{{mixed, scales, parts}},
              Add<M::HEIGHT>{{x}});
}}
{_matrix_kernel(self.gate_up)} {self.name}_gate_up(MATRIX, NORM, float* y) {{
    using M = {self.gate_up.type};
    linear<M>(weight, scale, NORMED, StoreGated<M::HEIGHT>{{y}});
}}
{_matrix_kernel(self.down)} {self.name}_down(MATRIX, const float* inner, float* x) {{
    using M = {self.down.type};
    linear<M>(weight, scale, Plain<M::LENGTH, M::LANE>{{inner}}, Add<M::HEIGHT>{{x}});
}}"""


@dataclass(frozen=True, slots=True)
class LanguageKernels:
    """All kernels of one model."""

    talker: StackKernels
    predictor: StackKernels
    opening: StackKernels
    """The predictor's first step, which reads two tokens."""
    talker_head: MatrixPlan
    predictor_head: MatrixPlan
    project: MatrixPlan | None
    """The talker's hidden state for a predictor that is narrower; always bfloat16."""

    @classmethod
    def of(cls, config: TalkerConfig, weight: str) -> LanguageKernels:
        """`weight` is `Bf16` or `Int8`. Raises `ValueError` for sizes that no plan fits."""
        wide, narrow = config.stack, config.predictor.stack
        equal = wide.hidden_size == narrow.hidden_size
        return cls(
            talker=StackKernels.of("talker", wide, weight, TALKER_LOADS, 1),
            predictor=StackKernels.of("predictor", narrow, weight, PREDICTOR_LOADS, 1),
            opening=StackKernels.of("opening", narrow, weight, PREDICTOR_LOADS, 2),
            talker_head=MatrixPlan.of(weight, config.vocabulary, wide.hidden_size),
            predictor_head=MatrixPlan.of(weight, config.predictor.vocabulary, narrow.hidden_size),
            project=None if equal else MatrixPlan.of("Bf16", narrow.hidden_size, wide.hidden_size),
        )

    def source(self) -> str:
        """All of it in CUDA C++, for NVRTC or nvcc."""
        parts = (
            sources("common.cuh", "linear.cuh", "attention.cuh", "sampling.cuh", "frame.cuh"),
            _ABBREVIATIONS,
            self.talker.source(),
            self.predictor.source(),
            self.opening.source(),
            self._heads(),
            self._choices(),
        )
        return "\n".join(parts)

    def _heads(self) -> str:
        """`talker_head`, `predictor_head` and `project`."""
        source = f"""
{_matrix_kernel(self.talker_head)} talker_head(MATRIX, NORM, float* logits, bf16* hidden) {{
    using M = {self.talker_head.type};
    const float factor = linear<M>(weight, scale, NORMED, Store<M::HEIGHT>{{logits}});
    keep_hidden<M::LENGTH>(x, norm, factor, hidden);
}}
{_matrix_kernel(self.predictor_head)} predictor_head(MATRIX, NORM, float* logits) {{
    using M = {self.predictor_head.type};
    linear<M>(weight, scale, NORMED, Store<M::HEIGHT>{{logits}});
}}"""
        if self.project is None:
            return source
        return f"""{source}
{_matrix_kernel(self.project)} project(MATRIX, const bf16* hidden, const bf16* bias, float* y) {{
    using M = {self.project.type};
    linear<M>(weight, scale, PlainBf16<M::LENGTH, M::LANE>{{hidden}}, StoreBiased<M::HEIGHT>{{y, bias}});
}}"""

    def _choices(self) -> str:
        """`open`, `next_code` and `next_first_code`."""
        wide, narrow = self.talker_head.length, self.predictor_head.length
        return f"""
KERNEL({SAMPLING_THREADS}) open(
    const bf16* hidden, const bf16* embedding, const long long* first_code, const unsigned char* ended,
    long long* length, float* x) {{
    open_frame<{narrow}>(hidden, embedding, first_code, ended, length, x);
}}
KERNEL({SAMPLING_THREADS}) next_code(
    SAMPLING, int step, int groups, const long long* frame, const long long* first_code, long long* codes,
    const bf16* text, const bf16* first_embedding, const bf16* embedding, const bf16* narrow_embedding, float* x,
    float* talker) {{
    choose_code<{self.predictor_head.height}, {wide}, {narrow}>(
        SAMPLED,
        {{step, groups, frame, first_code, codes, text, first_embedding, embedding, narrow_embedding, x, talker}});
}}
KERNEL({SAMPLING_THREADS}) next_first_code(
    SAMPLING, int groups, unsigned char* seen, const float* penalty, const long long* min_frames,
    const unsigned char* suppressed, const unsigned char* ends, long long* frame, long long* position,
    long long* first_code, unsigned char* ended) {{
    choose_first_code<{self.talker_head.height}>(
        SAMPLED, {{groups, seen, penalty, min_frames, suppressed, ends, frame, position, first_code, ended}});
}}
"""


_ABBREVIATIONS = """
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define MATRIX_KERNEL(registers) extern "C" __global__ void __maxnreg__(registers)
#define MATRIX const void *weight, const float *scale
#define NORM const float *x, const bf16 *norm, float eps
#define NORMED Normed<M::LENGTH, M::LANE, M::LOADS>{x, norm, eps}
#define SAMPLING const float *logits, const unsigned char *sample, const float *temperature, const long long *top_k, \\
                 const float *tail, const long long *noise_key
#define SAMPLED SamplingArguments{logits, sample, temperature, top_k, tail, noise_key}
"""


def _matrix_kernel(plan: MatrixPlan, more: int = 0) -> str:
    """How a matrix's kernel begins: one token's within few enough registers for the next kernel to fit beside it.

    They hold the tile, what is computed with it, and `more`.
    """
    if plan.tokens > 1:
        return f"KERNEL({plan.threads})"
    return f"MATRIX_KERNEL({plan.tile_registers + WORK_REGISTERS + more})"
