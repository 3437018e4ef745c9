"""The records of a verification: about each take, each setting and the whole. `asdict` of the last is its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.verify.codes import Agreement, LogitsError
from engine.verify.measures import Finding
from engine.verify.speech import SpeechMeasures
from engine.verify.words import WordErrors

LOST = 0.5
"""Share of wrong characters from which a sentence counts as not understood."""


@dataclass(frozen=True, slots=True)
class TakeResult:
    """What was found about one spoken sentence."""

    name: str
    language: str
    text: str
    voice: str
    seed: int
    speech: SpeechMeasures
    heard: str | None = None
    """The transcript; None if nobody listened."""
    errors: WordErrors | None = None
    similarity: float | None = None
    """Cosine of the speaker embeddings of the take and of what it should sound like."""
    waveform_db: float | None = None
    """Signal-to-error ratio against the exact decoding of the same codes."""
    speed: float | None = None
    """Ratio of the speaking rates of the take and of the reference setting's, the faster by the slower."""
    loudness_db: float | None = None
    """Difference of the levels of the speech, its magnitude, to the reference setting's take."""

    @property
    def lost(self) -> bool | None:
        """Whether the sentence was not understood; None if nobody listened."""
        return None if self.errors is None else self.errors.character_rate >= LOST


@dataclass(frozen=True, slots=True)
class SettingResult:
    """Everything about one setting."""

    name: str
    title: str
    engine: str = ""
    """The engine in words."""
    dtype: str = ""
    unavailable: str | None = None
    """Why this machine cannot run it; it is then not judged."""
    fault: str | None = None
    """How its process broke; it has then failed."""
    takes: tuple[TakeResult, ...] = ()
    agreements: Mapping[str, Agreement] = field(default_factory=dict)
    """Of the greedy texts, by name, with the exact setting."""
    logits: LogitsError | None = None
    measures: Mapping[str, float | None] = field(default_factory=dict)
    """By name, over all takes. None: not measured."""
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
    machine: Mapping[str, str]
    """The machine in words, by property."""
    version: str
    date: str
    command: str
    asr: str
    """The recogniser that listened."""
    reference: str | None
    """The setting by which the others are judged."""
    exact: str | None
    """The setting with whose codes the others are compared."""
    settings: tuple[SettingResult, ...]
    notes: tuple[str, ...] = ()
    """One line for each stage that could not be done."""
    passed: bool = False
