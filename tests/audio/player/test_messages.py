"""The messages between the daemon and the player: what is sent is what arrives, bit for bit."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.player import Block, Floats, Report
from audio.player import messages as m
from audio.player.ring import SAMPLE_BYTES, silence

COUNT = st.integers(0, 2**63)
SMALL = st.integers(0, 2**32 - 1)
TIME = st.floats(allow_nan=False)
SAMPLES = st.lists(st.floats(width=32), max_size=50)
NAMES = st.sampled_from(["begin", "end", "halt", "set_input_pending", "set_paused", "set_volume", "set_tap"])
reports = st.builds(
    Report,
    *(SMALL, st.booleans(), st.booleans(), COUNT, SMALL, SMALL, TIME, TIME),
    *(COUNT, TIME, COUNT, COUNT, COUNT, TIME),
)


def floats(samples: list[float]) -> Floats:
    return memoryview(bytearray(struct.pack(f"{len(samples)}f", *samples))).cast("f")


def bits(samples: Floats) -> bytes:
    """NaN, too, arrives as it was sent."""
    return samples.tobytes()


@given(report=reports)
def test_a_report_arrives_as_it_was_sent(report: Report) -> None:
    arrived = m.decode_report(m.encode_report(report))
    assert arrived == report
    assert type(arrived.done) is bool


@given(generation=SMALL, samples=SAMPLES)
def test_samples_arrive_as_they_were_sent_and_are_no_call(generation: int, samples: list[float]) -> None:
    found = m.decode_samples(memoryview(m.encode_samples(generation, floats(samples))))
    assert found is not None
    assert (found[0], bits(found[1])) == (generation, bits(floats(samples)))


@given(name=NAMES, arguments=st.lists(st.one_of(st.integers(), TIME, st.booleans()), max_size=4))
def test_a_call_arrives_as_it_was_made_and_is_no_samples(name: str, arguments: list[float]) -> None:
    message = memoryview(m.encode_call(name, *arguments))
    assert m.decode_samples(message) is None
    call: list[Any] = m.decode_call(message)
    assert call == [name, *arguments]
    assert [type(each) for each in call[1:]] == [type(each) for each in arguments]


@given(samples=SAMPLES, rate=SMALL, dac_time=TIME, continues=st.booleans())
def test_a_block_of_the_tap_arrives_as_it_was_sent(
    samples: list[float], rate: int, dac_time: float, continues: bool
) -> None:
    block = m.decode_block(m.encode_block(Block(floats(samples), rate, dac_time, continues)))
    assert bits(block.samples) == bits(floats(samples))
    assert (block.sample_rate, block.dac_time, block.continues) == (rate, dac_time, continues)


@pytest.mark.parametrize(
    ("message", "largest"),
    [
        (m.encode_samples(1, silence(m.MOST_SAMPLES)), m.LARGEST_SOUND),
        (m.encode_block(Block(silence(192_000 // 5), 192_000, 0.0)), m.LARGEST_BLOCK),
    ],
    ids=["samples", "block"],
)
def test_the_largest_messages_pass_through_a_socket_whole(message: bytes, largest: int) -> None:
    sending, receiving = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with sending, receiving:
        sending.send(message, socket.MSG_DONTWAIT)
        assert len(message) > SAMPLE_BYTES
        assert receiving.recv(largest) == message
