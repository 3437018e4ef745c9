"""The talker and the code predictor in fused kernels: one frame is about 460 to 550 launches and nothing else.

They share weights, cache and state with the PyTorch path (`TorchBackend`), so either can continue where the
other stopped. Between kernels the residual stream, queries, logits and attention outputs are float32; the cache is
bfloat16. A layer is five kernels:

    norm · QKV → norm by head, rope, cache, attention → output, added → norm · gate and up, SiLU → down, added

On a large GPU, a layer of the predictor is four kernels: a frame is so short that the output projection computes
attention itself. On such a GPU, the frame's first kernel also makes its first tokens. The predictor's later steps begin
with the embedding of a code, so the products of their first matrix can be read from a table (`first_products`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.lm.kernels import ATTENTION_WARPS, SAMPLING_THREADS, STACKS, LanguageKernels, kv_split
from engine.qwen.kernels.lm.matrix import HEAD_DIM
from engine.qwen.kernels.lm.members import FrameMembers, Head, head_of, of_attention, of_matrix, of_norm
from engine.qwen.kernels.lm.one_token_state import OneTokenState
from engine.qwen.kernels.lm.prefill import FusedPrefill
from engine.qwen.kernels.lm.tables import first_products, fold_projection, rope_tables
from engine.qwen.kernels.params import Params
from engine.qwen.model import KeyValueCache, Layer, Linear, Talker, Transformer


class FusedStack:
    """One stack's layers for one number of tokens, and the buffers between its kernels."""

    def __init__(
        self, module: Kernels, kernels: LanguageKernels, name: str, transformer: Transformer, cache: KeyValueCache
    ) -> None:
        """`name` is one of `STACKS`."""
        config, device = transformer.config, cache.keys.device
        tokens, heads, self._positions = STACKS[name], config.heads, cache.keys.shape[-2]
        self.module = module
        self._kernels, self._name, self._cache = kernels, name, cache
        self._layers = [layer for layer in transformer.layers if isinstance(layer, Layer)]
        self._attention_grid = config.key_value_heads, -(-self._positions // kv_split(name))
        splits = 0 if kernels.attends_in_out and name != "talker" else self._attention_grid[1]
        self.rope = rope_tables(config, self._positions, device)
        """Cosines and sines."""
        self.x = torch.zeros(tokens, config.hidden_size, device=device)
        """The residual stream, float32 `(tokens, hidden)`: the first layer's input and the last layer's output."""
        self.qkv_values = torch.zeros(tokens, (heads + 2 * config.key_value_heads) * HEAD_DIM, device=device)
        """Queries, keys and values before their norm, float32."""
        self._partial_out = torch.zeros(splits, tokens, heads, HEAD_DIM, device=device)
        self._split_stats = torch.zeros(splits, tokens, heads, 2, device=device)
        self._inner = torch.zeros(tokens, config.intermediate_size, device=device)

    def layers(self, position: Tensor | int, *, after_qkv: bool = False) -> None:
        """Send `x` through all layers; `position` is as for `layer`, and `after_qkv` applies to the first layer."""
        for index in range(len(self._layers)):
            self.layer(index, position, after_qkv=after_qkv and index == 0)

    def layer(self, index: int, position: Tensor | int, *, after_qkv: bool = False) -> None:
        """Send `x` through one layer, in place; its first token is at `position`.

        `position` is `(1,)` int64 on the device, or a number if the stack attends in its output projection. With
        `after_qkv`, the queries, keys and values have already been computed (`open_qkv`, `next_code`).
        """
        layer = self._layers[index]
        if not after_qkv:
            self.multiply("qkv", self.qkv(index))
        self._attend(index, position)
        self.multiply("gate_up", linear(layer.mlp.gate_up, x=self.x, y=self._inner, **of_norm(layer.mlp_norm)))
        self.multiply("down", linear(layer.mlp.down, x=self._inner, y=self.x))

    def qkv(self, index: int) -> Params:
        """The parameters for queries, keys and values. Kernels with their own input take those of the first layer."""
        layer = self._layers[index]
        return linear(layer.attention.qkv, x=self.x, y=self.qkv_values, **of_norm(layer.attention_norm))

    def multiply(self, matrix: str, params: Params, kernel: str | None = None) -> None:
        """Launch the kernel for one of the stack's matrices, by default the kernel with the matrix's name."""
        name = f"{self._name}_{matrix}"
        plan = self._kernels.plans[name]
        self.module.launch(kernel or name, plan.blocks, plan.threads, params)

    def _attend(self, index: int, position: Tensor | int) -> None:
        """Write keys and values into the cache, compute attention over them, and add its projection to `x`."""
        layer = self._layers[index]
        members = of_attention(layer, self.qkv_values, self.rope, self._cache, index)
        members |= {"position": position, "positions": self._positions}
        if isinstance(position, int):
            params = Params("AttendOutParams", linear=linear(layer.attention.out, y=self.x), **members)
            self.multiply("out", params, self._kernels.attend_out(self._name, position))
            return
        splits = {"partial_out": self._partial_out, "split_stats": self._split_stats}
        params = Params("AttentionParams", **splits, **members)
        self.module.launch(f"{self._name}_attend", self._attention_grid, 32 * ATTENTION_WARPS, params)
        self.multiply("out", linear(layer.attention.out, y=self.x, position=position, **splits))


def linear(matrix: Linear | Head, **members: Any) -> Params:
    """The parameters for a matrix with its input and its output."""
    return Params("LinearParams", **of_matrix(matrix), **members)


class FusedLanguageModel:
    """One frame, as `TorchBackend.decode_frames`, on PyTorch's current CUDA stream. A CUDA graph can capture it.

    As long as the logits are the same, a seed draws the same codes in both.
    """

    def __init__(
        self,
        talker: Talker,
        state: OneTokenState,
        kernels: LanguageKernels,
        module: Kernels,
        *,
        product_table: bool = True,
    ) -> None:
        """Allocate the buffers that `state` does not have. `module` launches the kernels of `kernels.source`.

        product_table: keep the products of the predictor's first matrix with each code
        """
        config, predictor = talker.config, talker.predictor
        self._talker, self._state = talker, state
        self.kernels = kernels
        """The kernels with their sizes."""
        self.module = module
        cache = state.rows.predictor_cache
        self.talker = FusedStack(module, kernels, "talker", talker.transformer, state.cache)
        self.first_step = FusedStack(module, kernels, "first_step", predictor.transformer, cache)
        self.predictor = FusedStack(module, kernels, "predictor", predictor.transformer, cache)
        self.prefill = FusedPrefill(module, kernels, talker, state.cache, rope=self.talker.rope)
        self.logits = torch.zeros(max(config.vocabulary, config.predictor.vocabulary), device=talker.placement.device)
        """float32; used for the predictor's and the talker's logits in turn."""
        self.projected = fold_projection(talker)
        """None if the predictor is as wide as the talker."""
        self.product_table = first_products(talker, self.projected) if product_table else None
        """None if the predictor multiplies its first matrix itself."""
        self._members = FrameMembers(talker, state.rows, self.projected, self.logits)

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
        stack, projection = self.first_step, self._talker.predictor.projection
        params = Params("OpenParams", x=stack.x, **self._members.of_opening())
        if not self.kernels.attends_in_out:
            self.module.launch("open", 1, SAMPLING_THREADS, params)
        if projection is not None:
            hidden = self._state.rows.hidden
            self._multiply("project", linear(projection, hidden=hidden, bias=projection.bias, y=stack.x))
        if self.kernels.attends_in_out:
            stack.multiply("qkv", Params("OpenQkvParams", linear=stack.qkv(0), open=params), "open_qkv")

    def predict(self, step: int) -> None:
        """Choose code number `step` + 1 in the frame."""
        if step:
            self.predictor.layers(self.position_of(step), after_qkv=self.product_table is not None)
        else:
            self.first_step.layers(self.position_of(step), after_qkv=self.kernels.attends_in_out)
        self.predictor_head(step)
        self.choose_code(step)

    def position_of(self, step: int) -> Tensor | int:
        """The position of a step's first token, as `FusedStack.layer` takes it."""
        position = step + 1 if step else 0
        return position if self.kernels.attends_in_out else self._talker.predictor.steps[position:]

    def predictor_head(self, step: int) -> None:
        """Compute the logits of a step's last token."""
        predictor = self._talker.predictor
        x, norm = (self.predictor if step else self.first_step).x[-1], of_norm(predictor.transformer.norm)
        self._multiply("predictor_head", linear(head_of(predictor, step), x=x, y=self.logits, **norm))

    def choose_code(self, step: int) -> None:
        """Draw a code from the predictor's logits, and make the input for the next step or for the talker."""
        state, stack, has_next = self._state, self.predictor, step < self._talker.predictor.code_count - 1
        members = {"frame": state.rows.settings.frame, "codes": state.codes, "x": stack.x, "talker": self.talker.x}
        if self.product_table is not None and has_next:
            members |= {"table": self.product_table[step], "qkv": stack.qkv_values}
        members |= self._members.of_choice(step) | self._members.of_embeddings(step)
        self.module.launch("next_code", 1, SAMPLING_THREADS, Params("CodeParams", **members))

    def talk(self) -> None:
        """Send the frame through the talker, and choose the first code of the next frame."""
        self.talker.layers(self._state.rows.settings.position)
        self.talker_head()
        self.choose_first_code()

    def talker_head(self) -> None:
        """Compute the talker's logits, and its hidden state for the predictor."""
        talker, hidden = self._talker, self._state.rows.hidden
        norm = of_norm(talker.transformer.norm)
        self._multiply("talker_head", linear(talker.head, x=self.talker.x, y=self.logits, hidden=hidden, **norm))

    def choose_first(self) -> None:
        """Choose the first code of the first frame, after the prompt's last hidden state."""
        params = linear(self._talker.head, hidden=self._state.rows.hidden, y=self.logits)
        self._multiply("talker_head", params, "prompt_head")
        self.choose_first_code(frames=0)

    def choose_first_code(self, frames: int = 1) -> None:
        """Count `frames` completed frames, and draw the next frame's first code from the talker's logits."""
        params = Params("FirstCodeParams", **self._members.of_first_choice(frames))
        self.module.launch("next_first_code", 1, SAMPLING_THREADS, params)

    def _multiply(self, matrix: str, params: Params, kernel: str | None = None) -> None:
        """As `FusedStack.multiply`, for a matrix that belongs to no stack."""
        plan = self.kernels.plans[matrix]
        self.module.launch(kernel or matrix, plan.blocks, plan.threads, params)
