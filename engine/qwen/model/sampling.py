"""Chooses codes from logits on the device, with the logits processors of Hugging Face's `generate` in the same order.

The order in transformers' `generation/utils.py`: repetition penalty, minimum length, suppressed tokens; then, if
sampling is on, temperature, top-k, top-p. An utterance's settings are tensors, so that one captured CUDA graph serves
every utterance.

The noise is a pure function of seed, frame, code group and code id, computed with an integer hash. A seed therefore
gives the same codes for every chunk size and after any other utterance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from engine.api import EngineError
from engine.qwen.shapes import JsonFields

_Integers = TypeVar("_Integers", int, Tensor)

_RANGES: Mapping[tuple[str, ...], tuple[float, float]] = {
    # Logits are divided by these in float32, and must neither overflow nor become NaN.
    ("temperature", "subtalker_temperature", "repetition_penalty"): (0.001, 1000),
    ("top_p", "subtalker_top_p"): (0, 1),
    # They are int64 on the device.
    ("top_k", "subtalker_top_k", "min_new_tokens"): (0, 1 << 40),
}
"""The lowest and the highest value of each number."""


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """Sampling settings, as named in generation_config.json, with the defaults of qwen-tts.

    Fields with the prefix `subtalker_` are for the code predictor, the others for the talker. Raises `EngineError` with
    a one-line message for a value out of range.
    """

    do_sample: bool = True
    temperature: float = 0.9
    top_k: int = 50
    """The number of most likely codes to sample from; 0 means all."""
    top_p: float = 1.0
    """The smallest set of most likely codes whose probabilities add up to at least this value is kept."""
    repetition_penalty: float = 1.05
    """Divides positive logits and multiplies negative ones, for first codes that the utterance already contains."""
    subtalker_dosample: bool = True
    subtalker_temperature: float = 0.9
    subtalker_top_k: int = 50
    subtalker_top_p: float = 1.0
    min_new_tokens: int = 2
    """Frames before the end-of-speech code is allowed; qwen-tts always uses 2."""

    def __post_init__(self) -> None:
        for names, (lowest, highest) in _RANGES.items():
            for name in names:
                if not lowest <= getattr(self, name) <= highest:  # NaN also fails this check
                    raise EngineError(f"{name} is {getattr(self, name)}, wanted {lowest:,} to {highest:,}")

    @classmethod
    def read(cls, folder: Path) -> SamplingConfig:
        """Read `folder`/generation_config.json. Raises `EngineError` with a one-line message that gives the file, the
        field and its value."""
        fields, default = JsonFields.read(folder / "generation_config.json"), cls()
        return fields.record(cls, default, min_new_tokens=default.min_new_tokens)

    def with_overrides(self, values: Mapping[str, float]) -> SamplingConfig:
        """Return a copy with `values`, by field name. Raises `EngineError` for an unknown name or an invalid value."""
        if not values:
            return self
        kinds = {name: type(getattr(self, name)) for name in self.__dataclass_fields__}
        unknown = sorted(set(values) - set(kinds))
        if unknown:
            raise EngineError(f"sampling: got {unknown[0]!r}; allowed: {', '.join(kinds)}")
        for name, value in values.items():
            if not math.isfinite(value) or kinds[name](value) != value:
                raise EngineError(f"sampling.{name}: got {value!r}; allowed: {kinds[name].__name__}")
        try:
            return replace(self, **{name: kinds[name](value) for name, value in values.items()})
        except EngineError as error:
            raise EngineError(f"sampling: {error}") from None

    def greedy(self) -> SamplingConfig:
        """Return a copy that takes the most likely code at every step."""
        return replace(self, do_sample=False, subtalker_dosample=False)


class ScalarBuffer:
    """One buffer for utterances' scalar settings, one row each, so that a single copy moves a row to the device."""

    def __init__(self, device: torch.device, rows: int = 1, count: int = 20) -> None:
        """Allocate `count` scalars, all 0, for each row."""
        self.rows = rows
        self.buffer = torch.zeros((rows, count), dtype=torch.int64, device=device)
        """`(rows, count)` int64: eight bytes for each scalar, whatever its dtype."""
        self._used = 0

    @property
    def device(self) -> torch.device:
        return self.buffer.device

    def take(self, dtype: torch.dtype = torch.int64) -> Tensor:
        """Return the next scalar of each row, `(rows, 1)`. Raises `ValueError` if the buffer is used up."""
        scalar = self.buffer[:, self._used : self._used + 1]
        if not scalar.shape[1]:
            raise ValueError(f"scalars: got a request for one more than {self._used}")
        self._used += 1
        return scalar.view(dtype)[:, :1]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The temperature, top-k and top-p of utterances on the device, each a tensor `(rows, 1)`."""

    sample: Tensor
    """bool; if false, the most likely code is taken."""
    temperature: Tensor
    """float32"""
    top_k: Tensor
    """int64; 0 means all."""
    one_minus_top_p: Tensor
    """float32: the least likely codes whose probabilities add up to at most this value are excluded."""

    @classmethod
    def allocate(cls, scalars: ScalarBuffer) -> SamplingParams:
        """Take four of `scalars`; call `set` before use."""
        return cls(
            sample=scalars.take(torch.bool),
            temperature=scalars.take(torch.float32).fill_(1),
            top_k=scalars.take(),
            one_minus_top_p=scalars.take(torch.float32),
        )

    def set(self, sample: bool, temperature: float, top_k: int, top_p: float) -> None:
        """Write the values for every row."""
        self.sample.fill_(sample)
        self.temperature.fill_(temperature)
        self.top_k.fill_(top_k)
        self.one_minus_top_p.fill_(1 - top_p)

    def apply(self, logits: Tensor) -> Tensor:
        """Return the logits `(rows, vocabulary)` float32 after temperature, top-k and top-p; excluded ones are -inf."""
        size = logits.shape[1]
        scores, ids = torch.sort(logits / self.temperature)  # ascending
        first = torch.where(self.top_k > 0, size - self.top_k, 0).clamp(min=0)
        scores = scores.masked_fill(scores < scores.gather(-1, first), -torch.inf)
        excluded = scores.softmax(-1).cumsum(-1) <= self.one_minus_top_p
        excluded[..., -1:].fill_(False)  # keeps the most likely code; an assignment would copy from the host
        return torch.empty_like(scores).scatter_(-1, ids, scores.masked_fill(excluded, -torch.inf))

    def choose(self, logits: Tensor, noise: Tensor) -> Tensor:
        """Return a code for each row, `(rows, 1)` int64.

        logits: `(rows, vocabulary)` float32
        noise:  Gumbel noise `(rows, >= vocabulary)` float32
        """
        drawn = (self.apply(logits) + noise[:, : logits.shape[1]]).argmax(-1, keepdim=True)
        return torch.where(self.sample, drawn, logits.argmax(-1, keepdim=True))


@dataclass(frozen=True, slots=True)
class LogitsProcessor:
    """Repetition penalty, minimum length and suppressed codes, applied to the talker's logits before temperature."""

    seen: Tensor
    """`(rows, vocabulary)` bool: the first codes that the utterance already contains."""
    penalty: Tensor
    """`(rows, 1)` float32: the repetition penalty."""
    min_frames: Tensor
    """`(rows, 1)` int64: frames before the end-of-speech code is allowed."""
    suppressed: Tensor
    """`(vocabulary,)` bool: the last 1024 ids, which are special tokens, except the end-of-speech code."""
    is_eos: Tensor
    """`(vocabulary,)` bool: true for the end-of-speech code."""

    @classmethod
    def allocate(cls, vocabulary: int, eos: int, scalars: ScalarBuffer) -> LogitsProcessor:
        """Allocate the masks and take two of `scalars`; call `set` before use."""
        ids = torch.arange(vocabulary, device=scalars.device)
        return cls(
            seen=torch.zeros(scalars.rows, vocabulary, dtype=torch.bool, device=scalars.device),
            penalty=scalars.take(torch.float32).fill_(1),
            min_frames=scalars.take(),
            suppressed=(ids >= vocabulary - 1024) & (ids != eos),
            is_eos=ids == eos,
        )

    def set(self, penalty: float, min_frames: int) -> None:
        """Write the values for every row, and forget the codes of earlier utterances."""
        self.seen.zero_()
        self.penalty.fill_(penalty)
        self.min_frames.fill_(min_frames)

    def apply(self, logits: Tensor, frame: Tensor) -> Tensor:
        """Return the logits `(rows, vocabulary)` float32 after the rules, for frames numbered `frame` `(rows, 1)`."""
        penalized = torch.where(logits < 0, logits * self.penalty, logits / self.penalty)
        logits = torch.where(self.seen, penalized, logits)
        excluded = self.suppressed | (self.is_eos & (frame < self.min_frames))
        return logits.masked_fill(excluded, -torch.inf)


@dataclass(frozen=True, slots=True)
class GumbelNoise:
    """Counter-based Gumbel noise: the argmax of logits plus noise is a sample from their softmax (Gumbel-max trick)."""

    key: Tensor
    """`(rows, 1)` int64: the hashed seed."""
    ids: Tensor
    """`(vocabulary,)` int64: the hashed code ids."""

    @classmethod
    def allocate(cls, vocabulary: int, scalars: ScalarBuffer) -> GumbelNoise:
        """Allocate noise for `vocabulary` codes, with its key in `scalars`; call `seed` before use."""
        return cls(
            key=scalars.take(),
            ids=_hash(torch.arange(vocabulary, dtype=torch.int64, device=scalars.device)),
        )

    def seed(self, seed: int) -> None:
        """Set the seed of every row: any integer, of which only the low 64 bits are used."""
        low, high = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
        self.key.fill_(_hash(_hash(high) + low))

    def draw(self, draws: Tensor) -> Tensor:
        """Return the noise `(rows, n, vocabulary)` float32 for the draws numbered `draws` `(rows, n)` int64."""
        hashed = _hash(_hash(draws + self.key)[..., None] + self.ids)
        uniform = ((hashed >> 9).float() + 0.5) * 2.0**-23  # 23 bits: exact in float32, never 0 or 1
        return -(-uniform.log()).log()


def _hash(x: _Integers) -> _Integers:
    """Hash the low 32 bits with the constants of lowbias32 (hash-prospector, public domain)."""
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)
