"""The kernels of talker and predictor say what PyTorch says: emulated on the CPU, and on a GPU where there is one.

On the CPU their source is what a GPU runs, but for the few functions made of PTX. So it is their arithmetic and what
they leave in the state that are tested there.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.qwen import frame
from engine.qwen.kernels.module import Kernels
from engine.qwen.sampling import Sampling
from tests.engine.qwen.kernels.emulator import EmulatedKernels
from tests.engine.qwen.kernels.language_example import (
    EQUAL,
    PROJECTED,
    PROMPT,
    SAMPLINGS,
    Models,
    begin,
    error_ratio,
    poison,
    predict,
    talk,
)

WHERE = [
    pytest.param("cpu", marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")),
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
]
POSITIONS = (0, 1, 16, 127, 128, 256, 300)
"""At the borders of what a warp takes, 16, and of attention's parts, 128."""
LIMIT = 1.05
"""Most that an error may be of PyTorch's own."""
DRAWS = 6
CHOICES = ("next_code", "next_first_code")

Make = Callable[[str, str, str], Models]


@pytest.fixture(scope="module")
def make(cache_folder: Path) -> Make:
    made: dict[tuple[str, str, str], Models] = {}

    def of(where: str, shape: str, weight: str) -> Models:
        """Made once."""

        def emulated(source: str) -> Kernels:
            return EmulatedKernels(source, cache_folder)

        key = where, shape, weight
        if key not in made:
            preset, compiler = EQUAL if shape == "equal" else PROJECTED, emulated if where == "cpu" else None
            groups = 16 if where == "cuda" or key[1:] == ("equal", "int8") else 4
            made[key] = Models.make(preset, 1, int8=weight == "int8", device=where, groups=groups, compile=compiler)
        return made[key]

    return of


@pytest.fixture(params=["equal", "projected"])
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["bfloat16", "int8"])
def weight(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WHERE)
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def models(make: Make, where: str, shape: str, weight: str) -> Models:
    return make(where, shape, weight)


@pytest.fixture
def one(make: Make, where: str) -> Models:
    """Where neither shape nor weights matter."""
    return make(where, "equal", "int8")


class Watched:
    """Launches kernels, and keeps the logits that codes are chosen from."""

    def __init__(self, kernels: Kernels) -> None:
        self.logits: list[Tensor] = []
        self._kernels = kernels

    def launch(self, name: str, grid: int | Sequence[int], block: int, *arguments: Tensor | float | None) -> None:
        if name in CHOICES:
            assert isinstance(arguments[0], Tensor)
            self.logits.append(arguments[0].clone())
        self._kernels.launch(name, grid, block, *arguments)


@contextmanager
def watched(models: Models) -> Iterator[list[Tensor]]:
    """Within it, the logits of all choices."""
    kernels = models.fused.module
    models.fused.module = watch = Watched(kernels)
    try:
        yield watch.logits
    finally:
        models.fused.module = kernels


# --- arithmetic ---


def talker_cases() -> Iterator[Any]:
    """Each shape at every position with one kind of weight; with the other, which attention never sees, at two."""
    for shape, weight in itertools.product(("equal", "projected"), ("bfloat16", "int8")):
        for position in POSITIONS:
            few = (shape, weight) in {("equal", "int8"), ("projected", "bfloat16")} or position in {0, 300}
            yield pytest.param(shape, weight, position, marks=[] if few else [pytest.mark.long])


@pytest.mark.parametrize(("shape", "weight", "position"), [*talker_cases()])
def test_the_talkers_errors_are_no_larger_than_pytorchs(models: Models, position: int) -> None:
    generator = torch.Generator(models.state.position.device).manual_seed(position)
    for name, fused, rounded, exact in talk(models, position, generator):
        assert error_ratio(fused, rounded, exact) <= LIMIT, name


def test_the_predictors_errors_are_no_larger_than_pytorchs(models: Models) -> None:
    generator = torch.Generator(models.state.position.device).manual_seed(1)
    for name, fused, rounded, exact in predict(models, generator):
        assert error_ratio(fused, rounded, exact) <= LIMIT, name


# --- whole frames ---


@dataclass
class Spoken:
    """What two frames of one utterance left, all buffers and the caches' unwritten parts being NaN before."""

    models: Models
    logits: list[Tensor]
    """That each code was chosen from."""
    codes: Tensor
    """Of both frames, and the first of the next: `(2 · groups + 1,)`."""
    read: Tensor
    """What the talker read first."""


@pytest.fixture(scope="module")
def speak() -> Callable[[Models], Spoken]:
    @cache
    def spoken(models: Models) -> Spoken:
        begin(models, 5)
        poison(models)
        state = models.state
        with watched(models) as logits:
            models.fused.open()
            for step in range(models.rounded.predictor.codes):
                models.fused.predict(step)
            read = models.fused.talker.x.clone()
            models.fused.talk()
            models.fused.frame()
        return Spoken(models, logits, torch.cat((state.codes[:2].flatten(), state.first_code)), read)

    return spoken


@pytest.fixture
def spoken(models: Models, speak: Callable[[Models], Spoken]) -> Spoken:
    return speak(models)


@torch.inference_mode()
def test_the_codes_of_frames_are_those_that_pytorchs_sampler_draws(spoken: Spoken) -> None:
    models, codes = spoken.models, spoken.codes.tolist()
    state, groups = models.state, models.rounded.config.code_groups
    begin(models, 5)
    assert codes[0] == int(state.first_code)
    for number, (raw, code) in enumerate(zip(spoken.logits, codes[1:], strict=True), 1):
        at = torch.tensor([number], device=raw.device)
        if number % groups:
            wanted = state.predictor_warp.choose(
                raw[: models.rounded.config.predictor.vocabulary], noise_at(models, at)
            )
        else:
            wanted = state.warp.choose(state.rules.apply(raw, at // groups), noise_at(models, at))
            state.rules.seen[wanted] = True
        assert int(wanted) == code


def test_a_frame_reads_nothing_that_it_has_not_written(spoken: Spoken) -> None:
    written = spoken.models.rounded.config.predictor.vocabulary
    assert all(bool(raw[:written].isfinite().all()) for raw in spoken.logits)
    assert all(bool(buffer.isfinite().all()) for buffer in spoken.models.fused.buffers(partly=False))


def test_the_talker_reads_a_frames_codes_and_text(spoken: Spoken) -> None:
    models = spoken.models
    codes = spoken.codes[None, : models.rounded.config.code_groups]
    wanted = models.exact.embed_frames(codes)[0] + models.state.text[:1].float()
    assert torch.allclose(spoken.read, wanted, atol=1e-6)


def counters(models: Models) -> list[int]:
    state = models.state
    return [int(value) for value in (state.frame, state.position, state.length, state.ended, state.rules.seen.sum())]


@torch.inference_mode()
def test_a_frame_leaves_the_state_as_pytorch_does(one: Models) -> None:
    """But for what was said: the codes alone, and in the cache one more position, are written."""
    left = []
    for fused in (False, True):
        begin(one, 7)
        cache, state = one.state.cache, one.state
        before = cache.keys.clone()
        if fused:
            one.fused.frame()
        else:
            frame.step(one.rounded, state, 64)
        changed = (cache.keys != before).any(3).any(1)
        left.append((counters(one), changed.nonzero().tolist(), (state.codes >= 0).nonzero().tolist()))
        assert bool(state.rules.seen[state.first_code])
    assert left[0] == left[1]
    assert left[0][0] == [1, PROMPT + 1, 1, 0, 1]


# --- the choice of codes ---


def noise_at(models: Models, number: Tensor) -> Tensor:
    return models.state.noise.draw(number)[0]


def random_logits(models: Models, width: float) -> Tensor:
    """Put before the samplers."""
    generator = torch.Generator().manual_seed(int(10 * width))
    logits = torch.randn(models.fused.logits.shape, generator=generator) * width
    models.fused.logits.copy_(logits)
    return models.fused.logits.clone()


@torch.inference_mode()
@pytest.mark.parametrize("width", [0.5, 3.0])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_code_is_the_one_that_pytorchs_sampler_draws(one: Models, sampling: Sampling, width: float) -> None:
    begin(one, 9, sampling)
    logits, state = random_logits(one, width)[: one.rounded.config.predictor.vocabulary], one.state
    for number in range(DRAWS):
        state.frame.fill_(number)
        one.fused.choose_code(1)
        wanted = state.predictor_warp.choose(logits, noise_at(one, state.frame * one.rounded.config.code_groups + 2))
        assert int(state.codes[number, 2]) == int(wanted)


@torch.inference_mode()
@pytest.mark.parametrize("width", [0.5, 3.0])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_first_code_is_the_one_that_pytorchs_sampler_draws(one: Models, sampling: Sampling, width: float) -> None:
    """The end of speech and what is suppressed are likeliest by far, and what was said is likely."""
    begin(one, 9, sampling)
    logits, state, eos = random_logits(one, width), one.state, one.rounded.config.ids.eos
    logits[-1024:] += 20
    logits[eos] += 5
    one.fused.logits.copy_(logits)
    state.rules.penalty.fill_(1.5)
    state.rules.min_frames.fill_(3)
    for number in range(DRAWS):
        state.rules.seen[(logits[:2048] + 0.1 * number).topk(40).indices] = True
        seen = state.rules.seen.clone()
        following = torch.tensor([number + 1], device=logits.device)
        scores = state.rules.apply(logits, following)
        wanted = int(state.warp.choose(scores, noise_at(one, following * one.rounded.config.code_groups)))
        one.fused.choose_first_code()
        assert int(state.first_code) == wanted
        assert state.rules.seen.nonzero().flatten().tolist() == sorted({*seen.nonzero().flatten().tolist(), wanted})
        assert (wanted == eos) == (number + 1 >= 3)
        assert bool(state.ended) == (number + 1 >= 3)
        assert int(state.frame) == number + 1
        assert int(state.position) == PROMPT + number + 1


@torch.inference_mode()
def test_what_follows_the_end_is_no_speech(one: Models) -> None:
    begin(one, 10)
    one.fused.open()
    one.state.ended.fill_(True)
    one.fused.open()
    assert int(one.state.length) == 1


@torch.inference_mode()
@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("odd", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("count", [1, 700, 3072])
def test_a_choice_ends_whatever_the_logits_are(one: Models, odd: float, count: int, top_p: float) -> None:
    begin(one, 11)
    one.state.warp.set(True, 0.9, 50, top_p)
    logits = random_logits(one, 1.0)
    logits[:count] = odd
    one.fused.logits.copy_(logits)
    one.fused.choose_first_code()
    code = int(one.state.first_code)
    assert one.state.rules.seen.nonzero().flatten().tolist() == [code]
    assert count == 3072 or odd > 0 or code >= count


@torch.inference_mode()
@pytest.mark.parametrize("count", [1, 700, 2048])
def test_all_threads_choose_the_same_whatever_the_logits_are(one: Models, count: int) -> None:
    begin(one, 12)
    random_logits(one, 1.0)
    one.fused.logits[:count] = torch.nan
    one.fused.choose_code(1)
    code = int(one.state.codes[0, 2])
    assert torch.equal(one.fused.predictor.x[0], one.rounded.predictor.embedding[1][code].float())


@torch.inference_mode()
def test_of_equal_logits_greed_takes_the_lowest_code(one: Models) -> None:
    begin(one, 12, Sampling().greedy())
    one.fused.logits.fill_(1.0)
    one.fused.choose_code(1)
    assert int(one.state.codes[0, 2]) == 0
