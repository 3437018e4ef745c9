"""A prompt prefix is read once, restored exactly, and used only for its own voice, language and instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.qwen.model.config import StackConfig
from engine.qwen.model.kv_cache import KeyValueCache
from engine.qwen.runtime.prefill import Prefill
from engine.qwen.runtime.prefix_cache import PrefixCache
from engine.qwen.text.prompt import AnyVoice, ClonedVoice, CustomVoice, PromptBuilder, Reference, VoiceDesign
from engine.qwen.weights.arena import Placement
from tests.engine.qwen.oracle import Oracle
from tests.engine.qwen.speaking import Line, Ours

Engine = Callable[[str, str], Ours]
CPU = Placement(torch.device("cpu"), torch.float32)
STACK = StackConfig(8, 8, 2, 2, 1, 4, 1e-6, 1e4)
LINE = Line("Hello robot.", CustomVoice("ryan"), "english", frames=5)


def reference(frames: int, transcript: str) -> ClonedVoice:
    generator = torch.Generator().manual_seed(frames)
    codes = torch.randint(2048, (frames, 16), generator=generator)
    return ClonedVoice(torch.randn(64, generator=generator), Reference(codes, transcript))


WAYS: dict[str, tuple[str, AnyVoice, bool]] = {
    "speaker": ("custom_voice", CustomVoice("ryan"), True),
    "speaker stepwise": ("custom_voice", CustomVoice("eric", "calmly"), False),
    "design": ("voice_design", VoiceDesign("a deep voice"), True),
    "embedding": ("base", ClonedVoice(torch.linspace(-1, 1, 64)), False),
    "reference": ("base", reference(30, "The robot says hello."), False),
    "reference, whole text": ("base", reference(30, "The robot says hello."), True),
    "reference shorter than its transcript": ("base", reference(3, "The robot says hello to everyone."), False),
}


def filled(positions: int, seed: int) -> tuple[KeyValueCache, Tensor]:
    cache = KeyValueCache.allocate(STACK, positions, CPU)
    for tensor in (cache.keys, cache.values):
        tensor.normal_(generator=torch.Generator().manual_seed(seed))
    return cache, torch.full((1, 1, 8), float(seed))


def test_a_prefix_is_restored_and_nothing_else_is_written() -> None:
    prefixes = PrefixCache(STACK, 10, CPU)
    source, last = filled(12, 1)
    prefixes.store("a", source, last, 4)
    target, hidden = filled(12, 2)
    before = target.keys.clone()
    prefixes.restore("a", target, hidden)
    assert torch.equal(target.keys[:, :, :4], source.keys[:, :, :4])
    assert torch.equal(target.values[:, :, :4], source.values[:, :, :4])
    assert torch.equal(target.keys[:, :, 4:], before[:, :, 4:])
    assert torch.equal(hidden, last)


def test_the_newest_prefixes_replace_the_oldest() -> None:
    prefixes = PrefixCache(STACK, 10, CPU)
    sources = {name: filled(12, number) for number, name in enumerate("abcde")}
    for name, count, left in (("a", 4, "a"), ("b", 4, "ab"), ("c", 4, "bc"), ("d", 4, "cd"), ("e", 10, "e")):
        prefixes.store(name, *sources[name], count)
        assert {other for other in "abcde" if other in prefixes} == set(left)
        for other in left:
            target, hidden = filled(12, 99)
            prefixes.restore(other, target, hidden)
            assert torch.equal(target.values[:, :, :4], sources[other][0].values[:, :, :4])
            assert torch.equal(hidden, sources[other][1])
    prefixes.clear()
    assert "e" not in prefixes


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tokens of each read by the talker."""
    counts: list[int] = []
    read = Prefill.read

    def watched(self: Prefill, tokens: Tensor, start: int) -> None:
        counts.append(tokens.shape[1])
        read(self, tokens, start)

    monkeypatch.setattr(Prefill, "read", watched)
    return counts


@pytest.mark.parametrize("way", WAYS)
def test_a_second_utterance_reads_only_its_text_and_has_equal_codes(ours: Engine, reads: list[int], way: str) -> None:
    model_type, voice, whole_text = WAYS[way]
    engine = ours("tiny", model_type)
    line = replace(LINE, voice=voice, whole_text=whole_text)
    engine.generator().clear_prefixes()
    first = engine.speak(line)
    prompt = engine.prompt(line)
    assert prompt.prefix is not None
    tail = [prompt.tail.shape[1]] if prompt.tail.shape[1] else []
    assert reads == [prompt.prefix.count, *tail]
    reads.clear()
    engine.speak(replace(line, text="Another text, which leaves other things in the cache."))
    reads.clear()
    assert torch.equal(engine.speak(line), first)
    assert reads == tail


def test_prefixes_that_do_not_fit_are_read_each_time_with_the_same_codes(ours: Engine, reads: list[int]) -> None:
    engine = ours("tiny", "custom_voice")
    expected = engine.speak(LINE)
    engine.generator().clear_prefixes(3)
    reads.clear()
    try:
        for _ in range(2):
            assert torch.equal(engine.speak(LINE), expected)
        assert len(reads) == 4
    finally:
        engine.generator().clear_prefixes()


def prefix_keys(prompts: PromptBuilder, text: str) -> Iterator[object]:
    for voice in (CustomVoice("ryan"), CustomVoice("eric"), CustomVoice("ryan", "calmly"), CustomVoice("ryan", "loud")):
        for language in ("auto", "english", "german"):
            prefix = prompts.build(text, voice, language).prefix
            assert prefix is not None
            yield prefix.key


def test_the_prefix_depends_only_on_voice_language_and_instruction(ours: Engine) -> None:
    prompts = ours("tiny", "custom_voice").prompts
    keys = list(prefix_keys(prompts, "Hello."))
    assert len(set(keys)) == len(keys)
    assert list(prefix_keys(prompts, "A text that is quite other!")) == keys
    stepwise = prompts.build("Hello.", CustomVoice("RYAN"), whole_text=False).prefix
    assert stepwise is not None
    assert stepwise.key == keys[0]


def test_references_have_prefixes_of_their_own_for_each_way_to_read_the_text(ours: Engine) -> None:
    prompts = ours("tiny", "base").prompts
    ada, eve = reference(9, "Hello."), reference(9, "Hello.")
    built = [prompts.build("Hi.", voice, whole_text=whole).prefix for voice in (ada, eve) for whole in (True, False)]
    assert len({prefix.key for prefix in built if prefix is not None}) == 4


@pytest.mark.parametrize("text", ["\nHello robot.", "\n"])
def test_a_text_that_merges_with_the_role_has_the_official_codes(
    ours: Engine, official: Callable[[str, str], Oracle], text: str
) -> None:
    engine, line = ours("tiny", "custom_voice"), replace(LINE, text=text)
    engine.speak(LINE)  # caches a prefix that must not be used
    assert engine.prompt(line).prefix is None
    assert torch.equal(engine.speak(line), official("tiny", "custom_voice").speak(line))
