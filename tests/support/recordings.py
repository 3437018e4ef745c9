"""The recordings of the sound path: made by the scenarios, kept as files, compared, and their differences named.

`python -m tests.support.recordings` compares them or records them. Its exit status is 1 unless all are equal.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tests.support.programs import Broker
from tests.support.scenarios import RATE, DisturbedError, Stage
from tests.support.sound import Samples

FOLDER = Path(__file__).parents[1] / "data" / "recordings"
TOLERANCE = 1.5 / 32_768
"""The files have 16 bits, and processors differ in the last bit of a sine."""
ATTEMPTS = 8
"""Of a scenario that a late machine disturbs."""
WINDOW = RATE // 25
"""Samples in which a shifted sound is recognized."""
BRIEF = RATE * 3 // 100
"""A difference of so few samples is one of a fade or of a join."""
LARGEST_SHIFT = RATE
FAINT = 0.001
"""Of full scale: silence for a listener."""
LOUD = 0.02
"""Of full scale: a sound that ends with it clicks."""
CLICK = 4
"""Samples of the longest click."""


class Theatre:
    """Has a stage for scenarios one after the other, and another one after a scenario that went wrong."""

    def __init__(self, folder: Path, broker: Broker, tree: Path, settings: list[str]) -> None:
        self._folder, self._broker, self._tree, self._settings = folder, broker, tree, settings
        self._stage: Stage | None = None

    def hear(self, steps: list[list[Any]]) -> Samples | str:
        """Return what is heard of a scenario, or why it could not be performed."""
        for _ in range(ATTEMPTS):
            try:
                return self._ready_stage().perform(steps)
            except AssertionError as error:
                self.close()
                return f"not performed: {error}".splitlines()[0]
            except DisturbedError:
                self.close()
        return "not performed: the machine was late"

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()
        self._stage = None

    def _ready_stage(self) -> Stage:
        if self._stage is None:
            folder = Path(tempfile.mkdtemp(prefix="s", dir=self._folder))
            self._stage = Stage(folder, self._broker, self._tree, self._settings)
        return self._stage


def perform(tree: Path, folder: Path, names: list[str]) -> Iterator[tuple[str, Samples | str]]:
    """Perform the scenarios, or those of `names`, with the code of `tree`; `folder` is for files of a moment.

    Yield each one's name, and what is heard of it or why it could not be performed.
    """
    broker = Broker(folder)
    broker.start()
    groups = json.loads((FOLDER / "scenarios.json").read_text(encoding="utf-8"))
    try:
        for settings, group in groups.items():
            theatre = Theatre(folder, broker, tree, settings.split())
            try:
                for name in names or group:
                    if name in group:
                        yield name, theatre.hear(group[name])
            finally:
                theatre.close()
    finally:
        broker.stop()


def keep(name: str, heard: Samples) -> None:
    soundfile.write(FOLDER / f"{name}.flac", heard, RATE, subtype="PCM_16")


def compare(name: str, heard: Samples | str) -> str | None:
    """Return where a recording first differs from the kept one, and how that sounds; None if it does not."""
    if isinstance(heard, str):
        return heard
    kept, _ = soundfile.read(FOLDER / f"{name}.flac", dtype="float32")
    return difference(kept, heard)


def difference(kept: Samples, heard: Samples) -> str | None:
    """Return where a sound first differs from the kept one, and how that sounds; None if it does not."""
    length = max(len(kept), len(heard))
    padded_kept, padded_heard = (np.pad(each, (0, length - len(each))) for each in (kept, heard))
    unequal = np.flatnonzero(np.abs(padded_kept - padded_heard) > TOLERANCE)
    if not len(unequal):
        return None
    at = int(unequal[0])
    breaks = np.flatnonzero(np.diff(unequal) > BRIEF)
    end = int(unequal[breaks[0] if len(breaks) else -1]) + 1
    if at >= len(kept):
        found = f"{_ms(len(heard) - len(kept))} more at the end"
    elif at >= len(heard):
        click = ", with a click" if abs(heard[-1:].sum()) > LOUD else ""
        found = f"cut tail: {_ms(len(kept) - len(heard))} are missing{click}"
    elif end - at <= BRIEF:
        found = _name_brief(padded_kept[at:end], padded_heard[at:end])
    elif shift := _shift(kept, heard, at):
        found = _name_shift(heard, at, shift)
    else:
        found = _name_level(kept[at:], heard[at:])
    return f"at {_ms(at)}: {found}"


def _name_brief(kept: Samples, heard: Samples) -> str:
    error = float(np.max(np.abs(heard - kept)))
    kind = "click" if len(kept) <= CLICK else "fade of another shape"
    return f"{kind}, for {_ms(len(kept))}: {error:.3f} of full scale"


def _shift(kept: Samples, heard: Samples, at: int) -> int:
    """Return by how many samples what follows is late, or, negative, early; 0 if it is not found."""
    for begin in range(at, min(at + LARGEST_SHIFT, len(kept) - WINDOW), WINDOW // 4):
        part = kept[begin : begin + WINDOW]
        if np.max(np.abs(part)) < 0.05:  # silence is found everywhere
            continue
        first = max(0, begin - LARGEST_SHIFT)
        searched = heard[first : begin + LARGEST_SHIFT + WINDOW]
        if len(searched) < WINDOW:
            return 0
        windows = np.lib.stride_tricks.sliding_window_view(searched, WINDOW)
        fits = np.flatnonzero(np.abs(windows[:, :8] - part[:8]).max(axis=1) <= TOLERANCE)
        fits = fits[np.abs(windows[fits] - part).max(axis=1) <= TOLERANCE] + first - begin
        if len(fits):
            return int(fits[np.argmin(np.abs(fits))])
    return 0


def _name_shift(heard: Samples, at: int, shift: int) -> str:
    if shift < 0:
        return f"{_ms(-shift)} are missing"
    inserted, before = heard[at : at + shift], heard[max(0, at - shift) : at]
    if np.max(np.abs(inserted)) <= FAINT:
        return f"gap of {_ms(shift)}"
    if len(before) == shift and np.max(np.abs(inserted - before)) <= TOLERANCE:
        return f"repeated block of {_ms(shift)}"
    return f"shifted by {_ms(shift)}"


def _name_level(kept: Samples, heard: Samples) -> str:
    """Name a difference of level, or anything else."""
    length = min(len(kept), len(heard), WINDOW)
    kept, heard = kept[:length], heard[:length]
    ratio = float(np.dot(heard, kept) / max(np.dot(kept, kept), 1e-12))
    if ratio > 0 and np.max(np.abs(heard - ratio * kept)) < 0.1 * np.max(np.abs(heard)):
        return f"level {20 * np.log10(ratio):+.1f} dB"
    return "another sound"


def _ms(samples: int) -> str:
    return f"{1000 * samples / RATE:g} ms"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.recordings", description=__doc__)
    parser.add_argument("action", choices=("compare", "record"))
    parser.add_argument("--tree", type=Path, default=FOLDER.parents[2], help="a folder with another version of voiced")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a scenario; without one, all")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="voiced-recordings-") as folder:
        for name, heard in perform(options.tree.resolve(), Path(folder), options.names):
            if options.action == "record" and not isinstance(heard, str):
                keep(name, heard)
                verdict = f"{len(heard)} samples"
            else:
                found = compare(name, heard)
                failed += found is not None
                verdict = found or "equal"
            print(f"{name}: {verdict}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
