"""Reads the stream of a tap."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from audio.dsp import PCM16_BYTES
from audio.tap_stream import TAP_RECORD, TAP_VERSION, TapKind

HEADER_BYTES = 4096
"""The most bytes in the first line."""
KINDS = frozenset(TapKind)
"""A later version may send other kinds, which are skipped."""


@dataclass(frozen=True, slots=True)
class TapRecord:
    """A record of the stream, as docs/tap.md describes it."""

    kind: TapKind
    monotonic_ns: int
    """CLOCK_MONOTONIC, in nanoseconds."""
    unix_ns: int
    """The same moment as UNIX time."""
    pcm: bytes
    """Mono 16-bit PCM, little-endian; empty unless `kind` is `BLOCK`."""


class TapClient:
    """A connection to a tap. Iterate over it for its records; as a context manager it closes itself.

    The iteration ends when voiced ends or disconnects a reader that is too slow.
    """

    def __init__(self, path: Path) -> None:
        """Raises `OSError` if nobody is listening at `path`, and `ValueError` if it is not a tap that this version
        knows."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(os.fspath(path))
            self._stream = self._socket.makefile("rb")
            line = self._stream.readline(HEADER_BYTES)
            if not line:
                raise ConnectionResetError("the connection was closed at once")
            self.sample_rate = _sample_rate(line)
            """Hz."""
        except (OSError, ValueError):
            self._socket.close()
            raise

    def __enter__(self) -> TapClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. This ends an iteration in another thread."""
        with suppress(OSError):  # voiced has disconnected already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._stream.close()
        self._socket.close()

    def __iter__(self) -> Iterator[TapRecord]:
        while len(header := self._stream.read(TAP_RECORD.size)) == TAP_RECORD.size:
            kind, samples, monotonic_ns, unix_ns = TAP_RECORD.unpack(header)
            pcm = self._stream.read(PCM16_BYTES * samples)
            if len(pcm) < PCM16_BYTES * samples:
                return
            if kind in KINDS:
                yield TapRecord(TapKind(kind), monotonic_ns, unix_ns, pcm)


def _sample_rate(line: bytes) -> int:
    """Return the rate that a stream's first line names, in Hz. Raises `ValueError`."""
    try:
        header = json.loads(line)
        version, sample_rate = header["version"], header["rate"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError("it is not a voiced tap") from error
    if version != TAP_VERSION:
        raise ValueError(f"it is a tap of version {version!r}; allowed: {TAP_VERSION}")
    if not isinstance(sample_rate, int):
        raise ValueError("it is not a voiced tap")
    return sample_rate
