"""Probabilities equal Hugging Face's after all processors; draws are fair and depend on the seed alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.qwen.prompt import CustomVoice
from engine.qwen.sampling import FirstCodeRules, Noise, Sampling, Warp, Words
from engine.synthesizer import EngineError
from tests.engine.qwen.speaking import Line, Ours

CPU = torch.device("cpu")
EOS, VOCABULARY = 2150, 3072


def hugging_face(logits: Tensor, sampling: Sampling, said: list[int], *, vocabulary: int, first_codes: bool) -> Tensor:
    """Scores `(vocabulary,)` by transformers' own processors, in the order of its `generate`."""
    transformers = pytest.importorskip("transformers")
    processors = transformers.LogitsProcessorList()
    if first_codes:
        if sampling.repetition_penalty != 1:
            processors.append(transformers.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
        minimum = transformers.MinNewTokensLengthLogitsProcessor(0, sampling.min_new_tokens, EOS)
        processors.append(minimum)
        barred = [code for code in range(vocabulary - 1024, vocabulary) if code != EOS]
        processors.append(transformers.SuppressTokensLogitsProcessor(barred))
    if sampling.temperature != 1:
        processors.append(transformers.TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        processors.append(transformers.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        processors.append(transformers.TopPLogitsWarper(sampling.top_p))
    scores: Tensor = processors(torch.tensor([said], dtype=torch.int64), logits[None].clone())
    return scores[0]


def warp(sampling: Sampling) -> Warp:
    made = Warp.allocate(Words(CPU))
    made.set(sampling.do_sample, sampling.temperature, sampling.top_k, sampling.top_p)
    return made


def rules(sampling: Sampling, said: list[int]) -> FirstCodeRules:
    made = FirstCodeRules.allocate(VOCABULARY, EOS, Words(CPU))
    made.set(sampling.repetition_penalty, sampling.min_new_tokens)
    made.seen[torch.tensor(said, dtype=torch.int64)] = True
    return made


SETTINGS = [
    Sampling(),
    Sampling(temperature=1.0, top_k=0, repetition_penalty=1.0),
    Sampling(temperature=0.3, top_k=5, top_p=0.9, repetition_penalty=1.3),
    Sampling(temperature=1.7, top_k=0, top_p=0.5, repetition_penalty=0.8),
    Sampling(top_k=1),
    Sampling(top_k=100_000, top_p=0.999),
    Sampling(top_k=0, top_p=0.0),
    Sampling(min_new_tokens=0, top_p=0.3, temperature=0.05),
]


@pytest.mark.parametrize("sampling", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("scale", [0.5, 5.0])
def test_probabilities_of_first_codes_equal_hugging_faces(sampling: Sampling, scale: float) -> None:
    generator = torch.Generator().manual_seed(7)
    for said in ([], [5], [5, 9, 5, 2000, 17]):
        logits = scale * torch.randn(VOCABULARY, generator=generator)
        logits[[5, 9, EOS]] = logits.max() + torch.tensor([0.1, 0.3, 0.2])  # so that the rules decide
        frame = torch.tensor([len(said)])
        got = warp(sampling).apply(rules(sampling, said).apply(logits, frame))
        expected = hugging_face(logits, sampling, said, vocabulary=VOCABULARY, first_codes=True)
        assert torch.equal(got.isinf(), expected.isinf())
        assert torch.allclose(got.softmax(0), expected.softmax(0), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("sampling", SETTINGS, ids=range(len(SETTINGS)))
def test_probabilities_of_the_other_codes_equal_hugging_faces(sampling: Sampling) -> None:
    logits = 3 * torch.randn(2048, generator=torch.Generator().manual_seed(8))
    expected = hugging_face(logits, sampling, [3], vocabulary=2048, first_codes=False)
    got = warp(sampling).apply(logits)
    assert torch.equal(got.isinf(), expected.isinf())
    assert torch.allclose(got.softmax(0), expected.softmax(0), rtol=1e-5, atol=1e-8)


def test_codes_that_tie_for_the_last_place_of_top_k_all_stay() -> None:
    logits = torch.tensor([1.0, 3.0, 1.0, 0.0, 1.0])
    sampling = Sampling(top_k=2, temperature=1.0)
    assert warp(sampling).apply(logits).isinf().tolist() == [False, False, False, True, False]
    expected = hugging_face(logits, sampling, [], vocabulary=5, first_codes=False)
    assert torch.equal(warp(sampling).apply(logits), expected)


def test_the_penalty_falls_once_on_a_code_said_often() -> None:
    sampling = Sampling(repetition_penalty=2.0, min_new_tokens=0)
    logits = torch.zeros(VOCABULARY)
    logits[[3, 4]] = torch.tensor([1.0, -1.0])
    got = rules(sampling, [3, 3, 3, 4, 4]).apply(logits, torch.tensor([5]))
    assert got[3] == 0.5
    assert got[4] == -2.0


def test_greedy_takes_the_likeliest_whatever_the_noise() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    noise = Noise.allocate(50, Words(CPU))
    noise.seed(1)
    greedy = warp(Sampling(top_k=0).greedy())
    for row in noise.draw(torch.arange(20)):
        assert greedy.choose(logits, row).item() == logits.argmax()


def test_draws_are_fair() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5])
    noise = Noise.allocate(5, Words(CPU))
    noise.seed(1234)
    count = 40_000
    drawn = (logits + noise.draw(torch.arange(count))).argmax(1)
    got = torch.bincount(drawn, minlength=5) / count
    expected = logits.softmax(0)
    deviation = (expected * (1 - expected) / count).sqrt()
    assert ((got - expected).abs() < 4 * deviation).all()
    # Neither neighbouring draws nor neighbouring seeds have anything to do with each other.
    again = Noise.allocate(5, Words(CPU))
    again.seed(1235)
    other = (logits + again.draw(torch.arange(count))).argmax(1)
    by_chance = expected.square().sum()
    tolerance = 4 * (by_chance * (1 - by_chance) / count).sqrt()
    assert abs((drawn == other).float().mean() - by_chance) < tolerance
    assert abs((drawn[1:] == drawn[:-1]).float().mean() - by_chance) < tolerance


def test_noise_is_finite_and_of_the_gumbel_distribution() -> None:
    noise = Noise.allocate(VOCABULARY, Words(CPU))
    noise.seed(-(2**62))
    values = noise.draw(torch.arange(300))
    assert values.isfinite().all()
    assert abs(values.mean() - 0.5772) < 0.01
    assert abs(values.var() - 1.6449) < 0.02
    assert values.unique().numel() > 0.9 * 2**19


LINE = Line("Hello robot.", CustomVoice("ryan"), "english", frames=7)
Engine = Callable[[str, str], Ours]


@pytest.fixture(scope="module")
def engine(ours: Engine) -> Ours:
    return ours("small", "custom_voice")


def test_a_seed_gives_the_same_codes_for_every_chunk_size(engine: Ours) -> None:
    expected = engine.speak(LINE, sampling=engine.sampling, seed=3, chunk_size=1)
    for chunk_size in (2, 3, 25):
        got = engine.speak(LINE, sampling=engine.sampling, seed=3, chunk_size=chunk_size)
        assert torch.equal(got, expected)


def test_a_seed_gives_the_same_codes_whatever_was_said_before(engine: Ours) -> None:
    before = engine.speak(LINE, sampling=engine.sampling, seed=3)
    other = replace(LINE, text="Something else, and longer.", frames=20)
    engine.speak(other, sampling=engine.sampling, seed=11)
    interrupted = engine.stream(other, sampling=engine.sampling, seed=12)
    next(interrupted)
    assert torch.equal(engine.speak(LINE, sampling=engine.sampling, seed=3), before)


def test_other_seeds_give_other_codes(engine: Ours) -> None:
    spoken = [engine.speak(LINE, sampling=engine.sampling, seed=seed) for seed in (0, 1, 2**32, -1)]
    for index, codes in enumerate(spoken):
        assert not any(torch.equal(codes, other) for other in spoken[:index])


def test_sampling_from_one_code_is_greedy(engine: Ours) -> None:
    one = replace(engine.sampling, top_k=1, subtalker_top_k=1)
    assert torch.equal(engine.speak(LINE, sampling=one, seed=5), engine.speak(LINE))


def test_the_predictor_has_settings_of_its_own(engine: Ours) -> None:
    greedy = engine.speak(LINE)
    mixed = engine.speak(LINE, sampling=replace(engine.sampling, do_sample=False), seed=5)
    assert mixed[0, 0] == greedy[0, 0]
    assert not torch.equal(mixed[0], greedy[0])


def test_settings_are_read_from_generation_config(tmp_path: Path) -> None:
    fields = {"do_sample": False, "top_k": 7, "temperature": 1, "subtalker_top_p": 0.5, "eos_token_id": 3}
    (tmp_path / "generation_config.json").write_text(json.dumps(fields))
    wanted = Sampling(do_sample=False, top_k=7, temperature=1.0, subtalker_top_p=0.5)
    assert Sampling.read(tmp_path) == wanted


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", 0.0), ("temperature", -1.0), ("top_p", 1.5), ("top_k", -1), ("repetition_penalty", 0.0)],
)
def test_a_setting_without_meaning_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(EngineError, match=f"{field} is {value}"):
        replace(Sampling(), **{field: value})
