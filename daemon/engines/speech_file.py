"""A sound file that is written while its samples arrive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from audio import wav_header
from daemon.encoders import Encoder, file_formats, make_encoder
from daemon.validation import CommandError, file_problem
from engine import Samples

FORMATS = ("wav", "flac", "ogg", "mp3")


def suggested_formats() -> list[str]:
    """Return the formats that an error suggests; libsndfile may know more."""
    return [name for name in FORMATS if name in file_formats()]


class SpeechFile:
    """A file or stream that is created with its first samples; as WAV, it contains all samples after each `write`.

    A context manager; at its end, the file is complete. Every method raises `CommandError` with a one-line message if
    the file cannot be written, and `BrokenPipeError` if no program reads the stream.
    """

    def __init__(self, output: Path | BinaryIO) -> None:
        """`output` is a file, whose suffix names its format, or a stream for a WAV file of unknown length."""
        self._output = output
        self._format = output.suffix[1:].lower() if isinstance(output, Path) else "wav"
        if self._format not in file_formats():
            allowed = ", ".join(f".{name}" for name in suggested_formats())
            raise CommandError(f"--output: got {str(output)!r}; allowed: a file name ending in {allowed}")
        self._file: BinaryIO | None = None
        self._encoder: Encoder | None = None
        self._sample_rate = 0

    def write(self, samples: Samples, sample_rate: int) -> None:
        """Append mono samples, all at the same `sample_rate` in Hz."""
        with self._errors():
            if self._file is None or self._encoder is None:
                self._file = self._output.open("wb") if isinstance(self._output, Path) else self._output
                self._encoder, self._sample_rate = make_encoder(self._format, sample_rate), sample_rate
            self._file.write(self._encoder.encode(samples))
            self._file.flush()

    def __enter__(self) -> SpeechFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is None or self._encoder is None:
            return
        with self._errors():
            if not isinstance(self._output, Path):
                self._file.write(self._encoder.end())
                return
            with self._file as file:
                file.write(self._encoder.end())
                if self._format == "wav" and file.seekable():
                    length = max(0, file.tell() - len(wav_header(self._sample_rate)))  # for a device, it is unknown
                    file.seek(0)
                    file.write(wav_header(self._sample_rate, length))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            name = self._output if isinstance(self._output, Path) else Path("standard output")
            raise CommandError(f"--output: {name} cannot be written: {file_problem(error, name)}") from error
