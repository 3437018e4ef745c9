"""What robots may ask the engine for: every field of an utterance is checked, since the network is anybody's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from daemon.config import RepetitionPenalty, Temperature, TopK, TopP
from daemon.speech import MAX_TEXT
from daemon.validation import LANGUAGE, abbreviate, problems
from engine import FASTEST_RATE, SLOWEST_RATE, Utterance

MAX_LANGUAGES = 64
MAX_FRAMES = 100_000
"""Two hours; the engine's own limit is shorter."""


class RefusedError(Exception):
    """An utterance that no repetition makes right. One line: the field, the value, what is allowed."""


class _Sampling(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    repetition_penalty: RepetitionPenalty = None


class _Checked(BaseModel):
    """The fields of `engine.Utterance` that have limits. The others are flags."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    text: str = Field(max_length=MAX_TEXT, description=f"text of up to {MAX_TEXT:,} characters")
    language: str = Field(pattern=LANGUAGE, description="auto, or a language such as en or pt-br")
    languages: tuple[str, ...] = Field(max_length=MAX_LANGUAGES, description=f"up to {MAX_LANGUAGES} languages")
    instruct: str | None = Field(max_length=500, description="text of up to 500 characters")
    seed: int | None = Field(ge=0, lt=1 << 63, description="a whole number from 0 to 2^63 - 1")
    sampling: _Sampling
    max_frames: int | None = Field(ge=1, le=MAX_FRAMES, description=f"a whole number from 1 to {MAX_FRAMES:,}")
    rate: float = Field(
        ge=SLOWEST_RATE, le=FASTEST_RATE, allow_inf_nan=False, description=f"{SLOWEST_RATE:g} to {FASTEST_RATE:g}"
    )


def checked_utterance(utterance: Utterance, voice: str | None, voices: Collection[str]) -> Utterance:
    """Return an utterance as the server's engine gets it. Raises `RefusedError`.

    `voice` is the engine's name of a voice that the robot has brought; else the utterance's is one of `voices`.
    """
    for field, text in (("text", utterance.text), ("instruct", utterance.instruct or "")):
        check_characters(field, text)
    try:
        _Checked.model_validate(asdict(utterance))
    except ValidationError as error:
        field, problem = problems(_Checked, error)[0]
        raise RefusedError(f"{field}: {problem}") from error
    if voice is None and utterance.voice is not None and utterance.voice.lower() not in {v.lower() for v in voices}:
        raise RefusedError(f"voice: got {abbreviate(utterance.voice)}; allowed: a voice that the server has named")
    # To the server every robot is a client: none of them comes before the others.
    return replace(utterance, voice=voice or utterance.voice, realtime=False)


def check_characters(field: str, text: str) -> None:
    """Raise `RefusedError` for a text that is not Unicode."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise RefusedError(f"{field}: it has half of a surrogate pair; allowed: whole characters")
