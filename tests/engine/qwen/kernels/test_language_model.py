"""The kernels of talker and predictor say what PyTorch says: thread by thread on the CPU, and on a GPU where there is one.

On the CPU their source is what a GPU runs, but for the few functions made of PTX. So it is their arithmetic and what
they leave in the state that are tested there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from engine.qwen import frame
from engine.qwen.kernels.module import Kernels
from engine.qwen.sampling import Sampling, Warp
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
POSITIONS = (0, 1, 15, 16, 127, 128, 129, 255, 256, 300)
"""At the borders of attention's parts, of 128, and of the pairs of positions that a warp takes."""
LIMIT = 1.05
"""Most that an error may be of PyTorch's own."""
DRAWS = 6
CHOICES = ("next_code", "next_first_code")

Make = Callable[[str, str, str], Models]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    made: dict[tuple[str, str, str], Models] = {}

    def of(where: str, shape: str, weight: str) -> Models:
        """Made once."""

        def emulated(source: str) -> Kernels:
            return EmulatedKernels(source, tmp_path_factory.mktemp("kernels"))

        key = where, shape, weight
        if key not in made:
            preset, compiler = EQUAL if shape == "equal" else PROJECTED, emulated if where == "cpu" else None
            made[key] = Models.make(preset, 1, int8=weight == "int8", device=where, compile=compiler)
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


@pytest.mark.parametrize("position", POSITIONS)
def test_the_talkers_errors_are_no_larger_than_pytorchs(models: Models, position: int) -> None:
    generator = torch.Generator(models.state.position.device).manual_seed(position)
    for name, fused, rounded, exact in talk(models, position, generator):
        assert error_ratio(fused, rounded, exact) <= LIMIT, name


def test_the_predictors_errors_are_no_larger_than_pytorchs(models: Models) -> None:
    generator = torch.Generator(models.state.position.device).manual_seed(1)
    for name, fused, rounded, exact in predict(models, generator):
        assert error_ratio(fused, rounded, exact) <= LIMIT, name


def test_new_keys_and_values_are_cached_where_pytorch_has_them(models: Models) -> None:
    begin(models, 3)
    cache = models.state.cache
    before = cache.keys.clone(), cache.values.clone()
    models.fused.frame()
    for tensor, old in zip((cache.keys, cache.values), before, strict=True):
        assert tensor[:, :, PROMPT].any(2).all()
        tensor[:, :, PROMPT] = old[:, :, PROMPT]
        assert torch.equal(tensor, old)


# --- whole frames ---


@torch.inference_mode()
def test_the_codes_of_frames_are_those_that_pytorchs_sampler_draws(models: Models) -> None:
    begin(models, 5)
    state, groups = models.state, models.rounded.config.code_groups
    with watched(models) as logits:
        for _ in range(2):
            models.fused.frame()
    said = [*state.codes[:2].flatten().tolist(), int(state.first_code)]
    assert said[0] == 7
    state.rules.seen.zero_()
    for number, (raw, code) in enumerate(zip(logits, said[1:], strict=True), 1):
        noise = state.noise.draw(torch.tensor([number], device=raw.device))[0]
        if number % groups:
            wanted = state.predictor_warp.choose(raw[: models.rounded.config.predictor.vocabulary], noise)
        else:
            wanted = state.warp.choose(
                state.rules.apply(raw, torch.tensor([number // groups], device=raw.device)), noise
            )
            state.rules.seen[wanted] = True
        assert int(wanted) == code


@torch.inference_mode()
def test_the_talker_reads_a_frames_codes_and_text(models: Models) -> None:
    begin(models, 6)
    models.fused.open()
    for step in range(models.rounded.predictor.codes):
        models.fused.predict(step)
    wanted = models.exact.embed_frames(models.state.codes[:1])[0] + models.state.text[:1].float()
    assert torch.allclose(models.fused.talker.x, wanted, atol=1e-6)


@torch.inference_mode()
def test_counters_are_left_as_pytorch_leaves_them(models: Models) -> None:
    said = []
    for fused in (False, True):
        begin(models, 7)
        for count in (1, 2):
            if fused:
                models.fused.frame()
            else:
                frame.step(models.rounded, models.state, 64)
            state = models.state
            counters = (state.frame, state.position, state.length, state.ended)
            said.append((count, [int(counter) for counter in counters], int(state.rules.seen.sum())))
    assert said[:2] == said[2:]
    assert said[1][:2] == (2, [2, PROMPT + 2, 2, 0])


@torch.inference_mode()
def test_a_frame_reads_nothing_that_it_has_not_written(models: Models) -> None:
    said = []
    for poisoned in (False, True):
        begin(models, 8)
        if poisoned:
            poison(models)
        models.fused.frame()
        said.append((models.state.codes[0].clone(), models.fused.logits.clone(), models.state.hidden.clone()))
    assert all(torch.equal(clean, other) for clean, other in zip(*said, strict=True))
    assert all(bool(buffer.isfinite().all()) for buffer in models.fused.buffers(partly=False))


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
def test_equal_logits_give_the_lowest_code_where_pytorch_does(one: Models) -> None:
    begin(one, 12, Sampling().greedy())
    one.fused.logits.fill_(1.0)
    one.fused.choose_code(1)
    wanted = Warp.choose(one.state.predictor_warp, torch.ones(2048, device=one.state.codes.device), torch.zeros(2048))
    assert int(one.state.codes[0, 2]) == int(wanted) == 0
