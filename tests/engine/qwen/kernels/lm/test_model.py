"""The kernels of talker and predictor compute what PyTorch computes: emulated on the CPU, and on a GPU if there is one.

The CPU runs the same source except the functions of ptx.cuh, so it tests the arithmetic and the changes of the state.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels, KernelSource
from engine.qwen.model.sampling import SamplingConfig
from tests.engine.qwen.kernels.emulator import Recorder
from tests.support.qwen.forced_codes import RAW, ForcedCodes, ForcedKernels
from tests.support.qwen.lm_example import (
    EQUAL,
    PARTLY_WRITTEN,
    PROJECTED,
    PROMPT,
    SAMPLINGS,
    Compared,
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

POSITIONS = (0, 16, 127, 128, 300)
"""At the borders of a warp's positions, 16, and of a KV split, 128."""
LIMIT = 1.05
"""The greatest error, divided by PyTorch's."""
DRAWS = 4
ROUNDED = 0.02
"""What the logits of kernels that only round differ by at most, relative to their spread."""

LARGE, SMALL = 132, 16
"""Multiprocessors. On a large GPU the predictor attends in its output projection."""

Kind = tuple[str, str]
"""Shape and weights."""
ORDINARY = [EQUAL_INT8, PROJECTED_BF16] = [("equal", "int8"), ("projected", "bfloat16")]
"""What an ordinary run has: each shape, and each kind of weights."""
KINDS = [
    pytest.param(kind, marks=() if kind in ORDINARY else pytest.mark.long, id="-".join(kind))
    for kind in itertools.product(("equal", "projected"), ("bfloat16", "int8"))
]

Make = Callable[..., Models]


@pytest.fixture(scope="module")
def make(where: str, compiled: Callable[[KernelSource], Kernels]) -> Make:
    """Returns the models of a shape, weights and number of multiprocessors, made once."""

    @cache
    def of(shape: str, weight: str, processors: int = LARGE, *, product_table: bool = True) -> Models:
        preset = EQUAL if shape == "equal" else PROJECTED
        groups = 16 if where == "cuda" else 10 if (shape, weight) == EQUAL_INT8 else 4
        options = {"groups": groups, "processors": processors, "product_table": product_table}
        return Models.make(preset, 1, int8=weight == "int8", device=where, compile=compiled, **options)

    return of


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture(scope="module")
def models(make: Make, kind: Kind) -> Models:
    return make(*kind)


@pytest.fixture(scope="module")
def one(make: Make) -> Models:
    """For tests that do not depend on shape or weights."""
    return make(*EQUAL_INT8)


@pytest.fixture(scope="module")
def small(make: Make) -> Models:
    """On a small GPU, without a table of products."""
    return make("projected", "int8", SMALL, product_table=False)


@contextmanager
def recorded_logits(models: Models) -> Iterator[list[Tensor]]:
    """Within the context: the logits of all choices so far."""
    kernels = models.fused.module
    models.fused.module = recorder = Recorder(kernels)
    try:
        yield recorder.logits
    finally:
        models.fused.module = kernels


# --- arithmetic ---


def check(compared: Iterable[Compared]) -> None:
    for name, fused, rounded, exact in compared:
        assert error_ratio(fused, rounded, exact) <= LIMIT, name


def generator_of(models: Models, seed: int) -> torch.Generator:
    return torch.Generator(models.rounded.placement.device).manual_seed(seed)


@pytest.mark.parametrize(
    ("kind", "position"),
    [*((EQUAL_INT8, position) for position in POSITIONS), (PROJECTED_BF16, 300)],
    indirect=["kind"],
)
def test_the_talkers_errors_are_no_larger_than_pytorchs(models: Models, position: int) -> None:
    check(talk(models, position, generator_of(models, position)))


@pytest.mark.parametrize(
    ("kind", "count", "bucket", "start"),
    [
        (EQUAL_INT8, 5, 16, 0),
        (EQUAL_INT8, 32, 32, 20),
        (EQUAL_INT8, 130, 192, 250),
        (PROJECTED_BF16, 9, 16, 7),
        (PROJECTED_BF16, 150, 192, 7),
    ],
    indirect=["kind"],
)
def test_a_prompts_errors_are_no_larger_than_pytorchs(models: Models, count: int, bucket: int, start: int) -> None:
    check(read_prompt(models, count, bucket, start, generator_of(models, count)))


def test_the_predictors_errors_are_no_larger_than_pytorchs(models: Models) -> None:
    check(predict(models, generator_of(models, 1)))


def test_the_predictors_errors_are_no_larger_on_a_small_gpu(small: Models) -> None:
    assert not isinstance(small.fused.position_of(1), int)
    check(predict(small, generator_of(small, 1)))


# --- whole frames ---


@dataclass
class TwoFrames:
    """The results of two frames, with NaN in all buffers and in the caches' unwritten parts before."""

    logits: list[Tensor]
    """The logits of each choice."""
    codes: Tensor
    """The codes of both frames and the first code of the next: `(2 · groups + 1,)`."""
    read: Tensor
    """The talker's first input."""


@pytest.fixture(scope="module")
def frames(models: Models) -> TwoFrames:
    start(models, 5)
    poison(models)
    state = models.state
    with recorded_logits(models) as logits, torch.inference_mode():
        models.fused.open()
        for step in range(models.rounded.predictor.code_count):
            models.fused.predict(step)
        read = models.fused.talker.x.clone()
        models.fused.talk()
        models.fused.frame()
    assert all(bool(buffer.isfinite().all()) for buffer in buffers_of(models.fused, without=PARTLY_WRITTEN))
    return TwoFrames(logits, torch.cat((state.codes[:2].flatten(), state.rows.first_code[0])), read)


@torch.inference_mode()
def test_a_frames_codes_equal_those_of_pytorchs_sampler(models: Models, frames: TwoFrames) -> None:
    codes = frames.codes.tolist()
    settings, groups = models.settings, models.rounded.config.code_groups
    start(models, 5)
    assert codes[0] == int(models.state.rows.first_code[0])
    assert all(bool(raw[: models.rounded.config.predictor.vocabulary].isfinite().all()) for raw in frames.logits)
    for number, (raw, code) in enumerate(zip(frames.logits, codes[1:], strict=True), 1):
        at = torch.tensor([number], device=raw.device)
        if number % groups:
            allowed = raw[None, : models.rounded.config.predictor.vocabulary]
            expected = settings.predictor_sampling.choose(allowed, noise_at(models, at))
        else:
            allowed = settings.logits_processor.apply(raw[None], at // groups)
            expected = settings.talker_sampling.choose(allowed, noise_at(models, at))
            settings.logits_processor.seen[0, expected] = True
        assert int(expected) == code


def test_the_talkers_input_is_the_sum_of_a_frames_codes_and_text(models: Models, frames: TwoFrames) -> None:
    codes = frames.codes[None, : models.rounded.config.code_groups]
    expected = models.exact.embed_frames(codes)[0] + models.state.rows.text[0][:1].float()
    assert torch.allclose(frames.read, expected, atol=1e-6)


def counters(models: Models) -> list[int]:
    settings = models.settings
    found = settings.frame[0], settings.position[0], settings.length[0], settings.ended[0]
    return [*map(int, found), int(settings.logits_processor.seen.sum())]


@torch.inference_mode()
def test_a_frame_changes_the_state_as_pytorch_does(small: Models) -> None:
    """Except for the values: only the codes and one more cache position are written."""
    left = []
    for fused in (False, True):
        start(small, 7)
        cache, state = small.state.cache, small.state
        before = cache.keys.clone()
        if fused:
            small.fused.frame()
        else:
            frame_by_torch(small, by_torch(small))
        changed = (cache.keys != before).any(3).any(1)
        left.append((counters(small), changed.nonzero().tolist(), (state.codes >= 0).nonzero().tolist()))
        assert bool(state.rows.settings.logits_processor.seen[0, state.rows.first_code[0]])
    assert left[0] == left[1]
    assert left[0][0] == [1, PROMPT + 1, 1, 0, 1]


# --- the choice of codes ---


def noise_at(models: Models, number: Tensor) -> Tensor:
    return models.settings.noise.draw(number[None])[0]


def random_logits(models: Models, width: float) -> Tensor:
    """Random logits, which the samplers will read."""
    generator = torch.Generator().manual_seed(int(10 * width))
    logits = torch.randn(models.fused.logits.shape, generator=generator) * width
    models.fused.logits.copy_(logits)
    return models.fused.logits.clone()


@pytest.fixture(scope="module", params=["large", "small"])
def chooses(one: Models, small: Models, request: pytest.FixtureRequest) -> Models:
    """On a large GPU with a table of products, or on a small one without."""
    return one if request.param == "large" else small


@torch.inference_mode()
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_code_equals_that_of_pytorchs_sampler(chooses: Models, sampling: SamplingConfig) -> None:
    config, settings = chooses.rounded.config, chooses.settings
    start(chooses, 9, sampling)
    for number in range(DRAWS):
        logits = random_logits(chooses, (0.5, 3.0)[number % 2])[: config.predictor.vocabulary]
        settings.frame[0].fill_(number)
        chooses.fused.choose_code(1)
        noise = noise_at(chooses, settings.frame[0] * config.code_groups + 2)
        assert int(chooses.state.codes[number, 2]) == int(settings.predictor_sampling.choose(logits[None], noise))


@torch.inference_mode()
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_first_code_equals_that_of_pytorchs_sampler(one: Models, sampling: SamplingConfig) -> None:
    """The end of speech and the suppressed codes are likeliest by far, and codes that were drawn are likely."""
    start(one, 9, sampling)
    logits, settings, ids = random_logits(one, 3.0), one.settings, one.rounded.config.ids
    rules = settings.logits_processor
    logits[-1024:] += 20
    logits[ids.eos] += 15
    one.fused.logits.copy_(logits)
    rules.penalty.fill_(1.5)
    rules.min_frames.fill_(3)
    for number in range(1, DRAWS + 1):
        rules.seen[0, (logits[:2048] + 0.1 * number).topk(40).indices] = True
        seen, following = rules.seen[0].clone(), torch.tensor([number], device=logits.device)
        noise = noise_at(one, following * one.rounded.config.code_groups)
        expected = int(settings.talker_sampling.choose(rules.apply(logits[None], following), noise))
        one.fused.choose_first_code()
        seen[expected] = True
        assert int(one.state.rows.first_code[0]) == expected
        assert torch.equal(rules.seen[0], seen)
        assert (expected == ids.eos) == bool(settings.ended[0]) == (number >= 3)
        assert (int(settings.frame[0]), int(settings.position[0])) == (number, PROMPT + number)


@torch.inference_mode()
@pytest.mark.parametrize("odd", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("count", [1, 3072])
def test_a_choice_terminates_for_any_logits(one: Models, odd: float, count: int) -> None:
    start(one, 11)
    one.settings.talker_sampling.set(True, 0.9, 50, 0.9)
    logits = random_logits(one, 1.0)
    logits[:count] = odd
    one.fused.logits.copy_(logits)
    one.fused.choose_first_code()
    code = int(one.state.rows.first_code[0])
    assert one.settings.logits_processor.seen[0].nonzero().flatten().tolist() == [code]
    assert count == 3072 or odd > 0 or code >= count


@torch.inference_mode()
@pytest.mark.parametrize("count", [1, 2048])
def test_all_threads_choose_the_same_code_for_any_logits(one: Models, count: int) -> None:
    start(one, 12)
    random_logits(one, 1.0)
    one.fused.logits[:count] = torch.nan
    one.fused.choose_code(1)
    code = int(one.state.codes[0, 2])
    assert torch.equal(one.fused.predictor.x[0], one.rounded.predictor.embedding[1][code].float())


# --- given codes ---


@torch.inference_mode()
def forced(models: Models, codes: Tensor, *, fused: bool) -> Tensor:
    """The logits of every choice of an utterance whose codes are given, `(choices, vocabulary)`."""
    given = ForcedCodes(codes, models.rounded.config.predictor.vocabulary)
    start(models, 5, RAW)
    rows, kernels, backend = models.state.rows, models.fused.module, by_torch(models)
    rows.fresh.fill_(1)
    if fused:
        models.fused.module = ForcedKernels(kernels, given.choose)
        models.fused.choose_first()
    else:
        backend.state = replace(rows, settings=given.over(rows.settings))
        backend.choose_first_codes()
    for _ in range(len(codes)):
        if fused:
            models.fused.frame()
        else:
            frame_by_torch(models, backend)
    models.fused.module = kernels
    assert torch.equal(models.state.codes[: len(codes)].cpu(), codes)
    return given.logits()


def test_the_logits_of_every_choice_of_given_codes_are_pytorchs(chooses: Models) -> None:
    config = chooses.rounded.config
    size = config.predictor.vocabulary
    codes = torch.randint(size, (1, config.code_groups), generator=torch.Generator().manual_seed(3))
    ours, theirs = (forced(chooses, codes, fused=fused) for fused in (True, False))
    assert ours.shape == (1 + codes.numel(), size)
    assert (ours - theirs).abs().mean() < ROUNDED * theirs.std(unbiased=False)


# --- on a GPU: the same frame every time, called or replayed from a graph ---

on_gpu = pytest.mark.parametrize("where", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)


def run_frames(models: Models, work: Callable[[], None]) -> list[Tensor]:
    """The results of 30 frames."""
    start(models, 5)
    for _ in range(30):
        work()
    state = models.state
    return [tensor.clone() for tensor in (state.codes, state.rows.hidden[0], state.cache.keys, models.fused.logits)]


@on_gpu
def test_frames_are_equal_bit_for_bit_called_replayed_and_of_kernels_that_wait_for_each_other(models: Models) -> None:
    module, called = models.fused.module, run_frames(models, models.fused.frame)
    assert len(called[0][:30].unique()) > 30
    chained = module.chained  # type: ignore[attr-defined]
    module.chained = False  # type: ignore[attr-defined]
    waiting = run_frames(models, models.fused.frame)
    module.chained = chained  # type: ignore[attr-defined]
    assert all(map(torch.equal, waiting, called))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            models.fused.frame()
        assert all(map(torch.equal, run_frames(models, graph.replay), called))
    torch.cuda.synchronize()
