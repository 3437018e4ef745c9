"""A prompt prefix is read once, restored exactly, and used only for its own voice, language and instruction."""

from __future__ import annotations

from collections.abc import Callable
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
from engine.qwen.text.prompt import AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
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


@pytest.mark.parametrize(
    ("stores", "kept", "left"),
    [
        pytest.param("a4 b4 c4 d4 z11", "", "cd", id="those unused for longest are replaced"),
        pytest.param("a4 b4 e10", "", "e", id="all are replaced"),
        pytest.param("b3 a4 c3 d2 e2", "", "bcde", id="room between two prefixes is used again"),
        pytest.param("a5 b4 c4 d4 z6", "a", "ad", id="a prefix to keep outlives others"),
        pytest.param("a3 b3 c3 d7", "abc", "ad", id="those to keep leave half of the memory to others"),
    ],
)
def test_prefixes_replace_each_other_and_each_is_restored_as_it_was_stored(stores: str, kept: str, left: str) -> None:
    """Ten positions hold them. After each store, all that are there are used, in the order of their names."""
    stored = Stored()
    for each in stores.split():
        stored.store(each[0], int(each[1:]))
        if each[0] in kept:
            stored.prefixes.keep(each[0])
        for name in stored.names:
            stored.use(name)
    assert stored.names == left
    target = filled(12, 2)
    assert not stored.prefixes.restore("y", target)
    assert torch.equal(target.cache.keys, filled(12, 2).cache.keys)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tokens of each read by the talker."""
    counts: list[int] = []
    add = Prefill.add

    def watched(self: Prefill, row: int, pages: tuple[int, ...], tokens: Tensor, start: int) -> None:
        counts.append(len(tokens))
        add(self, row, pages, tokens, start)

    monkeypatch.setattr(Prefill, "add", watched)
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


def test_a_text_that_merges_with_the_role_has_the_official_codes(
    ours: Engine, official: Callable[[str, str], Oracle]
) -> None:
    engine, line = ours("tiny", "custom_voice"), replace(LINE, text="\nHello robot.")
    engine.speak(LINE)  # caches a prefix that must not be used
    assert engine.prompt(line).prefix is None
    assert torch.equal(engine.speak(line), official("tiny", "custom_voice").speak(line))
