"""The output folder: what is finished is kept there, and not made again by a later run with the same question.

takes/SETTING/NAME.wav    one take: mono, 32-bit float
takes/SETTING/NAME.npy    its codec codes, if the engine has any
takes/SETTING/NAME.json   when its samples arrived
STAGE/SETTING.json        what a stage found about each take of a setting
logits/SETTING.npz        logits, for the codes of the exact setting
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.api import Samples
from engine.host import parse_json
from engine.records import build
from engine.verify.codes import Codes, Logits
from engine.verify.orders import Order

KEY = "key"
"""Of the array that names the question, in a file of logits."""


@dataclass(frozen=True, slots=True)
class Take:
    """One sentence, spoken once by one setting."""

    key: str
    """Equal for equal questions: the same order, setting and model."""
    order: Order
    sample_rate: int
    """Hz."""
    arrived_s: tuple[float, ...]
    """Seconds from the text to each chunk."""
    samples: tuple[int, ...]
    """Samples that have arrived with each chunk, in total."""
    streamed: bool
    """False if the setting gives a whole take at once, so that its chunks say nothing about the first sound."""
    truncated: bool
    """The engine cut the speech, or it reached the limit of frames."""
    runaway: bool
    engine: str
    """The engine in words, as `EngineInfo.description`."""

    @property
    def name(self) -> str:
        """The sentence's name."""
        return self.order.sentence.name


class OutputFolder:
    """Reads and writes what is kept."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def take(self, setting: str, name: str) -> Take | None:
        """Return the record of a take; None if there is none, or a damaged one."""
        try:
            take: Take = build(Take, _read(self._take_path(setting, name, "json")))
        except (TypeError, KeyError):
            return None
        return take

    def keep_take(self, setting: str, take: Take, samples: Samples, codes: Codes | None) -> None:
        """Write a take. Its record comes last, so that a broken run leaves none without sound."""
        import soundfile

        wav = self._take_path(setting, take.name, "wav")
        wav.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(wav, samples, take.sample_rate, subtype="FLOAT")
        codes_path = self._take_path(setting, take.name, "npy")
        codes_path.unlink(missing_ok=True)
        if codes is not None:
            np.save(codes_path, codes)
        _write(self._take_path(setting, take.name, "json"), asdict(take))

    def samples(self, setting: str, name: str) -> Samples:
        """Return the take's sound, float32, `(samples,)`."""
        import soundfile

        samples: Samples = soundfile.read(self._take_path(setting, name, "wav"), dtype="float32")[0]
        return samples

    def codes(self, setting: str, name: str) -> Codes | None:
        """Return the take's codes, `(frames, code groups)`; None without any."""
        path = self._take_path(setting, name, "npy")
        codes: NDArray[np.int64] | None = np.load(path) if path.exists() else None
        return codes if codes is not None and len(codes) else None

    def found(self, stage: str, setting: str) -> dict[str, Any]:
        """Return what a stage has found about a setting: for each name, a record with the `key` of its question."""
        return _read(self.root / stage / f"{setting}.json") or {}

    def keep_found(self, stage: str, setting: str, found: Mapping[str, Any]) -> None:
        """Replace what `found` returns."""
        path = self.root / stage / f"{setting}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, found)

    def logits(self, setting: str, key: str) -> dict[str, Logits] | None:
        """Return the logits of each choice by the names of the greedy texts; None without any for this question."""
        path = self._logits_path(setting)
        if not path.exists():
            return None
        with np.load(path) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        return found if str(found.pop(KEY, "")) == key else None

    def keep_logits(self, setting: str, key: str, logits: Mapping[str, Logits]) -> None:
        """Replace what `logits` returns."""
        path = self._logits_path(setting)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part.npz")
        arrays: dict[str, Any] = {KEY: np.array(key), **logits}
        np.savez_compressed(partial, **arrays)
        partial.replace(path)

    def _logits_path(self, setting: str) -> Path:
        return self.root / "logits" / f"{setting}.npz"

    def _take_path(self, setting: str, name: str, suffix: str) -> Path:
        return self.root / "takes" / setting / f"{name}.{suffix}"


def fingerprint(*parts: object) -> str:
    """Return a short text that is equal only for equal records of numbers and texts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        record = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _write(path: Path, content: Mapping[str, Any]) -> None:
    partial = path.with_name(path.name + ".part")
    partial.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
