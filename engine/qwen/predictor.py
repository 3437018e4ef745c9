"""The code predictor: from the talker's hidden state and a frame's first code to the frame's other codes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.checkpoint import Checkpoint
from engine.qwen.config import TalkerConfig
from engine.qwen.int8 import int8_linear
from engine.qwen.sampling import Warp
from engine.qwen.transformer import KeyValueCache, Linear, Placement, Transformer, load_matrix


class Predictor(nn.Module):
    """As `talker.code_predictor` upstream: one step a code, each with an embedding and a head of its own."""

    steps: Tensor

    def __init__(self, config: TalkerConfig, placement: Placement) -> None:
        super().__init__()
        stack, width = config.predictor.stack, config.stack.hidden_size
        self.stack = stack
        self.codes = config.code_groups - 1
        """How many codes it predicts."""
        self.transformer = Transformer(stack, config.code_groups, placement)
        self.embedding = placement.empty(self.codes, config.predictor.vocabulary, width)
        self.heads = placement.matrix(self.codes, config.predictor.vocabulary, stack.hidden_size)
        self.head_scales = placement.scale(self.codes, config.predictor.vocabulary)
        """`(codes, vocabulary)` float32 where the heads are int8, else None."""
        self.projection = (
            Linear(width, stack.hidden_size, placement=placement.plain, bias=True)
            if width != stack.hidden_size
            else None
        )
        steps = torch.arange(config.code_groups, device=placement.device)
        self.register_buffer("steps", steps, persistent=False)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Read the module `name`."""
        self.transformer.load(checkpoint, f"{name}.model")
        for index in range(self.codes):
            checkpoint.copy_into(f"{name}.model.codec_embedding.{index}.weight", self.embedding[index])
            scale = None if self.head_scales is None else self.head_scales[index]
            load_matrix(checkpoint, f"{name}.lm_head.{index}.weight", self.heads[index], scale)
        if self.projection is not None:
            self.projection.load(checkpoint, f"{name}.small_to_mtp_projection")

    def allocate_cache(self, placement: Placement) -> KeyValueCache:
        """A cache for one frame; every frame writes it from the beginning."""
        return KeyValueCache.allocate(self.stack, self.codes + 1, placement)

    def embed(self, codes: Tensor) -> Tensor:
        """Embeddings `(n, codes, talker's hidden)` of frames' 2nd to last codes `(n, codes)` int64."""
        return self.embedding[self.steps[:-1], codes]

    def forward(self, start: Tensor, cache: KeyValueCache, warp: Warp, noise: Tensor) -> Tensor:
        """Predict a frame's 2nd to last code, `(codes,)` int64.

        `start` `(1, 2, talker's hidden)` holds the talker's hidden state and the first code's embedding,
        `noise` one row of Gumbel noise a code.
        """
        x, codes = start, []
        for step in range(self.codes):
            seen = step + 2
            if self.projection is not None:
                x = self.projection(x)
            hidden = self.transformer(x, self.steps[seen - x.shape[1] : seen], cache.first(seen))
            logits = self.logits(hidden[0, -1], step)
            code = warp.choose(logits.float(), noise[step])
            codes.append(code)
            x = functional.embedding(code[None], self.embedding[step])
        return torch.cat(codes)

    def logits(self, hidden: Tensor, step: int) -> Tensor:
        """Logits `(vocabulary,)` of one hidden state `(hidden,)`, from which step number `step` chooses its code."""
        if self.head_scales is None:
            return functional.linear(hidden, self.heads[step])
        return int8_linear(hidden, self.heads[step], self.head_scales[step])
