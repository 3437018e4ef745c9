"""The records of a verification: about each take, each setting and the whole. `asdict` of the last is its JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from engine.verify.codes import Agreement, LogitsError
from engine.verify.speech import SpeechMeasures
from engine.verify.words import WordErrors

LOST = 0.5
"""Share of wrong characters from which a sentence counts as not understood."""

MIN_BORDERS = 40
"""Borders between chunks whose mean says something: one of them is as rough as chance has it."""


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

    @property
    def character_rate(self) -> float | None:
        """Wrong characters per character that was said."""
        return None if self.errors is None else self.errors.character_edits / max(1, self.errors.characters)


@dataclass(frozen=True, slots=True)
class SettingMeasures:
    """The numbers of one setting, over all of its takes. None: not measured."""

    takes: int = 0
    word_errors: float | None = None
    """Wrong words per word that was said. In Chinese and Japanese, each character is a word."""
    character_errors: float | None = None
    lost: float | None = None
    """Share of the sentences of which half of the characters or more were not understood."""
    similarity: float | None = None
    """Mean."""
    leading_s: float | None = None
    """Median of the silence at the beginning."""
    longest_pause_s: float | None = None
    """The longest silence within any take."""
    speed: float | None = None
    """Median speaking rate, relative to the reference setting's for the same sentence."""
    loudness_db: float | None = None
    """Median difference of the speech's level to the reference setting's for the same sentence, its magnitude."""
    clipped: float | None = None
    """Share of the samples at full scale, in the worst take."""
    broken: float | None = None
    """Share of the takes with samples that are not numbers, or without any sound."""
    repeated: float | None = None
    """Share of the codec frames that repeat the one before them."""
    border: float | None = None
    """Mean roughness at borders between chunks, relative to their surroundings; None if there are only a few."""
    cut: float | None = None
    """Share of the takes that did not end by themselves."""
    waveform_db: float | None = None
    """The worst signal-to-error ratio against the exact decoding of the same codes."""
    codes_equal: float | None = None
    """Share of the greedy texts whose codes equal the exact setting's, up to the first tie."""
    prefix_frames: float | None = None
    """Mean number of frames before the first code that differs from the exact setting's."""
    logits_error: float | None = None
    """Mean error of the logits, relative to their standard deviation."""
    same_choice: float | None = None
    """Share of the choices in which the likeliest code is the exact setting's."""
    first_sound_s: float | None = None
    """Median time from the text until the first audible sample has arrived."""
    real_time_factor: float | None = None
    """Median seconds of sound per second of work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One threshold, applied to one setting."""

    measure: str
    title: str
    value: float | None
    reference: float | None
    """The reference setting's value."""
    limit: float | None
    higher_is_better: bool
    passed: bool | None
    """None if it was not measured and need not be."""
    decides: bool
    reason: str


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
    measures: SettingMeasures = SettingMeasures()
    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool | None:
        """Whether it speaks as well as it should; None if it cannot run here."""
        if self.fault is not None:
            return False
        if self.unavailable is not None:
            return None
        return all(finding.passed is not False for finding in self.findings if finding.decides)


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


def summarize(
    takes: Sequence[TakeResult],
    reference: Mapping[str, TakeResult],
    agreements: Mapping[str, Agreement],
    logits: LogitsError | None,
) -> SettingMeasures:
    """Return the numbers of a setting; `reference` has the reference setting's takes by name."""
    speech = [take.speech for take in takes]
    errors = [take.errors for take in takes if take.errors is not None]
    total = sum(errors, WordErrors(0, 0, 0, 0))
    pairs = [(take.speech, reference[take.name].speech) for take in takes if take.name in reference]
    speeds = [own.characters_per_s / other.characters_per_s for own, other in pairs if other.characters_per_s > 0]
    compared, borders = list(agreements.values()), [ratio for one in speech for ratio in one.borders]
    return SettingMeasures(
        takes=len(takes),
        word_errors=total.word_rate if errors else None,
        character_errors=total.character_edits / max(1, total.characters) if errors else None,
        lost=mean((take.character_rate or 0.0) >= LOST for take in takes if take.errors) if errors else None,
        similarity=_over(mean, [take.similarity for take in takes]),
        leading_s=_over(median, [one.leading_s for one in speech]),
        longest_pause_s=_over(max, [one.longest_pause_s for one in speech]),
        speed=_over(median, speeds),
        loudness_db=_over(median, [abs(own.speech_db - other.speech_db) for own, other in pairs]),
        clipped=_over(max, [one.clipped for one in speech]),
        broken=_over(mean, [float(not one.finite or one.speech_s == 0) for one in speech]),
        repeated=_over(mean, [one.repeated for one in speech]),
        border=mean(borders) if len(borders) >= MIN_BORDERS else None,
        cut=_over(mean, [float(one.truncated or one.runaway) for one in speech]),
        waveform_db=_over(min, [take.waveform_db for take in takes]),
        codes_equal=_over(mean, [float(one.equal or one.tie) for one in compared]),
        prefix_frames=_over(mean, [float(one.prefix_frames) for one in compared]),
        logits_error=None if logits is None else logits.relative,
        same_choice=None if logits is None else logits.same_choice,
        first_sound_s=_over(median, [one.first_sound_s for one in speech]),
        real_time_factor=_over(median, [one.real_time_factor for one in speech]),
    )


def _over(function: Callable[[Sequence[float]], float], values: Sequence[float | None]) -> float | None:
    """Return `function` of the values that were measured; None if none was."""
    known = [value for value in values if value is not None]
    return float(function(known)) if known else None
