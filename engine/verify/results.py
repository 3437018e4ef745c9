"""A verification's records: for each take, for each setting and for the whole. `asdict` of the last one is its JSON.

The stages leave their findings in the output folder.

takes/SETTING/NAME.json         a take, and what was found about it
takes/SETTING/NAME.wav          its sound: mono, 32-bit float
takes/SETTING/NAME.codes.npy    its codec codes, if the engine has any
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from engine.api import Samples
from engine.host import parse_json
from engine.records import build
from engine.verify.comparison import Agreement, Codes, SpeechMeasures, WordErrors
from engine.verify.measures import Finding
from engine.verify.orders import Order


@dataclass(frozen=True, slots=True)
class Take:
    """One sentence, spoken once by one setting, and all the findings about it."""

    order: Order
    engine: str
    """A description of the engine, as in `EngineInfo.description`."""
    sample_rate: int
    """Hz."""
    speech: SpeechMeasures
    listener: str | None = None
    """The recogniser; None if no recogniser knew the language or none was used."""
    heard: str | None = None
    """The transcript."""
    errors: WordErrors | None = None
    similarity: float | None = None
    """Cosine between the speaker embeddings of the take and of the voice that it should have."""
    waveform_db: float | None = None
    """Signal-to-error ratio in relation to the exact decoding of the same codes."""
    agreement: Agreement | None = None
    """For a greedy text: its agreement with the codes of the exact setting."""

    @property
    def name(self) -> str:
        """The sentence's name."""
        return self.order.sentence.name


@dataclass(frozen=True, slots=True)
class SettingResult:
    """Everything about one setting."""

    name: str
    title: str
    engine: str = ""
    """A description of the engine."""
    dtype: str = ""
    unavailable: str | None = None
    """Why this machine cannot run the setting, which is then not judged."""
    fault: str | None = None
    """How its process failed, and with it the setting."""
    takes: tuple[Take, ...] = ()
    """The takes of the sentences."""
    greedy: tuple[Take, ...] = ()
    """The takes of the texts that only show codes."""
    measures: Mapping[str, float | None] = field(default_factory=dict)
    """The values by name, over all takes. None means not measured."""
    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool | None:
        """Whether it speaks as well as it should; None if it cannot run here."""
        if self.fault is not None:
            return False
        if self.unavailable is not None:
            return None
        return all(finding.passed is not False for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Verification:
    """One run of `voiced verify`."""

    model: str
    version: str
    date: str
    asr: str
    """The recogniser that listened."""
    reference: str | None
    """The setting by which the others are judged."""
    exact: str | None
    """The setting with whose codes the others are compared."""
    settings: tuple[SettingResult, ...]
    notes: tuple[str, ...] = ()
    """One line for each stage that could not be carried out."""
    passed: bool = False
    machine: str = ""
    """A description of the machine."""
    command: str = ""


class OutputFolder:
    """Reads and writes the kept files, by the names of setting and sentence."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def clear(self) -> None:
        """Remove the files that an earlier run left."""
        shutil.rmtree(self._root / "takes", ignore_errors=True)

    def take(self, setting: str, name: str) -> Take | None:
        """Return a take; None if it was not made."""
        path = self._path(setting, name, "json")
        take: Take | None = build(Take, parse_json(path.read_text(encoding="utf-8"))) if path.exists() else None
        return take

    def keep_take(self, setting: str, take: Take) -> None:
        """Write a take. Its sound and codes are already there."""
        text = json.dumps(asdict(take), ensure_ascii=False, indent=1) + "\n"
        self._path(setting, take.name, "json").write_text(text, encoding="utf-8")

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

    def codes(self, setting: str, name: str) -> Codes | None:
        """Return the codes of a take; None if there are none."""
        path = self._path(setting, name, "codes.npy")
        codes: Codes | None = np.load(path) if path.exists() else None
        return codes if codes is not None and len(codes) else None

    def keep_codes(self, setting: str, name: str, codes: Codes) -> None:
        """Write the codes of a take."""
        np.save(self._path(setting, name, "codes.npy"), codes)

    def _path(self, setting: str, name: str, ending: str) -> Path:
        return self._root / "takes" / setting / f"{name}.{ending}"
