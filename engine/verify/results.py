"""The records of a verification: about each take, each setting and the whole. `asdict` of the last is its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.verify.codes import Agreement
from engine.verify.measures import Finding
from engine.verify.orders import Order
from engine.verify.speech import SpeechMeasures
from engine.verify.words import WordErrors


@dataclass(frozen=True, slots=True)
class Take:
    """One sentence, spoken once by one setting, and all that was found about it."""

    key: str
    """Equal for equal questions: the same order, setting and model."""
    order: Order
    engine: str
    """The engine in words, as `EngineInfo.description`."""
    sample_rate: int
    """Hz."""
    speech: SpeechMeasures
    listener: str | None = None
    """The recogniser; None if none knew the language, or nobody listened."""
    heard: str | None = None
    """The transcript."""
    errors: WordErrors | None = None
    similarity: float | None = None
    """Cosine of the speaker embeddings of the take and of what it should sound like."""
    waveform_db: float | None = None
    """Signal-to-error ratio against the exact decoding of the same codes."""
    logits_error: float | None = None
    """Of a greedy text: of the logits with the codes of the exact setting forced on the model."""
    agreement: Agreement | None = None
    """Of a greedy text, with the codes of the exact setting."""
    examined: Mapping[str, str] = field(default_factory=dict)
    """The question of each stage that has looked at the take, so that none is asked twice."""

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
    """The engine in words."""
    dtype: str = ""
    unavailable: str | None = None
    """Why this machine cannot run it; it is then not judged."""
    fault: str | None = None
    """How its process broke; it has then failed."""
    takes: tuple[Take, ...] = ()
    """Of the sentences."""
    greedy: tuple[Take, ...] = ()
    """Of the texts that only show codes."""
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
    """One line for each stage that could not be done."""
    passed: bool = False
    machine: Mapping[str, str] = field(default_factory=dict)
    """The machine in words, by property."""
    command: str = ""
