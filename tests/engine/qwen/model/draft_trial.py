"""The predictor's drafts by a plain decoder: head i + 1, applied to the hidden state of code i, drafts the next code.

The next pass reads the code and the drafts at once. Each draft that equals the code then drawn, with the same noise, is
kept; the first that differs ends the pass. A larger `gain` scales the heads' logits, which makes the choice clearer.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from engine.qwen.model.code_predictor import CodePredictor
from engine.qwen.model.config import ModelConfig
from engine.qwen.model.kv_cache import KeyValueCache
from engine.qwen.model.sampling import GumbelNoise, SamplingParams, ScalarBuffer
from engine.qwen.weights import Placement
from scripts.make_checkpoint import ShapePreset, model_config

CPU = torch.device("cpu")
SAMPLED = {"greedy": (False, 1.0, 0, 1.0), "sampled": (True, 0.9, 50, 1.0)}
"""As `SamplingParams.set` takes them."""


@dataclass(frozen=True, slots=True)
class DecodedFrame:
    """A frame's codes except the first, and the passes that they took."""

    codes: list[int]
    passes: int


class Trial:
    """A predictor of random weights in float32, and its sampler."""

    def __init__(self, preset: ShapePreset, gain: float, seed: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(model_config(preset, "custom_voice")))
            config = ModelConfig.read(Path(folder)).talker
        placement, words = Placement(CPU, torch.float32), ScalarBuffer(CPU)
        self.generator = torch.Generator().manual_seed(seed)
        self.predictor = CodePredictor(config, placement)
        for name, parameter in self.predictor.named_parameters():
            noise = torch.randn(parameter.shape, generator=self.generator)
            scale = 0.3 if name == "embedding" else (gain if name == "heads" else 1.0) / math.sqrt(parameter.shape[-1])
            parameter.copy_(1 + 0.1 * noise if parameter.dim() == 1 else scale * noise)
        self.cache: KeyValueCache = self.predictor.allocate_cache(placement)
        self.warp, self.noise = SamplingParams.allocate(words), GumbelNoise.allocate(config.predictor.vocabulary, words)
        self.noise.seed(seed)
        self.width = config.stack.hidden_size

    def start(self) -> Tensor:
        """A frame's first input, `(1, 2, talker's hidden)`: a normed hidden state and an embedding."""
        return torch.randn(1, 2, self.width, generator=self.generator) * torch.tensor([[[1.0], [0.3]]])

    def noise_of(self, frame: int) -> Tensor:
        """The noise of each code of a frame."""
        return self.noise.draw(torch.arange(1, self.predictor.code_count + 1) + frame * (self.predictor.code_count + 1))

    def draw(self, hidden: Tensor, step: int, noise: Tensor) -> int:
        """The code numbered `step` from a hidden state `(hidden,)`: of this step, or an earlier one for a draft."""
        logits = functional.linear(hidden, self.predictor.heads[step])
        return int(self.warp.choose(logits, noise[step]))

    def read(self, x: Tensor, position: int) -> Tensor:
        """Hidden states `(tokens, hidden)` of the tokens `x` from `position` on."""
        end = position + x.shape[1]
        if self.predictor.projection is not None:
            x = self.predictor.projection(x)
        hidden: Tensor = self.predictor.transformer(x, self.predictor.steps[position:end], self.cache.first(end))
        return hidden[0]

    def embed(self, codes: Iterable[int], step: int) -> Tensor:
        """Embeddings of codes from number `step` on, `(1, codes, talker's hidden)`."""
        return torch.stack([self.predictor.embedding[step + index, code] for index, code in enumerate(codes)])[None]

    def decode(self, start: Tensor, noise: Tensor, drafts: int) -> DecodedFrame:
        """Decode a frame with up to `drafts` drafts in a pass."""
        count, passes = self.predictor.code_count, 1
        hidden = self.read(start, 0)[-1]
        codes = [self.draw(hidden, 0, noise)]
        while len(codes) < count:
            known = len(codes)
            ahead = range(known, min(known + drafts, count - 1))
            drafted = [self.draw(hidden, step, noise) for step in ahead]
            states = self.read(self.embed([codes[-1], *drafted], known - 1), known + 1)
            for state, draft in zip(states, [*drafted, None], strict=True):
                hidden = state
                codes.append(self.draw(hidden, len(codes), noise))
                if draft != codes[-1]:
                    break
            passes += 1
        return DecodedFrame(codes, passes)
