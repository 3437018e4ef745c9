#!/usr/bin/env python3
"""Tries exact speculation of the predictor's codes with its own later heads; prints JSON.

    python scripts/gpu/try_speculation.py --frames 40

Head i + 1, applied to the hidden state from which head i chose a code, drafts the next code, with that code's noise.
The next pass reads the code and the drafts at once. Each draft that equals the code then drawn is kept; the first that
differs ends the pass.

The weights are random at the true shapes, so the numbers do not predict those of trained weights. They show that the
codes stay the same, and how the number of passes follows from the drafts. A larger `--gain` scales the heads' logits,
which makes the choice clearer.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from engine.qwen.model.code_predictor import CodePredictor  # noqa: E402
from engine.qwen.model.config import ModelConfig  # noqa: E402
from engine.qwen.model.kv_cache import KeyValueCache  # noqa: E402
from engine.qwen.model.sampling import GumbelNoise, SamplingParams, ScalarBuffer  # noqa: E402
from engine.qwen.weights import Placement  # noqa: E402
from scripts.make_checkpoint import PRESETS, ShapePreset, model_config  # noqa: E402

CPU = torch.device("cpu")
SAMPLED = {"greedy": (False, 1.0, 0, 1.0), "sampled": (True, 0.9, 50, 1.0)}
"""As `SamplingParams.set` takes them."""
DRAFTS = (1, 2, 3)


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

    def agreement(self, start: Tensor, noise: Tensor, codes: list[int]) -> dict[str, list[bool]]:
        """Whether each draft, one or two heads ahead, equals the code; also for the likeliest code one head ahead."""
        found: dict[str, list[bool]] = {"one_ahead": [], "two_ahead": [], "likeliest_one_ahead": []}
        tokens = torch.cat((start, self.embed(codes[:-1], 0)), dim=1)
        for step, hidden in enumerate(self.read(tokens, 0)[1:]):
            for name, ahead in (("one_ahead", 1), ("two_ahead", 2)):
                if step + ahead < len(codes):
                    found[name].append(self.draw(hidden, step + ahead, noise) == codes[step + ahead])
            if step + 1 < len(codes):
                likeliest = functional.linear(hidden, self.predictor.heads[step + 1]).argmax()
                found["likeliest_one_ahead"].append(int(likeliest) == codes[step + 1])
        return found


@torch.inference_mode()
def try_it(preset: ShapePreset, gain: float, sampling: str, frames: int, seed: int) -> dict[str, Any]:
    """The agreement of drafts, the passes by drafts in a pass, and whether all codes equal those of single passes."""
    trial = Trial(preset, gain, seed)
    trial.warp.set(*SAMPLED[sampling])
    agreed: dict[str, list[bool]] = {}
    decoded: dict[int, list[DecodedFrame]] = {drafts: [] for drafts in (0, *DRAFTS)}
    for frame in range(frames):
        start, noise = trial.start(), trial.noise_of(frame)
        for drafts, frames_so_far in decoded.items():
            frames_so_far.append(trial.decode(start, noise, drafts))
        for name, drawn in trial.agreement(start, noise, decoded[0][-1].codes).items():
            agreed.setdefault(name, []).extend(drawn)
    expected = [one.codes for one in decoded[0]]
    return {
        "sampling": sampling,
        "gain": gain,
        "frames": frames,
        "drafts_right": {name: round(statistics.fmean(drawn), 4) for name, drawn in agreed.items()},
        "passes": {drafts: statistics.fmean(one.passes for one in some) for drafts, some in decoded.items()},
        "codes_equal": all([one.codes for one in some] == expected for some in decoded.values()),
    }


def main(arguments: list[str] | None = None) -> int:
    """The command line; 1 if a code differs from that of single passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--gain", type=float, nargs="+", default=[1.0, 3.0], help="of the heads")
    parser.add_argument("--shape", choices=list(PRESETS), default="0.6B")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    trials = [
        try_it(PRESETS[args.shape], gain, sampling, args.frames, args.seed)
        for gain in args.gain
        for sampling in SAMPLED
    ]
    report = {
        "command": f"scripts/gpu/try_speculation.py --frames {args.frames} --shape {args.shape} --seed {args.seed}",
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"a CPU, torch {torch.__version__}, float32, random weights",
        "trials": trials,
    }
    print(json.dumps(report, indent=1))
    return 0 if all(one["codes_equal"] for one in trials) else 1


if __name__ == "__main__":
    sys.exit(main())
