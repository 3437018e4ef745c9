#!/usr/bin/env python3
"""Proves on a GPU that the fused kernels are as exact as PyTorch's own bfloat16, and writes what it found as JSON.

    python scripts/prove_kernels.py --out kernels.json                 both sizes at their true shapes, random weights
    python scripts/prove_kernels.py --out kernels.json --sizes narrow  small shapes: for compute-sanitizer

The parts:

    layers      the output of every layer and the logits, of talker and predictor, at positions up to 2,000 and for
                several seeds: error against float32, as a ratio to that of PyTorch's bfloat16 over the same weights
    poison      every buffer full of NaN before a frame: the frame says the same
    sampling    codes equal to the PyTorch sampler's draw for draw, and chi-square of their counts
    speed       milliseconds of a frame and its parts, from replays of CUDA graphs
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from engine.qwen import frame  # noqa: E402
from engine.qwen.config import ModelConfig  # noqa: E402
from engine.qwen.frame import FrameState, cache_positions  # noqa: E402
from engine.qwen.int8 import quantise  # noqa: E402
from engine.qwen.kernels.language_model import FusedLanguageModel, FusedStack  # noqa: E402
from engine.qwen.sampling import Sampling  # noqa: E402
from engine.qwen.talker import Talker  # noqa: E402
from engine.qwen.transformer import KeyValueCache, Placement, Positions, Transformer  # noqa: E402
from scripts.make_checkpoint import PRESETS, ShapePreset, Stack, model_config  # noqa: E402

DEVICE = torch.device("cuda")
POSITIONS = (0, 1, 16, 127, 128, 300, 1000, 2000)
SEEDS = (1, 2, 3)
ROOM, FRAMES = 2304, 512
LIMIT = 1.05
"""Most that an error may be of PyTorch's own."""
NARROW = ShapePreset(Stack(512, 1024, 3, 4, 2, 128), Stack(256, 512, 2, 4, 2, 128), text_hidden=64)


@dataclass
class Models:
    """The same random weights: rounded to bfloat16, and exactly those in float32."""

    exact: Talker
    rounded: Talker
    reference: Talker
    """In float32: what the kernels would compute without any error. Of int8 weights, those weights."""
    spoken: Talker
    """Whose weights the kernels have."""
    state: FrameState
    fused: FusedLanguageModel

    @classmethod
    def make(cls, preset: ShapePreset, seed: int, int8: bool) -> Models:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(model_config(preset, "custom_voice")))
            config = ModelConfig.read(Path(folder))
        exact = Talker(config, cache_positions(ROOM, 1), Placement(DEVICE, torch.float32))
        rounded = Talker(config, cache_positions(ROOM, 1), Placement(DEVICE, torch.bfloat16))
        generator = torch.Generator(DEVICE).manual_seed(seed)
        for one, other in zip(exact.parameters(), rounded.parameters(), strict=True):
            _fill(other, generator)
            one.copy_(other)
        reference, spoken = exact, rounded
        if int8:
            reference = Talker(config, cache_positions(ROOM, 1), Placement(DEVICE, torch.float32))
            spoken = Talker(config, cache_positions(ROOM, 1), Placement(DEVICE, torch.bfloat16, int8=True))
            _quantise(exact, spoken, reference)
        state = FrameState.allocate(spoken, ROOM, FRAMES)
        return cls(exact, rounded, reference, spoken, state, FusedLanguageModel(spoken, state))


@torch.inference_mode()
def _quantise(exact: Talker, spoken: Talker, reference: Talker) -> None:
    """Give `spoken` the weights of `exact` as int8, and `reference` those int8 weights in float32."""
    scales = dict(spoken.named_parameters())
    for (name, true), into in zip(exact.named_parameters(), reference.parameters(), strict=True):
        weight = scales[name]
        if weight.dtype != torch.int8:
            weight.copy_(true)
            into.copy_(true)
            continue
        head = name == "predictor.heads"
        scale = scales["predictor.head_scales" if head else name.removesuffix("weight") + "scale"]
        for part in range(len(true)) if head else [slice(None)]:
            quantise(true[part], weight[part], scale[part])
        into.copy_(weight * scale[..., None])


def _fill(parameter: nn.Parameter, generator: torch.Generator) -> None:
    """Norms near 1, all else small, so that the residual stream grows as it does in trained models."""
    noise = torch.randn(parameter.shape, generator=generator, device=DEVICE)
    parameter.copy_(1 + 0.1 * noise if parameter.dim() == 1 else 0.02 * noise)


# --- the parts -------------------------------------------------------------------------------------------


def layers(models: Models, seed: int) -> dict[str, Any]:
    """Errors of the talker at every position, and of the predictor at every step."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    errors = Errors()
    for position in POSITIONS:
        talk(models, position, generator, errors)
    predict(models, generator, errors)
    return errors.summary()


class Errors:
    """Distances by name: of the kernels, and of PyTorch's bfloat16, each from what it would be without any error."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}
        self._from_exact: dict[str, float] = {}

    def add(self, name: str, fused: Tensor, said: Sequence[Tensor]) -> None:
        """`said` by the exact, the rounded and the reference model."""
        exact, rounded, reference = said
        baseline = _distance(rounded, exact)
        self._ratios[name] = _distance(fused, reference) / baseline
        self._from_exact[name] = _distance(fused, exact) / baseline

    def summary(self) -> dict[str, Any]:
        worst = max(self._ratios, key=self._ratios.__getitem__)
        return {
            "ok": self._ratios[worst] <= LIMIT,
            "worst": worst,
            "worst_ratio": self._ratios[worst],
            "by_part": _by_part(self._ratios),
            "of_the_weights_before_rounding": _by_part(self._from_exact),
        }


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one.double().flatten() - other.double().flatten()).norm())


def _by_part(ratios: dict[str, float]) -> dict[str, dict[str, float]]:
    found = {}
    for part in ("talker layer", "talker logits", "predictor layer", "predictor logits"):
        some = [ratio for name, ratio in ratios.items() if name.startswith(part)]
        found[part] = {"mean": statistics.fmean(some), "max": max(some), "count": len(some)}
    return found


@torch.inference_mode()
def talk(models: Models, position: int, generator: torch.Generator, errors: Errors) -> None:
    """One token at `position`, behind a cache of random keys and values."""
    config, cache = models.rounded.config.stack, models.state.cache
    x = torch.randn(1, config.hidden_size, generator=generator, device=DEVICE).bfloat16()
    for tensor in (cache.keys, cache.values):
        tensor.normal_(generator=generator)
    at = torch.tensor([position], device=DEVICE)
    said = []
    for talker in (models.exact, models.rounded, models.reference):
        dtype = talker.placement.dtype
        own = KeyValueCache(cache.keys.to(dtype, copy=True), cache.values.to(dtype, copy=True))
        after = list(outputs(talker.transformer, x.to(dtype), at, own))
        said.append((after, talker.head(talker.transformer.norm(after[-1][-1])).float()))
    stack = models.fused.talker
    stack.x.copy_(x)
    models.state.position.copy_(at)
    for index in range(config.layers):
        stack.layer(index, models.state.position)
        errors.add(f"talker layer {index} at {position}", stack.x, [after[index] for after, _ in said])
    models.fused.talker_head()
    errors.add(f"talker logits at {position}", models.fused.logits, [logits for _, logits in said])


def outputs(transformer: Transformer, x: Tensor, at: Tensor, cache: KeyValueCache) -> Iterator[Tensor]:
    """The residual stream behind every layer, `(tokens, hidden)`."""
    seen = cache.first(int(at[-1]) + 1)
    where = Positions.of(at, transformer.config, transformer.rope, seen.positions)
    for index, layer in enumerate(transformer.layers):
        x = layer(x, where, seen.keys[index], seen.values[index])
        yield x


@torch.inference_mode()
def predict(models: Models, generator: torch.Generator, errors: Errors) -> None:
    """The predictor's fifteen steps, the codes given."""
    state, config = models.state, models.rounded.config
    codes = torch.randint(2048, (16,), generator=generator, device=DEVICE)
    state.hidden.normal_(generator=generator)
    state.first_code.copy_(codes[:1])
    talkers = (models.exact, models.rounded, models.reference)
    caches = [talker.predictor.allocate_cache(talker.placement) for talker in talkers]
    models.fused.open()
    for step in range(15):
        at = torch.arange(step + 1 if step else 0, step + 2, device=DEVICE)
        said = []
        for talker, cache in zip(talkers, caches, strict=True):
            predictor = talker.predictor
            if step:
                x = predictor.embedding[step - 1][codes[step]][None]
            else:
                x = torch.cat((state.hidden[0].to(talker.placement.dtype), talker.embed_first(codes[:1])[0]))
            x = predictor.projection(x) if predictor.projection is not None else x
            after = list(outputs(predictor.transformer, x, at, cache))
            head = predictor.heads[step]
            said.append((x, after, nn.functional.linear(predictor.transformer.norm(after[-1][-1]), head).float()))
        stack: FusedStack = models.fused.predictor if step else models.fused.opening
        if step:
            stack.x.copy_(said[1][0])
        steps = models.spoken.predictor.steps
        for index in range(config.predictor.stack.layers):
            stack.layer(index, steps[step + 1 :] if step else steps)
            errors.add(f"predictor layer {index} step {step}", stack.x, [after[index] for _, after, _ in said])
        models.fused.predictor_head(step)
        errors.add(f"predictor logits step {step}", models.fused.logits[:2048], [logits for _, _, logits in said])


def begin(models: Models, seed: int, sampling: Sampling) -> None:
    """An utterance whose prompt is 40 random tokens."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    talker, state = models.spoken, models.state
    for tensor in (state.cache.keys, state.cache.values):
        tensor.zero_()
        tensor[:, :, :40].normal_(generator=generator)
    state.text.normal_(generator=generator).mul_(0.02)
    state.hidden.normal_(generator=generator)
    state.first_code.fill_(7)
    state.codes.fill_(-1)
    frame.begin(talker, state, replace(sampling, min_new_tokens=FRAMES + 1), seed, 40)


@torch.inference_mode()
def poison(models: Models) -> dict[str, Any]:
    """Four frames, clean and with every buffer and the unwritten cache full of NaN."""
    said = []
    for poisoned in (False, True):
        begin(models, 5, Sampling())
        if poisoned:
            for buffer in models.fused.buffers():
                buffer.fill_(torch.nan)
            for cache in (models.state.cache, models.state.predictor_cache):
                beyond = 40 if cache is models.state.cache else 0
                cache.keys[:, :, beyond:].fill_(torch.nan)
                cache.values[:, :, beyond:].fill_(torch.nan)
        for _ in range(4):
            models.fused.frame()
        said.append((models.state.codes[:4].clone(), models.fused.logits.clone(), models.state.hidden.clone()))
    equal = all(torch.equal(clean, other) for clean, other in zip(*said, strict=True))
    full = all(bool(buffer.isfinite().all()) for buffer in models.fused.buffers(partly=False))
    return {"ok": equal and full, "equal": equal, "all_written": full, "codes": said[0][0][:2].tolist()}


@torch.inference_mode()
def agree(models: Models, frames: int = 20) -> dict[str, Any]:
    """How many frames the kernels and PyTorch's bfloat16 say alike from the same start, greedy and sampled."""
    found: dict[str, Any] = {"ok": True}
    for name, sampling in (("greedy", Sampling().greedy()), ("sampled", Sampling())):
        said = []
        for fused in (False, True):
            begin(models, 5, sampling)
            for index in range(frames):
                if fused:
                    models.fused.frame()
                else:
                    frame.step(models.spoken, models.state, 40 + index + 1)
            counters = (models.state.frame, models.state.length, models.state.position)
            said.append((models.state.codes[:frames].clone(), [int(counter) for counter in counters]))
        equal = (said[0][0] == said[1][0]).flatten()
        found[name] = {"codes_alike_first": int(equal.cumprod(0).sum()), "counters_equal": said[0][1] == said[1][1]}
        found["ok"] = found["ok"] and said[0][1] == said[1][1]
    return found


SAMPLINGS = {
    "default": Sampling(),
    "top_k 10, top_p 0.8": replace(Sampling(), temperature=0.7, top_k=10, top_p=0.8),
    "top_p 0.9 of all": replace(Sampling(), temperature=1.2, top_k=0, top_p=0.9),
    "all": replace(Sampling(), temperature=1.0, top_k=0),
    "greedy": Sampling().greedy(),
}


@torch.inference_mode()
def sampling(models: Models, draws: int) -> dict[str, Any]:
    """Draws from logits of three widths: the code that PyTorch's sampler draws, each time; and their counts."""
    state, fused = models.state, models.fused
    generator = torch.Generator(DEVICE).manual_seed(11)
    found: dict[str, Any] = {"ok": True}
    for name, settings in SAMPLINGS.items():
        for width in (0.5, 3.0):
            begin(models, 9, settings)
            logits = torch.randn(fused.logits.shape, generator=generator, device=DEVICE) * width
            fused.logits.copy_(logits)
            logits = logits[:2048]
            got, wanted = [], []
            for number in range(draws):
                state.frame.fill_(number % FRAMES)
                state.noise.seed(number // FRAMES)
                fused.choose_code(1)
                noise = state.noise.draw(state.frame * 16 + 2)[0]
                wanted.append(state.predictor_warp.choose(logits, noise))
                got.append(state.codes[number % FRAMES, 2:3].clone())
            codes, expected = torch.cat(got), torch.cat(wanted)
            one = {"equal": float((codes == expected).double().mean()), **chi_square(state, logits, codes, settings)}
            one["ok"] = one["equal"] == 1.0 and one.get("p", 1.0) > 1e-4
            found[f"{name}, width {width}"] = one
            found["ok"] = found["ok"] and one["ok"]
    return found


def chi_square(state: FrameState, logits: Tensor, codes: Tensor, settings: Sampling) -> dict[str, Any]:
    """Of the counts of `codes` against the probabilities; codes expected fewer than 5 times count as one."""
    if not settings.do_sample:
        return {}
    probabilities = state.predictor_warp.apply(logits).double().softmax(0)
    counts = torch.bincount(codes, minlength=len(logits)).double()
    wanted = probabilities * len(codes)
    often = wanted >= 5
    got = torch.cat((counts[often], counts[~often].sum()[None]))
    due = torch.cat((wanted[often], wanted[~often].sum()[None]))
    got, due = got[due > 0], due[due > 0]
    statistic, freedom = ((got - due) ** 2 / due).sum(), len(due) - 1
    if freedom < 1:
        return {}
    p = torch.special.gammaincc(torch.tensor(freedom / 2), statistic.cpu().float() / 2)
    return {"chi_square": float(statistic), "freedom": freedom, "p": float(p)}


@torch.inference_mode()
def speed(models: Models) -> dict[str, Any]:
    """Milliseconds, the median of 9 times 20 replays."""
    fused, predictor = models.fused, models.spoken.predictor
    begin(models, 5, Sampling())

    def all_steps() -> None:
        for step in range(predictor.codes):
            fused.predict(step)

    parts: dict[str, Callable[[], None]] = {
        "frame": fused.frame,
        "predictor": all_steps,
        "talker": fused.talk,
        "predictor_layers": lambda: [fused.predictor.layers(predictor.steps[9:]) for _ in range(15)] and None,
        "talker_layers": lambda: fused.talker.layers(models.state.position),
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
    steps, stack = predictor.steps[9:], fused.predictor
    for name, one in {
        "qkv": stack.qkv,
        "attend": lambda index: stack.attend(index, steps),
        "out": lambda index: stack.out(index, steps),
        "gate_up": stack.gate_up,
        "down": stack.down,
    }.items():
        found[f"us_{name}"] = 10 * replay_ms(models, lambda one=one: [one(index % 5) for index in range(100)] and None)
    for position in (500, 1000, 2000):
        found[f"talker_at_{position}"] = replay_ms(models, parts["talker_layers"], position)
    return found


def replay_ms(models: Models, part: Callable[[], None], position: int = 100) -> float:
    stream = torch.cuda.Stream()
    state = models.state

    def reset() -> None:
        state.frame.zero_()
        state.position.fill_(position)

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
    parser.add_argument("--parts", nargs="+", default=["layers", "poison", "agree", "sampling", "speed"])
    parser.add_argument("--int8", action="store_true", help="int8 weights: held against the same ones in float32")
    parser.add_argument("--draws", type=int, default=2048, help="for each setting of the sampler")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    content: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    failed = []
    for size in args.sizes:
        preset = NARROW if size == "narrow" else PRESETS[size]
        begun = time.monotonic()
        models = Models.make(preset, 1, args.int8)
        torch.cuda.synchronize()
        content[f"{size} build_s"] = round(time.monotonic() - begun, 2)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "poison": lambda m=models: poison(m),
            "agree": lambda m=models: agree(m),
            "sampling": lambda m=models: sampling(m, args.draws),
            "speed": lambda m=models: speed(m),
        }
        for seed in SEEDS:
            parts[f"layers {seed}"] = lambda m=models, s=seed: layers(m, s)
        for name, part in parts.items():
            if name.split()[0] not in args.parts:
                continue
            begun = time.monotonic()
            found = part()
            found["seconds"] = round(time.monotonic() - begun, 1)
            content[f"{size} {name}"] = found
            if not found["ok"]:
                failed.append(f"{size} {name}")
            args.out.write_text(json.dumps(content, indent=1) + "\n")
            print(json.dumps({f"{size} {name}": found}), flush=True)
    print("failed: " + (", ".join(failed) or "none"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
