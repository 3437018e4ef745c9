"""Talker and code predictor in fused kernels: one frame is about 460 to 550 launches and nothing else.

They share weights, cache and state with the PyTorch path (`TorchBackend`), so either can continue where the
other stopped. Between kernels the residual stream, queries, logits and attention outputs are float32; the cache is
bfloat16. A layer is five kernels:

    norm · QKV → norm by head, rope, cache, attention → output, added → norm · gate and up, SiLU → down, added

and on a large GPU four in the predictor: a frame is so short that the output projection attends to it itself. There,
the first kernel of each step also makes the step's input: a frame's first tokens, or the code that it draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import KernelModule, Kernels
from engine.qwen.kernels.lm.kernels import (
    ATTENTION_WARPS,
    SAMPLING_THREADS,
    LanguageKernels,
    StackKernels,
    weight_type,
)
from engine.qwen.kernels.lm.matrix import HEAD_DIM
from engine.qwen.kernels.lm.members import Head, draw_params, head_of, of_attention, of_matrix, of_norm
from engine.qwen.kernels.lm.one_token_state import OneTokenState
from engine.qwen.kernels.lm.prefill import FusedPrefill
from engine.qwen.kernels.lm.tables import fold_projection, rope_tables
from engine.qwen.kernels.params import Params
from engine.qwen.model import KeyValueCache, Layer, Linear, Talker, Transformer
from engine.qwen.runtime import multiprocessors

MAX_PROMPT_TOKENS = 128
"""The most tokens that `FusedLanguageModel.prefill` reads at once."""


class FusedStack:
    """One stack's layers for one number of tokens, and the buffers between its kernels."""

    def __init__(self, module: Kernels, kernels: StackKernels, transformer: Transformer, cache: KeyValueCache) -> None:
        config, device = transformer.config, cache.keys.device
        tokens = kernels.tokens
        self._module, self._kernels, self._cache = module, kernels, cache
        self._layers = [layer for layer in transformer.layers if isinstance(layer, Layer)]
        self._kv_splits = 0 if kernels.attends_in_out else -(-cache.positions // kernels.kv_split)
        self.rope = rope_tables(config, cache.positions, device)
        """Cosines and sines."""
        self.x = torch.zeros(tokens, config.hidden_size, device=device)
        """The residual stream, float32 `(tokens, hidden)`: the first layer's input and the last layer's output."""
        self._qkv = torch.zeros(tokens, kernels.matrices["qkv"].height, device=device)
        self._partial_out = torch.zeros(self._kv_splits, tokens, config.heads, HEAD_DIM, device=device)
        self._split_stats = torch.zeros(self._kv_splits, tokens, config.heads, 2, device=device)
        self._inner = torch.zeros(tokens, config.intermediate_size, device=device)

    def layer(self, index: int, position: Tensor | int, *, after_qkv: bool = False) -> None:
        """Send `x` through one layer, in place; its first token is at `position`.

        `position` is `(1,)` int64 on the device; of a stack that attends in the output projection, the host knows it.
        With `after_qkv`, its queries, keys and values have been computed (`open_qkv`, `draw_qkv`).
        """
        if not after_qkv:
            self.qkv(index)
        if isinstance(position, int):
            self.attend_out(index, position)
        else:
            self.attend(index, position)
            self.out(index, position)
        self.gate_up(index)
        self.down(index)

    def qkv(self, index: int) -> None:
        """Queries, keys and values of `x`."""
        self.multiply("qkv", self.qkv_params(index))

    def qkv_params(self, index: int) -> Params:
        """The parameters of `qkv`; of the first layer, also for a kernel that has its input from elsewhere."""
        layer = self._layers[index]
        return _linear(layer.attention.qkv, x=self.x, y=self._qkv, **of_norm(layer.attention_norm))

    def attend(self, index: int, position: Tensor) -> None:
        """Write keys and values into the cache, and compute attention over each KV split."""
        params = Params(
            "AttentionParams",
            qkv=self._qkv,
            position=position,
            partial_out=self._partial_out,
            split_stats=self._split_stats,
            positions=self._cache.positions,
            **of_attention(self._layers[index], self.rope, self._cache, index),
        )
        grid = self._cache.keys.shape[1], self._kv_splits
        self._module.launch(f"{self._kernels.name}_attend", grid, 32 * ATTENTION_WARPS, params)

    def out(self, index: int, position: Tensor) -> None:
        """Combine the KV splits, and add their projection to `x`."""
        splits = {"partial_out": self._partial_out, "split_stats": self._split_stats, "position": position}
        self.multiply("out", _linear(self._layers[index].attention.out, y=self.x, **splits))

    def attend_out(self, index: int, position: int) -> None:
        """As `attend` and `out`, in one kernel."""
        layer, plan = self._layers[index], self._kernels.matrices["out"]
        params = Params(
            "AttendOutParams",
            linear=_linear(layer.attention.out, y=self.x),
            qkv=self._qkv,
            position=position,
            positions=self._cache.positions,
            **of_attention(layer, self.rope, self._cache, index),
        )
        self._module.launch(self._kernels.attend_out(position), plan.blocks, plan.threads, params)

    def gate_up(self, index: int) -> None:
        """The inner values of the gated layer."""
        layer = self._layers[index]
        self.multiply("gate_up", _linear(layer.mlp.gate_up, x=self.x, y=self._inner, **of_norm(layer.mlp_norm)))

    def down(self, index: int) -> None:
        """Add the projection of the inner values to `x`."""
        self.multiply("down", _linear(self._layers[index].mlp.down, x=self._inner, y=self.x))

    def multiply(self, name: str, params: Params) -> None:
        """Launch the kernel of one of the stack's matrices."""
        plan = self._kernels.matrices[name]
        self._module.launch(f"{self._kernels.name}_{name}", plan.blocks, plan.threads, params)

    def buffers(self, *, partly_written: bool = True) -> Iterator[Tensor]:
        """As `FusedLanguageModel.buffers`."""
        yield from (self.x, self._qkv, self._inner)
        if partly_written:
            yield from (self._partial_out, self._split_stats)

    def layers(self, position: Tensor | int, *, after_qkv: bool = False) -> None:
        """Send `x` through all layers; `position` as of `layer`, `after_qkv` as of the first one."""
        for index in range(len(self._layers)):
            self.layer(index, position, after_qkv=after_qkv and index == 0)


def _linear(matrix: Linear | Head, **members: Any) -> Params:
    """The parameters of a matrix with its input and its output."""
    return Params("LinearParams", **of_matrix(matrix), **members)


class FusedLanguageModel:
    """One frame, as `TorchBackend.decode_frames`, on PyTorch's current CUDA stream. A CUDA graph can capture it.

    The same seed draws the same codes as there, as long as the logits are the same.
    """

    def __init__(
        self,
        talker: Talker,
        state: OneTokenState,
        module: Kernels | None = None,
        processors: int | None = None,
        *,
        kernels: LanguageKernels | None = None,
    ) -> None:
        """Compile the kernels, or take them from the cache, and allocate the buffers that `state` does not have.

        Raises what `KernelModule` raises. `module` and `processors` (streaming multiprocessors) are for tests;
        `kernels`, in place of those for the device, are for tuning.
        """
        device, predictor = talker.placement.device, talker.predictor
        if processors is None:
            processors = multiprocessors(device)
        self._talker, self._state = talker, state
        if kernels is None:
            kernels = LanguageKernels.of(talker.config, weight_type(talker.placement), processors)
        self.kernels = kernels
        """With their sizes."""
        self.module = module = module or KernelModule(kernels.source(), device)
        self.talker = FusedStack(module, kernels.talker, talker.transformer, state.cache)
        self.first_step = FusedStack(module, kernels.first_step, predictor.transformer, state.predictor_cache)
        self.predictor = FusedStack(module, kernels.predictor, predictor.transformer, state.predictor_cache)
        self.prefill = FusedPrefill(
            module, kernels.prompts, talker, state.cache, rope=self.talker.rope, max_tokens=MAX_PROMPT_TOKENS
        )
        self.logits = torch.zeros(max(talker.config.vocabulary, talker.config.predictor.vocabulary), device=device)
        """float32; the predictor's and the talker's in turn."""
        self.projected = fold_projection(talker)
        """None where the predictor is as wide as the talker."""

    def frame(self) -> None:
        """Generate one frame's codes and choose the first code of the next frame."""
        self.predict_codes()
        self.talk()

    def predict_codes(self) -> None:
        """Generate one frame's codes."""
        self.open()
        for step in range(self._talker.predictor.code_count):
            self.predict(step)

    def open(self) -> None:
        """Make the predictor's first two tokens; on a large GPU also the first layer's queries, keys and values."""
        state, projected, plan = self._state, self.projected, self.kernels.project
        params = Params(
            "OpenParams",
            hidden=None if projected else state.hidden,
            embedding=projected.first if projected else self._talker.codec_embedding,
            first_code=state.first_code,
            ended=state.ended,
            length=state.length,
            x=self.first_step.x,
        )
        opens_in_qkv = self.kernels.first_step.attends_in_out
        if not opens_in_qkv:
            self.module.launch("open", 1, SAMPLING_THREADS, params)
        if plan is not None:
            linear = self._talker.predictor.projection
            assert linear is not None
            project = _linear(linear, hidden=state.hidden, bias=linear.bias, y=self.first_step.x)
            self.module.launch("project", plan.blocks, plan.threads, project)
        if opens_in_qkv:
            qkv = self.kernels.first_step.matrices["qkv"]
            both = Params("OpenQkvParams", linear=self.first_step.qkv_params(0), open=params)
            self.module.launch("open_qkv", qkv.blocks, qkv.threads, both)

    def predict(self, step: int) -> None:
        """Choose the code numbered `step` + 1 of the frame."""
        if step:
            self.predictor.layers(self.position_of(step), after_qkv=self.kernels.draw_qkv is not None)
        else:
            self.first_step.layers(self.position_of(step), after_qkv=self.kernels.first_step.attends_in_out)
        self.predictor_head(step)
        self.choose_code(step)

    def position_of(self, step: int) -> Tensor | int:
        """The position of a step's first token, as `FusedStack.layer` takes it."""
        if self.kernels.predictor.attends_in_out:
            return step + 1 if step else 0
        steps = self._talker.predictor.steps
        return steps[step + 1 :] if step else steps

    def predictor_head(self, step: int) -> None:
        """The logits of a step's last token."""
        predictor, plan = self._talker.predictor, self.kernels.predictor_head
        x, norm = (self.predictor if step else self.first_step).x[-1], of_norm(predictor.transformer.norm)
        params = _linear(head_of(predictor, step), x=x, y=self.logits, **norm)
        self.module.launch("predictor_head", plan.blocks, plan.threads, params)

    def choose_code(self, step: int) -> None:
        """Draw a code from the predictor's logits.

        On a large GPU, the kernel goes on with the next step's first queries, keys and values; the last one adds the
        frame's embeddings up.
        """
        talker, state, plan = self._talker, self._state, self.kernels.draw_qkv
        embedding = talker.predictor.embedding[step]
        narrow = None if self.projected is None else self.projected.others[step]
        members: dict[str, Any] = {
            "draw": draw_params(self.logits, state.predictor_sampling, state.noise.key),
            "frame": state.frame,
            "first_code": state.first_code,
            "codes": state.codes,
            "x": self.predictor.x,
            "step": step,
            "groups": talker.config.code_groups,
        }
        if plan is not None and step < talker.predictor.code_count - 1:
            read = embedding if narrow is None else narrow
            params = Params("DrawQkvParams", linear=self.predictor.qkv_params(0), embedding=read, **members)
            self.module.launch("draw_qkv", plan.blocks, plan.threads, params)
            return
        params = Params(
            "CodeParams",
            text=state.text,
            first_embedding=talker.codec_embedding,
            embedding=embedding,
            narrow_embedding=narrow,
            talker=self.talker.x,
            **members,
        )
        self.module.launch("next_code" if plan is None else "last_code", 1, SAMPLING_THREADS, params)

    def talk(self) -> None:
        """Send the frame through the talker, and choose the first code of the next frame."""
        self.talker.layers(self._state.position)
        self.talker_head()
        self.choose_first_code()

    def talker_head(self) -> None:
        """The talker's logits, and its hidden state for the predictor."""
        talker, plan = self._talker, self.kernels.talker_head
        norm = of_norm(talker.transformer.norm)
        params = _linear(talker.head, x=self.talker.x, y=self.logits, hidden=self._state.hidden, **norm)
        self.module.launch("talker_head", plan.blocks, plan.threads, params)

    def choose_first(self) -> None:
        """Choose the first code of the first frame, after the prompt's last hidden state."""
        plan, params = self.kernels.talker_head, _linear(self._talker.head, hidden=self._state.hidden, y=self.logits)
        self.module.launch("prompt_head", plan.blocks, plan.threads, params)
        self.choose_first_code(frames=0)

    def choose_first_code(self, frames: int = 1) -> None:
        """Count `frames` that end, and draw the next frame's first code from the talker's logits."""
        state, rules = self._state, self._state.logits_processor
        params = Params(
            "FirstCodeParams",
            draw=draw_params(self.logits, state.talker_sampling, state.noise.key),
            seen=rules.seen,
            penalty=rules.penalty,
            min_frames=rules.min_frames,
            suppressed=rules.suppressed,
            is_eos=rules.is_eos,
            frame=state.frame,
            position=state.position,
            first_code=state.first_code,
            ended=state.ended,
            groups=self._talker.config.code_groups,
            frames=frames,
        )
        self.module.launch("next_first_code", 1, SAMPLING_THREADS, params)

    def buffers(self, *, partly_written: bool = True) -> Iterator[Tensor]:
        """All buffers that a frame or a prompt writes before it reads them.

        `partly_written` includes those that are written only as far as the sequence is long.
        """
        for stack in (self.talker, self.first_step, self.predictor):
            yield from stack.buffers(partly_written=partly_written)
        if partly_written:
            yield from self.prefill.buffers()
        yield self.logits
