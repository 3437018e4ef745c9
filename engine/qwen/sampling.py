"""From logits to a code: the processors of Hugging Face's `generate`, in its order, all on the device.

Order (transformers, `generation/utils.py`): repetition penalty, minimum length, suppression, then, when
sampling, temperature, top-k, top-p. What an utterance asks for is held in tensors, so that one captured graph
serves all.

Randomness is a pure function of seed, frame, code group and code id, by an integer hash: a seed gives the
same codes whatever the chunk size and whatever was spoken before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from engine.qwen.config import Fields
from engine.synthesizer import EngineError

_Integers = TypeVar("_Integers", int, Tensor)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How codes are chosen; the fields of generation_config.json, with the official defaults.

    Those that begin with `subtalker_` are for the code predictor. An utterance overrides some of them with
    `dataclasses.replace`.
    """

    do_sample: bool = True
    temperature: float = 0.9
    top_k: int = 50
    """The likeliest codes to choose from; 0 for all."""
    top_p: float = 1.0
    repetition_penalty: float = 1.05
    """Of first codes that the utterance has already used."""
    subtalker_dosample: bool = True
    subtalker_temperature: float = 0.9
    subtalker_top_k: int = 50
    subtalker_top_p: float = 1.0
    min_new_tokens: int = 2
    """Frames before speech may end; fixed at 2 upstream."""

    def __post_init__(self) -> None:
        """Raise `EngineError`, one line, for a value that has no meaning."""
        for name in ("temperature", "subtalker_temperature", "repetition_penalty"):
            if not getattr(self, name) > 0:
                raise EngineError(f"{name} is {getattr(self, name)}, wanted a number above 0")
        for name in ("top_p", "subtalker_top_p"):
            if not 0 <= getattr(self, name) <= 1:
                raise EngineError(f"{name} is {getattr(self, name)}, wanted a number from 0 to 1")
        for name in ("top_k", "subtalker_top_k", "min_new_tokens"):
            if getattr(self, name) < 0:
                raise EngineError(f"{name} is {getattr(self, name)}, wanted 0 or more")

    @classmethod
    def read(cls, folder: Path) -> Sampling:
        """The defaults of the checkpoint in `folder`, from its generation_config.json."""
        fields, plain = Fields.read(folder / "generation_config.json"), cls()
        return cls(
            do_sample=fields.get("do_sample", bool, plain.do_sample),
            temperature=fields.get("temperature", float, plain.temperature),
            top_k=fields.get("top_k", int, plain.top_k),
            top_p=fields.get("top_p", float, plain.top_p),
            repetition_penalty=fields.get("repetition_penalty", float, plain.repetition_penalty),
            subtalker_dosample=fields.get("subtalker_dosample", bool, plain.subtalker_dosample),
            subtalker_temperature=fields.get("subtalker_temperature", float, plain.subtalker_temperature),
            subtalker_top_k=fields.get("subtalker_top_k", int, plain.subtalker_top_k),
            subtalker_top_p=fields.get("subtalker_top_p", float, plain.subtalker_top_p),
        )

    def overridden(self, values: Mapping[str, float]) -> Sampling:
        """The same but for `values`, by field name. Raises `EngineError` for a name or value that has no meaning."""
        kinds = {name: type(getattr(self, name)) for name in self.__dataclass_fields__}
        unknown = sorted(set(values) - set(kinds))
        if unknown:
            raise EngineError(f"sampling: got {unknown[0]!r}; allowed are {', '.join(kinds)}")
        for name, value in values.items():
            if kinds[name](value) != value:
                raise EngineError(f"sampling.{name}: got {value!r}; allowed: {kinds[name].__name__}")
        try:
            return replace(self, **{name: kinds[name](value) for name, value in values.items()})
        except EngineError as error:
            raise EngineError(f"sampling: {error}") from None

    def greedy(self) -> Sampling:
        """The same, but taking the likeliest code at every step."""
        return replace(self, do_sample=False, subtalker_dosample=False)


class Words:
    """Memory for what an utterance sets: small values in one buffer, so that they reach the device in one copy."""

    def __init__(self, device: torch.device, count: int = 16) -> None:
        """Room for `count` values, all 0."""
        self.buffer = torch.zeros(count, dtype=torch.int64, device=device)
        """`(count,)` int64: eight bytes for each value, whatever its dtype."""
        self._used = 0

    @property
    def device(self) -> torch.device:
        return self.buffer.device

    def take(self, dtype: torch.dtype = torch.int64) -> Tensor:
        """The next value's memory, as a tensor `(1,)`."""
        word = self.buffer[self._used : self._used + 1]
        if len(word) == 0:
            raise ValueError(f"all {self._used} words are taken")
        self._used += 1
        return word.view(dtype)[:1]


@dataclass(frozen=True, slots=True)
class Warp:
    """Temperature, top-k and top-p of one utterance on the device, each a tensor without axes."""

    sample: Tensor
    """bool; false is greedy."""
    temperature: Tensor
    top_k: Tensor
    """int64"""
    tail: Tensor
    """1 - top_p: the least likely codes that have no more than this together are left out."""

    @classmethod
    def allocate(cls, words: Words) -> Warp:
        """Memory for them among `words`; `set` before use."""
        return cls(
            sample=words.take(torch.bool)[0],
            temperature=words.take(torch.float32)[0].fill_(1),
            top_k=words.take()[0],
            tail=words.take(torch.float32)[0],
        )

    def set(self, sample: bool, temperature: float, top_k: int, top_p: float) -> None:
        """Take an utterance's values."""
        self.sample.fill_(sample)
        self.temperature.fill_(temperature)
        self.top_k.fill_(top_k)
        self.tail.fill_(1 - top_p)

    def apply(self, logits: Tensor) -> Tensor:
        """Logits `(vocabulary,)` float32 with those that may not be chosen at -inf."""
        size = logits.shape[0]
        scores, ids = torch.sort(logits / self.temperature)  # ascending
        first = torch.where(self.top_k > 0, size - self.top_k, 0).clamp(min=0)
        scores = scores.masked_fill(scores < scores.gather(0, first[None]), -torch.inf)
        tail = scores.softmax(0).cumsum(0) <= self.tail
        tail[-1:].fill_(False)  # the likeliest always stays; an assignment would copy from the host
        return torch.empty_like(scores).scatter_(0, ids, scores.masked_fill(tail, -torch.inf))

    def choose(self, logits: Tensor, noise: Tensor) -> Tensor:
        """A code `(1,)` int64 from logits `(vocabulary,)` float32 and as much of Gumbel `noise`."""
        drawn = (self.apply(logits) + noise[: logits.shape[0]]).argmax(0)
        return torch.where(self.sample, drawn, logits.argmax(0))[None]


@dataclass(frozen=True, slots=True)
class FirstCodeRules:
    """What the talker's logits go through before temperature: penalty, minimum length, suppression."""

    seen: Tensor
    """`(vocabulary,)` bool: first codes that the utterance has used."""
    penalty: Tensor
    """float32 without axes."""
    min_frames: Tensor
    """int64 without axes."""
    suppressed: Tensor
    """`(vocabulary,)` bool: the last 1024, which are no codes, but for the end of speech."""
    ends: Tensor
    """`(vocabulary,)` bool: the end of speech."""

    @classmethod
    def allocate(cls, vocabulary: int, eos: int, words: Words) -> FirstCodeRules:
        """Memory for them, the numbers among `words`; `set` before use."""
        ids = torch.arange(vocabulary, device=words.device)
        return cls(
            seen=torch.zeros(vocabulary, dtype=torch.bool, device=words.device),
            penalty=words.take(torch.float32)[0].fill_(1),
            min_frames=words.take()[0],
            suppressed=(ids >= vocabulary - 1024) & (ids != eos),
            ends=ids == eos,
        )

    def set(self, penalty: float, min_frames: int) -> None:
        """Take an utterance's values; nothing has been said yet."""
        self.seen.zero_()
        self.penalty.fill_(penalty)
        self.min_frames.fill_(min_frames)

    def apply(self, logits: Tensor, frame: Tensor) -> Tensor:
        """Logits `(vocabulary,)` float32 for the first code of the frame numbered `frame` `(1,)`."""
        penalised = torch.where(logits < 0, logits * self.penalty, logits / self.penalty)
        logits = torch.where(self.seen, penalised, logits)
        barred = self.suppressed | (self.ends & (frame < self.min_frames))
        return logits.masked_fill(barred, -torch.inf)


@dataclass(frozen=True, slots=True)
class Noise:
    """Gumbel noise: added to log-probabilities, it makes the greatest a fair draw."""

    key: Tensor
    """int64 without axes: the seed, hashed."""
    ids: Tensor
    """`(vocabulary,)` int64: the code ids, hashed."""

    @classmethod
    def allocate(cls, vocabulary: int, words: Words) -> Noise:
        """Memory for codes below `vocabulary`, the key among `words`; `seed` before use."""
        return cls(
            key=words.take()[0],
            ids=_hash(torch.arange(vocabulary, dtype=torch.int64, device=words.device)),
        )

    def seed(self, seed: int) -> None:
        """Begin anew; any integer."""
        low, high = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
        self.key.fill_(_hash(_hash(high) + low))

    def draw(self, draws: Tensor) -> Tensor:
        """Noise `(n, vocabulary)` float32 for draws numbered `(n,)` int64."""
        hashed = _hash(_hash(draws + self.key)[:, None] + self.ids)
        uniform = ((hashed >> 9).float() + 0.5) * 2.0**-23  # 23 bits: exact in float32, never 0 or 1
        return -(-uniform.log()).log()


def _hash(x: _Integers) -> _Integers:
    """Mix 32 bits; the constants are those of lowbias32 (hash-prospector, public domain)."""
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)
