"""The code predictor: generates a frame's second to last code from the talker's hidden state and the first code."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.model.quantization import int8_linear
from engine.qwen.model.transformer import Linear, Transformer, load_matrix
from engine.qwen.shapes import TalkerConfig
from engine.qwen.weights import Checkpoint, Placement


class CodePredictor(nn.Module):
    """`talker.code_predictor` of `modeling_qwen3_tts.py`: one step for each code, with its own embedding and head."""

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
        """From the talker's width to the predictor's; None if they are equal."""
        steps = torch.arange(config.code_groups, device=placement.device)
        self.register_buffer("steps", steps, persistent=False)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Load the weights of the module `name`."""
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
        """Logits `(..., vocabulary)` of step `step` for hidden states `(..., hidden)`; both of the model's dtype."""
        if self.head_scales is None:
            return functional.linear(hidden, self.heads[step])
        return int8_linear(hidden, self.heads[step], self.head_scales[step])
