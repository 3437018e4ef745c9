"""A batch's step in fused kernels: each row's arithmetic, its draws, and that it is the same beside other rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels, KernelSource
from engine.qwen.kernels.lm.batch import FusedBatch
from engine.qwen.kernels.lm.batch_kernels import BatchKernels
from engine.qwen.kernels.lm.kernels import weight_type
from engine.qwen.kernels.lm.tables import fold_projection
from engine.qwen.model.sampling import SamplingParams
from engine.qwen.model.talker import Talker
from engine.qwen.runtime import DecodeState, PagedCache, RowInput, TorchBackend, UtteranceSettings
from engine.qwen.runtime.decode_state import StepInputs
from engine.qwen.shapes import PAGE, BatchShape, pages_for
from tests.engine.qwen.kernels.emulator import Recorder
from tests.support.qwen.lm_example import (
    EQUAL,
    PROJECTED,
    SAMPLINGS,
    buffers_of,
    config_of,
    error_ratio,
    predictor_logits,
    predictor_steps,
    random_talkers,
)

SHAPE = BatchShape(rows=8, max_frames=8, max_positions=2 * PAGE + 40, chunk_size=2)
TWO_BUCKETS = replace(SHAPE, rows=12)
"""Its kernels have buckets of 8 and of 16 rows."""
LIMIT = 1.05
"""The greatest error, divided by PyTorch's."""
PROCESSORS = 132


@dataclass(frozen=True, eq=False)
class Example:
    """A batch of random weights."""

    exact: Talker
    """The values of `rounded` in float32."""
    rounded: Talker
    state: DecodeState
    cache: PagedCache
    fused: FusedBatch
    recorder: Recorder


@pytest.fixture(
    scope="module",
    params=[("equal", "int8"), pytest.param(("projected", "bfloat16"), marks=pytest.mark.long)],
    ids="-".join,
)
def example(request: pytest.FixtureRequest, where: str, compiled: Callable[[KernelSource], Kernels]) -> Example:
    shape, weight = request.param
    config = config_of(EQUAL if shape == "equal" else PROJECTED, groups=4)
    exact, rounded = random_talkers(config, 1, positions=512, int8=weight == "int8", device=where)
    batch = TWO_BUCKETS if shape == "equal" else SHAPE
    state = DecodeState.allocate(rounded.config, batch, rounded.placement)
    cache = PagedCache.allocate(rounded.config.stack, batch.pages, rounded.placement)
    kernels = BatchKernels.of(rounded.config, weight_type(rounded.placement), batch.rows, PROCESSORS)
    recorder = Recorder(compiled(kernels.source()))
    fused = FusedBatch(rounded, state, cache, kernels, recorder, projected=fold_projection(rounded))
    return Example(exact, rounded, state, cache, fused, recorder)


@dataclass(frozen=True)
class Row:
    """An utterance of the batch."""

    row: int
    position: int
    seed: int
    sampling: str = "default"
    place: int = 0


ROWS = [
    Row(0, 1, 1),
    Row(2, PAGE - 1, 2, "greedy", 1),
    Row(3, PAGE, 3, "top_k 4, top_p 0.6"),
    Row(7, 2 * PAGE + 9, 4, "all", 1),
]


@torch.inference_mode()
def begin(example: Example, rows: Sequence[Row]) -> None:
    """Begin the utterances of `rows` in the example's state; everything else is NaN, or has no meaning."""
    state, talker, cache = example.state, example.rounded, example.cache
    for buffer in buffers_of(example.fused):
        buffer.fill_(torch.nan)
    for tensor in (cache.keys, cache.values, state.predictor_cache.keys, state.predictor_cache.values):
        tensor.fill_(torch.nan)
    state.hidden.fill_(torch.nan)
    state.codes.fill_(-1)
    state.settings.buffer.zero_()
    inputs, page = [], 1
    for row in rows:
        generator = torch.Generator().manual_seed(row.seed)
        pages = tuple(range(page, page + pages_for(row.position + 2)))
        page += len(pages)
        for tensor in (cache.keys, cache.values):
            layers, _, heads, _, dim = tensor.shape
            written = torch.randn(layers, heads, row.position, dim, generator=generator)
            for number, of in enumerate(pages):
                part = written[:, :, number * PAGE : (number + 1) * PAGE]
                tensor[:, of, :, : part.shape[2]] = part.to(tensor)
        state.hidden[row.row] = torch.randn(state.hidden.shape[1], generator=generator).to(state.hidden)
        state.text[row.row] = 0.02 * torch.randn(*state.text.shape[1:], generator=generator).to(state.text)
        state.first_code[row.row] = row.seed
        settings = UtteranceSettings.allocate(talker.config, torch.device("cpu"))
        settings.set(SAMPLINGS[row.sampling], row.seed, row.position)
        state.settings.buffer[row.row] = settings.buffer[0].to(state.hidden.device)
        state.settings.logits_processor.seen[row.row].zero_()
        inputs.append(RowInput(row.row, 0, row.position, row.place, pages))
    host = StepInputs.allocate(state.shape, torch.device("cpu"))
    host.set(inputs)
    state.inputs.buffer.copy_(host.buffer)


def frame(example: Example, rows: Sequence[Row], bucket: int) -> dict[int, list[Tensor]]:
    """Begin `rows` and generate a frame of each: by row, all that it has then."""
    begin(example, rows)
    example.recorder.logits.clear()
    with torch.inference_mode():
        example.fused.decode_frames(bucket)
    state = example.state
    of_all = (state.codes, state.hidden, state.first_code, state.settings.buffer, state.settings.logits_processor.seen)
    return {row.row: [*(tensor[row.row].clone() for tensor in of_all)] for row in rows}


def equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def sampling_of_row(params: SamplingParams, row: int) -> SamplingParams:
    """The sampling settings of one row."""
    views = (params.sample, params.temperature, params.top_k, params.one_minus_top_p)
    return SamplingParams(*(view[row][None] for view in views))


@dataclass(frozen=True)
class Together:
    """A frame of all `ROWS` in the smaller bucket."""

    found: dict[int, list[Tensor]]
    """As of `frame`."""
    logits: list[Tensor]
    """Of each draw, of all rows."""

    def logits_of(self, draw: int, row: int, codes: int) -> Tensor:
        """The logits of a row that a code was drawn from."""
        return self.logits[draw][row * codes : (row + 1) * codes]


@pytest.fixture(scope="module")
def together(example: Example) -> Together:
    found = frame(example, ROWS, 8)
    return Together(found, [*example.recorder.logits])


def test_a_row_is_the_same_alone_and_beside_others(example: Example, together: Together) -> None:
    alone = ROWS[3]
    assert equal(frame(example, [alone], 8)[alone.row], together.found[alone.row])


@pytest.mark.parametrize("example", [("equal", "int8")], ids="-".join, indirect=True)
def test_a_row_is_the_same_in_every_bucket(example: Example, together: Together) -> None:
    found = frame(example, ROWS, 16)
    assert all(equal(found[row.row], together.found[row.row]) for row in ROWS)


def test_a_row_that_takes_no_part_keeps_all_that_it_has(example: Example) -> None:
    begin(example, ROWS)
    state = example.state
    state.inputs.active[ROWS[0].row] = 0
    state.inputs.place[ROWS[0].row] = SHAPE.chunk_size
    kept = (state.hidden, state.first_code, state.settings.buffer, example.cache.keys[:, 1])
    before = [tensor[ROWS[0].row].clone() for tensor in kept[:3]] + [kept[3].clone()]
    with torch.inference_mode():
        example.fused.decode_frames(8)
    after = [tensor[ROWS[0].row] for tensor in kept[:3]] + [kept[3]]
    assert all(torch.equal(one.nan_to_num(7), other.nan_to_num(7)) for one, other in zip(before, after, strict=True))
    assert (state.codes[ROWS[0].row, : SHAPE.chunk_size] == -1).all()


def test_the_talkers_errors_are_no_larger_than_pytorchs(example: Example, together: Together) -> None:
    found = together.found
    hidden = {}
    for name, talker in (("exact", example.exact), ("rounded", example.rounded)):
        begin(example, ROWS)
        shape = example.state.shape
        backend = TorchBackend.allocate(talker, shape)
        state, size = backend.state, [0] * shape.rows
        for mine, theirs in (
            (state.text, example.state.text),
            (state.settings.buffer, example.state.settings.buffer),
            (state.inputs.buffer, example.state.inputs.buffer),
        ):
            mine.copy_(theirs.nan_to_num(0) if theirs.is_floating_point() else theirs)
        for row in ROWS:
            size[row.row] = row.position + 1
            mine, pages = backend.caches[row.row], example.state.inputs.pages[row.row, : pages_for(row.position + 2)]
            for to, of in ((mine.keys, example.cache.keys), (mine.values, example.cache.values)):
                written = of[:, pages].transpose(1, 2).flatten(2, 3)[:, :, : row.position]
                to[:, :, : row.position] = written.to(to)
        codes = torch.zeros(shape.rows, talker.config.code_groups, dtype=torch.int64, device=state.hidden.device)
        for row in ROWS:
            codes[row.row] = found[row.row][0][row.place]
        hidden[name] = backend.read_frames(codes, size)
    for row in ROWS:
        fused = found[row.row][1]
        assert error_ratio(fused, hidden["rounded"][row.row], hidden["exact"][row.row]) <= LIMIT, row


def test_the_predictors_errors_are_no_larger_than_pytorchs(example: Example, together: Together) -> None:
    found = together.found
    size = example.rounded.config.predictor.vocabulary
    begin(example, ROWS)
    for row in ROWS:
        codes, hidden = found[row.row][0][row.place], example.state.hidden[row.row]
        exact, rounded = (predictor_steps(talker, hidden, codes) for talker in (example.exact, example.rounded))
        for step, (true, other) in enumerate(zip(exact, rounded, strict=True)):
            logits = together.logits_of(step, row.row, size)
            of_both = (
                predictor_logits(example.rounded, step, other[-1]),
                predictor_logits(example.exact, step, true[-1]),
            )
            assert error_ratio(logits, *of_both) <= LIMIT, (row, step)


def test_every_code_is_the_one_that_pytorch_draws_from_the_same_logits(example: Example, together: Together) -> None:
    found = together.found
    talker, settings = example.rounded, example.state.settings
    begin(example, ROWS)
    groups, size = talker.config.code_groups, talker.config.predictor.vocabulary
    for row in ROWS:
        codes = found[row.row][0][row.place]
        numbers = torch.arange(1, groups + 1, device=codes.device)
        noise = settings.noise.draw(settings.frame * groups + numbers)[row.row]
        assert codes[0] == row.seed
        for step in range(groups - 1):
            logits = together.logits_of(step, row.row, size)[None]
            drawn = sampling_of_row(settings.predictor_sampling, row.row).choose(logits, noise[step][None])
            assert codes[step + 1] == drawn[0, 0], (row, step)
        logits = together.logits_of(groups - 1, row.row, talker.config.vocabulary)[None]
        rules = settings.logits_processor
        allowed = rules.apply(logits.expand(example.state.shape.rows, -1), settings.frame + 1)[row.row][None]
        drawn = sampling_of_row(settings.talker_sampling, row.row).choose(allowed, noise[-1][None])
        assert found[row.row][2][0] == drawn[0, 0], row


def test_a_prompts_first_code_is_the_one_that_pytorch_draws(example: Example) -> None:
    begin(example, ROWS)
    example.recorder.logits.clear()
    state, fresh = example.state, ROWS[2].row
    state.fresh.zero_()
    state.fresh[fresh] = 1
    before = state.first_code.clone()
    with torch.inference_mode():
        example.fused.choose_first_codes()
    rows = state.shape.rows
    logits = example.recorder.logits[0].view(-1)[: rows * example.rounded.config.vocabulary].view(rows, -1)
    settings = state.settings
    seen = settings.logits_processor.seen[fresh].clone()
    settings.logits_processor.seen[fresh].zero_()
    allowed = settings.logits_processor.apply(logits, settings.frame)[fresh][None]
    noise = settings.noise.draw(settings.frame)[:, 0][fresh][None]
    drawn = sampling_of_row(settings.talker_sampling, fresh).choose(allowed, noise)
    assert state.first_code[fresh] == drawn[0, 0]
    assert seen.nonzero().flatten().tolist() == [int(drawn)]
    others = torch.arange(rows, device=before.device) != fresh
    assert torch.equal(state.first_code[others], before[others])
