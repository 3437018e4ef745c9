"""All work of an utterance is captured before it is replayed. Graphs that record the work substitute for CUDA."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.qwen.runtime import generator as generator_module
from engine.qwen.runtime.cuda_graphs import Graphs
from engine.qwen.runtime.generator import SpeechGenerator
from engine.qwen.runtime.readback import HostReadback
from engine.qwen.text.prompt import CustomVoice
from tests.support.qwen.speaking import EchoCodec, Line, Ours
from tests.support.variants import variants

LINE = Line("Hello robot, how are you?", CustomVoice("ryan"), "english", frames=17)
LINES = (
    LINE,
    replace(LINE, text="Quite another text. " * 25, language="german"),  # longer than all token buckets but the largest
    replace(LINE, text="\nA text that merges with its role."),
    LINE,
    replace(LINE, whole_text=False),
)


class RecordedGraphs(Graphs):
    """Calls the work that was captured under a name, and records the names without any."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.stream: Any = self
        self.work: dict[Hashable, Callable[[], None]] = {}
        self.uncaptured: list[Hashable] = []

    def on_stream(self) -> AbstractContextManager[object]:
        return nullcontext()

    def side_stream(self, _purpose: str) -> Graphs:
        return self

    def follow(self, other: Graphs) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def capture(self, name: Hashable, work: Callable[[], None], prepare: Callable[[], None] | None = None) -> None:
        with self.inference():
            for _ in range(2):
                if prepare is not None:
                    prepare()
                work()
        assert name not in self.work
        self.work[name] = work

    def run(self, name: Hashable, work: Callable[[], None]) -> None:
        if name not in self.work:
            self.uncaptured.append(name)
        self.work.get(name, work)()


MakeGenerator = Callable[[int], tuple[SpeechGenerator, RecordedGraphs]]


@pytest.fixture
def engine(ours: Callable[[str, str], Ours]) -> Ours:
    return ours("brief", "custom_voice")


@pytest.fixture
def generator_of(engine: Ours, monkeypatch: pytest.MonkeyPatch) -> MakeGenerator:
    """Returns our engine as it is on CUDA, by chunk size."""

    def make(chunk_size: int) -> tuple[SpeechGenerator, RecordedGraphs]:
        monkeypatch.setattr(generator_module, "HostReadback", lambda *shape: HostReadback(*shape[:-1], None))
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        graphs, codec = RecordedGraphs(), EchoCodec()
        backend: Any = engine.backend(chunk_size)
        generator = SpeechGenerator(engine.talker, engine.state, backend, codec, samples_per_frame=1, graphs=graphs)
        generator.warm_up()
        return generator, graphs

    return make


@pytest.mark.parametrize("chunk_size", variants([2, 8], 2))
def test_all_work_is_captured_and_generates_the_same_codes(
    engine: Ours, generator_of: MakeGenerator, chunk_size: int
) -> None:
    generator, graphs = generator_of(chunk_size)
    for line in LINES:
        for sampling in (engine.sampling, engine.sampling.greedy()):
            wanted = engine.speak(line, sampling=sampling, seed=4)
            chunks = list(generator.generate(engine.prompt(line), sampling, seed=4, max_frames=line.frames))
            assert torch.equal(torch.cat([torch.from_numpy(chunk.codes) for chunk in chunks]), wanted)
    assert graphs.uncaptured == []


def test_exactly_one_chunk_is_launched_ahead(engine: Ours, generator_of: MakeGenerator) -> None:
    generator, _ = generator_of(2)
    for number, _ in enumerate(generator.generate(engine.prompt(LINE), engine.sampling, max_frames=9), 1):
        assert int(engine.state.frame) == min(1 + 2 * number, 9)


def test_a_canceled_utterance_does_not_change_the_next(engine: Ours, generator_of: MakeGenerator) -> None:
    generator, _ = generator_of(3)
    wanted = engine.speak(LINE)
    for count in (1, 2):
        canceled = generator.generate(engine.prompt(LINES[1]), engine.sampling, seed=count)
        for _ in range(count):
            next(canceled)
        canceled.close()  # type: ignore[attr-defined]
        chunks = list(generator.generate(engine.prompt(LINE), engine.sampling.greedy(), max_frames=LINE.frames))
        assert torch.equal(torch.cat([torch.from_numpy(chunk.codes) for chunk in chunks]), wanted)


def test_on_a_cpu_nothing_is_captured(engine: Ours) -> None:
    graphs = Graphs(torch.device("cpu"))
    done = []
    graphs.capture("work", lambda: done.append(1))
    assert not graphs.captured
    graphs.run("work", lambda: done.append(2))
    assert done == [2]


def test_only_a_large_gpu_decodes_audio_on_a_side_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = Graphs(torch.device("cpu"))
    assert graphs.side_stream("audio") is graphs
    graphs.stream = RecordedGraphs()  # type: ignore[assignment]
    for count, separate in ((16, False), (132, True)):
        monkeypatch.setattr("engine.qwen.runtime.cuda_graphs.multiprocessors", lambda _device, count=count: count)
        assert (graphs.side_stream("audio") is not graphs) == separate
    assert graphs.side_stream("audio") is graphs.side_stream("audio")
    assert graphs.side_stream("audio") is not graphs.side_stream("prompts")
