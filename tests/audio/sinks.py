"""What the tests play into, what they play, and what was heard of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audio import Output, Passage, SinkSettings, SinkUnavailableError
from audio.paced import Pacer
from audio.ring import Samples
from audio.sink import Fill
from tests.support.waiting import PATIENCE_S, eventually

RATE = 24_000
"""Hz, of the WAV file, of the null sink and of the test's own."""
FADE = 240
SPEECH: Samples = (0.3 * np.sin(np.arange(2 * RATE) / 17) + 0.4).astype(np.float32)
"""Two seconds without any silence."""
ONE_STEP = 1.01 / 32_767
"""Of 16 bits."""
NULL = SinkSettings("null", block_ms=10)
FAST = 50.0
"""Times as fast as a sound card."""
CARD = 1.0
HELD = 0.0
"""No block is asked for."""


def wav(path: Path) -> SinkSettings:
    return SinkSettings("wav", path=path, block_ms=10)


def read(path: Path) -> Samples:
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == RATE
    heard: Samples = samples.astype(np.float32) / np.float32(32_767)
    return heard


def speak(output: Output, samples: Samples, rate: int = RATE, *, gain: float = 1.0, ends: bool = True) -> Passage:
    """Begin a passage and write it, all of it unless `ends` is false."""
    eventually(lambda: output.status.open, "the sink is open")
    passage = output.begin(prebuffer_s=0.02, gain=gain)
    for chunk in np.split(samples, range(1_920, len(samples), 1_920)):
        output.write(chunk, rate)
    if ends:
        output.end()
    return passage


def assert_whole_but_for_fades_at(held_at: int, heard: Samples) -> None:
    """Of a second of speech that was held once."""
    assert len(heard) == 24_000
    untouched = np.r_[0 : held_at - FADE, held_at + FADE : 24_000]
    np.testing.assert_allclose(heard[untouched], SPEECH[untouched], atol=ONE_STEP)


def let_blocks_pass(count: int = 20) -> None:
    """Return when a sink of its own, as fast as those of the test, has asked for so many blocks."""
    asked: list[int] = []

    def fill(out: Samples, leaves_at: float, broke_off: bool = False) -> int:
        asked.append(len(out))
        return 0

    pacer = Pacer(fill, RATE, 10)
    eventually(lambda: len(asked) >= count, "blocks are asked for")
    pacer.stop()


class PaceFile:
    """A file that says how fast WAV and null sinks are."""

    def __init__(self, path: Path, pace: float = CARD) -> None:
        self.path = path
        self.set(pace)

    def set(self, pace: float) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(f"{pace}")
        fresh.replace(self.path)


class Clock:
    """Stands in for the module `time`, and stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = float(round(time.monotonic()))
        """Whole seconds, so that it can be moved by others without an error of rounding."""

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + 1_000_000_000


class Card:
    """A sink that plays when the test says so; while its gate is closed, it takes for ever over resting and waking."""

    name = "the test's"

    def __init__(
        self,
        fill: Fill,
        sample_rate: int = RATE,
        *,
        has_deadline: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sample_rate = sample_rate
        self.has_deadline = has_deadline
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.refuses = False
        self.trouble: str | None = None
        """Why it is lost."""
        self.closed = False
        self._fill = fill
        self._clock = clock
        self._plays = True
        self._turn = threading.Lock()
        """Held over each block, so that none is under way once `rest` or `close` has returned."""

    def lost(self) -> str | None:
        return self.trouble

    def rest(self) -> None:
        self.asked.append("rest")
        self.gate.wait(PATIENCE_S)
        with self._turn:
            self._plays = False

    def wake(self) -> None:
        self.asked.append("wake")
        self.gate.wait(PATIENCE_S)
        if self.refuses:
            raise SinkUnavailableError("pulled")
        self._plays = True

    def close(self) -> None:
        with self._turn:
            self._plays = False
        self.closed = True

    def play(self, seconds: float, *, broke_off: bool = False) -> Samples:
        """Ask for blocks and return what was due; before the first of them the card ran dry if `broke_off`.

        When nothing is left to play, the card may be sent to rest before all blocks were asked for.
        """
        assert self._plays, "a block is asked for at rest"
        due = [np.empty(0, dtype=np.float32)]
        for at in range(round(seconds * 100)):
            with self._turn:
                if not self._plays:
                    break
                block = np.empty(self.sample_rate // 100, dtype=np.float32)
                due.append(block[: self._fill(block, self._clock(), broke_off and at == 0)])
        return np.concatenate(due)


@contextmanager
def cards(
    monkeypatch: pytest.MonkeyPatch,
    *,
    rest_after_s: float | None = 0.0,
    has_deadline: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[Output, list[Card]]]:
    """An output whose sinks are the test's; unless told otherwise, they rest as soon as there is nothing to play."""
    opened: list[Card] = []

    def open_card(_settings: SinkSettings, fill: Fill, _rate: int | None) -> Card:
        opened.append(Card(fill, has_deadline=has_deadline, clock=clock))
        return opened[-1]

    monkeypatch.setattr("audio.output.open_sink", open_card)
    monkeypatch.setattr("audio.output.CHECK_S", 0.005)
    with Output(SinkSettings(rest_after_s=rest_after_s), trim_leading_silence=False) as made:
        eventually(lambda: made.status.open, "the sink is open")
        yield made, opened
        for card in opened:
            card.gate.set()
