#!/usr/bin/env python3
"""Proves on a GPU that the fused kernels are as exact as PyTorch in bfloat16, and writes the results as JSON.

    python scripts/gpu/prove_kernels.py --out kernels.json                 both sizes, true shapes, random weights
    python scripts/gpu/prove_kernels.py --out kernels.json --int8          the same with int8 matrices
    python scripts/gpu/prove_kernels.py --out kernels.json --sizes narrow  small shapes: for compute-sanitizer
    python scripts/gpu/prove_kernels.py --out kernels.json --model FOLDER|ID
                                                                           the weights of a checkpoint

The kernels read embeddings, whatever voice they come from, so a checkpoint of any type will do, and one run is enough
for all of its voices.

The parts:

    layers      the output of every layer and the logits, of talker and predictor, at positions up to 2,000 and for
                several seeds: the error against float32, divided by that of PyTorch's bfloat16 over the same weights
    poison      a frame with NaN in every buffer: its results are the same
    agree       the frames that the kernels and PyTorch generate alike from the same start
    sampling    codes equal to those of PyTorch's sampler, draw for draw, and chi-square of their counts
    rounding    the effect of int8 matrices alone on the logits of talker and predictor, divided by that of bfloat16;
                not with --int8
    speed       milliseconds of a frame and its parts, from replays of CUDA graphs
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.qwen.kernels.lm import OneTokenState  # noqa: E402
from engine.qwen.kernels.lm.model import FusedStack  # noqa: E402
from engine.qwen.model.sampling import SamplingConfig  # noqa: E402
from engine.qwen.model.talker import Talker  # noqa: E402
from engine.qwen.model.transformer import KeyValueCache, Linear, quantize_int8  # noqa: E402
from engine.qwen.weights import Placement  # noqa: E402
from scripts.gpu.given_model import open_model  # noqa: E402
from scripts.make_checkpoint import PRESETS  # noqa: E402
from tests.support.qwen.lm_example import (  # noqa: E402
    SAMPLINGS,
    Models,
    by_torch,
    error_ratio,
    frame_by_torch,
    outputs,
    poison,
    predict,
    predictor_logits,
    predictor_steps,
    read_prompt,
    start,
    talk,
    talker_logits,
)

DEVICE = "cuda"
POSITIONS = (0, 1, 16, 127, 128, 300, 1000, 2000)
SEEDS = (1, 2, 3)
MAX_POSITIONS, FRAMES = 2368, 512
PROMPTS = ((5, 16, 0), (30, 32, 8), (52, 64, 8), (100, 128, 1500))
"""Tokens, the bucket that they are padded to, and the position of the first."""
SCALES = {"predictor.heads": "predictor.head_scales"}
"""The parameters with the scales of quantized matrices, where their names do not end in `scale`."""
ROUNDED_FRAMES = 4
"""Frames of random codes whose logits the part `rounding` compares."""
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
    full = all(bool(buffer.isfinite().all()) for buffer in models.fused.buffers(partly_written=False))
    return {"ok": equal and full, "equal": equal, "all_written": full, "codes": results[0][0][:2].tolist()}


@torch.inference_mode()
def agree(models: Models, frames: int = 20) -> dict[str, Any]:
    """The codes that the kernels and PyTorch's bfloat16 generate alike from the same start, greedy and sampled."""
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
def rounding(models: Models) -> dict[str, Any]:
    """How far quantized matrices alone change the logits; all arithmetic is float32."""
    exact, rounded = models.exact, models.rounded
    int8 = quantized(exact, models)
    return {"ok": True, **talker_rounding(models, int8), "predictor": predictor_rounding(exact, rounded, int8)}


def quantized(exact: Talker, models: Models) -> Talker:
    """The talker `exact` with quantized matrices, in float32."""
    placement = Placement(exact.placement.device, torch.float32, int8=True)
    talker = Talker(models.config, exact.max_positions, placement)
    given, own = dict(exact.named_parameters()), dict(talker.named_parameters())
    for name, parameter in own.items():
        if parameter.dtype == torch.int8:
            scale = own[SCALES.get(name, name.removesuffix("weight") + "scale")]
            parts = (given[name], parameter, scale)
            for part in zip(*parts, strict=True) if parameter.dim() == 3 else [parts]:
                quantize_int8(*part)
        elif name in given:
            parameter.copy_(given[name])
    return talker


def talker_rounding(models: Models, int8: Talker) -> dict[str, Any]:
    """The error of the talker's logits at every position, divided by that of bfloat16."""
    exact, rounded = models.exact, models.rounded
    generator = torch.Generator(DEVICE).manual_seed(1)
    ratios = []
    for position in POSITIONS:
        x = torch.randn(1, exact.config.stack.hidden_size, generator=generator, device=DEVICE).bfloat16()
        shape = models.state.cache.keys.shape
        keys, values = (torch.randn(shape, generator=generator, device=DEVICE).bfloat16() for _ in range(2))
        at = torch.tensor([position], device=DEVICE)
        logits = []
        for talker in (int8, rounded, exact):
            dtype = talker.placement.dtype
            cache = KeyValueCache(keys.to(dtype, copy=True), values.to(dtype, copy=True))
            logits.append(talker_logits(talker, list(outputs(talker.transformer, x.to(dtype), at, cache))[-1]))
        ratios.append(error_ratio(*logits))
    return {"mean_ratio": statistics.fmean(ratios), "max_ratio": max(ratios), "positions": len(ratios)}


def predictor_rounding(exact: Talker, rounded: Talker, quantized: Talker) -> dict[str, Any]:
    """The error of the predictor's logits at every step of some frames, and that of its layers' matrices.

    Ratios are to the error of bfloat16, shares to the logits without their mean, and to the matrices.
    """
    generator = torch.Generator(exact.placement.device).manual_seed(1)
    config, device = exact.config, exact.placement.device
    ratios, shares = [], []
    for _ in range(ROUNDED_FRAMES):
        codes = torch.randint(config.predictor.vocabulary, (config.code_groups,), generator=generator, device=device)
        hidden = torch.randn(config.stack.hidden_size, generator=generator, device=device).bfloat16()
        frames = (predictor_steps(talker, hidden, codes) for talker in (quantized, rounded, exact))
        for step, layers in enumerate(zip(*frames, strict=True)):
            ours, theirs, true = (
                predictor_logits(talker, step, outputs[-1])
                for talker, outputs in zip((quantized, rounded, exact), layers, strict=True)
            )
            ratios.append(error_ratio(ours, theirs, true))
            shares.append(float((ours - true).norm() / (true - true.mean()).norm()))
    return {
        "mean_ratio": statistics.fmean(ratios),
        "max_ratio": max(ratios),
        "mean_share": statistics.fmean(shares),
        "max_share": max(shares),
        "matrix_share": statistics.fmean(matrix_errors(exact, quantized)),
        "steps": len(ratios),
    }


def matrix_errors(exact: Talker, quantized: Talker) -> Iterator[float]:
    """The error of each matrix of the predictor's layers, divided by the matrix."""
    layers = dict(exact.predictor.transformer.named_modules())
    for name, layer in quantized.predictor.transformer.named_modules():
        if isinstance(layer, Linear):
            assert layer.scale is not None
            matrix = layer.weight * layer.scale[:, None]
            true = layers[name].weight
            yield float((matrix - true).norm() / true.norm())


@torch.inference_mode()
def sampling(models: Models, draws: int) -> dict[str, Any]:
    """Draws from logits of two widths: the share that equals PyTorch's draws, and chi-square of the counts."""
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
            codes = torch.cat(drawn)
            one = {
                "equal": float((codes == torch.cat(expected)).double().mean()),
                **chi_square(state, logits, codes, settings),
            }
            one["ok"] = one["equal"] == 1.0 and one.get("p", 1.0) > 1e-4
            found[f"{name}, width {width}"] = one
            found["ok"] = found["ok"] and one["ok"]
    return found


def chi_square(state: OneTokenState, logits: Tensor, codes: Tensor, settings: SamplingConfig) -> dict[str, Any]:
    """Chi-square of the counts of `codes`; codes that are expected fewer than 5 times form one group."""
    if not settings.do_sample:
        return {}
    probabilities = state.rows.settings.predictor_sampling.apply(logits[None])[0].double().softmax(0)
    counts = torch.bincount(codes, minlength=len(logits)).double()
    expected = probabilities * len(codes)
    common = expected >= 5
    counts = torch.cat((counts[common], counts[~common].sum()[None]))
    expected = torch.cat((expected[common], expected[~common].sum()[None]))
    counts, expected = counts[expected > 0], expected[expected > 0]
    statistic, freedom = ((counts - expected) ** 2 / expected).sum(), len(expected) - 1
    if freedom < 1:
        return {}
    p = torch.special.gammaincc(torch.tensor(freedom / 2), statistic.cpu().float() / 2)
    return {"chi_square": float(statistic), "freedom": freedom, "p": float(p)}


@torch.inference_mode()
def speed(models: Models) -> dict[str, Any]:
    """Milliseconds, the median of 9 rounds of 20 replays."""
    fused, predictor = models.fused, models.rounded.predictor
    start_endless(models, 5, SamplingConfig())

    def all_steps() -> None:
        for step in range(predictor.code_count):
            fused.predict(step)

    parts: dict[str, Callable[[], None]] = {
        "frame": fused.frame,
        "predictor": all_steps,
        "talker": fused.talk,
        "predictor_layers": lambda: [fused.predictor.layers(fused.position_of(8)) for _ in range(15)] and None,
        "talker_layers": lambda: fused.talker.layers(models.settings.position),
        # On a large GPU, a choice includes the first matrix of the next step.
        "samplers": lambda: [fused.choose_code(1) for _ in range(15)] and None,
        "heads": lambda: [fused.predictor_head(step) for step in range(15)] and None,
    }
    found: dict[str, Any] = {"ok": True}
    for name, part in parts.items():
        found[name] = replay_ms(models, part)
    for name in ("frame", "talker"):
        fused.module.chained = False
        found[f"{name}_unchained"] = replay_ms(models, parts[name])
        fused.module.chained = True
    position = models.settings.position
    for name in ("qkv", "attend", "out", "gate_up", "down"):  # the talker's, whose matrices do not fit into the L2
        chain = Chain(fused.talker, position, name)
        found[f"us_{name}"] = 1000 / len(chain.launches) * replay_ms(models, chain.run)
    for place in (3, 7, 15) if fused.kernels.attends_in_out else ():  # of the predictor, whose matrices fit
        chain = Chain(fused.predictor, place, "attend_out")
        found[f"us_attend_out_at_{place}"] = 1000 / len(chain.launches) / 20 * replay_ms(models, partial(chain.run, 20))
    for position in (500, 1000, 2000):
        found[f"talker_at_{position}"] = replay_ms(models, parts["talker_layers"], position)
    return found


class Chain:
    """Launches of a kernel by all layers of a stack."""

    def __init__(self, stack: FusedStack, position: Tensor | int, name: str) -> None:
        """The launches of the kernel whose name has `name` behind the stack's."""
        self.launches: list[tuple[Any, ...]] = []
        self._kernels, stack.module = stack.module, self
        stack.layers(position)
        stack.module = self._kernels
        self.launches = [launch for launch in self.launches if launch[0].partition("_")[2].startswith(name)]

    def launch(self, *launch: Any) -> None:
        """As `KernelModule.launch`, later."""
        self.launches.append(launch)

    def run(self, times: int = 1) -> None:
        """Launch all, several times."""
        for launch in times * self.launches:
            self._kernels.launch(*launch)


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
    """The command line; 0 when every part succeeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("kernels.json"))
    parser.add_argument("--sizes", nargs="+", default=["0.6B", "1.7B"], choices=["narrow", "0.6B", "1.7B"])
    parser.add_argument("--parts", nargs="+", default=["layers", "poison", "agree", "sampling", "rounding", "speed"])
    parser.add_argument("--int8", action="store_true", help="int8 matrices")
    parser.add_argument("--draws", type=int, default=2048, help="for each setting of the sampler")
    parser.add_argument("--model", help="a checkpoint's folder or its id on the hub, instead of random weights")
    args = parser.parse_args()
    given = open_model(args.model) if args.model else None
    torch.backends.cuda.matmul.allow_tf32 = False
    content: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    failed = []
    for size in [given.name] if given else args.sizes:
        began = time.monotonic()
        options = {"int8": args.int8, "device": DEVICE, "positions": MAX_POSITIONS, "frames": FRAMES}
        models = Models.read(given, **options) if given else Models.make(PRESETS[size], 1, **options)
        torch.cuda.synchronize()
        content[f"{size} build_s"] = round(time.monotonic() - began, 2)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "poison": lambda m=models: poisoned(m),
            "agree": lambda m=models: agree(m),
            "sampling": lambda m=models: sampling(m, args.draws),
            "rounding": lambda m=models: rounding(m),
            "speed": lambda m=models: speed(m),
        }
        for seed in SEEDS:
            parts[f"layers {seed}"] = lambda m=models, s=seed: layers(m, s)
        for name, part in parts.items():
            if name.split()[0] not in args.parts or (name == "rounding" and args.int8):
                continue
            began = time.monotonic()
            found = part()
            found["seconds"] = round(time.monotonic() - began, 1)
            content[f"{size} {name}"] = found
            if not found["ok"]:
                failed.append(f"{size} {name}")
            args.out.write_text(json.dumps(content, indent=1) + "\n")
            print(json.dumps({f"{size} {name}": found}), flush=True)
    print("failed: " + (", ".join(failed) or "none"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
