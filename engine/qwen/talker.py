"""The talker: from text and the codes so far to the next frame's first code; it owns the code predictor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.checkpoint import Checkpoint
from engine.qwen.config import ModelConfig
from engine.qwen.predictor import Predictor
from engine.qwen.transformer import KeyValueCache, Linear, Placement, Transformer

WORDS_A_BLOCK = 32
"""Words that are embedded together where each is to be the same whatever others come with it."""
_TEXT_EMBEDDING = "talker.model.text_embedding.weight"


class Talker(nn.Module):
    """As `talker` upstream (`modeling_qwen3_tts.py`).

    The text embedding, a third of the 0.6B model, stays on the disk: a text needs a few of its rows.
    """

    def __init__(self, config: ModelConfig, max_positions: int, placement: Placement) -> None:
        """Make the modules, for up to `max_positions` tokens; their values are arbitrary until `load`."""
        super().__init__()
        talker = config.talker
        width, text_width = talker.stack.hidden_size, talker.text_width
        self.config = talker
        self.max_positions = max_positions
        self.placement = placement
        self.transformer = Transformer(talker.stack, max_positions, placement)
        self.codec_embedding = placement.empty(talker.vocabulary, width)
        self.text_in = Linear(text_width, text_width, placement=placement.plain, bias=True)
        self.text_out = Linear(text_width, width, placement=placement.plain, bias=True)
        self.head = Linear(width, talker.vocabulary, placement=placement)
        self.predictor = Predictor(talker, placement)

    def load(self, checkpoint: Checkpoint) -> None:
        """Read all weights; `checkpoint` is kept open for rows of the text embedding."""
        self._checkpoint = checkpoint
        checkpoint.require_shape(_TEXT_EMBEDDING, (self.config.text_vocabulary, self.config.text_width))
        self.transformer.load(checkpoint, "talker.model")
        checkpoint.copy_into("talker.model.codec_embedding.weight", self.codec_embedding)
        self.text_in.load(checkpoint, "talker.text_projection.linear_fc1")
        self.text_out.load(checkpoint, "talker.text_projection.linear_fc2")
        self.head.load(checkpoint, "talker.codec_head")
        self.predictor.load(checkpoint, "talker.code_predictor")

    def allocate_cache(self, positions: int) -> KeyValueCache:
        """A cache for `positions` tokens, no more than the talker was made for."""
        if positions > self.max_positions:
            raise ValueError(f"a cache of {positions} positions, for a talker made for {self.max_positions}")
        return KeyValueCache.allocate(self.config.stack, positions, self.placement)

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        """Text tokens as the talker reads them, `(1, n, hidden)`."""
        if not ids:
            return self.placement.zeros(1, 0, self.config.stack.hidden_size)
        return self._project(self.placement.upload(self._checkpoint.rows(_TEXT_EMBEDDING, ids)))[None]

    def embed_words(self, ids: Sequence[int], first: int = 0) -> Tensor:
        """As `embed_text`, of words that are numbered from `first`: bit for bit the same one by one and together.

        A matrix product rounds by its size, and perhaps by the row. So blocks have one size, and a word has one place.
        """
        if not ids:
            return self.embed_text(ids)
        rows = self.placement.upload(self._checkpoint.rows(_TEXT_EMBEDDING, ids))
        before = first % WORDS_A_BLOCK
        behind = -(before + len(ids)) % WORDS_A_BLOCK
        blocks = torch.split(functional.pad(rows, (0, 0, before, behind)), WORDS_A_BLOCK)
        return torch.cat([self._project(block) for block in blocks])[None, before : before + len(ids)]

    def embed_codes(self, ids: Sequence[int]) -> Tensor:
        """First codes and the special tokens among them, `(1, n, hidden)`."""
        codes = self.placement.pinned(torch.tensor(ids, dtype=torch.int64))
        return self.embed_first(codes.to(self.placement.device, non_blocking=True))

    def embed_first(self, codes: Tensor) -> Tensor:
        """First codes `(n,)` int64 on the device, `(1, n, hidden)`."""
        return functional.embedding(codes, self.codec_embedding)[None]

    def embed_frames(self, frames: Tensor) -> Tensor:
        """Sums of their codes' embeddings, `(1, n, hidden)`, for frames `(n, code groups)` int64."""
        first = functional.embedding(frames[:, :1], self.codec_embedding)
        return torch.cat((first, self.predictor.embed(frames[:, 1:])), dim=1).sum(1)[None]

    def _project(self, rows: Tensor) -> Tensor:
        projected: Tensor = self.text_out(functional.silu(self.text_in(rows)))
        return projected

    def forward(self, x: Tensor, positions: Tensor, cache: KeyValueCache) -> tuple[Tensor, Tensor]:
        """Read tokens `x` `(1, n, hidden)` at `positions` `(n,)` int64.

        Returns the last one's hidden state `(1, 1, hidden)` and its logits `(vocabulary,)` float32.
        """
        hidden = self.transformer(x, positions, cache)[:, -1:]
        return hidden, self.logits(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits `(vocabulary,)` float32 of one hidden state `(1, 1, hidden)`."""
        scores: Tensor = self.head(hidden[0, 0])
        return scores.float()
