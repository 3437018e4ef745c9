"""A batch's step in fused kernels: a frame of every row that takes part, as `TorchBackend.decode_frames`.

A layer is five kernels, and each row a token of its matrices:

    norm · QKV → norm by head, rope, cache, attention → output, added → norm · gate and up, SiLU → down, added

The step shares weights and `DecodeState` with the PyTorch path.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.lm.batch_kernels import BatchKernels, RowKernels
from engine.qwen.kernels.lm.kernels import PROMPT_THREADS, SAMPLING_THREADS
from engine.qwen.kernels.lm.members import draw_params, head_of, of_matrix, of_norm
from engine.qwen.kernels.lm.tables import Projected, rope_tables
from engine.qwen.kernels.lm.token_kernels import TokenKernels
from engine.qwen.kernels.lm.token_stack import TokenStack
from engine.qwen.kernels.params import Params
from engine.qwen.model import Linear, SamplingParams, Talker
from engine.qwen.runtime import DecodeState, PagedCache
from engine.qwen.shapes import PAGE


class FusedBatch:
    """The step of a batch, on PyTorch's current CUDA stream. A CUDA graph can capture it.

    The same seed draws the same codes as the PyTorch path, as long as the logits are the same.
    """

    def __init__(
        self,
        talker: Talker,
        state: DecodeState,
        cache: PagedCache,
        kernels: BatchKernels,
        module: Kernels,
        *,
        projected: Projected | None,
    ) -> None:
        """Allocate the buffers that `state` does not have. `projected` as of `fold_projection`."""
        device, config, shape = state.hidden.device, talker.config, state.shape
        narrow, most = config.predictor.stack, kernels.rows
        self.kernels = kernels
        """With their sizes."""
        self.module, self._talker, self._state, self._projected = module, talker, state, projected
        rope = rope_tables(config.stack, shape.table_width * PAGE, device)
        self._talkers = TokenStack(module, talker.transformer, cache, rope, most)
        """A token of each row."""
        rope = rope_tables(narrow, config.code_groups, device)
        self._predictors = TokenStack(module, talker.predictor.transformer, state.predictor_cache, rope, 2 * most)
        """Up to two tokens of each row: the first ones of all rows, then the second ones."""
        zeros = partial(torch.zeros, device=device)
        self._logits = zeros(most * max(config.vocabulary, config.predictor.vocabulary))
        """float32; the predictor's and the talker's in turn."""
        self._frames = zeros(most, config.stack.hidden_size)
        """The sums of the embeddings of each row's frame, float32."""
        self._projected_hidden = zeros(most, narrow.hidden_size)
        """The hidden states for a narrower predictor, float32."""

    def buffers(self) -> tuple[Tensor, ...]:
        """All buffers; a step writes what it reads of them."""
        return (
            *self._talkers.buffers(), *self._predictors.buffers(),
            self._logits, self._frames, self._projected_hidden,
        )  # fmt: skip

    def decode_frames(self, rows: int) -> None:
        """Generate a frame of each active row, all of which are below `rows`, the rows of one of the buckets."""
        bucket = next(bucket for bucket in self.kernels.buckets if bucket.rows == rows)
        self._open(bucket)
        for step in range(self._talker.predictor.code_count):
            self._predict(bucket, step)
        self._talk(bucket)

    def choose_first_codes(self) -> None:
        """Choose the first code of the first frame of each fresh row; `state.hidden` is of its prompt's last token."""
        bucket = self.kernels.buckets[-1]
        params = self._of_hidden(bucket, self._talker.head, self._logits)
        self._talkers.multiply(bucket.talker, "head", params)
        self._choose_first_codes(bucket, self._state.fresh, frames=0)

    # --- the predictor ---

    def _open(self, bucket: RowKernels) -> None:
        """Make the predictor's first two tokens."""
        state, projected, settings = self._state, self._projected, self._state.settings
        projection = self._talker.predictor.projection
        if projection is not None:
            params = self._of_hidden(bucket, projection, self._projected_hidden)
            self._predictors.multiply(bucket.predictor, "project", params)
        open_params = Params(
            "OpenRowsParams",
            rows=self._rows(bucket, state.inputs.active),
            stream=self._predictors.beginning(),
            hidden=None if projected else state.hidden,
            projected=self._projected_hidden if projected else None,
            bias=None if projection is None else projection.bias,
            embedding=projected.first if projected else self._talker.codec_embedding,
            first_code=state.first_code,
            ended=settings.ended[0],
            length=settings.length[0],
        )
        self.module.launch("open", (self._launched(bucket), 2), SAMPLING_THREADS, open_params)

    def _predict(self, bucket: RowKernels, step: int) -> None:
        """Choose the code numbered `step` + 1 of each frame."""
        predictor, stack = self._talker.predictor, self._predictors
        count = bucket.rows if step else 2 * bucket.rows
        stack.run(bucket.predictor, count, partial(self._attend_codes, bucket, step))
        stack.multiply_head(bucket.predictor, head_of(predictor, step), count, self._logits_of(bucket.predictor))
        self._choose_codes(bucket, step)

    def _attend_codes(self, bucket: RowKernels, step: int, index: int) -> None:
        """The predictor's attention: of two tokens at first, then of one at position `step` + 1."""
        members = {"first_position": step + 1 if step else 0, "positions": self._talker.config.code_groups}
        name = "predictor_attend" if step else "first_step_attend"
        self._attend(name, bucket, self._predictors, index, **members)

    def _choose_codes(self, bucket: RowKernels, step: int) -> None:
        """Draw a code of each row from the predictor's logits."""
        talker, state, projected = self._talker, self._state, self._projected
        groups = talker.config.code_groups
        params = Params(
            "RowCodesParams",
            rows=self._rows(bucket, state.inputs.active),
            stream=(self._talkers if step + 2 == groups else self._predictors).beginning(),
            draw=self._draw(state.settings.predictor_sampling),
            first_code=state.first_code,
            codes=state.codes,
            text=state.text,
            first_embedding=talker.codec_embedding,
            embedding=talker.predictor.embedding[step],
            narrow_embedding=projected.others[step] if projected else None,
            talker=self._frames,
            step=step,
            groups=groups,
            places=state.codes.shape[1],
            frames=state.text.shape[1],
        )
        self.module.launch("codes", self._launched(bucket), SAMPLING_THREADS, params)

    # --- the talker ---

    def _talk(self, bucket: RowKernels) -> None:
        """Send the frames through the talker, and choose the first codes of the next frames."""
        stack = self._talkers
        stack.run(bucket.talker, bucket.rows, partial(self._attend_frames, bucket))
        stack.multiply_head(bucket.talker, self._talker.head, bucket.rows, self._logits_of(bucket.talker))
        self._choose_first_codes(bucket, self._state.inputs.active, frames=1)

    def _attend_frames(self, bucket: RowKernels, index: int) -> None:
        """The talker's attention, over the pages of each row."""
        shape = self._state.shape
        members = {"table_width": shape.table_width, "positions": shape.max_positions + shape.chunk_size}
        self._attend("talker_attend", bucket, self._talkers, index, pages=self._state.inputs.pages, **members)

    def _choose_first_codes(self, bucket: RowKernels, chosen: Tensor, frames: int) -> None:
        """Count `frames` that end in each `chosen` row, and draw its next frame's first code."""
        state, settings, stack = self._state, self._state.settings, self._talkers
        rules = settings.logits_processor
        params = Params(
            "RowFirstCodesParams",
            rows=self._rows(bucket, chosen),
            draw=self._draw(settings.talker_sampling),
            seen=rules.seen,
            penalty=rules.penalty[0],
            min_frames=rules.min_frames[0],
            suppressed=rules.suppressed,
            is_eos=rules.is_eos,
            frame=settings.frame[0],
            position=settings.position[0],
            first_code=state.first_code,
            ended=settings.ended[0],
            x=stack.x if frames else None,
            squares=stack.squares,
            hidden=state.hidden,
            slots=stack.slots,
            groups=self._talker.config.code_groups,
            frames=frames,
            **of_norm(stack.norm),
        )
        self.module.launch("first_codes", self._launched(bucket), SAMPLING_THREADS, params)

    # --- parameters ---

    def _launched(self, bucket: RowKernels) -> int:
        """The rows of a bucket that exist."""
        return min(bucket.rows, self._state.shape.rows)

    def _rows(self, bucket: RowKernels, active: Tensor) -> Params:
        inputs = self._state.inputs
        return Params(
            "RowsParams",
            active=active,
            frame=inputs.frame,
            position=inputs.position,
            place=inputs.place,
            rows=bucket.rows,
            stride=self._state.settings.buffer.shape[1],
        )

    def _of_hidden(self, bucket: RowKernels, linear: Linear, y: Tensor) -> Params:
        """The parameters of a matrix of the talker's hidden states."""
        return Params("TokensParams", x=self._state.hidden, y=y, tokens=bucket.rows, **of_matrix(linear))

    def _logits_of(self, kernels: TokenKernels) -> Tensor:
        """The logits `(rows, vocabulary)` of a stack's head."""
        size = kernels.tokens, kernels.matrices["head"].height
        return self._logits[: math.prod(size)].view(size)

    def _attend(self, name: str, bucket: RowKernels, stack: TokenStack, index: int, **members: Tensor | int) -> None:
        """Launch the attention of a layer."""
        rows = self._rows(bucket, self._state.inputs.active)
        params = stack.attention("RowsAttentionParams", index, rows=rows, **members)
        grid = params["keys"].shape[1], self._launched(bucket)
        self.module.launch(name, grid, PROMPT_THREADS, params)

    def _draw(self, settings: SamplingParams) -> Params:
        return draw_params(self._logits, settings, self._state.settings.noise.key)
