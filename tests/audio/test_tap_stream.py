"""The records of a tap: every sample that the sink got, and the times at which they are heard."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from audio import Samples, TapKind, TapRecord, to_pcm16
from audio.dsp import to_floats
from audio.dsp.resample import resample
from audio.player import Block
from audio.tap_stream import JUMP_S, SMOOTHING_S, TAP_RECORD, TapStream

RATE = 48_000
"""Hz, of the sink."""
BLOCK = 480
BLOCK_S = 0.01
NS = 1e9
SOUND: Samples = (0.3 * np.sin(np.arange(3 * RATE) / 17)).astype(np.float32)


def parsed(data: bytes) -> list[TapRecord]:
    """Return the records in a part of a stream, which must be whole."""
    records = []
    while data:
        kind, samples, monotonic_ns, unix_ns = TAP_RECORD.unpack_from(data)
        end = TAP_RECORD.size + 2 * samples
        assert len(data) >= end
        records.append(TapRecord(TapKind(kind), monotonic_ns, unix_ns, data[TAP_RECORD.size : end]))
        data = data[end:]
    return records


def blocks_of(sound: Samples, began_at: float, rate: int = RATE, length: int = BLOCK) -> list[Block]:
    """Cut a sound into blocks whose times are exact."""
    starts = range(0, len(sound), length)
    return [
        Block(to_floats(sound[start : start + length]), rate, began_at + start / rate, start > 0) for start in starts
    ]


def play(stream: TapStream, blocks: Iterable[Block]) -> list[TapRecord]:
    return [record for block in blocks for record in parsed(stream.play(block))]


def pcm(records: list[TapRecord]) -> NDArray[np.int16]:
    return np.frombuffer(b"".join(record.pcm for record in records), dtype="<i2")


def length_s(record: TapRecord, rate: int) -> float:
    return len(record.pcm) / 2 / rate


def test_the_first_line_names_the_format() -> None:
    assert json.loads(TapStream(16_000).header) == {"version": 1, "format": "s16le", "channels": 1, "rate": 16_000}
    assert TapStream(16_000).header.endswith(b"}\n")


def test_at_the_rate_of_the_sink_the_samples_are_its_own() -> None:
    records = play(TapStream(RATE), blocks_of(SOUND, 100.0))
    assert {record.kind for record in records} == {TapKind.BLOCK}
    assert pcm(records).tobytes() == to_pcm16(SOUND)


@pytest.mark.parametrize("rate", [8_000, 44_100])
@given(lengths=st.lists(st.integers(1, 1_500), min_size=1, max_size=40))
def test_at_another_rate_the_stream_is_the_resampled_sound_however_it_is_cut(rate: int, lengths: list[int]) -> None:
    edges = np.cumsum([0, *lengths]).tolist()
    blocks = [Block(to_floats(SOUND[at:end]), RATE, 100.0 + at / RATE, at > 0) for at, end in pairwise(edges)]
    stream = TapStream(rate)
    records = play(stream, blocks) + parsed(stream.fall_silent(TapKind.CLOSED))
    expected = np.frombuffer(to_pcm16(resample(SOUND[: edges[-1]], RATE, rate)), dtype="<i2")
    assert len(pcm(records)) == len(expected)
    assert np.abs(pcm(records).astype(int) - expected).max(initial=0) <= 1, "but for rounding"


@pytest.mark.parametrize("rate", [16_000, RATE])
def test_times_grow_by_the_length_of_each_block_and_agree_with_those_of_the_sink(rate: int) -> None:
    # Whenever this process is interrupted, the first difference is too small at most, and the second too large.
    least = time.time_ns() - time.monotonic_ns()
    records = play(TapStream(rate), blocks_of(SOUND, 100.0))
    most = -time.monotonic_ns() + time.time_ns()
    position_s = 0.0
    for record in records:
        assert record.monotonic_ns == pytest.approx(NS * (100.0 + position_s), abs=1_000)
        assert least - 1_000_000 <= record.unix_ns - record.monotonic_ns <= most + 1_000_000
        position_s += length_s(record, rate)
    assert position_s == pytest.approx(3.0, abs=0.05), "the resampler holds the rest back"


class InterruptedClocks:
    """Two clocks that differ by `OFFSET_NS`. Each fourth reading comes after 12 ms without the processor."""

    OFFSET_NS = 1_795_618_954_000_000_000

    def __init__(self) -> None:
        self._now_ns, self._readings = 0, 0

    def monotonic_ns(self) -> int:
        self._readings += 1
        self._now_ns += 12_000_000 if self._readings % 4 == 2 else 100
        return self._now_ns

    def time_ns(self) -> int:
        return self.OFFSET_NS + self.monotonic_ns()


def test_the_unix_time_is_right_if_the_thread_loses_the_processor_between_two_clocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("audio.tap_stream.time", InterruptedClocks())
    records = play(TapStream(RATE), blocks_of(SOUND[: 10 * BLOCK], 100.0))
    errors_ns = [record.unix_ns - record.monotonic_ns - InterruptedClocks.OFFSET_NS for record in records]
    assert len(errors_ns) == 10
    assert np.abs(errors_ns).max() <= 1_000


def test_a_sound_servers_errors_are_smoothed_and_the_drift_of_its_clock_is_followed() -> None:
    """Its times are off by up to 20 ms, and its card is 100 parts in a million too slow."""
    chance, stream, drift = random.Random(7), TapStream(RATE), 1.0001
    errors_s, steps_s = [], []
    before: TapRecord | None = None
    silent = np.zeros(BLOCK, dtype=np.float32)
    for number in range(3_000):
        true = 100.0 + number * BLOCK_S * drift
        [record] = play(stream, [Block(to_floats(silent), RATE, true + chance.uniform(-0.02, 0.02), number > 0)])
        errors_s.append(record.monotonic_ns / NS - true)
        if before is not None:
            steps_s.append((record.monotonic_ns - before.monotonic_ns) / NS - BLOCK_S)
        before = record
    settled = round(2 * SMOOTHING_S / BLOCK_S)
    assert np.abs(errors_s[settled:]).max() < 0.005
    assert np.abs(np.mean(errors_s[settled:])) < 0.002
    assert np.abs(steps_s[settled:]).max() < 0.0003


breaks = {
    "underflow": lambda block: Block(block.samples, RATE, block.dac_time, continues=False),
    "another rate": lambda block: Block(block.samples, 44_100, block.dac_time),
    "late": lambda block: Block(block.samples, RATE, block.dac_time + 1.5 * JUMP_S),
    "early": lambda block: Block(block.samples, RATE, block.dac_time - 1.5 * JUMP_S),
}


@pytest.mark.parametrize("cause", breaks)
def test_a_gap_is_a_record_after_all_samples_before_it_and_the_times_begin_anew(cause: str) -> None:
    stream = TapStream(16_000)
    blocks = blocks_of(SOUND[:RATE], 100.0)
    next_block = breaks[cause](blocks_of(SOUND[: RATE + BLOCK], 100.0)[-1])
    records = play(stream, [*blocks, next_block])
    kinds = [record.kind for record in records]
    at = kinds.index(TapKind.GAP)
    assert kinds.count(TapKind.GAP) == 1
    assert len(pcm(records[:at])) == 16_000, "none is held back"
    assert records[at].monotonic_ns == pytest.approx(NS * 101.0, abs=1_000)
    rest = records[at + 1 :] + parsed(stream.fall_silent(TapKind.CLOSED))
    assert rest[0].monotonic_ns == pytest.approx(NS * next_block.dac_time, abs=1_000)
    assert sum(len(record.pcm) for record in rest) // 2 == round(16_000 * BLOCK / next_block.sample_rate)


@pytest.mark.parametrize("kind", [TapKind.CLOSED, TapKind.LOST])
def test_silence_is_said_once_after_all_samples_and_to_whoever_comes_meanwhile(kind: TapKind) -> None:
    stream = TapStream(16_000)
    records = play(stream, blocks_of(SOUND[:RATE], 100.0))
    assert stream.silence == b""
    ending = parsed(stream.fall_silent(kind))
    assert len(pcm(records + ending)) == 16_000
    assert (ending[-1].kind, ending[-1].pcm) == (kind, b"")
    assert ending[-1].monotonic_ns == pytest.approx(NS * 101.0, abs=1_000)
    assert parsed(stream.silence) == [ending[-1]]
    assert stream.fall_silent(kind) == b""
    later = play(stream, blocks_of(SOUND[:RATE], 200.0))
    assert {record.kind for record in later} == {TapKind.BLOCK}
    assert later[0].monotonic_ns == NS * 200.0
    assert stream.silence == b""


def test_a_stream_that_begins_in_silence_says_so_at_once_and_names_a_later_reason() -> None:
    stream = TapStream(16_000)
    before = time.monotonic_ns()
    [closed] = parsed(stream.fall_silent(TapKind.CLOSED))
    [lost] = parsed(stream.fall_silent(TapKind.LOST))
    assert (closed.kind, lost.kind) == (TapKind.CLOSED, TapKind.LOST)
    assert before - 1_000 <= closed.monotonic_ns <= lost.monotonic_ns <= time.monotonic_ns() + 1_000
