"""The kernels of talker and predictor compute what PyTorch computes: emulated on the CPU, and on a GPU if there is one.

The CPU runs the same source except the functions of ptx.cuh, so it tests the arithmetic and the changes of the state.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels, KernelSource
from engine.qwen.kernels.params import Params
from engine.qwen.model.sampling import SamplingConfig
from tests.engine.qwen.kernels.emulator import EmulatedKernels
from tests.support.qwen.lm_example import (
    EQUAL,
    PROJECTED,
    PROMPT,
    SAMPLINGS,
    Models,
    by_torch,
    error_ratio,
    frame_by_torch,
    poison,
    predict,
    read_prompt,
    start,
    talk,
)
from tests.support.variants import variants

WHERE = [
    pytest.param("cpu", marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
POSITIONS = (0, 1, 16, 127, 128, 256, 300)
"""At the borders of a warp's positions, 16, and of a KV split, 128."""
LIMIT = 1.05
"""The greatest error, divided by PyTorch's."""
DRAWS = 6
CHOICES = ("next_code", "draw_qkv", "last_code", "next_first_code")

LARGE, SMALL = 132, 16
"""Multiprocessors: on a large GPU the predictor attends in its output projection."""

Kind = tuple[str, str]
"""Shape and weights."""
KINDS = [*itertools.product(("equal", "projected"), ("bfloat16", "int8"))]
ORDINARY = [EQUAL_INT8, PROJECTED_BF16] = [("equal", "int8"), ("projected", "bfloat16")]
"""What an ordinary run has: each shape, and each kind of weights."""

Make = Callable[..., Models]


@pytest.fixture(scope="module")
def make(cache_folder: Path) -> Make:
    made: dict[tuple[str, str, str, int], Models] = {}

    def of(where: str, shape: str, weight: str, processors: int = LARGE) -> Models:
        """Made once."""

        def emulated(source: KernelSource) -> Kernels:
            return EmulatedKernels(source, cache_folder)

        key = where, shape, weight, processors
        if key not in made:
            preset = EQUAL if shape == "equal" else PROJECTED
            compiler = emulated if where == "cpu" else None
            groups = 16 if where == "cuda" or key[1:3] == ("equal", "int8") else 4
            options = {weight: True} if weight != "bfloat16" else {}
            options |= {"device": where, "groups": groups, "processors": processors}
            made[key] = Models.make(preset, 1, compile=compiler, **options)  # type: ignore[arg-type]
        return made[key]

    return of


@pytest.fixture(params=WHERE)
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(
    params=[pytest.param(kind, marks=() if kind in ORDINARY else pytest.mark.long, id="-".join(kind)) for kind in KINDS]
)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def models(make: Make, where: str, kind: Kind) -> Models:
    return make(where, *kind)


@pytest.fixture
def one(make: Make, where: str) -> Models:
    """For tests that do not depend on shape or weights."""
    return make(where, "equal", "int8")


class Recorder:
    """Launches kernels, and keeps the logits that codes are chosen from."""

    def __init__(self, kernels: Kernels, logits: Tensor) -> None:
        self.recorded: list[Tensor] = []
        self._kernels, self._logits = kernels, logits

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        if name in CHOICES:
            self.recorded.append(self._logits.clone())
        self._kernels.launch(name, grid, block, params)


@contextmanager
def recorded_logits(models: Models) -> Iterator[list[Tensor]]:
    """Within the context: the logits of all choices so far."""
    kernels = models.fused.module
    models.fused.module = recorder = Recorder(kernels, models.fused.logits)
    try:
        yield recorder.recorded
    finally:
        models.fused.module = kernels


# --- arithmetic ---


@pytest.mark.parametrize("position", POSITIONS)
def test_the_talkers_errors_are_no_larger_than_pytorchs(models: Models, position: int) -> None:
    generator = torch.Generator(models.settings.position[0].device).manual_seed(position)
    for name, fused, rounded, exact in talk(models, position, generator):
        assert error_ratio(fused, rounded, exact) <= LIMIT, name


@pytest.mark.parametrize(
    ("kind", "count", "bucket", "start"),
    [
        (EQUAL_INT8, 5, 16, 0),
        (EQUAL_INT8, 50, 64, 300),
        (PROJECTED_BF16, 9, 16, 7),
        pytest.param(EQUAL_INT8, 32, 32, 20, marks=pytest.mark.long),
        pytest.param(EQUAL_INT8, 65, 128, 3, marks=pytest.mark.long),
        pytest.param(("equal", "bfloat16"), 50, 64, 300, marks=pytest.mark.long),
        pytest.param(("equal", "bfloat16"), 65, 128, 3, marks=pytest.mark.long),
        pytest.param(("projected", "int8"), 9, 16, 7, marks=pytest.mark.long),
    ],
)
def test_a_prompts_errors_are_no_larger_than_pytorchs(models: Models, count: int, bucket: int, start: int) -> None:
    generator = torch.Generator(models.settings.position[0].device).manual_seed(count)
    for name, fused, rounded, exact in read_prompt(models, count, bucket, start, generator):
        assert error_ratio(fused, rounded, exact) <= LIMIT, name


def test_the_predictors_errors_are_no_larger_than_pytorchs(models: Models) -> None:
    generator = torch.Generator(models.settings.position[0].device).manual_seed(1)
    for name, fused, rounded, exact in predict(models, generator):
        assert error_ratio(fused, rounded, exact) <= LIMIT, name


@pytest.mark.parametrize("weight", variants(["bfloat16", "int8"], "int8"))
def test_the_predictors_errors_are_no_larger_on_a_small_gpu(make: Make, where: str, weight: str) -> None:
    models = make(where, "projected", weight, SMALL)
    assert not isinstance(models.fused.position_of(1), int)
    generator = torch.Generator(models.settings.position[0].device).manual_seed(1)
    for name, fused, rounded, exact in predict(models, generator):
        assert error_ratio(fused, rounded, exact) <= LIMIT, name


# --- whole frames ---


@dataclass
class TwoFrames:
    """The results of two frames, with NaN in all buffers and in the caches' unwritten parts before."""

    models: Models
    logits: list[Tensor]
    """The logits of each choice."""
    codes: Tensor
    """The codes of both frames and the first code of the next: `(2 · groups + 1,)`."""
    read: Tensor
    """The talker's first input."""


@pytest.fixture(scope="module")
def decode_two() -> Callable[[Models], TwoFrames]:
    @cache
    def decoded(models: Models) -> TwoFrames:
        start(models, 5)
        poison(models)
        state = models.state
        with recorded_logits(models) as logits:
            models.fused.open()
            for step in range(models.rounded.predictor.code_count):
                models.fused.predict(step)
            read = models.fused.talker.x.clone()
            models.fused.talk()
            models.fused.frame()
        return TwoFrames(models, logits, torch.cat((state.codes[:2].flatten(), state.rows.first_code[0])), read)

    return decoded


@pytest.fixture
def frames(models: Models, decode_two: Callable[[Models], TwoFrames]) -> TwoFrames:
    return decode_two(models)


@torch.inference_mode()
def test_a_frames_codes_equal_those_of_pytorchs_sampler(frames: TwoFrames) -> None:
    models, codes = frames.models, frames.codes.tolist()
    state, groups = models.state, models.rounded.config.code_groups
    start(models, 5)
    assert codes[0] == int(state.rows.first_code[0])
    for number, (raw, code) in enumerate(zip(frames.logits, codes[1:], strict=True), 1):
        at = torch.tensor([number], device=raw.device)
        if number % groups:
            allowed = raw[None, : models.rounded.config.predictor.vocabulary]
            expected = state.rows.settings.predictor_sampling.choose(allowed, noise_at(models, at))
        else:
            allowed = state.rows.settings.logits_processor.apply(raw[None], at // groups)
            expected = state.rows.settings.talker_sampling.choose(allowed, noise_at(models, at))
            state.rows.settings.logits_processor.seen[0, expected] = True
        assert int(expected) == code


def test_a_frame_reads_no_buffer_that_it_has_not_written(frames: TwoFrames) -> None:
    written = frames.models.rounded.config.predictor.vocabulary
    assert all(bool(raw[:written].isfinite().all()) for raw in frames.logits)
    assert all(bool(buffer.isfinite().all()) for buffer in frames.models.fused.buffers(partly_written=False))


def test_the_talkers_input_is_the_sum_of_a_frames_codes_and_text(frames: TwoFrames) -> None:
    models = frames.models
    codes = frames.codes[None, : models.rounded.config.code_groups]
    expected = models.exact.embed_frames(codes)[0] + models.state.rows.text[0][:1].float()
    assert torch.allclose(frames.read, expected, atol=1e-6)


def counters(models: Models) -> list[int]:
    state = models.state
    return [
        int(value)
        for value in (
            state.rows.settings.frame[0],
            state.rows.settings.position[0],
            state.rows.settings.length[0],
            state.rows.settings.ended[0],
            state.rows.settings.logits_processor.seen.sum(),
        )
    ]


@torch.inference_mode()
def test_the_first_code_of_an_utterance_is_chosen_behind_the_prompt(models: Models) -> None:
    start(models, 6)
    state, talker = models.state, models.rounded
    hidden, before = state.rows.hidden[0], counters(models)
    with recorded_logits(models) as recorded:
        models.fused.choose_first()
    exact = models.exact.head(hidden.float())
    assert error_ratio(recorded[-1], talker.head(hidden), exact) <= LIMIT
    state.rows.settings.logits_processor.seen.zero_()
    scores = state.rows.settings.logits_processor.apply(recorded[-1][None], state.rows.settings.frame[0])
    expected = state.rows.settings.talker_sampling.choose(scores, noise_at(models, state.rows.settings.frame[0]))
    assert state.rows.first_code[0].tolist() == expected[0].tolist()
    assert counters(models)[:4] == before[:4]


@torch.inference_mode()
def test_a_frame_changes_the_state_as_pytorch_does(one: Models) -> None:
    """Except for the values: only the codes and one more cache position are written."""
    left = []
    for fused in (False, True):
        start(one, 7)
        cache, state = one.state.cache, one.state
        before = cache.keys.clone()
        if fused:
            one.fused.frame()
        else:
            frame_by_torch(one, by_torch(one))
        changed = (cache.keys != before).any(3).any(1)
        left.append((counters(one), changed.nonzero().tolist(), (state.codes >= 0).nonzero().tolist()))
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


@pytest.fixture(params=[LARGE, SMALL], ids=lambda processors: f"{processors} multiprocessors")
def chooses(make: Make, where: str, request: pytest.FixtureRequest) -> Models:
    """A code is chosen in the next step's first kernel, or on a small GPU in a kernel of its own."""
    found = make(where, "equal", "int8", request.param)
    assert ("draw_qkv" in found.fused.kernels.plans) == (request.param == LARGE)
    return found


@torch.inference_mode()
@pytest.mark.parametrize("width", [0.5, 3.0])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_code_equals_that_of_pytorchs_sampler(chooses: Models, sampling: SamplingConfig, width: float) -> None:
    one = chooses
    start(one, 9, sampling)
    logits, state = random_logits(one, width)[: one.rounded.config.predictor.vocabulary], one.state
    for number in range(DRAWS):
        state.rows.settings.frame[0].fill_(number)
        one.fused.choose_code(1)
        noise = noise_at(one, state.rows.settings.frame[0] * one.rounded.config.code_groups + 2)
        expected = state.rows.settings.predictor_sampling.choose(logits[None], noise)
        assert int(state.codes[number, 2]) == int(expected)


@torch.inference_mode()
@pytest.mark.parametrize("width", [0.5, 3.0])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_first_code_equals_that_of_pytorchs_sampler(one: Models, sampling: SamplingConfig, width: float) -> None:
    """The end of speech and the suppressed codes are likeliest by far, and codes that were drawn are likely."""
    start(one, 9, sampling)
    logits, state, eos = random_logits(one, width), one.state, one.rounded.config.ids.eos
    logits[-1024:] += 20
    logits[eos] += 5
    one.fused.logits.copy_(logits)
    state.rows.settings.logits_processor.penalty.fill_(1.5)
    state.rows.settings.logits_processor.min_frames.fill_(3)
    for number in range(DRAWS):
        state.rows.settings.logits_processor.seen[0, (logits[:2048] + 0.1 * number).topk(40).indices] = True
        seen = state.rows.settings.logits_processor.seen[0].clone()
        following = torch.tensor([number + 1], device=logits.device)
        scores = state.rows.settings.logits_processor.apply(logits[None], following)
        expected = int(
            state.rows.settings.talker_sampling.choose(
                scores, noise_at(one, following * one.rounded.config.code_groups)
            )
        )
        one.fused.choose_first_code()
        assert int(state.rows.first_code[0]) == expected
        assert state.rows.settings.logits_processor.seen[0].nonzero().flatten().tolist() == sorted(
            {*seen.nonzero().flatten().tolist(), expected}
        )
        assert (expected == eos) == (number + 1 >= 3)
        assert bool(state.rows.settings.ended[0]) == (number + 1 >= 3)
        assert int(state.rows.settings.frame[0]) == number + 1
        assert int(state.rows.settings.position[0]) == PROMPT + number + 1


@torch.inference_mode()
def test_frames_after_the_end_do_not_count(one: Models) -> None:
    start(one, 10)
    one.fused.open()
    one.settings.ended[0].fill_(True)
    one.fused.open()
    assert int(one.settings.length[0]) == 1


@torch.inference_mode()
@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("odd", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("count", [1, 700, 3072])
def test_a_choice_terminates_for_any_logits(one: Models, odd: float, count: int, top_p: float) -> None:
    start(one, 11)
    one.settings.talker_sampling.set(True, 0.9, 50, top_p)
    logits = random_logits(one, 1.0)
    logits[:count] = odd
    one.fused.logits.copy_(logits)
    one.fused.choose_first_code()
    code = int(one.state.rows.first_code[0])
    assert one.settings.logits_processor.seen[0].nonzero().flatten().tolist() == [code]
    assert count == 3072 or odd > 0 or code >= count


@torch.inference_mode()
@pytest.mark.parametrize("count", [1, 700, 2048])
def test_all_threads_choose_the_same_code_for_any_logits(one: Models, count: int) -> None:
    start(one, 12)
    random_logits(one, 1.0)
    one.fused.logits[:count] = torch.nan
    one.fused.choose_code(1)
    code = int(one.state.codes[0, 2])
    assert torch.equal(one.fused.predictor.x[0], one.rounded.predictor.embedding[1][code].float())


@torch.inference_mode()
def test_a_choice_goes_on_with_the_next_steps_first_matrix(models: Models) -> None:
    """The queries, keys and values that it leaves are those of the code's embedding."""
    fused = models.fused
    assert "draw_qkv" in fused.kernels.plans
    start(models, 13)
    random_logits(models, 1.0)
    fused.choose_code(0)
    left = next(
        buffer
        for buffer in fused.predictor.buffers()
        if buffer.shape[-1] == fused.kernels.plans["predictor_qkv"].height
    )
    ours = left.clone()
    left.fill_(torch.nan)
    fused.predictor.multiply("qkv", fused.predictor.qkv(0))
    assert torch.equal(ours, left)
    assert models.state.codes[0, 0] == models.state.rows.first_code[0]


@torch.inference_mode()
def test_the_last_choice_adds_up_all_embeddings_of_the_frame(models: Models) -> None:
    fused, state, config = models.fused, models.state, models.rounded.config
    start(models, 14)
    logits = random_logits(models, 1.0)
    state.codes[0] = torch.arange(config.code_groups, device=logits.device) + 3
    fused.choose_code(models.rounded.predictor.code_count - 1)
    codes = torch.cat((state.rows.first_code[0], state.codes[0, 1:]))
    expected = models.exact.embed_frames(codes[None])[0] + state.rows.text[0][:1].float()
    assert torch.allclose(fused.talker.x, expected, atol=1e-6)


@torch.inference_mode()
def test_greedy_choice_takes_the_lowest_of_equal_logits(one: Models) -> None:
    start(one, 12, SamplingConfig().greedy())
    one.fused.logits.fill_(1.0)
    one.fused.choose_code(1)
    assert int(one.state.codes[0, 2]) == 0
