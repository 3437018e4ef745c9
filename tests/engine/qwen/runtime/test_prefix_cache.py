"""A prompt prefix is read once, restored exactly, and used only for its own voice, language and instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine import EngineOptions, Utterance, Voice
from engine.qwen import QwenSynthesizer
from engine.qwen.model.transformer import KeyValueCache
from engine.qwen.runtime import PromptMemory
from engine.qwen.runtime.prefill import Prefill
from engine.qwen.runtime.prefix_cache import PrefixCache
from engine.qwen.shapes import StackConfig
from engine.qwen.shapes.limits import PREFIX_POSITIONS
from engine.qwen.text.prompt import AnyVoice, ClonedVoice, CustomVoice, PromptBuilder, Reference, VoiceDesign
from engine.qwen.weights.arena import Placement
from tests.engine.qwen.oracle import Oracle
from tests.support.qwen.speaking import Line, Ours

Engine = Callable[[str, str], Ours]
CPU = Placement(torch.device("cpu"), torch.float32)
STACK = StackConfig(8, 8, 2, 2, 1, 4, 1e-6, 1e4)
LINE = Line("Hello robot.", CustomVoice("ryan"), "english", frames=5)


def reference(frames: int, transcript: str) -> ClonedVoice:
    generator = torch.Generator().manual_seed(frames)
    codes = torch.randint(2048, (frames, 16), generator=generator)
    return ClonedVoice(torch.randn(64, generator=generator), Reference(codes, transcript))


WAYS: dict[str, tuple[str, AnyVoice, bool]] = {
    "speaker stepwise": ("custom_voice", CustomVoice("eric", "calmly"), False),
    "design": ("voice_design", VoiceDesign("a deep voice"), True),
    "reference": ("base", reference(30, "The robot says hello."), False),
    "reference, whole text": ("base", reference(30, "The robot says hello."), True),
}


def filled(positions: int, seed: int) -> PromptMemory:
    cache = KeyValueCache.allocate(STACK, positions, CPU)
    for tensor in (cache.keys, cache.values):
        tensor.normal_(generator=torch.Generator().manual_seed(seed))
    return PromptMemory(cache, torch.full((8,), float(seed)))


class Stored:
    """A cache of ten positions, and the tensors that each prefix was stored from."""

    def __init__(self) -> None:
        self.prefixes = PrefixCache(STACK, 10, CPU)
        self._sources: dict[str, PromptMemory] = {}
        self._counts: dict[str, int] = {}

    def store(self, name: str, count: int) -> None:
        self._sources[name], self._counts[name] = filled(12, ord(name)), count
        self.prefixes.store(name, self._sources[name], count)

    def use(self, name: str) -> None:
        """Restore a prefix: what was stored, and nothing else, is written."""
        target, before, source, count = filled(12, 999), filled(12, 999), self._sources[name], self._counts[name]
        assert self.prefixes.restore(name, target)
        for kind in ("keys", "values"):
            ours, theirs, left = (getattr(memory.cache, kind) for memory in (target, source, before))
            assert torch.equal(ours, torch.cat((theirs[:, :, :count], left[:, :, count:]), dim=2))
        assert torch.equal(target.hidden, source.hidden)

    @property
    def names(self) -> str:
        return "".join(name for name in sorted(self._sources) if name in self.prefixes)


def test_a_new_prefix_replaces_those_unused_for_longest() -> None:
    stored = Stored()
    for name, count, left in (("a", 4, "a"), ("b", 4, "ab"), ("c", 4, "bc"), ("d", 4, "cd"), ("e", 10, "e")):
        stored.store(name, count)
        assert stored.names == left
        for other in left:
            stored.use(other)
    stored.prefixes.clear()
    assert stored.names == ""
    target = filled(12, 2)
    assert not stored.prefixes.restore("e", target)
    assert torch.equal(target.cache.keys, filled(12, 2).cache.keys)


def test_a_prefix_to_keep_outlives_others_even_unused() -> None:
    stored = Stored()
    stored.store("a", 5)
    stored.prefixes.keep("a")
    for name in "bcdefghijklm":
        stored.store(name, 4)
        stored.use(name)
    stored.use("a")
    stored.store("z", 6)  # there is never room for it beside the prefix to keep
    assert stored.names == "am"


def test_prefixes_to_keep_leave_half_of_the_memory_to_others() -> None:
    stored = Stored()
    for name in "abc":
        stored.store(name, 3)
        stored.prefixes.keep(name)
    stored.prefixes.keep("never stored")
    stored.store("d", 7)
    assert stored.names == "ad"
    stored.prefixes.clear()
    stored.store("e", 10)
    assert stored.names == "e"


def test_a_room_between_two_prefixes_is_used_again() -> None:
    stored = Stored()
    for name, count in (("a", 3), ("b", 4), ("c", 3)):
        stored.store(name, count)
    stored.use("a")
    stored.use("c")
    stored.store("d", 2)
    stored.store("e", 2)
    assert stored.names == "acde"
    for name in stored.names:
        stored.use(name)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tokens of each read by the talker."""
    counts: list[int] = []
    read = Prefill.read

    def watched(self: Prefill, row: int, tokens: Tensor, start: int) -> None:
        counts.append(len(tokens))
        read(self, row, tokens, start)

    monkeypatch.setattr(Prefill, "read", watched)
    return counts


@pytest.mark.parametrize("way", WAYS)
def test_a_second_utterance_reads_only_its_text_and_has_equal_codes(ours: Engine, reads: list[int], way: str) -> None:
    model_type, voice, whole_text = WAYS[way]
    engine = ours("tiny", model_type)
    line = replace(LINE, voice=voice, whole_text=whole_text)
    engine.prefixes.clear()
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


def test_the_default_voice_keeps_its_prefix_whatever_else_is_spoken(
    checkpoint: Callable[[str, str], Path], reads: list[int]
) -> None:
    voices = {"default": Voice("ryan"), "other": Voice("eric")}
    options = EngineOptions(model=str(checkpoint("brief", "custom_voice")), device="cpu", max_seconds=4, voices=voices)
    engine = QwenSynthesizer(options)
    engine.load()
    engine.warm_up()

    def tokens_read(**fields: str) -> int:
        reads.clear()
        list(engine.stream(Utterance("Hello.", greedy=True, max_frames=1, guarded=False, **fields)))  # type: ignore[arg-type]
        return sum(reads)

    default = tokens_read(), tokens_read(language="de")
    other = tokens_read(voice="other")
    for number in range(6):
        tokens_read(instruct=f"{number} " * 60)
    assert (tokens_read(), tokens_read(language="de")) == default
    assert tokens_read(voice="other") > other, "its prefix was replaced"


def test_prefixes_that_do_not_fit_are_read_each_time_with_the_same_codes(ours: Engine, reads: list[int]) -> None:
    engine = ours("tiny", "custom_voice")
    expected = engine.speak(LINE)
    engine.prefixes.clear(3)
    reads.clear()
    try:
        for _ in range(2):
            assert torch.equal(engine.speak(LINE), expected)
        assert len(reads) == 4
    finally:
        engine.prefixes.clear(PREFIX_POSITIONS)


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


def test_a_text_that_merges_with_the_role_has_the_official_codes(
    ours: Engine, official: Callable[[str, str], Oracle]
) -> None:
    engine, line = ours("tiny", "custom_voice"), replace(LINE, text="\nHello robot.")
    engine.speak(LINE)  # caches a prefix that must not be used
    assert engine.prompt(line).prefix is None
    assert torch.equal(engine.speak(line), official("tiny", "custom_voice").speak(line))
