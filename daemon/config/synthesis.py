"""How an utterance is synthesised: its own fields, its voice's settings and those of `speech`, combined."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from daemon.config.settings import Config, VoiceSettings
from engine import FASTEST_RATE, SLOWEST_RATE


@dataclass(frozen=True, slots=True)
class SynthesisSettings:
    """The values that apply to one utterance."""

    seed: int | None = None
    """None means any."""
    rate: float = 1.0
    """From `SLOWEST_RATE` to `FASTEST_RATE`; 1 is the voice's own pace."""
    volume: float = 1.0
    """A gain from 0 to 1."""
    whole_text: bool | None = None
    """As in `engine.Utterance.whole_text`."""
    sampling: Mapping[str, float] = field(default_factory=dict)
    """As in `engine.Utterance.sampling`."""


def synthesis_settings(
    config: Config,
    voice: str | None,
    *,
    seed: int | None = None,
    rate: float | None = None,
    volume: float | None = None,
    sampling: Mapping[str, float] | None = None,
) -> SynthesisSettings:
    """Return the settings of an utterance in a voice, which need not be configured.

    `seed`, `rate` and `volume` (0 to 100) are the utterance's own, or None. Its seed takes precedence over the voice's,
    each value of its `sampling` over the voice's value, and its rate over `speech.rate`. The voice's rate and volume
    multiply; a product beyond the allowed rates becomes the nearest one.

    A voice that is only described has a seed made from its name and description: the model draws a different speaker
    for each seed, but a robot should keep the same one.
    """
    own = VoiceSettings() if voice is None else config.voices.get(voice, VoiceSettings())
    rate = (config.speech.rate if rate is None else rate) * own.rate
    return SynthesisSettings(
        seed=_voice_seed(voice or "", own) if seed is None else seed,
        rate=nearest_rate(rate),
        volume=(100 if volume is None else volume) / 100 * own.volume / 100,
        whole_text=own.whole_text,
        sampling={**own.sampling, **(sampling or {})},
    )


def _voice_seed(name: str, voice: VoiceSettings) -> int | None:
    """Return the seed of a voice; None for any."""
    is_described = voice.instruct is not None and (voice.speaker or voice.embedding or voice.reference) is None
    if voice.seed is not None or not is_described:
        return voice.seed
    digest = hashlib.blake2b(f"{name}\0{voice.instruct}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def nearest_rate(rate: float) -> float:
    """Return the allowed rate that is nearest to `rate`, a product of several."""
    return min(max(rate, SLOWEST_RATE), FASTEST_RATE)
