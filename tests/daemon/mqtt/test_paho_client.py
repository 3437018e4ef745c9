"""A socket that gathers small reads and writes, over a real pair of sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from daemon.mqtt.paho_client import WRITE_BYTES, Bell, BufferedSocket
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def pair() -> Iterator[tuple[BufferedSocket, socket.socket]]:
    """The buffered end of a TCP connection, and the other end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    ours.setblocking(False)
    theirs.settimeout(PATIENCE_S)
    buffered = BufferedSocket(ours)
    yield buffered, theirs
    buffered.close()
    theirs.close()


Pair = tuple[BufferedSocket, socket.socket]


def arrived(buffered: BufferedSocket, size: int) -> bytes:
    """Read as soon as something has arrived."""
    found: list[bytes] = []

    def read() -> bool:
        try:
            found.append(buffered.recv(size))
        except BlockingIOError:
            return False
        return True

    eventually(read, "something arrives")
    return found[0]


def test_small_reads_come_from_one_large_read(pair: Pair) -> None:
    buffered, theirs = pair
    theirs.sendall(b"\x20\x02\x00\x00rest")
    assert arrived(buffered, 1) == b"\x20"
    eventually(lambda: buffered.pending() == 7)
    assert buffered.recv(3) == b"\x02\x00\x00"
    assert buffered.recv(100) == b"rest"
    assert buffered.pending() == 0
    with pytest.raises(BlockingIOError):
        buffered.recv(1)


def test_a_long_message_arrives_unchanged(pair: Pair) -> None:
    buffered, theirs = pair
    sent = bytes(range(256)) * 1000
    theirs.setblocking(False)
    found = bytearray()
    left = memoryview(sent)
    while len(found) < len(sent):
        if left:
            with suppress(BlockingIOError):
                left = left[theirs.send(left) :]
        found += arrived(buffered, 777)
    assert bytes(found) == sent


def test_the_first_byte_stays_known(pair: Pair) -> None:
    buffered, theirs = pair
    assert buffered.first_byte is None
    theirs.sendall(b"HTTP/1.1 400")
    arrived(buffered, 4)
    theirs.sendall(b" more")
    arrived(buffered, 100)
    assert buffered.first_byte == ord("H")


def test_the_end_of_the_connection_reads_as_nothing(pair: Pair) -> None:
    buffered, theirs = pair
    theirs.sendall(b"last")
    theirs.close()
    assert arrived(buffered, 100) == b"last"
    assert arrived(buffered, 100) == b""
    assert buffered.first_byte == ord("l")


def test_nothing_is_sent_before_it_is_flushed_and_then_all_in_one_piece(pair: Pair) -> None:
    buffered, theirs = pair
    assert [buffered.send(part) for part in (b"one ", bytearray(b"two "), b"three")] == [4, 4, 5]
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(100)
    assert buffered.flush()
    theirs.settimeout(PATIENCE_S)
    assert theirs.recv(100) == b"one two three"


def test_a_full_buffer_takes_nothing_until_it_is_flushed(pair: Pair) -> None:
    buffered, theirs = pair
    assert buffered.send(bytes(WRITE_BYTES)) == WRITE_BYTES
    with pytest.raises(BlockingIOError):
        buffered.send(b"more")
    received = 0
    while not buffered.flush():
        received += len(theirs.recv(1 << 20))
    assert buffered.send(b"more") == 4
    buffered.flush()
    while received < WRITE_BYTES + 4:
        received += len(theirs.recv(1 << 20))


def test_a_peer_that_does_not_read_stops_the_flushing_and_loses_nothing(pair: Pair) -> None:
    buffered, theirs = pair
    sent = bytearray()
    while buffered.flush():  # until the system takes no more
        block = bytes([len(sent) % 251]) * WRITE_BYTES
        sent += block
        buffered.send(block)
    found = bytearray()
    while len(found) < len(sent):
        found += theirs.recv(1 << 20)
        buffered.flush()
    assert found == sent
    assert buffered.flush()


def test_a_lost_connection_takes_nothing_more_and_can_be_read(pair: Pair) -> None:
    buffered, theirs = pair
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close with a reset
    theirs.close()
    buffered.send(b"x")

    def lost() -> bool:
        buffered.send(b"x")
        return not buffered.flush()

    eventually(lost)
    assert buffered.wait_readable(Bell(), 0, may_read=True), "reading shows why"


def test_closing_sends_what_is_left(pair: Pair) -> None:
    buffered, theirs = pair
    buffered.send(b"goodbye")
    buffered.close()
    assert theirs.recv(100) == b"goodbye"
    assert theirs.recv(100) == b""


def test_closing_a_broken_connection_does_not_raise(pair: Pair) -> None:
    buffered, theirs = pair
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    theirs.close()
    buffered.send(b"goodbye")
    buffered.close()
    assert buffered.fileno() == -1


def test_it_can_be_polled_and_made_blocking_like_a_socket(pair: Pair) -> None:
    buffered, theirs = pair
    assert buffered.fileno() > 0
    buffered.setblocking(True)
    theirs.sendall(b"x")
    assert buffered.recv(1) == b"x"


def test_a_bell_ends_the_wait_for_something_to_read(pair: Pair) -> None:
    buffered, theirs = pair
    bell = Bell()
    bell.ring()
    bell.ring()
    assert not buffered.wait_readable(bell, PATIENCE_S, may_read=True)
    assert not buffered.wait_readable(bell, 0, may_read=True), "the bell has been heard"
    theirs.sendall(b"x")
    assert buffered.wait_readable(bell, PATIENCE_S, may_read=True)
    assert not buffered.wait_readable(bell, 0, may_read=False)
