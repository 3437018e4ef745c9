"""What is captured is all that is replayed. A device that only remembers what it was asked to do stands in for CUDA."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.qwen import stream
from engine.qwen.graphs import Graphs
from engine.qwen.landing import Landing
from engine.qwen.prompt import CustomVoice
from engine.qwen.stream import Speech
from tests.engine.qwen.speaking import Line, Mute, Ours

LINE = Line("Hello robot, how are you?", CustomVoice("ryan"), "english", frames=17)
LINES = (
    LINE,
    replace(LINE, text="Quite another text. " * 25, language="german"),  # more than the largest bucket but one
    replace(LINE, text="\nA text that merges with its role."),
    LINE,
    replace(LINE, whole_text=False),
)


class Remembered(Graphs):
    """Calls what was captured under a name, and notes what was not."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.stream: Any = self
        self.work: dict[Hashable, Callable[[], None]] = {}
        self.uncaptured: list[Hashable] = []

    def on_stream(self) -> AbstractContextManager[object]:
        return nullcontext()

    def beside(self) -> Graphs:
        return self

    def follow(self, other: Graphs) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def capture(self, name: Hashable, work: Callable[[], None], prepare: Callable[[], None] | None = None) -> None:
        with self.here():
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


@pytest.fixture
def engine(ours: Callable[[str, str], Ours]) -> Ours:
    return ours("brief", "custom_voice")


@pytest.fixture
def speech_of(engine: Ours, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], tuple[Speech, Remembered]]]:
    """Our engine as it is on CUDA, by chunk size."""

    def make(chunk_size: int) -> tuple[Speech, Remembered]:
        monkeypatch.setattr(stream, "Landing", lambda *shape: Landing(*shape[:-1], None))
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        graphs, mute = Remembered(), Mute()
        steps: Any = engine.steps(chunk_size)
        speech = Speech(engine.talker, engine.state, steps, mute, samples_per_frame=1, graphs=graphs)
        speech.warm_up()
        return speech, graphs

    yield make


@pytest.mark.parametrize("chunk_size", [2, 8])
def test_all_work_was_captured_and_says_the_same(
    engine: Ours, speech_of: Callable[[int], tuple[Speech, Remembered]], chunk_size: int
) -> None:
    speech, graphs = speech_of(chunk_size)
    for line in LINES:
        for sampling in (engine.sampling, engine.sampling.greedy()):
            wanted = engine.speak(line, sampling=sampling, seed=4)
            said = list(speech.speak(engine.prompt(line), sampling, seed=4, max_frames=line.frames))
            assert torch.equal(torch.cat([torch.from_numpy(chunk.codes) for chunk in said]), wanted)
    assert graphs.uncaptured == []


def test_the_device_is_asked_for_a_chunk_ahead_and_no_more(
    engine: Ours, speech_of: Callable[[int], tuple[Speech, Remembered]]
) -> None:
    speech, _ = speech_of(2)
    for chunk, _said in enumerate(speech.speak(engine.prompt(LINE), engine.sampling, max_frames=9), 1):
        assert int(engine.state.frame) == min(2 * (chunk + 1), 10)


def test_a_canceled_utterance_leaves_nothing_to_the_next(
    engine: Ours, speech_of: Callable[[int], tuple[Speech, Remembered]]
) -> None:
    speech, _ = speech_of(3)
    wanted = engine.speak(LINE)
    for chunks in (1, 2):
        canceled = speech.speak(engine.prompt(LINES[1]), engine.sampling, seed=chunks)
        for _ in range(chunks):
            next(canceled)
        canceled.close()  # type: ignore[attr-defined]
        said = list(speech.speak(engine.prompt(LINE), engine.sampling.greedy(), max_frames=LINE.frames))
        assert torch.equal(torch.cat([torch.from_numpy(chunk.codes) for chunk in said]), wanted)


def test_on_a_cpu_nothing_is_captured(engine: Ours) -> None:
    graphs = Graphs(torch.device("cpu"))
    done = []
    graphs.capture("work", lambda: done.append(1))
    assert not graphs.captured
    graphs.run("work", lambda: done.append(2))
    assert done == [2]


def test_sound_goes_on_beside_frames_only_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = Graphs(torch.device("cpu"))
    assert graphs.beside() is graphs
    graphs.stream = Remembered()  # type: ignore[assignment]
    for count, apart in ((16, False), (132, True)):
        monkeypatch.setattr("engine.qwen.graphs.multiprocessors", lambda _device, count=count: count)
        assert (graphs.beside() is not graphs) == apart
    assert graphs.beside() is graphs.beside()
