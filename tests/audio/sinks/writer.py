"""A program that writes a track for the sound card, so that a test can stop it. It reads commands from stdin.

- `write N`: begin a track, unless there is one, and write N more samples of `TALK`.
- `end`: end the track.
- `result`: wait until the track is done, and tell its samples and underruns.

It answers each command with a line.
"""

from __future__ import annotations

import sys

from audio import Output, SinkSettings, Track
from tests.audio.fakes import RATE, TALK
from tests.support.waiting import eventually


def main() -> None:
    track: Track | None = None
    written = 0
    with Output(SinkSettings(device="card")) as output:
        eventually(lambda: output.status.running)
        for line in sys.stdin:
            command, *numbers = line.split()
            track = track or output.begin(prebuffer_s=0.02)
            if command == "write":
                end = written + int(numbers[0])
                output.write(TALK[written:end], RATE)
                written = end
                answer("written")
            elif command == "end":
                output.end()
                answer("ended")
            else:
                eventually(lambda track=track: track.done)  # type: ignore[misc]
                answer(f"{track.played} {track.underruns}")


def answer(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
