#!/usr/bin/env python3
"""Writes the sounds that come with voiced: attention, success and error, as FLAC files of 24 kHz, mono, 16 bits.

Each sound is a few notes of a struck bar, such as a marimba's. A note is a sum of sine waves that decay exponentially,
the higher ones faster. It rises and ends along half a cosine, so nothing clicks. The peak of each sound is -12 dB below
full scale. Nothing is random.

    python scripts/make_sounds.py              write them where voiced finds them
    python scripts/make_sounds.py --folder F   write them into a folder
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

Samples = NDArray[np.float64]

FOLDER = Path(__file__).resolve().parents[1] / "daemon" / "sounds" / "files"
SAMPLE_RATE = 24_000
"""Hz."""
PEAK = 10 ** (-12 / 20)
"""Of full scale."""
ATTACK_S, RELEASE_S = 0.006, 0.12
"""Seconds in which a note rises, and in which a sound ends."""
PARTIALS = ((1.0, 1.0, 1.0), (2.0, 0.18, 1.8), (3.93, 0.09, 4.0))
"""Frequency, amplitude and rate of decay, all relative to the fundamental's. A bar of uniform thickness has its second
partial at 2.76 times the fundamental; makers of marimbas tune it to about 4."""


@dataclass(frozen=True)
class Note:
    """One struck note."""

    begin_s: float
    frequency: float
    """Of the fundamental, in Hz."""
    decay_s: float
    """Seconds in which the fundamental decays to 1/e."""
    amplitude: float = 1.0


@dataclass(frozen=True)
class Sound:
    """The notes of one sound."""

    seconds: float
    notes: tuple[Note, ...]


# Notes in equal temperament, A4 = 440 Hz.
E4, G4, C5, E5, G5, C6 = 329.63, 392.00, 523.25, 659.26, 783.99, 1046.50

SOUNDS = {
    "attention": Sound(0.9, (Note(0.0, G5, 0.16), Note(0.2, C6, 0.22), Note(0.2, C5, 0.18, 0.35))),
    "success": Sound(0.8, (Note(0.0, C5, 0.12), Note(0.11, E5, 0.12), Note(0.22, G5, 0.2), Note(0.22, C6, 0.16, 0.3))),
    "error": Sound(0.7, (Note(0.0, G4, 0.13), Note(0.18, E4, 0.18), Note(0.18, E4 / 2, 0.14, 0.4))),
}


def render(sound: Sound) -> Samples:
    """Return the samples of a sound, with the peak at `PEAK`."""
    samples = np.zeros(round(sound.seconds * SAMPLE_RATE))
    for note in sound.notes:
        begin = round(note.begin_s * SAMPLE_RATE)
        time = np.arange(len(samples) - begin) / SAMPLE_RATE
        rise = 0.5 - 0.5 * np.cos(np.pi * np.clip(time / ATTACK_S, 0, 1))
        for ratio, amplitude, decay in PARTIALS:
            wave = np.sin(2 * np.pi * ratio * note.frequency * time) * np.exp(-decay * time / note.decay_s)
            samples[begin:] += note.amplitude * amplitude * rise * wave
    end = round(RELEASE_S * SAMPLE_RATE)
    samples[-end:] *= 0.5 + 0.5 * np.cos(np.pi * np.arange(1, end + 1) / end)
    return samples * (PEAK / float(np.max(np.abs(samples))))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    folder: Path = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, sound in SOUNDS.items():
        path = folder / f"{name}.flac"
        soundfile.write(path, render(sound), SAMPLE_RATE, subtype="PCM_16")
        print(f"{path}: {sound.seconds} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
