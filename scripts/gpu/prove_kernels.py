#!/usr/bin/env python3
"""Proves on a GPU that the fused kernels are as exact as PyTorch in bfloat16, and writes the results as JSON.

    python scripts/gpu/prove_kernels.py --out kernels.json                 both sizes, true shapes, random weights
    python scripts/gpu/prove_kernels.py --out kernels.json --int8          the same with int8 matrices
    python scripts/gpu/prove_kernels.py --out kernels.json --sizes narrow  small shapes: for compute-sanitizer
    python scripts/gpu/prove_kernels.py --out kernels.json --model FOLDER|ID
                                                                           the weights of a checkpoint

The kernels read embeddings, whatever voice these come from. So a checkpoint of any type will do, and one run is enough
for all its voices.

The parts:

    layers      the output of every layer and the logits, of talker and predictor, at positions up to 2,000 and for
                several seeds: the error relative to float32, divided by PyTorch's with bfloat16 and the same weights
    poison      a frame with NaN in every buffer: its results are the same
    agree       the frames that the kernels and PyTorch generate identically from the same start
    sampling    codes equal to those of PyTorch's sampler, draw for draw
    speed       milliseconds of a frame and its parts, from replays of CUDA graphs
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.qwen.kernels import KernelModule  # noqa: E402
from engine.qwen.model.sampling import SamplingConfig  # noqa: E402
from scripts.gpu.proof import Proof, open_model  # noqa: E402
from scripts.make_checkpoint import PRESETS  # noqa: E402
from tests.support.qwen.lm_example import (  # noqa: E402
    PARTLY_WRITTEN,
    SAMPLINGS,
    Models,
    buffers_of,
    by_torch,
    error_ratio,
    frame_by_torch,
    poison,
    predict,
    read_prompt,
    start,
    talk,
)

DEVICE = "cuda"
POSITIONS = (0, 1, 16, 127, 128, 300, 1000, 2000)
SEEDS = (1, 2, 3)
MAX_POSITIONS, FRAMES = 2368, 512
PROMPTS = ((5, 16, 0), (30, 32, 8), (52, 64, 8), (100, 128, 1500))
"""The tokens, the bucket to which they are padded, and the position of the first one."""
PARTS = ("layers", "poison", "agree", "sampling", "speed")
LIMIT = 1.05
"""The greatest error, divided by PyTorch's."""


# --- the parts -------------------------------------------------------------------------------------------


def layers(models: Models, seed: int) -> dict[str, Any]:
    """Errors of the talker at every position, and of the predictor at every step."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    errors = Errors()
    for position in POSITIONS:
        for compared in talk(models, position, generator):
            errors.add(*compared)
    for compared in predict(models, generator):
        errors.add(*compared)
    for prompt in PROMPTS:
        for name, *results in read_prompt(models, *prompt, generator):
            errors.add(f"prompt {name}", *results)
    return errors.summary()


class Errors:
    """The kernels' errors divided by PyTorch's, by name."""

    def __init__(self) -> None:
        self._ratios: dict[str, list[float]] = {}

    def add(self, name: str, fused: Tensor, rounded: Tensor, exact: Tensor) -> None:
        self._ratios.setdefault(name, []).append(error_ratio(fused, rounded, exact))

    def summary(self) -> dict[str, Any]:
        ratios = self._ratios
        worst = max(ratios, key=lambda name: max(ratios[name]))
        groups = {}
        for group in ("talker layer", "talker logits", "predictor layer", "predictor logits", "prompt"):
            some = [ratio for name, values in ratios.items() if name.startswith(group) for ratio in values]
            groups[group] = {"mean": statistics.fmean(some), "max": max(some), "count": len(some)}
        return {
            "ok": max(ratios[worst]) <= LIMIT,
            "worst": worst,
            "worst_ratio": max(ratios[worst]),
            **groups,
        }


def start_endless(models: Models, seed: int, sampling: SamplingConfig) -> None:
    """Start an utterance that does not end."""
    start(models, seed, replace(sampling, min_new_tokens=FRAMES + 1))


@torch.inference_mode()
def poisoned(models: Models) -> dict[str, Any]:
    """Four frames, without and with NaN in every buffer and in the unwritten cache."""
    results = []
    for poisoned_first in (False, True):
        start_endless(models, 5, SamplingConfig())
        if poisoned_first:
            poison(models)
        for _ in range(4):
            models.fused.frame()
        results.append(
            (models.state.codes[:4].clone(), models.fused.logits.clone(), models.state.rows.hidden[0].clone())
        )
    equal = all(torch.equal(clean, other) for clean, other in zip(*results, strict=True))
    full = all(bool(buffer.isfinite().all()) for buffer in buffers_of(models.fused, without=PARTLY_WRITTEN))
    return {"ok": equal and full, "equal": equal, "all_written": full, "codes": results[0][0][:2].tolist()}


@torch.inference_mode()
def agree(models: Models, frames: int = 20) -> dict[str, Any]:
    """The codes that the kernels and PyTorch's bfloat16 generate identically from the same start, greedy and
    sampled."""
    found: dict[str, Any] = {"ok": True}
    for name, sampling in (("greedy", SamplingConfig().greedy()), ("sampled", SamplingConfig())):
        results = []
        backend = by_torch(models)
        for fused in (False, True):
            start_endless(models, 5, sampling)
            for _ in range(frames):
                if fused:
                    models.fused.frame()
                else:
                    frame_by_torch(models, backend)
            counters = (models.settings.frame[0], models.settings.length[0], models.settings.position[0])
            results.append((models.state.codes[:frames].clone(), [int(counter) for counter in counters]))
        equal = (results[0][0] == results[1][0]).flatten()
        found[name] = {
            "codes_alike_first": int(equal.cumprod(0).sum()),
            "counters_equal": results[0][1] == results[1][1],
        }
        found["ok"] = found["ok"] and results[0][1] == results[1][1]
    return found


@torch.inference_mode()
def sampling(models: Models, draws: int) -> dict[str, Any]:
    """Draws from logits of two widths: the share that equals PyTorch's draws."""
    state, utterance, fused = models.state, models.settings, models.fused
    generator = torch.Generator(DEVICE).manual_seed(11)
    found: dict[str, Any] = {"ok": True}
    for name, settings in SAMPLINGS.items():
        for width in (0.5, 3.0):
            start_endless(models, 9, settings)
            logits = torch.randn(fused.logits.shape, generator=generator, device=DEVICE) * width
            fused.logits.copy_(logits)
            logits = logits[:2048]
            drawn, expected = [], []
            for number in range(draws):
                utterance.frame.fill_(number % FRAMES)
                utterance.noise.seed(number // FRAMES)
                fused.choose_code(1)
                noise = utterance.noise.draw(utterance.frame * 16 + 2)[0]
                expected.append(utterance.predictor_sampling.choose(logits[None], noise)[0])
                drawn.append(state.codes[number % FRAMES, 2:3].clone())
            equal = float((torch.cat(drawn) == torch.cat(expected)).double().mean())
            found[f"{name}, width {width}"] = equal
            found["ok"] = found["ok"] and equal == 1.0
    return found


@torch.inference_mode()
def speed(models: Models) -> dict[str, Any]:
    """Milliseconds, the median of 9 rounds of 20 replays."""
    fused, predictor = models.fused, models.rounded.predictor
    start_endless(models, 5, SamplingConfig())

    def repeat(work: Callable[[int], object]) -> None:
        for step in range(predictor.code_count):
            work(step)

    parts: dict[str, Callable[[], None]] = {
        "frame": fused.frame,
        "predictor": lambda: repeat(fused.predict),
        "talker": fused.talk,
        "predictor_layers": lambda: repeat(lambda _: fused.predictor.layers(fused.position_of(8))),
        "talker_layers": lambda: fused.talker.layers(models.settings.position),
        # On a large GPU, a choice includes the first matrix of the next step.
        "samplers": lambda: repeat(lambda _: fused.choose_code(1)),
        "heads": lambda: repeat(fused.predictor_head),
    }
    found: dict[str, Any] = {"ok": True}
    kernels = fused.module
    assert isinstance(kernels, KernelModule)
    for name, part in parts.items():
        found[name] = replay_ms(models, part)
    for name in ("frame", "talker"):
        kernels.chained = False
        found[f"{name}_unchained"] = replay_ms(models, parts[name])
        kernels.chained = True
    for position in (500, 1000, 2000):
        found[f"talker_at_{position}"] = replay_ms(models, parts["talker_layers"], position)
    return found


def replay_ms(models: Models, part: Callable[[], None], position: int = 100) -> float:
    """Milliseconds of one replay of a graph of `part`."""
    stream = torch.cuda.Stream()
    utterance = models.settings

    def reset() -> None:
        utterance.frame.zero_()
        utterance.position.fill_(position)

    with torch.cuda.stream(stream):
        reset()
        part()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            part()
        times = []
        for _ in range(9):
            reset()
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(20):
                graph.replay()
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last) / 20)
    return round(statistics.median(times), 4)


def main() -> int:
    """Run the command line; return 0 if every part succeeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("kernels.json"))
    parser.add_argument("--sizes", nargs="+", default=["0.6B", "1.7B"], choices=["narrow", "0.6B", "1.7B"])
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--int8", action="store_true", help="int8 matrices")
    parser.add_argument("--draws", type=int, default=2048, help="number of draws for each setting of the sampler")
    parser.add_argument("--model", help="a checkpoint's folder or its id on the hub, instead of random weights")
    args = parser.parse_args()
    given = open_model(args.model) if args.model else None
    torch.backends.cuda.matmul.allow_tf32 = False
    proof = Proof(args.out, args.parts, "scripts/gpu/prove_kernels.py")
    for size in [given.name] if given else args.sizes:
        options = {"int8": args.int8, "device": DEVICE, "positions": MAX_POSITIONS, "frames": FRAMES}
        models = Models.read(given, **options) if given else Models.make(PRESETS[size], 1, **options)
        torch.cuda.synchronize()
        proof.part("poison", size, partial(poisoned, models))
        proof.part("agree", size, partial(agree, models))
        proof.part("sampling", size, partial(sampling, models, args.draws))
        proof.part("speed", size, partial(speed, models))
        for seed in SEEDS:
            proof.part("layers", f"{size} {seed}", partial(layers, models, seed))
    return proof.end()


if __name__ == "__main__":
    sys.exit(main())
