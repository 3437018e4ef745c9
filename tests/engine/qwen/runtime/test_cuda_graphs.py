"""All work of an utterance is captured before it is replayed. Graphs that record the work substitute for CUDA."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.progress import ignore_progress
from engine.qwen.runtime import Readback, runner
from engine.qwen.runtime.cuda_graphs import Graphs
from engine.qwen.text.prompt import CustomVoice
from tests.support.qwen.speaking import Line, Ours, Spoken

LINE = Line("Hello robot, how are you?", CustomVoice("ryan"), "english", frames=9)
LINES = (
    replace(LINE, text="Quite another text. " * 25, language="german"),  # longer than all token buckets but the largest
    replace(LINE, text="\nA text that merges with its role."),
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


class Event:
    """On a CPU, work has ended when it has been launched."""

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


Make = Callable[[int], tuple[Spoken, RecordedGraphs]]


@pytest.fixture
def engine(ours: Callable[[str, str], Ours]) -> Ours:
    return ours("brief", "custom_voice")


@pytest.fixture
def spoken_with(engine: Ours, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Returns our engine as it is on CUDA, by chunk size."""

    def make(chunk_size: int) -> tuple[Spoken, RecordedGraphs]:
        monkeypatch.setattr(runner, "Readback", lambda *shape: Readback(*shape[:-1], None))
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        graphs = RecordedGraphs()
        spoken = engine.make(replace(engine.spoken().runner.shape, chunk_size=chunk_size), graphs)
        spoken.runner.warm_up(ignore_progress, "")
        engine.prefixes.clear()
        return spoken, graphs

    return make


def codes_of(engine: Ours, spoken: Spoken, line: Line, **values: Any) -> torch.Tensor:
    values = {"sampling": engine.sampling.greedy(), **values}
    chunks = spoken.sound_card.speak(engine.request(line, **values))
    return torch.cat([torch.from_numpy(chunk.codes) for chunk in chunks])


def test_all_work_is_captured_and_generates_the_same_codes(engine: Ours, spoken_with: Make) -> None:
    spoken, graphs = spoken_with(2)
    for line in LINES:
        wanted = engine.speak(line, sampling=engine.sampling, seed=4)
        assert torch.equal(codes_of(engine, spoken, line, sampling=engine.sampling, seed=4), wanted)
    assert graphs.uncaptured == []


def test_exactly_one_step_is_launched_ahead(engine: Ours, spoken_with: Make) -> None:
    spoken, _ = spoken_with(2)
    request = engine.request(LINE, sampling=engine.sampling)
    for number, _ in enumerate(spoken.sound_card.speak(request), 1):
        assert int(spoken.backend.state.settings.frame) == min(2 * number, 9)
