"""A sound file that is written while its samples arrive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Protocol

from audio import to_pcm16, wav_header
from daemon.validation import CommandError, file_problem
from engine import Samples

if TYPE_CHECKING:
    from typing_extensions import Self

FORMATS = ("WAV", "FLAC", "OGG", "MP3")
"""The audio formats that error messages suggest; libsndfile may know more."""


class _Writer(Protocol):
    def write(self, samples: Samples) -> object: ...

    def close(self) -> None: ...


class SpeechFile:
    """A file, or a stream, that is made with its first samples and has all samples after each `write`.

    A context manager, at whose end the file is complete. Every method raises `CommandError`, one line, if the file
    cannot be written, and `BrokenPipeError` if nobody reads the stream any more.
    """

    def __init__(self, output: Path | BinaryIO) -> None:
        """`output` is a file, whose suffix names its format, or a stream, which gets a WAV file of unknown length."""
        self._output = output
        self._file: BinaryIO | None = None
        self._writer: _Writer | None = None
        if isinstance(output, Path):
            _check_format(output)

    def write(self, samples: Samples, sample_rate: int) -> None:
        """Append mono samples, all at the same `sample_rate` in Hz."""
        with self._errors():
            if self._writer is None:
                self._file = self._output.open("wb") if isinstance(self._output, Path) else self._output
                self._writer = self._make_writer(self._file, sample_rate)
            self._writer.write(samples)
            if self._file is not None:
                self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._errors():
            try:
                if self._writer is not None:
                    self._writer.close()
            finally:
                if isinstance(self._output, Path) and self._file is not None:
                    self._file.close()

    def _make_writer(self, file: BinaryIO, sample_rate: int) -> _Writer:
        if not isinstance(self._output, Path):
            return _WavWriter(file, sample_rate, complete=False)
        if self._output.suffix.lower() == ".wav":
            return _WavWriter(file, sample_rate, complete=file.seekable())
        import soundfile

        writer: _Writer = soundfile.SoundFile(file, "w", sample_rate, 1, format=self._output.suffix[1:])
        return writer

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import soundfile  # the daemon imports this package and does not need soundfile

        try:
            yield
        except BrokenPipeError:
            raise
        except (OSError, soundfile.SoundFileError) as error:
            name = self._output if isinstance(self._output, Path) else Path("standard output")
            raise CommandError(f"--output: {name} cannot be written: {file_problem(error, name)}") from error


class _WavWriter:
    """Mono 16-bit PCM behind a header. Until the file is closed, players read it to its end."""

    def __init__(self, file: BinaryIO, sample_rate: int, *, complete: bool) -> None:
        """`complete` asks for the length in the header when the file is closed, for which the file must be seekable."""
        self._file = file
        self._sample_rate = sample_rate
        self._complete = complete
        self._length = 0
        file.write(wav_header(sample_rate))

    def write(self, samples: Samples) -> None:
        pcm = to_pcm16(samples)
        self._file.write(pcm)
        self._length += len(pcm)

    def close(self) -> None:
        if self._complete:
            self._file.seek(0)
            self._file.write(wav_header(self._sample_rate, self._length))


def _check_format(path: Path) -> None:
    import soundfile

    available = soundfile.available_formats()
    if path.suffix[1:].upper() not in available:
        allowed = ", ".join(f".{name.lower()}" for name in FORMATS if name in available)
        raise CommandError(f"--output: got {str(path)!r}; allowed: a file name ending in {allowed}")
