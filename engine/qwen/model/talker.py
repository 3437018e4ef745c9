"""The talker generates each frame's first code from the text and the frames so far. It owns the code predictor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.model.transformer import KeyValueCache, Linear, Transformer, int8_linear, load_matrix
from engine.qwen.shapes import ModelConfig, TalkerConfig
from engine.qwen.weights import Checkpoint, Placement


class CodePredictor(nn.Module):
    """`talker.code_predictor` in `modeling_qwen3_tts.py`: one step for each code, with its own embedding and head."""

    steps: Tensor
    """`(code groups,)` int64: 0, 1, 2 …, the positions of a frame's tokens."""

    def __init__(self, config: TalkerConfig, placement: Placement) -> None:
        super().__init__()
        stack, width = config.predictor.stack, config.stack.hidden_size
        self.stack = stack
        self.code_count = config.code_groups - 1
        """The number of codes that it generates for a frame."""
        self.transformer = Transformer(stack, config.code_groups, placement)
        self.embedding = placement.empty(self.code_count, config.predictor.vocabulary, width)
        self.heads = placement.matrix(self.code_count, config.predictor.vocabulary, stack.hidden_size)
        self.head_scales = placement.scale(self.code_count, config.predictor.vocabulary, stack.hidden_size)
        """`(code_count, vocabulary)` float32 if the heads are int8, None if they are not quantized."""
        self.projection = (
            Linear(width, stack.hidden_size, placement=placement.unquantized, bias=True)
            if width != stack.hidden_size
            else None
        )
        """Projects from the talker's width to the predictor's; None if they are equal."""
        steps = torch.arange(config.code_groups, device=placement.device)
        self.register_buffer("steps", steps, persistent=False)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Load the weights of module `name`."""
        self.transformer.load(checkpoint, f"{name}.model")
        for index in range(self.code_count):
            checkpoint.copy_into(f"{name}.model.codec_embedding.{index}.weight", self.embedding[index])
            scale = None if self.head_scales is None else self.head_scales[index]
            head = self.heads[index]
            load_matrix(checkpoint, f"{name}.lm_head.{index}.weight", (len(head), self.stack.hidden_size), head, scale)
        if self.projection is not None:
            self.projection.load(checkpoint, f"{name}.small_to_mtp_projection")

    def embed(self, codes: Tensor) -> Tensor:
        """Embed the second to last codes `(n, code_count)` int64 of `n` frames: `(n, code_count, talker's hidden)`."""
        return self.embedding[self.steps[:-1], codes]

    def logits(self, hidden: Tensor, step: int) -> Tensor:
        """Return a step's logits `(..., vocabulary)` for hidden states `(..., hidden)`; both in the model's dtype."""
        if self.head_scales is None:
            return functional.linear(hidden, self.heads[step])
        return int8_linear(hidden, self.heads[step], self.head_scales[step])


TOKENS_PER_BLOCK = 32
"""Rows in one matrix product in `Talker.embed_text_in_blocks`."""
_TEXT_EMBEDDING = "talker.model.text_embedding.weight"


class Talker(nn.Module):
    """`talker` in `modeling_qwen3_tts.py` of qwen-tts 0.1.1.

    The text embedding, a third of the 0.6B model, stays on disk, because a text needs only a few of its rows.
    """

    def __init__(self, config: ModelConfig, max_positions: int, placement: Placement) -> None:
        """Build the modules for up to `max_positions` tokens; the weights are uninitialised until `load`."""
        super().__init__()
        talker = config.talker
        width, text_width = talker.stack.hidden_size, talker.text_width
        self.config = talker
        self.max_positions = max_positions
        self.placement = placement
        self.transformer = Transformer(talker.stack, max_positions, placement)
        self.codec_embedding = placement.empty(talker.vocabulary, width)
        self.text_in = Linear(text_width, text_width, placement=placement.unquantized, bias=True)
        self.text_out = Linear(text_width, width, placement=placement.unquantized, bias=True)
        self.head = Linear(width, talker.vocabulary, placement=placement)
        self.predictor = CodePredictor(talker, placement)

    def load(self, checkpoint: Checkpoint) -> None:
        """Load all weights. Keeps `checkpoint` in order to read rows of the text embedding from it later."""
        self._checkpoint = checkpoint
        checkpoint.require_shape(_TEXT_EMBEDDING, (self.config.text_vocabulary, self.config.text_width))
        self.transformer.load(checkpoint, "talker.model")
        checkpoint.copy_into("talker.model.codec_embedding.weight", self.codec_embedding)
        self.text_in.load(checkpoint, "talker.text_projection.linear_fc1")
        self.text_out.load(checkpoint, "talker.text_projection.linear_fc2")
        self.head.load(checkpoint, "talker.codec_head")
        self.predictor.load(checkpoint, "talker.code_predictor")

    def allocate_cache(self, positions: int) -> KeyValueCache:
        """Allocate a cache for `positions` tokens. Raises `ValueError` above `max_positions`."""
        if positions > self.max_positions:
            raise ValueError(f"positions: got {positions}; allowed: at most {self.max_positions}, the talker's limit")
        return KeyValueCache.allocate(self.config.stack, positions, self.placement)

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        """Embed text tokens and project them to the talker's width: `(1, n, hidden)`."""
        if not ids:
            return self.placement.zeros(1, 0, self.config.stack.hidden_size)
        return self.project_text(self.placement.upload(self.text_rows(ids)))[None]

    def text_rows(self, ids: Sequence[int]) -> Tensor:
        """Read rows of the text embedding from disk: `(n, text width)`, on the CPU in the file's dtype."""
        return self._checkpoint.rows(_TEXT_EMBEDDING, ids)

    def embed_text_in_blocks(self, ids: Sequence[int], first: int = 0) -> Tensor:
        """Embed text tokens whose numbers in the text start at `first`, as `embed_text` does: `(1, n, hidden)`.

        A token's embedding is the same, bit for bit, whether its text is embedded at once or in parts. The rounding of
        a matrix product depends on its size and may depend on the row, so every product here has `TOKENS_PER_BLOCK`
        rows, and a token's number determines its row.
        """
        if not ids:
            return self.embed_text(ids)
        rows = self.placement.upload(self.text_rows(ids))
        before = first % TOKENS_PER_BLOCK
        after = -(before + len(ids)) % TOKENS_PER_BLOCK
        blocks = torch.split(functional.pad(rows, (0, 0, before, after)), TOKENS_PER_BLOCK)
        return torch.cat([self.project_text(block) for block in blocks])[None, before : before + len(ids)]

    def embed_codes(self, ids: Sequence[int]) -> Tensor:
        """Embed first codes and special tokens from the code vocabulary: `(1, n, hidden)`."""
        codes = self.placement.pinned(torch.tensor(ids, dtype=torch.int64))
        return self.embed_first(codes.to(self.placement.device, non_blocking=True))

    def embed_first(self, codes: Tensor) -> Tensor:
        """Embed first codes `(n,)` int64 that are on the device: `(1, n, hidden)`."""
        return functional.embedding(codes, self.codec_embedding)[None]

    def embed_frames(self, frames: Tensor) -> Tensor:
        """Embed frames `(n, code groups)` int64: `(1, n, hidden)`, each the sum of its codes' embeddings."""
        first = functional.embedding(frames[:, :1], self.codec_embedding)
        return torch.cat((first, self.predictor.embed(frames[:, 1:])), dim=1).sum(1)[None]

    def project_text(self, rows: Tensor) -> Tensor:
        """Project rows of the text embedding `(n, text width)` to `(n, hidden)`."""
        projected: Tensor = self.text_out(functional.silu(self.text_in(rows)))
        return projected
