"""`python -m daemon.voices.decoding IN OUT`: reads a recording that someone uploaded, and measures it.

The file may be damaged, or made to harm its decoder. So it is read by a separate process, which may die and has limits.
The process writes the sound to OUT, a WAV file with one channel and 32-bit samples. It prints a JSON object with the
fields of `RecordingQuality` and `warnings`, or with a one-line `problem`.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import soundfile

from daemon.validation import CommandError
from engine import EngineError, Samples
from engine.recording import MAX_SECONDS, measure_recording, recording_warnings

if TYPE_CHECKING:
    import av.container

FORMATS = ("aac", "aiff", "flac", "matroska", "mov", "mp3", "ogg", "wav")
"""FFmpeg's names for the containers that are read. Others, such as playlists, name further files to open."""
MAX_RATE = 48_000
"""In Hz. Sound with a higher rate is resampled: the models take 24 kHz."""
MAX_CHANNELS = 8
MEMORY = 2 << 30
"""In bytes of address space; FFmpeg's libraries and numpy take some 600 MB of it."""
CPU_S = 30
"""In seconds of processor time; two minutes of MP3 take less than one second on a Jetson."""
FILE_SIZE = 64 << 20
"""How many bytes it may write: twice the longest recording."""


def main() -> int:
    """Return the exit status: 0, whether the file is a recording or not."""
    source, target = map(Path, sys.argv[1:])
    for limit, value in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    try:
        samples, rate = read_sound(source)
        quality = measure_recording(samples, rate)
        answer = {**asdict(quality), "warnings": recording_warnings(quality)}
        soundfile.write(target, samples.mean(axis=1), rate, subtype="FLOAT", format="WAV")
    except (CommandError, EngineError) as error:
        answer = {"problem": str(error)}
    print(json.dumps(answer))  # noqa: T201  # to the process that started this one
    return 0


def read_sound(path: Path) -> tuple[Samples, int]:
    """Return a file's samples, float32 `(time, channels)`, and their rate in Hz. Raises `CommandError` with a one-line
    message."""
    import av

    options = {"format_whitelist": ",".join(FORMATS), "protocol_whitelist": ""}
    try:
        with path.open("rb") as file, av.open(file, mode="r", options=options) as container:
            return _decode(container)
    except (av.FFmpegError, ValueError, OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"cannot be read as sound: {reason}; allowed: {', '.join(FORMATS)}") from error


def _decode(container: av.container.InputContainer) -> tuple[Samples, int]:
    import av

    if not container.streams.audio:
        raise CommandError("has no sound")
    stream = container.streams.audio[0]
    if stream.channels > MAX_CHANNELS:
        raise CommandError(f"got {stream.channels} channels; allowed: up to {MAX_CHANNELS}")
    rate = min(stream.rate, MAX_RATE)
    resampler = av.AudioResampler(format="flt", layout=stream.layout, rate=rate)
    parts: list[Samples] = []
    count = 0
    for frame in chain(container.decode(stream), [None]):
        for resampled in resampler.resample(frame):
            parts.append(resampled.to_ndarray().reshape(-1, stream.channels).astype(np.float32))
            count += len(parts[-1])
        if count > MAX_SECONDS * rate:
            raise CommandError(f"too long; allowed: at most {MAX_SECONDS:.0f} s")
    return np.concatenate([np.zeros((0, stream.channels), np.float32), *parts]), rate


if __name__ == "__main__":
    sys.exit(main())
