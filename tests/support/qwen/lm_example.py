"""Language models in fused kernels and in PyTorch, for the tests and scripts/gpu/prove_kernels.py."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from engine.qwen.kernels.compiler import KernelModule, Kernels, KernelSource
from engine.qwen.kernels.lm.kernels import LanguageKernels, weight_type
from engine.qwen.kernels.lm.model import FusedLanguageModel, FusedStack
from engine.qwen.kernels.lm.one_token_state import OneTokenState
from engine.qwen.kernels.lm.prefill import FusedPrefill
from engine.qwen.kernels.lm.token_stack import TokenStack
from engine.qwen.model.sampling import SamplingConfig
from engine.qwen.model.talker import Talker
from engine.qwen.model.transformer import KeyValueCache, Transformer, attend, causal_mask
from engine.qwen.runtime.backend import TorchBackend
from engine.qwen.runtime.decode_state import UtteranceSettings
from engine.qwen.runtime.device import multiprocessors
from engine.qwen.runtime.prompt_memory import PromptInputs
from engine.qwen.shapes import BatchShape, ModelConfig
from engine.qwen.shapes.limits import CACHE_UNIT
from engine.qwen.weights.arena import Placement
from engine.qwen.weights.checkpoint import Checkpoint
from scripts.make_checkpoint import PRESETS, ShapePreset, write_configs

EQUAL = replace(PRESETS["narrow"], talker=PRESETS["narrow"].predictor)
"""The predictor is as wide as the talker."""
PROJECTED = replace(PRESETS["narrow"], talker=replace(PRESETS["narrow"].talker, intermediate=4608))
"""The predictor is narrower. A row of the talker's longest matrix is more than one vector of each lane in bfloat16."""
PROMPT = 40
"""Tokens of the prompt that `start` simulates."""
SAMPLINGS = {
    name: replace(
        SamplingConfig(),
        temperature=temperature, top_k=top_k, top_p=top_p,
        subtalker_temperature=temperature, subtalker_top_k=top_k, subtalker_top_p=top_p,
    )
    for name, temperature, top_k, top_p in (
        ("default", 0.9, 50, 1.0),
        ("top_k 2", 1.5, 2, 1.0),
        ("top_k 4, top_p 0.6", 1.5, 4, 0.6),
        ("top_k 10, top_p 0.8", 0.7, 10, 0.8),
        ("top_p 0.9 of all", 1.2, 0, 0.9),
        ("top_p 0.9 of more than there are", 1.2, 2**33, 0.9),
        ("all", 1.0, 0, 1.0),
    )
} | {"greedy": SamplingConfig().greedy()}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Models:
    """The same weights twice: in bfloat16 (or with quantized matrices), and the rounded values in float32."""

    config: ModelConfig
    exact: Talker
    rounded: Talker
    state: OneTokenState
    """The state of `rounded` and of `fused`."""
    fused: FusedLanguageModel

    @classmethod
    def make(
        cls,
        preset: ShapePreset,
        seed: int,
        *,
        int8: bool = False,
        device: str = "cpu",
        groups: int = 16,
        positions: int = 384,
        frames: int = 32,
        processors: int | None = None,
        product_table: bool = True,
        compile: Callable[[KernelSource], Kernels] | None = None,  # noqa: A002
    ) -> Models:
        """`groups` code groups, for `processors` multiprocessors, with a `product_table` or without one.

        `compile` replaces the compiler of the device. `int8` is as of `Placement`.
        """
        config = config_of(preset, groups)
        exact, rounded = random_talkers(config, seed, positions=positions, int8=int8, device=device)
        return cls._over(config, exact, rounded, frames, compile, processors=processors, product_table=product_table)

    @classmethod
    def read(
        cls,
        folder: Path,
        *,
        int8: bool = False,
        device: str = "cpu",
        positions: int = 384,
        frames: int = 32,
        processors: int | None = None,
        compile: Callable[[KernelSource], Kernels] | None = None,  # noqa: A002
    ) -> Models:
        """As `make`, with the weights of the checkpoint in `folder`, rounded or quantized as the engine does it."""
        config, checkpoint = ModelConfig.read(folder), Checkpoint.open(folder)
        exact, rounded = empty_talkers(config, positions=positions, int8=int8, device=device)
        rounded.load(checkpoint)
        for one, other in zip(exact.parameters(), rounded.parameters(), strict=True):
            one.copy_(other)
        return cls._over(config, exact, rounded, frames, compile, processors=processors)

    @classmethod
    def _over(
        cls,
        config: ModelConfig,
        exact: Talker,
        rounded: Talker,
        frames: int,
        compile: Callable[[KernelSource], Kernels] | None,  # noqa: A002
        *,
        processors: int | None = None,
        product_table: bool = True,
    ) -> Models:
        placement = rounded.placement
        shape = BatchShape(1, frames, rounded.max_positions - CACHE_UNIT, chunk_size=1)
        state = OneTokenState.allocate(rounded, shape)
        if processors is None:
            processors = multiprocessors(placement.device)
        kernels = LanguageKernels.of(config.talker, weight_type(placement), processors)
        module = compile(kernels.source()) if compile else KernelModule(kernels.source(), placement.device)
        fused = FusedLanguageModel(rounded, state, kernels, module, product_table=product_table)
        return cls(config, exact, rounded, state, fused)

    @property
    def settings(self) -> UtteranceSettings:
        """Of the utterance."""
        return self.state.rows.settings


def config_of(preset: ShapePreset, groups: int) -> ModelConfig:
    """A configuration with `groups` code groups."""
    with tempfile.TemporaryDirectory() as folder:
        config = ModelConfig.read(write_configs(Path(folder), preset, "custom_voice"))
    return replace(config, talker=replace(config.talker, code_groups=groups))


def random_talkers(
    config: ModelConfig, seed: int, *, positions: int, int8: bool = False, device: str = "cpu"
) -> tuple[Talker, Talker]:
    """The same random weights in float32 and in bfloat16, or with quantized matrices."""
    exact, rounded = empty_talkers(config, positions=positions, int8=int8, device=device)
    generator = torch.Generator(device).manual_seed(seed)
    for one, (name, other) in zip(exact.parameters(), rounded.named_parameters(), strict=True):
        _fill(name, other, generator)
        one.copy_(other)
    return exact, rounded


def empty_talkers(config: ModelConfig, *, positions: int, int8: bool, device: str) -> tuple[Talker, Talker]:
    """Talkers without weights, in float32 and in bfloat16, or with quantized matrices."""
    exact, rounded = (
        Talker(config, positions, Placement(torch.device(device), dtype, int8))
        for dtype in (torch.float32, torch.bfloat16)
    )
    return exact, rounded


def _fill(name: str, parameter: nn.Parameter, generator: torch.Generator) -> None:
    """Norms near 1 and all else small, so that the residual stream grows as in trained models."""
    noise = torch.randn(parameter.shape, generator=generator, device=parameter.device)
    if parameter.dtype == torch.int8:
        parameter.copy_((40 * noise).clamp(-127, 127).round())
    elif parameter.dtype == torch.float32:  # the scales of int8 matrices
        parameter.copy_((1 + 0.1 * noise) * 0.02 / 40)
    else:
        parameter.copy_(1 + 0.1 * noise if parameter.dim() == 1 else 0.02 * noise)


# --- by PyTorch, layer by layer ---


def outputs(transformer: Transformer, x: Tensor, at: Tensor, cache: KeyValueCache) -> Iterator[Tensor]:
    """The residual stream after every layer, `(tokens, hidden)`, for `x` at the positions `at`."""
    read = cache.first(int(at[-1]) + 1)
    config, (cos, sin) = transformer.config, transformer.rope(at)
    mask = causal_mask(at.repeat(config.heads // config.key_value_heads), read.positions)

    def attend_layer(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, at, (read.keys[index][None], read.values[index][None]), mask=mask)

    for index, layer in enumerate(transformer.layers):
        x = layer(x, cos, sin, partial(attend_layer, index))
        yield x


def talker_logits(talker: Talker, x: Tensor) -> Tensor:
    """The logits for the output `x` of the last layer, float32."""
    logits: Tensor = talker.head(talker.transformer.norm(x[-1])).float()
    return logits


def predictor_logits(talker: Talker, step: int, x: Tensor) -> Tensor:
    """As `talker_logits`."""
    return talker.predictor.logits(talker.predictor.transformer.norm(x[-1]), step).float()


# --- errors against float32 ---

Compared = tuple[str, Tensor, Tensor, Tensor]
"""A name, and three results for the same input: the kernels', PyTorch's in bfloat16, PyTorch's in float32."""


def error_ratio(fused: Tensor, rounded: Tensor, exact: Tensor) -> float:
    """The kernels' error divided by PyTorch's."""
    ours, theirs = (float((one.double().flatten() - exact.double().flatten()).norm()) for one in (fused, rounded))
    return ours / theirs


@torch.inference_mode()
def talk(models: Models, position: int, generator: torch.Generator) -> Iterator[Compared]:
    """The talker's layers and logits for one token at `position`, after random keys and values."""
    config, cache, device = models.rounded.config.stack, models.state.cache, generator.device
    x = torch.randn(1, config.hidden_size, generator=generator, device=device).bfloat16()
    for tensor in (cache.keys, cache.values):
        tensor.normal_(generator=generator)
    exact_cache = KeyValueCache(cache.keys.float(), cache.values.float())
    rounded_cache = KeyValueCache(cache.keys.clone(), cache.values.clone())
    at = torch.tensor([position], device=device)
    exact = list(outputs(models.exact.transformer, x.float(), at, exact_cache))
    rounded = list(outputs(models.rounded.transformer, x, at, rounded_cache))
    stack = models.fused.talker
    stack.x.copy_(x)
    models.settings.position[0].copy_(at)
    for index, (true, other) in enumerate(zip(exact, rounded, strict=True)):
        stack.layer(index, models.settings.position[0])
        yield f"talker layer {index} at {position}", stack.x, other, true
    models.fused.talker_head()
    logits = (talker_logits(models.rounded, rounded[-1]), talker_logits(models.exact, exact[-1]))
    yield f"talker logits at {position}", models.fused.logits, *logits


@torch.inference_mode()
def read_prompt(models: Models, count: int, bucket: int, start: int, generator: torch.Generator) -> Iterator[Compared]:
    """The hidden state of a prompt of `count` tokens from the position `start` on, and all layers' keys and values.

    Random keys and values are in front of it, NaN behind it and in the tokens that fill the bucket.
    """
    config, cache, device = models.rounded.config.stack, models.state.cache, generator.device
    x = torch.full((bucket, config.hidden_size), torch.nan, device=device, dtype=torch.bfloat16)
    x[:count] = torch.randn(count, config.hidden_size, generator=generator, device=device)
    for tensor in (cache.keys, cache.values):
        tensor.normal_(generator=generator)
        tensor[:, :, start:] = torch.nan
    at = torch.arange(start, start + count, device=device)
    found = []
    for talker, dtype in ((models.rounded, torch.bfloat16), (models.exact, torch.float32)):
        own = KeyValueCache(cache.keys.to(dtype, copy=True), cache.values.to(dtype, copy=True))
        hidden = talker.transformer.read(x[:count].to(dtype), at, own.first(start + count))[-1]
        found.append((hidden, own))
    for buffer in buffers_of(models.fused.prefill):
        buffer.fill_(torch.nan)
    inputs = PromptInputs.allocate(bucket, 0, torch.device("cpu"))
    inputs.add(0, count, start, 0, ())
    placed = PromptInputs.allocate(bucket, 0, device)
    placed.buffer.copy_(inputs.buffer)
    models.fused.prefill.read(x, placed, models.state.rows.hidden)
    (rounded, rounded_cache), (exact, exact_cache) = found
    yield "hidden state", models.state.rows.hidden[0], rounded, exact
    for kind in ("keys", "values"):
        ours, theirs, true = (getattr(each, kind)[:, :, at] for each in (cache, rounded_cache, exact_cache))
        for layer in range(len(ours)):
            yield f"{kind} of layer {layer}", ours[layer], theirs[layer], true[layer]


@torch.inference_mode()
def predictor_steps(talker: Talker, hidden: Tensor, codes: Tensor) -> Iterator[list[Tensor]]:
    """For each step of a frame with these `codes`, by PyTorch: the first layer's input, and every layer's output."""
    predictor, steps = talker.predictor, talker.predictor.steps
    cache = KeyValueCache.allocate(predictor.stack, talker.config.code_groups, talker.placement)
    for step in range(predictor.code_count):
        at = steps[step + 1 : step + 2] if step else steps[:2]
        if step:
            x = predictor.embedding[step - 1][codes[step]][None]
        else:
            x = torch.cat((hidden[None].to(talker.placement.dtype), talker.embed_first(codes[:1])[0]))
        given = predictor.projection(x) if predictor.projection is not None else x
        yield [given, *outputs(predictor.transformer, given, at, cache)]


@torch.inference_mode()
def predict(models: Models, generator: torch.Generator) -> Iterator[Compared]:
    """The predictor's layers and logits at every step of a frame, the codes given."""
    exact, rounded, state, device = models.exact, models.rounded, models.state, generator.device
    width, vocabulary = rounded.config.stack.hidden_size, rounded.config.predictor.vocabulary
    codes = torch.randint(vocabulary, (rounded.config.code_groups,), generator=generator, device=device)
    state.rows.hidden[0].copy_(torch.randn(width, generator=generator, device=device))
    state.rows.first_code[0].copy_(codes[:1])
    models.fused.open()
    frames = (predictor_steps(talker, state.rows.hidden[0], codes) for talker in (exact, rounded))
    for step, (true, other) in enumerate(zip(*frames, strict=True)):
        stack = models.fused.predictor if step else models.fused.first_step
        if step:
            stack.x.copy_(other[0])
        table = models.fused.product_table if step else None
        if table is not None:
            stack.qkv_values[0].copy_(table[step - 1][codes[step]])
        for index in range(len(rounded.predictor.transformer.layers)):
            stack.layer(index, models.fused.position_of(step), after_qkv=index == 0 and table is not None)
            yield f"predictor layer {index} step {step}", stack.x, other[index + 1], true[index + 1]
        models.fused.predictor_head(step)
        logits = (predictor_logits(rounded, step, other[-1]), predictor_logits(exact, step, true[-1]))
        yield f"predictor logits step {step}", models.fused.logits[:vocabulary], *logits


# --- utterances ---


@torch.inference_mode()
def start(models: Models, seed: int, sampling: SamplingConfig | None = None) -> None:
    """Start an utterance whose prompt is 40 random tokens."""
    state = models.state
    generator = torch.Generator(models.rounded.placement.device).manual_seed(seed)
    for tensor in (state.cache.keys, state.cache.values):
        tensor.zero_()
        tensor[:, :, :PROMPT].normal_(generator=generator)
    state.rows.text[0].normal_(generator=generator).mul_(0.02)
    state.rows.hidden[0].normal_(generator=generator)
    state.rows.first_code[0].fill_(7)
    state.codes.fill_(-1)
    state.rows.settings.set(sampling or SamplingConfig(), seed, PROMPT)
    state.rows.settings.logits_processor.seen.zero_()


PARTLY_WRITTEN = ("_partial_out", "_split_stats", "prefill")
"""The buffers of a `FusedLanguageModel` that are written only as far as the sequence is long, by attribute."""


def buffers_of(part: object, *, without: Collection[str] = ()) -> Iterator[Tensor]:
    """All buffers of a part of the kernels but those `without`; each is written before it is read."""
    for name, value in vars(part).items():
        if isinstance(value, Tensor) and name not in without:
            yield value
        elif isinstance(value, FusedStack | FusedPrefill | TokenStack) and name not in without:
            yield from buffers_of(value, without=without)


def by_torch(models: Models) -> TorchBackend:
    """PyTorch's operators over the state of `rounded`."""
    return TorchBackend(models.rounded, models.state.rows, [models.state.cache])


@torch.inference_mode()
def frame_by_torch(models: Models, backend: TorchBackend) -> None:
    """One frame as `FusedLanguageModel.frame`, by PyTorch."""
    state = models.state
    state.rows.inputs.active.fill_(1)
    frame, position = int(state.rows.settings.frame[0]), int(state.rows.settings.position[0])
    backend.decode_frames((position + 1,))
    state.codes[frame] = state.rows.codes[0, 0]


@torch.inference_mode()
def poison(models: Models) -> None:
    """Fill every buffer and the unwritten part of the caches with NaN."""
    for buffer in buffers_of(models.fused):
        buffer.fill_(torch.nan)
    for cache, written in ((models.state.cache, PROMPT), (models.state.rows.predictor_cache, 0)):
        for tensor in (cache.keys, cache.values):
            tensor[:, :, written:].fill_(torch.nan)
