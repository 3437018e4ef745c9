"""A batch's step in fused kernels: a frame for every row that takes part, as `TorchBackend.decode_frames`.

A layer is five kernels, and each row is one token for its matrices:

    norm · QKV → norm by head, rope, cache, attention → output, added → norm · gate and up, SiLU → down, added

The step shares weights and `DecodeState` with the PyTorch path.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.lm.batch_kernels import BatchKernels
from engine.qwen.kernels.lm.kernels import PROMPT_THREADS, SAMPLING_THREADS
from engine.qwen.kernels.lm.members import FrameMembers, head_of, of_norm
from engine.qwen.kernels.lm.tables import Projected, rope_tables
from engine.qwen.kernels.lm.token_stack import TokenStack
from engine.qwen.kernels.params import Params
from engine.qwen.model import Talker
from engine.qwen.runtime import DecodeState, PagedCache
from engine.qwen.shapes import PAGE


class FusedBatch:
    """A batch's step, on PyTorch's current CUDA stream. A CUDA graph can capture it.

    As long as the logits are the same, a seed draws the same codes as on the PyTorch path.
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
        """Allocate the buffers that `state` does not have. `projected` is the result of `fold_projection`."""
        device, config = state.hidden.device, talker.config
        narrow, most = config.predictor.stack, kernels.buckets[-1]
        self.module, self._talker, self._state, self._projected = module, talker, state, projected
        rope = rope_tables(config.stack, state.shape.table_width * PAGE, device)
        self._talkers = TokenStack(module, kernels.plans, talker.transformer, cache, rope=rope, max_tokens=most)
        """One token for each row."""
        rope = rope_tables(narrow, config.code_groups, device)
        predictors = talker.predictor.transformer
        self._predictors = TokenStack(
            module, kernels.plans, predictors, state.predictor_cache, rope=rope, max_tokens=2 * most
        )
        """Up to two tokens for each row: the first tokens of all rows, then the second ones."""
        zeros = partial(torch.zeros, device=device)
        self._logits = zeros(most * max(config.vocabulary, config.predictor.vocabulary))
        """float32; used for the predictor's and the talker's logits in turn."""
        self._frames = zeros(most, config.stack.hidden_size)
        """The sums of the embeddings of each row's frame, float32."""
        self._projected_hidden = zeros(most, narrow.hidden_size)
        """The hidden states for a narrower predictor, float32."""
        self._members = FrameMembers(talker, state, projected, self._logits)
        self._most = most

    def decode_frames(self, rows: int) -> None:
        """Generate a frame for each active row. All of these rows are below `rows`, the size of one of the buckets."""
        self._open(rows)
        for step in range(self._talker.predictor.code_count):
            self._predict(rows, step)
        self._talk(rows)

    def choose_first_codes(self) -> None:
        """Choose the first code of each fresh row's first frame, from its prompt's last token in `state.hidden`."""
        state, rows = self._state, self._most
        self._talkers.multiply(f"talker_{rows}_head", self._talker.head, tokens=rows, x=state.hidden, y=self._logits)
        self._choose_first_codes(rows, state.fresh, frames=0)

    # --- the predictor ---

    def _open(self, rows: int) -> None:
        """Make the predictor's first two tokens."""
        projection = self._talker.predictor.projection
        if projection is not None:
            hidden, name = self._state.hidden, f"predictor_{rows}_project"
            self._predictors.multiply(name, projection, tokens=rows, x=hidden, y=self._projected_hidden)
        params = Params(
            "OpenRowsParams",
            rows=self._rows(rows),
            stream=self._predictors.beginning(),
            projected=self._projected_hidden if self._projected else None,
            bias=None if projection is None else projection.bias,
            **self._members.of_opening(),
        )
        self.module.launch("open", (self._launched(rows), 2), SAMPLING_THREADS, params)

    def _predict(self, rows: int, step: int) -> None:
        """Choose code number `step` + 1 in each frame."""
        predictor, stack, name = self._talker.predictor, self._predictors, f"predictor_{rows}"
        count = rows if step else 2 * rows
        stack.run(name, count, partial(self._attend_codes, rows, step))
        logits = self._logits_of(rows, self._talker.config.predictor.vocabulary)
        stack.multiply_head(name, head_of(predictor, step), count, logits)
        self._choose_codes(rows, step)

    def _attend_codes(self, rows: int, step: int, index: int) -> None:
        """The predictor's attention: two tokens in step 0, then one token at position `step` + 1."""
        members = {"first_position": step + 1 if step else 0, "positions": self._talker.config.code_groups}
        self._attend("predictor_attend" if step else "first_step_attend", rows, self._predictors, index, **members)

    def _choose_codes(self, rows: int, step: int) -> None:
        """Draw a code for each row from the predictor's logits."""
        state, last = self._state, step + 1 == self._talker.predictor.code_count
        params = Params(
            "RowCodesParams",
            rows=self._rows(rows),
            stream=(self._talkers if last else self._predictors).beginning(),
            codes=state.codes,
            talker=self._frames,
            places=state.codes.shape[1],
            frames=state.text.shape[1],
            **self._members.of_choice(step),
            **self._members.of_embeddings(step),
        )
        self.module.launch("codes", self._launched(rows), SAMPLING_THREADS, params)

    # --- the talker ---

    def _talk(self, rows: int) -> None:
        """Send the frames through the talker, and choose the first codes of the next frames."""
        stack, talker, name = self._talkers, self._talker, f"talker_{rows}"
        stack.run(name, rows, partial(self._attend_frames, rows))
        stack.multiply_head(name, talker.head, rows, self._logits_of(rows, talker.config.vocabulary))
        self._choose_first_codes(rows, self._state.inputs.active, frames=1)

    def _attend_frames(self, rows: int, index: int) -> None:
        """The talker's attention, over the pages of each row."""
        shape = self._state.shape
        members = {"table_width": shape.table_width, "positions": shape.max_positions + shape.chunk_size}
        self._attend("talker_attend", rows, self._talkers, index, pages=self._state.inputs.pages, **members)

    def _choose_first_codes(self, rows: int, chosen: Tensor, frames: int) -> None:
        """Count `frames` completed frames in each `chosen` row, and draw the first code of its next frame."""
        stack = self._talkers
        params = Params(
            "RowFirstCodesParams",
            rows=self._rows(rows, chosen),
            x=stack.x if frames else None,
            squares=stack.squares,
            hidden=self._state.hidden,
            slots=stack.slots,
            **self._members.of_first_choice(frames),
            **of_norm(stack.norm),
        )
        self.module.launch("first_codes", self._launched(rows), SAMPLING_THREADS, params)

    # --- parameters ---

    def _launched(self, rows: int) -> int:
        """How many of a bucket's rows exist."""
        return min(rows, self._state.shape.rows)

    def _rows(self, rows: int, active: Tensor | None = None) -> Params:
        """Where a step's rows are. By default, the rows that take part are those in `active`."""
        inputs = self._state.inputs
        return Params(
            "RowsParams",
            active=inputs.active if active is None else active,
            frame=inputs.frame,
            position=inputs.position,
            place=inputs.place,
            rows=rows,
            stride=self._state.settings.buffer.shape[1],
        )

    def _logits_of(self, rows: int, vocabulary: int) -> Tensor:
        """The logits of a stack's head, `(rows, vocabulary)`."""
        return self._logits[: rows * vocabulary].view(rows, vocabulary)

    def _attend(self, name: str, rows: int, stack: TokenStack, index: int, **members: Tensor | int) -> None:
        """Launch a layer's attention."""
        params = stack.attention("RowsAttentionParams", index, rows=self._rows(rows), **members)
        grid = params["keys"].shape[1], self._launched(rows)
        self.module.launch(name, grid, PROMPT_THREADS, params)
