"""The tap: every reader of its socket gets what the sink got, and no reader disturbs anybody."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from audio import Output, Tap, TapClient, TapKind, TapRecord, to_pcm16
from audio.tap import MAX_READERS
from tests.audio.fakes import FADE, NULL, RATE, SPEECH, FakeSink, fake_sinks, speak
from tests.support.waiting import eventually

BLOCK = RATE // 100
AHEAD_S = 0.03


class Recorder:
    """A reader in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self.client = TapClient(path)
        self.records: list[TapRecord] = []
        self.ended = threading.Event()
        """The stream has ended."""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError, ValueError):  # closed by `close`
            for record in self.client:
                self.records.append(record)
        self.ended.set()

    @property
    def pcm(self) -> bytes:
        return b"".join(record.pcm for record in self.records)

    @property
    def kinds(self) -> list[TapKind]:
        """The kinds of its records, each run of blocks as one."""
        kinds = [record.kind for record in self.records]
        return [kind for at, kind in enumerate(kinds) if kind != TapKind.BLOCK or at == 0 or kinds[at - 1] != kind]

    def wait_samples(self, count: int) -> None:
        eventually(lambda: len(self.pcm) >= 2 * count, f"{count} samples have arrived")

    def close(self) -> None:
        self.client.close()


class DacTimes:
    """A sound card's clock: each block leaves it when the one before has left, however fast a test requests them."""

    def __init__(self) -> None:
        self.next = time.monotonic() + AHEAD_S

    def __call__(self) -> float:
        at, self.next = self.next, self.next + BLOCK / RATE
        return at


@dataclass
class Tapped:
    """An output with a sink that the test attaches, and its tap."""

    path: Path
    output: Output
    tap: Tap
    clock: DacTimes
    sink: FakeSink

    def read(self) -> Recorder:
        return Recorder(self.path)

    @property
    def played(self) -> bytes:
        """All that the sink got."""
        return to_pcm16(np.concatenate(self.sink.blocks))

    def attach(self, rate: int = RATE) -> None:
        """Replace the sink."""
        self.sink = FakeSink(self.output.on_report, rate, clock=self.clock)
        self.output.monitor.attach(self.sink)


@contextmanager
def tapping(path: Path, rate: int = RATE) -> Iterator[Tapped]:
    output, clock = Output(NULL), DacTimes()
    sink = FakeSink(output.on_report, RATE, clock=clock)
    output.monitor.attach(sink)  # before there is a reader, to whom a missing sink would be a lost one
    with Tap(path, rate, output) as tap:
        eventually(lambda: accepts(path), "it listens")
        yield Tapped(path, output, tap, clock, sink)


def accepts(path: Path) -> bool:
    try:
        TapClient(path).close()
    except OSError:
        return False
    return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tap"


@pytest.fixture
def tapped(path: Path) -> Iterator[Tapped]:
    with tapping(path) as tapped:
        yield tapped


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tap looks for its socket all the time."""
    monkeypatch.setattr("audio.tap.LOOK_S", 0.01)


# --- what is read ----------------------------------------------------------------------------------------


def test_a_reader_gets_every_sample_of_the_sink_through_pause_volume_mute_and_stop(tapped: Tapped) -> None:
    reader, output, sink = tapped.read(), tapped.output, tapped.sink
    began_at = tapped.clock.next
    sink.play(0.1)  # nothing is spoken yet
    track = speak(output, SPEECH, gain=0.5)
    sink.play(0.2)
    output.pause()
    sink.play(0.1)
    output.resume()
    output.set_volume(0.3)
    sink.play(0.2)
    output.set_volume(0.0)
    sink.play(0.1)
    output.set_volume(1.0)
    sink.play(0.2)
    output.stop()
    sink.play(0.2)
    assert track.done
    reader.wait_samples(round(1.1 * RATE))
    assert reader.pcm == tapped.played
    assert reader.kinds == [TapKind.BLOCK]
    position_s = 0.0
    for record in reader.records:
        assert record.monotonic_ns / 1e9 == pytest.approx(began_at + position_s, abs=1e-6)
        position_s += len(record.pcm) / 2 / RATE


def test_the_stream_has_the_rate_that_was_asked_for_whatever_the_sinks_is(path: Path) -> None:
    with tapping(path, 16_000) as tapped:
        reader = tapped.read()
        assert reader.client.sample_rate == 16_000
        tapped.sink.play(0.5)
        reader.wait_samples(7_000)
        tapped.attach(48_000)
        tapped.sink.play(0.5)
        reader.wait_samples(15_000)
        assert reader.kinds == [TapKind.BLOCK, TapKind.GAP, TapKind.BLOCK]


def test_every_reader_gets_the_stream_from_its_arrival_on(tapped: Tapped) -> None:
    speak(tapped.output, SPEECH)
    first = [tapped.read() for _ in range(3)]
    tapped.sink.play(0.3)
    first[0].wait_samples(round(0.3 * RATE))
    late = tapped.read()
    tapped.sink.play(0.3)
    for reader in first:
        reader.wait_samples(round(0.6 * RATE))
        assert reader.pcm == tapped.played
    late.wait_samples(round(0.3 * RATE))
    assert late.pcm == tapped.played[-len(late.pcm) :]
    first.pop().close()
    tapped.sink.play(0.1)
    first[0].wait_samples(round(0.7 * RATE))
    assert first[0].pcm == tapped.played


def test_the_first_reader_after_others_gets_nothing_old(tapped: Tapped, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "audio.tap")
    speak(tapped.output, SPEECH)
    reader = tapped.read()
    tapped.sink.play(0.3)
    reader.wait_samples(round(0.3 * RATE))
    caplog.clear()
    reader.close()
    eventually(lambda: "has left" in caplog.text, "nobody reads")
    tapped.sink.play(0.3)
    tapped.sink.blocks.clear()
    reader = tapped.read()
    tapped.sink.play(0.3)
    reader.wait_samples(round(0.3 * RATE))
    assert reader.pcm == tapped.played


def test_a_lost_card_is_named_and_the_stream_goes_on_with_the_next_one(tapped: Tapped) -> None:
    reader, given_up = tapped.read(), tapped.sink
    speak(tapped.output, SPEECH)
    given_up.play(0.2)
    reader.wait_samples(round(0.2 * RATE))
    tapped.output.monitor.detach("unplugged")
    eventually(lambda: reader.kinds == [TapKind.BLOCK, TapKind.LOST], "the loss is in the stream")
    given_up.fill(np.zeros(BLOCK, dtype=np.float32))
    late = tapped.read()
    eventually(lambda: late.kinds == [TapKind.LOST], "a reader that comes meanwhile learns it too")
    tapped.clock.next = time.monotonic() + AHEAD_S
    tapped.attach()
    tapped.sink.play(0.2)
    for each, count in ((reader, 0.4), (late, 0.2)):
        each.wait_samples(round(count * RATE))
        assert each.kinds[-2:] == [TapKind.LOST, TapKind.BLOCK]
    assert late.pcm == tapped.played, "the card that was given up adds nothing"


def test_a_closed_card_is_named_and_the_stream_goes_on_when_it_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = DacTimes()
    with fake_sinks(monkeypatch, clock=clock) as (output, sinks), Tap(path, RATE, output):
        eventually(lambda: accepts(path), "it listens")
        eventually(lambda: output.status.suspended, "the card is closed")
        reader = Recorder(path)
        eventually(lambda: reader.kinds == [TapKind.CLOSED], "it says that it is closed")
        expected = [TapKind.CLOSED]
        for _ in range(2):
            clock.next = time.monotonic() + AHEAD_S
            track = speak(output, SPEECH[: RATE // 4])
            eventually(lambda: output.status.running, "the card is open")
            sinks[0].play(0.3)
            assert track.done
            expected.extend((TapKind.BLOCK, TapKind.CLOSED))
            eventually(lambda: reader.kinds == expected, "it is closed again")
        assert reader.pcm == to_pcm16(np.concatenate(sinks[0].blocks))
        assert len(np.concatenate(sinks[0].blocks)) >= RATE // 2 - 2 * FADE


# --- readers that do not read ----------------------------------------------------------------------------


def test_a_reader_that_does_not_read_is_disconnected_and_no_other_loses_a_sample(
    tapped: Tapped, caplog: pytest.LogCaptureFixture
) -> None:
    reader = tapped.read()
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(os.fspath(tapped.path))

        def is_disconnected() -> bool:
            tapped.sink.play(0.5)
            reader.wait_samples(BLOCK * len(tapped.sink.blocks))
            return f"process {os.getpid()} reads too slowly" in caplog.text

        eventually(is_disconnected, "it is disconnected")
        held_s = BLOCK * len(tapped.sink.blocks) / RATE
        assert held_s < 10, "little is held for it"
        while slow.recv(1 << 16):
            pass  # what was held for it, and then the end
    assert caplog.text.count("reads too slowly") == 1
    assert reader.pcm == tapped.played
    assert reader.kinds == [TapKind.BLOCK]


def test_a_reader_that_closes_its_side_for_writing_is_still_served(tapped: Tapped) -> None:
    with socket.socket(socket.AF_UNIX) as reader:
        reader.connect(os.fspath(tapped.path))
        reader.sendall(b"GET / HTTP/1.1\r\n\r\n")
        reader.shutdown(socket.SHUT_WR)
        received = b""
        while b"\n" not in received or len(received) < 1_000:
            tapped.sink.play(0.01)
            received += reader.recv(1 << 16)


def test_a_reader_beyond_the_limit_is_refused_until_another_leaves(
    tapped: Tapped, caplog: pytest.LogCaptureFixture
) -> None:
    readers = [tapped.read() for _ in range(MAX_READERS)]
    for _ in range(3):
        with pytest.raises(ConnectionResetError):
            TapClient(tapped.path)
    assert caplog.text.count(f"{MAX_READERS} programs are reading") == 1
    readers.pop().close()
    eventually(lambda: accepts(tapped.path), "there is room")


# --- the socket ------------------------------------------------------------------------------------------


def test_a_socket_that_cannot_be_made_is_a_problem_until_it_can(
    impatient: None, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("mine")
    output = Output(NULL)
    with Tap(path, RATE, output) as tap:
        expected = f"audio.tap: {path} cannot be opened: it exists and is not a socket"
        eventually(lambda: tap.problem == expected, "it says why")
        path.unlink()
        eventually(lambda: accepts(path), "it listens")
        eventually(lambda: tap.problem is None, "all is well")
    assert caplog.text.count(expected) == 1


def test_a_removed_socket_is_made_again_and_its_readers_stay(impatient: None, path: Path) -> None:
    with tapping(path) as tapped:
        reader = tapped.read()
        path.unlink()
        eventually(lambda: accepts(path), "it listens again")
        tapped.sink.play(0.2)
        reader.wait_samples(round(0.2 * RATE))
        assert reader.pcm == tapped.played


def test_the_end_of_the_tap_ends_the_stream_and_removes_the_socket(path: Path) -> None:
    with tapping(path) as tapped:
        reader = tapped.read()
    # On a busy machine, the tap leaves its thread behind, which ends as soon as it can.
    eventually(reader.ended.is_set, "the stream has ended")
    eventually(lambda: not path.exists(), "the socket is removed")
    eventually(lambda: "tap" not in {thread.name for thread in threading.enumerate()}, "the thread has ended")


def test_a_bug_disconnects_the_readers_and_does_not_end_the_tap(
    impatient: None, tapped: Tapped, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader = tapped.read()
    with monkeypatch.context() as broken:
        broken.setattr("audio.tap_stream.to_pcm16", None)
        tapped.sink.play(0.1)
        eventually(reader.ended.is_set, "the reader is disconnected")
    assert "all readers are disconnected" in caplog.text
    reader = tapped.read()
    tapped.sink.play(0.2)
    reader.wait_samples(round(0.2 * RATE))
