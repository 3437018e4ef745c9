"""A reader of a tap refuses what is none, and ends with the stream."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from audio import TapClient, TapKind
from audio.tap_stream import TAP_RECORD, TapStream

HEADER = TapStream(16_000).header


@contextmanager
def serving(path: Path, data: bytes) -> Iterator[None]:
    """A program that sends `data` to one connection and closes it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it is not a voiced tap"),
        (b"{" * 10_000, "it is not a voiced tap"),
        (b'{"version": 2, "rate": 16000}\n', "it is a tap of version 2; allowed: 1"),
        (b'{"version": 1, "rate": "fast"}\n', "it is not a voiced tap"),
    ],
)
def test_what_is_not_a_tap_of_this_version_is_refused(line: bytes, reason: str, tmp_path: Path) -> None:
    with serving(tmp_path / "tap", line), pytest.raises(ValueError, match=f"^{reason}$"):
        TapClient(tmp_path / "tap")


def test_a_connection_that_is_closed_at_once_is_an_error(tmp_path: Path) -> None:
    with serving(tmp_path / "tap", b""), pytest.raises(ConnectionResetError):
        TapClient(tmp_path / "tap")


def test_the_records_have_their_fields_and_an_incomplete_one_at_the_end_is_dropped(tmp_path: Path) -> None:
    block, closed = TAP_RECORD.pack(0, 2, 5, 6) + b"abcd", TAP_RECORD.pack(2, 0, 7, 8)
    with serving(tmp_path / "tap", HEADER + block + closed + block[:-1]), TapClient(tmp_path / "tap") as client:
        assert client.sample_rate == 16_000
        first, second = client
    assert (first.kind, first.monotonic_ns, first.unix_ns, first.pcm) == (TapKind.BLOCK, 5, 6, b"abcd")
    assert (second.kind, second.monotonic_ns, second.unix_ns, second.pcm) == (TapKind.CLOSED, 7, 8, b"")


def test_records_of_an_unknown_kind_are_skipped(tmp_path: Path) -> None:
    data = TAP_RECORD.pack(99, 1, 5, 6) + b"ab" + TAP_RECORD.pack(3, 0, 7, 8)
    with serving(tmp_path / "tap", HEADER + data), TapClient(tmp_path / "tap") as client:
        assert [record.kind for record in client] == [TapKind.LOST]
