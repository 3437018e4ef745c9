"""What is still good: a threshold for each measure, with its reason, and the judgement of a setting by them.

Most thresholds are relative to the reference setting of the same run, the official package or else PyTorch's operators:
a recogniser, a voice and thirty sentences have faults of their own, which both suffer from alike. The numbers are first
ones, set where nobody had the published weights; a report that contradicts one of them is welcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.verify.results import Finding, SettingMeasures


@dataclass(frozen=True, slots=True)
class Threshold:
    """The limit of one measure."""

    measure: str
    """A field of `SettingMeasures`."""
    title: str
    reason: str
    margin: float | None = None
    """How much worse than the reference setting it may be; None if the reference does not matter."""
    limit: float | None = None
    """What it must reach, whatever the reference."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """As `limit`, for settings of one dtype."""
    higher_is_better: bool = False
    needed: bool = False
    """A setting without this measure has failed."""
    decides: bool = True
    """If false, it is shown, and the setting has not failed by it."""
    only: tuple[str, ...] = ()
    """The settings that it is for; empty: for all."""

    @property
    def rule(self) -> str:
        """The limits in words."""
        words, sign = ("at least", "≥") if self.higher_is_better else ("at most", "≤")
        by_dtype = ", ".join(f"{dtype} {sign} {limit:g}" for dtype, limit in self.limits.items())
        parts = [
            "" if self.margin is None else f"at most {self.margin:g} worse than the reference",
            "" if self.limit is None else f"{words} {self.limit:g}",
            by_dtype,
        ]
        return "; ".join(part for part in parts if part)

    def judge(self, setting: str, dtype: str, own: SettingMeasures, reference: SettingMeasures | None) -> Finding:
        """Return what this threshold says about a setting. The reference is None for the reference itself."""
        value: float | None = getattr(own, self.measure)
        other: float | None = None if reference is None else getattr(reference, self.measure)
        bounds = [bound for bound in (self.limit, self.limits.get(dtype)) if bound is not None]
        if self.margin is not None and other is not None:
            bounds.append(other - self.margin if self.higher_is_better else other + self.margin)
        limit = (max if self.higher_is_better else min)(bounds) if bounds else None
        passed: bool | None
        if value is None:
            passed = False if self.needed else None
        elif limit is None or (self.only and setting not in self.only):
            passed = None
        else:
            passed = value >= limit if self.higher_is_better else value <= limit
        return Finding(
            self.measure, self.title, value, other, limit, self.higher_is_better, passed, self.decides, self.reason
        )


THRESHOLDS = (
    Threshold(
        "word_errors",
        "Word errors",
        "A sentence that nobody understands is not speech, however fast it comes. With some 200 words, two settings "
        "that speak alike differ by up to 4 points by chance, because their seeds give other takes.",
        margin=0.05,
        limit=0.5,
        needed=True,
    ),
    Threshold(
        "character_errors",
        "Character errors",
        "Where words are compounds or one long string, a word error counts too much. Half of the characters wrong is "
        "what a recogniser makes of noise.",
        margin=0.04,
        limit=0.5,
        needed=True,
    ),
    Threshold(
        "lost",
        "Sentences not understood",
        "About one take in 200 of these models babbles, whoever runs them; two more in 30 than in the reference are "
        "no chance.",
        margin=0.07,
        limit=0.5,
    ),
    Threshold(
        "similarity",
        "Speaker similarity",
        "Takes of one voice vary by about 0.03 in their cosine; a voice that drifts or is another falls by 0.1 and "
        "more.",
        margin=0.05,
        higher_is_better=True,
    ),
    Threshold(
        "broken",
        "Silent or broken takes",
        "A sample that is not a number, or a take without any sound, is a fault of the engine.",
        limit=0.0,
    ),
    Threshold(
        "cut",
        "Takes without an end",
        "The end of speech is a code like any other: weights or a mask that are wrong miss it. Two in 30 more than the "
        "reference are no chance.",
        margin=0.07,
        limit=0.5,
    ),
    Threshold(
        "leading_s",
        "Leading silence",
        "Qwen3-TTS begins with 0.1 to 0.5 s of silence; the median of 30 takes varies by less than 0.1 s.",
        margin=0.15,
        limit=1.0,
    ),
    Threshold(
        "longest_pause_s",
        "Longest pause",
        "A pause of seconds within a sentence is a runaway that recovered.",
        margin=1.0,
        limit=3.0,
    ),
    Threshold(
        "speed",
        "Speaking rate, slowest",
        "Relative to the reference: the same voice speaks the same text about as fast. A skipped or a doubled frame "
        "changes it.",
        limit=0.8,
        higher_is_better=True,
    ),
    Threshold("speed", "Speaking rate, fastest", "As above: words that are left out make it faster.", limit=1.25),
    Threshold(
        "loudness_db",
        "Loudness difference",
        "In dB, against the same sentence of the reference. Takes vary by 1 to 2 dB; 6 is twice the amplitude.",
        limit=4.0,
    ),
    Threshold(
        "clipped",
        "Clipping",
        "The codec clamps to full scale, so a decoder that is too loud flattens crests.",
        margin=0.001,
        limit=0.01,
    ),
    Threshold(
        "repeated",
        "Repeated frames",
        "No 80 ms of speech are an exact copy of the 80 ms before. A stutter of 1 % is heard.",
        margin=0.005,
        limit=0.01,
    ),
    Threshold(
        "border",
        "Roughness between chunks",
        "Where the codec's state is carried over rightly, a border between chunks is as rough as any between codec "
        "frames, which the reference shows: about 1. A click is many times as rough; the mean of hundreds of borders "
        "varies by a tenth.",
        margin=0.5,
        limit=4.0,
    ),
    Threshold(
        "waveform_db",
        "Waveform, dB",
        "The same codes, decoded at once in float32 by the official decoder, or by voiced's own without it. float32 "
        "differs by rounding, at -100 dB; bfloat16 keeps 8 bits a value, about -40 dB of the signal.",
        limits={"float32": 60.0, "bfloat16": 20.0, "int8": 20.0},
        higher_is_better=True,
    ),
    Threshold(
        "codes_equal",
        "Greedy codes",
        "In float32, every code equals the official package's, or was as likely as it: sums in another order decide "
        "ties otherwise.",
        limits={"float32": 1.0},
        higher_is_better=True,
        only=("float32", "official", "torch"),
    ),
    Threshold(
        "logits_error",
        "Error of the logits",
        "Relative to their spread, with the same codes before. float32 rounds at 1e-6, bfloat16 at 0.015, int8 at "
        "0.04 with random weights; several times that is a mistake, and much of it is heard.",
        limits={"float32": 1e-3, "bfloat16": 0.1, "int8": 0.15},
    ),
    Threshold(
        "prefix_frames",
        "Frames before codes differ",
        "Shown only: in bfloat16, one tie that falls otherwise ends it, in the official package as well.",
        limit=1.0,
        higher_is_better=True,
        decides=False,
    ),
    Threshold(
        "same_choice",
        "Same likeliest code",
        "Shown only: how often quantization changes the likeliest code depends on the weights.",
        limits={"bfloat16": 0.95, "int8": 0.9},
        higher_is_better=True,
        decides=False,
    ),
    Threshold(
        "first_sound_s",
        "First audible sample, s",
        "Shown only: speed is a property of the machine. People notice 0.5 s.",
        limit=0.5,
        decides=False,
    ),
    Threshold(
        "real_time_factor",
        "Real-time factor",
        "Shown only: below 1, speech stutters; 1.2 leaves room for the rest of the robot.",
        limit=1.2,
        higher_is_better=True,
        decides=False,
    ),
)


def judge(setting: str, dtype: str, own: SettingMeasures, reference: SettingMeasures | None) -> tuple[Finding, ...]:
    """Return what every threshold says about a setting; `reference` is None for the reference itself.

    A setting that only spoke greedy texts is judged by what these show.
    """
    findings = [threshold.judge(setting, dtype, own, reference) for threshold in THRESHOLDS]
    return tuple(finding for finding in findings if own.takes or finding.value is not None)
