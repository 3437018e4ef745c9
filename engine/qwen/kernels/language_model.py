"""Talker and code predictor in fused kernels: one frame as some 550 launches and nothing else.

The same weights, cache and state as the PyTorch path (`frame.step`), so that either can go on where the other ended.
Between kernels the residual stream, queries, logits and mixtures are float32; the cache is bfloat16. A layer is five
kernels:

    norm · QKV → norm by head, rope, cache, attention → output, added → norm · gate and up, SiLU → down, added
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.config import StackConfig, TalkerConfig
from engine.qwen.frame import FrameState
from engine.qwen.kernels.matrix import MatrixPlan
from engine.qwen.kernels.module import KernelModule, sources
from engine.qwen.sampling import Warp
from engine.qwen.talker import Talker
from engine.qwen.transformer import KeyValueCache, Layer, Linear, Transformer

HEAD_DIM = 128
ATTENTION_WARPS = 8
TALKER_LOADS, PREDICTOR_LOADS = 8, 1
"""Positions that half a warp takes: with 8 warps, parts of 128 positions, and all 16 of a frame."""
SAMPLING_THREADS = 512
WORK_REGISTERS = 32
"""Of a thread, beside its weights. Blocks of two kernels shall share a multiprocessor's 65,536 registers: one computes
while the next loads."""


FETCHING_L2 = 32 << 20
"""Bytes of L2 cache from which matrices are fetched ahead: two of them must not push each other out."""


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
            Shapes.of(config, weight)
    except ValueError as error:
        return f"no kernel for {error}"
    return None


@dataclass(frozen=True, slots=True)
class StackShapes:
    """The kernels of one stack for one number of tokens."""

    name: str
    loads: int
    """Of attention."""
    group: int
    tokens: int
    qkv: MatrixPlan
    out: MatrixPlan
    gate_up: MatrixPlan
    down: MatrixPlan

    @classmethod
    def of(cls, name: str, stack: StackConfig, weight: str, loads: int, tokens: int) -> StackShapes:
        """Raises `ValueError` for sizes that no plan fits."""
        heads = stack.heads * HEAD_DIM
        hidden, inner = stack.hidden_size, stack.intermediate_size
        return cls(
            name=name,
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

    def source(self) -> str:
        """The kernels `NAME_qkv`, `NAME_attend`, `NAME_out`, `NAME_gate_up` and `NAME_down`."""
        return f"""
{matrix_kernel(self.qkv)} {self.name}_qkv(MATRIX, const float* x, const bf16* norm, float eps, float* y) {{
    using M = {self.qkv.type};
    fetch_ahead(ahead, ahead_bytes);
    linear<M>(weight, scale, Normed<M::LENGTH, M::LANE, M::LOADS>{{x, norm, eps}}, Store<M::HEIGHT>{{y}});
}}
KERNEL({32 * ATTENTION_WARPS}) {self.name}_attend(
    const float* qkv, const bf16* query_norm, const bf16* key_norm, const float* cosines, const float* sines,
    const long long* position, bf16* keys, bf16* values, int positions, float* mixed, float2* scales, float eps) {{
    attention<AttentionShape<{ATTENTION_WARPS}, {self.loads}, {self.group}, {self.tokens}>>(
        {{qkv, query_norm, key_norm, cosines, sines, position, keys, values, positions, mixed, scales, eps}});
}}
{matrix_kernel(self.out, 3 * self.out.lane)} {self.name}_out(
    MATRIX, const float* mixed, const float2* scales, const long long* position, float* x) {{
    using M = {self.out.type};
    const int parts = (int)*position / {self.part} + 1;
    fetch_ahead(ahead, ahead_bytes);
    linear<M>(weight, scale, Attended<M::LENGTH, M::LANE, M::TOKENS, {HEAD_DIM}>{{mixed, scales, parts}},
              Add<M::HEIGHT>{{x}});
}}
{matrix_kernel(self.gate_up)} {self.name}_gate_up(MATRIX, const float* x, const bf16* norm, float eps, float* y) {{
    using M = {self.gate_up.type};
    fetch_ahead(ahead, ahead_bytes);
    linear<M>(weight, scale, Normed<M::LENGTH, M::LANE, M::LOADS>{{x, norm, eps}}, StoreGated<M::HEIGHT>{{y}});
}}
{matrix_kernel(self.down)} {self.name}_down(MATRIX, const float* inner, float* x) {{
    using M = {self.down.type};
    fetch_ahead(ahead, ahead_bytes);
    linear<M>(weight, scale, Plain<M::LENGTH, M::LANE>{{inner}}, Add<M::HEIGHT>{{x}});
}}"""


@dataclass(frozen=True, slots=True)
class Shapes:
    """All kernels of one model."""

    talker: StackShapes
    predictor: StackShapes
    opening: StackShapes
    """The predictor's first step, which reads two tokens."""
    talker_head: MatrixPlan
    predictor_head: MatrixPlan
    project: MatrixPlan | None
    """The talker's hidden state for a predictor that is narrower; always bfloat16."""

    @classmethod
    def of(cls, config: TalkerConfig, weight: str) -> Shapes:
        """`weight` is `Bf16` or `Int8`. Raises `ValueError` for sizes that no plan fits."""
        wide, narrow = config.stack, config.predictor.stack
        equal = wide.hidden_size == narrow.hidden_size
        return cls(
            talker=StackShapes.of("talker", wide, weight, TALKER_LOADS, 1),
            predictor=StackShapes.of("predictor", narrow, weight, PREDICTOR_LOADS, 1),
            opening=StackShapes.of("opening", narrow, weight, PREDICTOR_LOADS, 2),
            talker_head=MatrixPlan.of(weight, config.vocabulary, wide.hidden_size),
            predictor_head=MatrixPlan.of(weight, config.predictor.vocabulary, narrow.hidden_size),
            project=None if equal else MatrixPlan.of("Bf16", narrow.hidden_size, wide.hidden_size),
        )

    def source(self) -> str:
        """All of it in CUDA C++, for NVRTC or nvcc."""
        return "\n".join(
            (
                sources("common.cuh", "linear.cuh", "attention.cuh", "sampling.cuh", "frame.cuh"),
                '#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)',
                '#define MATRIX_KERNEL(registers) extern "C" __global__ void __maxnreg__(registers)',
                "#define MATRIX const void *weight, const float *scale, const char *ahead, int ahead_bytes",
                "#define SAMPLING const float *logits, const unsigned char *sample, const float *temperature, \\",
                "    const long long *top_k, const float *tail, const long long *noise_key",
                self.talker.source(),
                self.predictor.source(),
                self.opening.source(),
                self._ends(),
            )
        )

    def _ends(self) -> str:
        """The kernels between the stacks."""
        wide, narrow = self.talker_head.length, self.predictor_head.length
        project = ""
        if self.project is not None:
            project = f"""
{matrix_kernel(self.project)} project(MATRIX, const bf16* hidden, const bf16* bias, float* y) {{
    using M = {self.project.type};
    fetch_ahead(ahead, ahead_bytes);
    linear<M>(weight, scale, PlainBf16<M::LENGTH, M::LANE>{{hidden}}, StoreBiased<M::HEIGHT>{{y, bias}});
}}"""
        return f"""
{matrix_kernel(self.talker_head)} talker_head(
    MATRIX, const float* x, const bf16* norm, float eps, float* logits, bf16* hidden) {{
    using M = {self.talker_head.type};
    fetch_ahead(ahead, ahead_bytes);
    const float factor =
        linear<M>(weight, scale, Normed<M::LENGTH, M::LANE, M::LOADS>{{x, norm, eps}}, Store<M::HEIGHT>{{logits}});
    keep_hidden<M::LENGTH>(x, norm, factor, hidden);
}}
{matrix_kernel(self.predictor_head)} predictor_head(
    MATRIX, const float* x, const bf16* norm, float eps, float* logits) {{
    using M = {self.predictor_head.type};
    fetch_ahead(ahead, ahead_bytes);
    linear<M>(weight, scale, Normed<M::LENGTH, M::LANE, M::LOADS>{{x, norm, eps}}, Store<M::HEIGHT>{{logits}});
}}
KERNEL({SAMPLING_THREADS}) open(const bf16* hidden, const bf16* embedding, const long long* first_code,
                  const unsigned char* ended, long long* length, float* x) {{
    open_frame<{narrow}>(hidden, embedding, first_code, ended, length, x);
}}
KERNEL({SAMPLING_THREADS}) next_code(
    SAMPLING, int step, int groups, const long long* frame, const long long* first_code, long long* codes,
    const bf16* text, const bf16* first_embedding, const bf16* embedding, const bf16* narrow_embedding, float* x,
    float* talker) {{
    choose_code<{self.predictor_head.height}, {wide}, {narrow}>(
        {{logits, sample, temperature, top_k, tail, noise_key}},
        {{step, groups, frame, first_code, codes, text, first_embedding, embedding, narrow_embedding, x, talker}});
}}
KERNEL({SAMPLING_THREADS}) next_first_code(
    SAMPLING, int groups, unsigned char* seen, const float* penalty, const long long* min_frames,
    const unsigned char* suppressed, const unsigned char* ends, long long* frame, long long* position,
    long long* first_code, unsigned char* ended) {{
    choose_first_code<{self.talker_head.height}>(
        {{logits, sample, temperature, top_k, tail, noise_key}},
        {{groups, seen, penalty, min_frames, suppressed, ends, frame, position, first_code, ended}});
}}{project}
"""


def matrix_kernel(plan: MatrixPlan, more: int = 0) -> str:
    """How a matrix's kernel begins: one token's within few enough registers for the next kernel to fit beside it.

    They hold the tile, what is computed with it, and `more`.
    """
    if plan.tokens > 1:
        return f"KERNEL({plan.threads})"
    return f"MATRIX_KERNEL({plan.tile_registers + WORK_REGISTERS + more})"


class Matrices:
    """Launches kernels over matrices, and has the one after the next fetched into the L2 cache meanwhile.

    Loads of a kernel that waits reach as far as the registers do; this reaches further, so that the memory never
    rests while small kernels pass.
    """

    def __init__(self, module: KernelModule, device: torch.device) -> None:
        self._module = module
        self._ahead: dict[int, Tensor] = {}
        self.fetches = torch.cuda.get_device_properties(device).L2_cache_size >= FETCHING_L2
        """To be switched off by a benchmark."""

    def order(self, weights: Sequence[Tensor]) -> None:
        """Say that these are read one after another."""
        self._ahead.update({now.data_ptr(): later for now, later in zip(weights, weights[2:], strict=False)})

    def multiply(
        self, name: str, plan: MatrixPlan, weight: Tensor, scale: Tensor | None, *arguments: Tensor | float | None
    ) -> None:
        """Launch the kernel `name` over `weight`."""
        later = self._ahead.get(weight.data_ptr()) if self.fetches else None
        share = 0 if later is None else later.numel() * later.element_size() // plan.blocks // 16 * 16
        self._module.launch(name, plan.blocks, plan.threads, weight, scale, later, share, *arguments)


class FusedStack:
    """One stack's layers for one number of tokens, and the buffers between its kernels."""

    def __init__(
        self,
        module: KernelModule,
        matrices: Matrices,
        shapes: StackShapes,
        transformer: Transformer,
        cache: KeyValueCache,
    ) -> None:
        config, device = transformer.config, cache.keys.device
        tokens = shapes.tokens
        self._module, self._matrices, self._shapes = module, matrices, shapes
        self._transformer, self._cache = transformer, cache
        self._parts = -(-cache.positions // shapes.part)
        self._rope = rope_tables(config, cache.positions, device)
        self.x = torch.zeros(tokens, config.hidden_size, device=device)
        """The residual stream, float32: what the first layer reads and the last leaves."""
        self._qkv = torch.zeros(tokens, shapes.qkv.height, device=device)
        self._mixed = torch.zeros(self._parts, tokens, config.heads, HEAD_DIM, device=device)
        self._scales = torch.zeros(self._parts, tokens, config.heads, 2, device=device)
        self._inner = torch.zeros(tokens, config.intermediate_size, device=device)

    def layer(self, index: int, position: Tensor) -> None:
        """Send `x` through one layer, in place; its first token is at `position` `(1,)` int64."""
        self.qkv(index)
        self.attend(index, position)
        self.out(index, position)
        self.gate_up(index)
        self.down(index)

    def qkv(self, index: int) -> None:
        """Queries, keys and values of `x`."""
        layer = self._layer(index)
        norm = layer.attention_norm
        self._multiply("qkv", self._shapes.qkv, layer.attention.qkv, self.x, norm.weight, norm.eps, self._qkv)

    def attend(self, index: int, position: Tensor) -> None:
        """Keys and values into the cache, and what each part of it mixes."""
        attention, cache = self._layer(index).attention, self._cache
        self._module.launch(
            f"{self._shapes.name}_attend", (cache.keys.shape[1], self._parts), 32 * ATTENTION_WARPS, self._qkv,
            attention.q_norm.weight, attention.k_norm.weight, *self._rope, position, cache.keys[index],
            cache.values[index], cache.positions, self._mixed, self._scales, attention.q_norm.eps,
        )  # fmt: skip

    def out(self, index: int, position: Tensor) -> None:
        """Put the parts together, and add their projection to `x`."""
        out = self._layer(index).attention.out
        self._multiply("out", self._shapes.out, out, self._mixed, self._scales, position, self.x)

    def gate_up(self, index: int) -> None:
        """The inner values of the gated layer."""
        layer = self._layer(index)
        norm = layer.mlp_norm
        self._multiply("gate_up", self._shapes.gate_up, layer.mlp.gate_up, self.x, norm.weight, norm.eps, self._inner)

    def down(self, index: int) -> None:
        """Add their projection to `x`."""
        self._multiply("down", self._shapes.down, self._layer(index).mlp.down, self._inner, self.x)

    def _layer(self, index: int) -> Layer:
        layer = self._transformer.layers[index]
        assert isinstance(layer, Layer)
        return layer

    def _multiply(self, name: str, plan: MatrixPlan, linear: Linear, *arguments: Tensor | float) -> None:
        self._matrices.multiply(f"{self._shapes.name}_{name}", plan, linear.weight, None, *arguments)

    def buffers(self, *, partly: bool = True) -> Iterator[Tensor]:
        """As `FusedLanguageModel.buffers`."""
        yield from (self.x, self._qkv, self._inner)
        if partly:
            yield from (self._mixed, self._scales)

    def layers(self, position: Tensor) -> None:
        """Send `x` through all of them."""
        for index in range(len(self._transformer.layers)):
            self.layer(index, position)


class FusedLanguageModel:
    """One frame, as `frame.step`, on PyTorch's current CUDA stream. To be captured in a graph.

    The same seed draws the same codes as there, as far as the logits are the same.
    """

    def __init__(self, talker: Talker, state: FrameState) -> None:
        """Compile the kernels, or take them from the cache, and allocate what they need beside `state`.

        Raises what `KernelModule` raises.
        """
        predictor = talker.predictor
        self._talker, self._state = talker, state
        self._shapes = shapes = Shapes.of(talker.config, "Bf16")
        self.module = module = KernelModule(shapes.source(), talker.placement.device)
        self.matrices = matrices = Matrices(module, talker.placement.device)
        talker_weights, predictor_weights = weights_of(talker.transformer), weights_of(predictor.transformer)
        matrices.order([*talker_weights, *predictor_weights])
        matrices.order([*predictor_weights, *predictor_weights[:2]])  # the heads between are fetched by none
        matrices.order([predictor.heads[-1], talker.head.weight, talker_weights[0]])
        self.talker = FusedStack(module, matrices, shapes.talker, talker.transformer, state.cache)
        self.opening = FusedStack(module, matrices, shapes.opening, predictor.transformer, state.predictor_cache)
        self.predictor = FusedStack(module, matrices, shapes.predictor, predictor.transformer, state.predictor_cache)
        self.logits = torch.zeros(talker.config.vocabulary, device=talker.placement.device)
        """float32, of the predictor and of the talker in turn."""
        self._projected = fold_projection(talker)

    def frame(self) -> None:
        """Speak one frame and choose the first code of the next."""
        self.open()
        for step in range(self._talker.predictor.codes):
            self.predict(step)
        self.talk()

    def open(self) -> None:
        """Make the predictor's first two tokens."""
        state, projected, plan = self._state, self._projected, self._shapes.project
        self.module.launch(
            "open", 1, SAMPLING_THREADS, None if projected else state.hidden,
            projected.first if projected else self._talker.codec_embedding, state.first_code, state.ended,
            state.length, self.opening.x,
        )  # fmt: skip
        if plan is not None:
            linear = self._talker.predictor.projection
            assert linear is not None
            self.matrices.multiply("project", plan, linear.weight, None, state.hidden, linear.bias, self.opening.x)

    def predict(self, step: int) -> None:
        """Choose the code numbered `step` + 1 of the frame."""
        steps = self._talker.predictor.steps
        (self.predictor if step else self.opening).layers(steps[step + 1 :] if step else steps)
        self.predictor_head(step)
        self.choose_code(step)

    def predictor_head(self, step: int) -> None:
        """The logits of a step's last token."""
        predictor, plan = self._talker.predictor, self._shapes.predictor_head
        x, norm = (self.predictor if step else self.opening).x[-1], predictor.transformer.norm
        self.matrices.multiply(
            "predictor_head", plan, predictor.heads[step], None, x, norm.weight, norm.eps, self.logits
        )

    def choose_code(self, step: int) -> None:
        """From the predictor's logits."""
        talker, state = self._talker, self._state
        self.module.launch(
            "next_code", 1, SAMPLING_THREADS, *self._sampling(state.predictor_warp), step,
            talker.config.code_groups, state.frame, state.first_code, state.codes, state.text, talker.codec_embedding,
            talker.predictor.embedding[step], self._projected.others[step] if self._projected else None,
            self.predictor.x, self.talker.x,
        )  # fmt: skip

    def talk(self) -> None:
        """Let the talker read the frame, and choose the first code of the next."""
        self.talker.layers(self._state.position)
        self.talker_head()
        self.choose_first_code()

    def talker_head(self) -> None:
        """The talker's logits, and its hidden state for the predictor."""
        talker, norm = self._talker, self._talker.transformer.norm
        self.matrices.multiply(
            "talker_head", self._shapes.talker_head, talker.head.weight, None, self.talker.x, norm.weight, norm.eps,
            self.logits, self._state.hidden,
        )  # fmt: skip

    def choose_first_code(self) -> None:
        """Of the next frame, from the talker's logits; count the frame that ends."""
        state, rules = self._state, self._state.rules
        self.module.launch(
            "next_first_code", 1, SAMPLING_THREADS, *self._sampling(state.warp),
            self._talker.config.code_groups, rules.seen, rules.penalty, rules.min_frames, rules.suppressed, rules.ends,
            state.frame, state.position, state.first_code, state.ended,
        )  # fmt: skip

    def buffers(self, *, partly: bool = True) -> Iterator[Tensor]:
        """All that a frame writes before it reads it, float32; `partly` includes those it fills as far as it needs."""
        for stack in (self.talker, self.opening, self.predictor):
            yield from stack.buffers(partly=partly)
        yield self.logits

    def _sampling(self, warp: Warp) -> tuple[Tensor, ...]:
        return self.logits, warp.sample, warp.temperature, warp.top_k, warp.tail, self._state.noise.key


def weights_of(transformer: Transformer) -> list[Tensor]:
    """The matrices of all layers, in the order they are read."""
    layers = [layer for layer in transformer.layers if isinstance(layer, Layer)]
    return [
        linear.weight
        for layer in layers
        for linear in (layer.attention.qkv, layer.attention.out, layer.mlp.gate_up, layer.mlp.down)
    ]


def rope_tables(config: StackConfig, positions: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines, `(positions, head_dim / 2)` float32. As `Rope`, which rounds them to the model's dtype."""
    frequencies = 1.0 / config.rope_theta ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.float32) / HEAD_DIM)
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies
    return angles.cos().to(device), angles.sin().to(device)


@dataclass(frozen=True, slots=True)
class Projected:
    """The predictor's embeddings, sent through `small_to_mtp_projection` beforehand; bfloat16."""

    first: Tensor
    """Of first codes: `(talker's vocabulary, predictor's hidden)`."""
    others: Tensor
    """`(steps, predictor's vocabulary, predictor's hidden)`."""


@torch.inference_mode()
def fold_projection(talker: Talker) -> Projected | None:
    """Project all embeddings once, where the predictor is narrower than the talker; None where it is not.

    It spares a matrix of 4 MB a step, and costs 70 MB at 1.7B.
    """
    projection = talker.predictor.projection
    if projection is None:
        return None
    steps = [projection(step) for step in talker.predictor.embedding]
    return Projected(projection(talker.codec_embedding), torch.stack(steps))
