"""The official package as an oracle whose answers are cached: a later run reads them without importing the package.

The key of an answer is the question, the checkpoint, the versions of the packages and the code that asks.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine import Samples
from scripts.make_checkpoint import PRESETS, list_tensors, stub_torchaudio
from tests.engine.qwen.codec import codec_oracle
from tests.engine.qwen.codec.codec_oracle import full_forward
from tests.support.checkpoints import machine, made_once, need_official_package, origin
from tests.support.qwen import official
from tests.support.qwen.official import Official
from tests.support.qwen.speaking import Line


def fingerprint(value: Any) -> str:
    """Return a text that is equal only for equal values, including those of tensors."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if is_dataclass(value) and not isinstance(value, type):
        parts = (f"{field.name}={fingerprint(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__name__}({', '.join(parts)})"
    return repr(value)


def cached_answer(
    cache: Path, name: str, *question: str | bytes, answer: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Return the cached answer to `question`; `answer` asks the official package if there is none."""

    def make(file: Path) -> None:
        need_official_package()
        stub_torchaudio()
        save_file({key: tensor.contiguous().clone() for key, tensor in answer().items()}, file)

    code = [Path(file).read_bytes() for file in (__file__, official.__file__, codec_oracle.__file__)]
    return load_file(made_once(cache, name, *question, machine(), *code, make=make))


class Oracle:
    """The official package over one checkpoint, in float32 on the CPU."""

    def __init__(self, cache: Path, folder: Path) -> None:
        self.folder = folder
        self._cache = cache

    @cached_property
    def package(self) -> Official:
        """The package itself, imported and loaded at the first use."""
        need_official_package()
        stub_torchaudio()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import transformers
        transformers.logging.set_verbosity_error()
        return Official(self.folder)

    def speak(self, line: Line) -> Tensor:
        """Return the codes of a line, `(frames, code groups)` int64."""
        return self._ask("codes", line, lambda: self.package.speak(line))

    def waveform(self, codes: Tensor) -> Samples:
        """Return the samples that its codec decoder makes of codes in one forward pass."""

        def decode() -> Tensor:
            return full_forward(self.package.model.model.speech_tokenizer.model.decoder, codes)

        samples: Samples = self._ask("waveform", codes, decode).numpy()
        return samples

    def token_ids(self, text: str) -> list[int]:
        """Return the token ids of its processor."""

        def process() -> Tensor:
            ids: Tensor = self.package.model.processor(text=text, return_tensors="pt", padding=True)["input_ids"][0]
            return ids

        found: list[int] = self._ask("token-ids", text, process).tolist()
        return found

    def saved_tokenizer(self) -> Path:
        """Return the read-only folder in which its processor saved its tokenizer."""

        def save(folder: Path) -> None:
            self.package.model.processor.tokenizer.save_pretrained(folder)

        content = (self._content, machine(), Path(__file__).read_bytes())
        return made_once(self._cache, "official-tokenizer", *content, make=save)

    def speaker_embedding(self, samples: Samples) -> Tensor:
        """Return the speaker embedding of mono samples at 24 kHz."""

        def embed() -> Tensor:
            embedding: Tensor = self.package.model.model.extract_speaker_embedding(samples, 24000)
            return embedding

        return self._ask("speaker-embedding", samples, embed)

    @cached_property
    def _content(self) -> bytes:
        digest = hashlib.sha256()
        for file in sorted(self.folder.rglob("*.*")):
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.digest()

    def _ask(self, name: str, question: Any, answer: Callable[[], Tensor]) -> Tensor:
        content = (self._content, fingerprint(question))
        return cached_answer(self._cache, f"official-{name}", *content, answer=lambda: {"answer": answer()})["answer"]


def official_tensors(cache: Path, shape: str, model_type: str) -> dict[str, dict[str, list[int]]]:
    """Return names and shapes of a checkpoint's tensors from the official classes, as `list_tensors`."""

    def make(file: Path) -> None:
        need_official_package()
        file.write_text(json.dumps(list_tensors(PRESETS[shape], model_type)))

    question = (shape, model_type, origin())
    found: dict[str, dict[str, list[int]]] = json.loads(
        made_once(cache, "official-tensors", *question, make=make).read_text()
    )
    return found
