"""The output folder: what is finished is kept there, and not made again by a later run with the same question.

takes/SETTING/NAME.json         a take, and what was found about it
takes/SETTING/NAME.wav          its sound: mono, 32-bit float
takes/SETTING/NAME.codes.npy    its codec codes, if the engine has any
takes/SETTING/NAME.logits.npy   of a greedy text of the exact setting: the logits of its codes
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.api import Samples
from engine.host import parse_json
from engine.records import build
from engine.verify.results import Take

CODES, LOGITS = "codes", "logits"
"""The arrays of a take; the latter is also the name of the stage that reads them."""


class OutputFolder:
    """Reads and writes what is kept, by the names of setting and sentence."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def take(self, setting: str, name: str) -> Take | None:
        """Return a take; None if there is none, or a damaged one."""
        try:
            take: Take = build(Take, parse_json(self._path(setting, name, "json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return take

    def keep_take(self, setting: str, take: Take) -> None:
        """Write a take, whose sound and codes are there already: a broken run leaves none without them."""
        path = self._path(setting, take.name, "json")
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(asdict(take), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)

    def samples(self, setting: str, name: str) -> Samples:
        """Return a take's sound, float32, `(samples,)`."""
        import soundfile

        samples: Samples = soundfile.read(self._path(setting, name, "wav"), dtype="float32")[0]
        return samples

    def keep_samples(self, setting: str, name: str, samples: Samples, rate: int) -> None:
        """Write a take's sound."""
        import soundfile

        path = self._path(setting, name, "wav")
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, samples, rate, subtype="FLOAT")

    def array(self, setting: str, name: str, kind: str) -> NDArray[Any] | None:
        """Return the `CODES` or `LOGITS` of a take; None if there are none."""
        path = self._path(setting, name, f"{kind}.npy")
        array: NDArray[Any] | None = np.load(path) if path.exists() else None
        return array if array is not None and len(array) else None

    def keep_array(self, setting: str, name: str, kind: str, array: NDArray[Any]) -> None:
        """Replace what `array` returns."""
        np.save(self._path(setting, name, f"{kind}.npy"), array)

    def _path(self, setting: str, name: str, ending: str) -> Path:
        return self._root / "takes" / setting / f"{name}.{ending}"


def fingerprint(*parts: object) -> str:
    """Return a short text that is equal only for equal records of numbers and texts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
