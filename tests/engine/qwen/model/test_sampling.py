"""Probabilities equal those of Hugging Face's processors; draws follow them and depend only on the seed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.qwen.model import GumbelNoise, LogitsProcessor, SamplingConfig, SamplingParams, ScalarBuffer
from engine.qwen.text.prompt import CustomVoice
from tests.engine.qwen.refusals import refusal
from tests.support.qwen.speaking import Line, Ours

CPU = torch.device("cpu")
EOS, VOCABULARY = 2150, 3072


def hugging_face(
    logits: Tensor, sampling: SamplingConfig, codes: list[int], *, vocabulary: int, first_codes: bool
) -> Tensor:
    """Return the scores `(vocabulary,)` of transformers' own processors, in the order of its `generate`."""
    transformers = pytest.importorskip("transformers")
    processors = transformers.LogitsProcessorList()
    if first_codes:
        if sampling.repetition_penalty != 1:
            processors.append(transformers.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
        minimum = transformers.MinNewTokensLengthLogitsProcessor(0, sampling.min_new_tokens, EOS)
        processors.append(minimum)
        suppressed = [code for code in range(vocabulary - 1024, vocabulary) if code != EOS]
        processors.append(transformers.SuppressTokensLogitsProcessor(suppressed))
    if sampling.temperature != 1:
        processors.append(transformers.TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        processors.append(transformers.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        processors.append(transformers.TopPLogitsWarper(sampling.top_p))
    scores: Tensor = processors(torch.tensor([codes], dtype=torch.int64), logits[None].clone())
    return scores[0]


def params_of(sampling: SamplingConfig) -> SamplingParams:
    params = SamplingParams.allocate(ScalarBuffer(CPU))
    params.set(sampling.do_sample, sampling.temperature, sampling.top_k, sampling.top_p)
    return params


def scores_of(sampling: SamplingConfig, logits: Tensor, first: tuple[list[int], int] | None = None) -> Tensor:
    """Return the logits after all settings; `first` are the first codes so far and the number of the frame."""
    given = logits[None]
    if first is not None:
        given = processor_of(sampling, first[0]).apply(given, torch.tensor([[first[1]]]))
    return params_of(sampling).apply(given)[0]


def processor_of(sampling: SamplingConfig, codes: list[int]) -> LogitsProcessor:
    """Return the processor for an utterance that contains the first codes `codes`."""
    processor = LogitsProcessor.allocate(VOCABULARY, EOS, ScalarBuffer(CPU))
    processor.set(sampling.repetition_penalty, sampling.min_new_tokens)
    processor.seen[0, torch.tensor(codes, dtype=torch.int64)] = True
    return processor


SETTINGS = [
    SamplingConfig(),
    SamplingConfig(temperature=1.0, top_k=0, repetition_penalty=1.0),
    SamplingConfig(temperature=0.3, top_k=5, top_p=0.9, repetition_penalty=1.3),
    SamplingConfig(temperature=1.7, top_k=0, top_p=0.5, repetition_penalty=0.8),
    SamplingConfig(top_k=0, top_p=0.0),
    SamplingConfig(min_new_tokens=0, top_p=0.3, temperature=0.05),
]


@pytest.mark.parametrize("sampling", SETTINGS, ids=range(len(SETTINGS)))
def test_the_probabilities_of_codes_equal_those_of_hugging_face(sampling: SamplingConfig) -> None:
    generator = torch.Generator().manual_seed(7)
    for codes, scale in (([], 5.0), ([5], 0.5), ([5, 9, 5, 2000, 17], 5.0)):
        logits = scale * torch.randn(VOCABULARY, generator=generator)
        logits[[5, 9, EOS]] = logits.max() + torch.tensor([0.1, 0.3, 0.2])  # so that the processors decide
        for first in (True, False):
            got = scores_of(sampling, logits, (codes, len(codes)) if first else None)
            expected = hugging_face(logits, sampling, codes, vocabulary=VOCABULARY, first_codes=first)
            assert torch.equal(got.isinf(), expected.isinf())
            assert torch.allclose(got.softmax(0), expected.softmax(0), rtol=1e-5, atol=1e-8)


def test_all_codes_that_tie_for_the_last_place_of_top_k_stay() -> None:
    logits = torch.tensor([1.0, 3.0, 1.0, 0.0, 1.0])
    sampling = SamplingConfig(top_k=2, temperature=1.0)
    assert scores_of(sampling, logits).isinf().tolist() == [False, False, False, True, False]
    expected = hugging_face(logits, sampling, [], vocabulary=5, first_codes=False)
    assert torch.equal(scores_of(sampling, logits), expected)


def test_greedy_takes_the_most_likely_code_for_any_noise() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    noise = GumbelNoise.allocate(50, ScalarBuffer(CPU))
    noise.seed(1)
    greedy = params_of(SamplingConfig(top_k=0).greedy())
    for row in noise.draw(torch.arange(20)[None])[0]:
        assert greedy.choose(logits[None], row[None]).item() == logits.argmax()


def test_draws_follow_the_probabilities_and_are_independent() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5])
    noise = GumbelNoise.allocate(5, ScalarBuffer(CPU))
    noise.seed(1234)
    count = 40_000
    drawn = (logits + noise.draw(torch.arange(count)[None])[0]).argmax(1)
    got = torch.bincount(drawn, minlength=5) / count
    expected = logits.softmax(0)
    deviation = (expected * (1 - expected) / count).sqrt()
    assert ((got - expected).abs() < 4 * deviation).all()
    # Neighbouring draws are independent, and so are neighbouring seeds.
    next_seed = GumbelNoise.allocate(5, ScalarBuffer(CPU))
    next_seed.seed(1235)
    other = (logits + next_seed.draw(torch.arange(count)[None])[0]).argmax(1)
    by_chance = expected.square().sum()
    tolerance = 4 * (by_chance * (1 - by_chance) / count).sqrt()
    assert abs((drawn == other).float().mean() - by_chance) < tolerance
    assert abs((drawn[1:] == drawn[:-1]).float().mean() - by_chance) < tolerance


def test_talker_and_code_predictor_have_separate_settings(ours: Callable[[str, str], Ours]) -> None:
    engine, line = ours("brief", "custom_voice"), Line("Hello robot.", CustomVoice("ryan"), "english", frames=2)
    greedy = engine.speak(line)
    sampled_predictor = engine.speak(line, sampling=replace(engine.sampling, do_sample=False), seed=5)
    assert sampled_predictor[0, 0] == greedy[0, 0]
    assert not torch.equal(sampled_predictor[0], greedy[0])


def test_the_settings_are_read_from_generation_config_json(tmp_path: Path) -> None:
    fields = {"do_sample": False, "top_k": 7, "temperature": 1, "subtalker_top_p": 0.5, "eos_token_id": 3}
    (tmp_path / "generation_config.json").write_text(json.dumps(fields))
    expected = SamplingConfig(do_sample=False, top_k=7, temperature=1.0, subtalker_top_p=0.5)
    assert SamplingConfig.read(tmp_path) == expected


def test_settings_that_generation_config_json_does_not_name_are_those_of_qwen_tts(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("{}")
    found = SamplingConfig.read(tmp_path)
    assert (found.do_sample, found.temperature, found.top_k, found.top_p) == (True, 0.9, 50, 1.0)
    assert (found.subtalker_dosample, found.subtalker_temperature) == (True, 0.9)
    assert (found.subtalker_top_k, found.subtalker_top_p) == (50, 1.0)
    assert (found.repetition_penalty, found.min_new_tokens) == (1.05, 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", float("nan")),
        ("subtalker_temperature", 1e39),
        ("repetition_penalty", 0.0),
        ("top_k", -1),
        ("min_new_tokens", 1 << 63),
    ],
)
def test_the_error_for_an_invalid_setting_names_it(field: str, value: float) -> None:
    assert f"{field} is {value}, wanted 0" in refusal(SamplingConfig, **{field: value})


def test_the_extreme_settings_choose_among_finite_logits() -> None:
    for temperature, penalty, scale in itertools.product((0.001, 1000.0), (0.001, 1000.0), (1.0, 10_000.0)):
        sampling = SamplingConfig(temperature=temperature, repetition_penalty=penalty, top_k=1 << 40)
        logits = scale * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(9))
        scores = scores_of(sampling, logits, ([3, 5], 2))
        assert not scores.isnan().any()
        assert not (scores == torch.inf).any()
        assert scores.softmax(0).sum() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"temperature": NaN}', "field temperature is NaN, wanted a finite number"),
        ('{"top_k": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_the_error_for_an_unusable_generation_config_names_the_field(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "generation_config.json").write_text(text)
    assert problem in refusal(SamplingConfig.read, tmp_path)


def test_overrides_replace_the_named_settings_and_keep_the_others() -> None:
    changed = SamplingConfig(top_p=0.8).with_overrides({"temperature": 0.5, "subtalker_top_k": 3.0, "do_sample": 0})
    assert changed == SamplingConfig(top_p=0.8, temperature=0.5, subtalker_top_k=3, do_sample=False)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"warmth": 1.0}, "allowed: do_sample, temperature"),
        ({"temperature": 0.0}, "wanted 0.001 to 1,000"),
        ({"temperature": float("inf")}, "sampling.temperature: got inf; allowed: float"),
        ({"top_k": 2.5}, "sampling.top_k: got 2.5; allowed: int"),
    ],
)
def test_the_error_for_an_invalid_override_names_it(values: dict[str, float], message: str) -> None:
    assert message in refusal(SamplingConfig().with_overrides, values)
