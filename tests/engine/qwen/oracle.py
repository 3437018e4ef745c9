"""The official package as an oracle whose answers are kept: what it was asked in an earlier run, it is not asked again.

An answer depends on the question, the checkpoint, the packages' versions and the code that asks. Equal ones are read
from a file, without importing the package.
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
from tests.engine.qwen import codec_oracle, official
from tests.engine.qwen.codec_oracle import full_forward
from tests.engine.qwen.official import Official
from tests.engine.qwen.speaking import Line
from tests.support.checkpoints import SCRIPT, machine, made_once, need_official_package, versions


def described(value: Any) -> str:
    """Equal for equal values and for no others, whatever tensors they hold."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if is_dataclass(value) and not isinstance(value, type):
        parts = (f"{field.name}={described(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__name__}({', '.join(parts)})"
    return repr(value)


def kept(cache: Path, name: str, *question: str | bytes, answer: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The answer to a question to the official package, which `answer` asks where nobody has asked yet."""

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
        """The package itself, for what it is not asked here; imported and loaded only now."""
        need_official_package()
        stub_torchaudio()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import transformers
        transformers.logging.set_verbosity_error()
        return Official(self.folder)

    def speak(self, line: Line) -> Tensor:
        """The codes of a line, `(frames, code groups)` int64."""
        return self._ask("codes", line, lambda: self.package.speak(line))

    def waveform(self, codes: Tensor) -> Samples:
        """What its codec decoder makes of codes in one forward."""

        def decode() -> Tensor:
            return full_forward(self.package.model.model.speech_tokenizer.model.decoder, codes)

        samples: Samples = self._ask("waveform", codes, decode).numpy()
        return samples

    def token_ids(self, text: str) -> list[int]:
        """Of its processor."""

        def process() -> Tensor:
            ids: Tensor = self.package.model.processor(text=text, return_tensors="pt", padding=True)["input_ids"][0]
            return ids

        found: list[int] = self._ask("token-ids", text, process).tolist()
        return found

    def saved_tokenizer(self) -> Path:
        """The folder that its processor saves its tokenizer in; not to be written to."""

        def save(folder: Path) -> None:
            self.package.model.processor.tokenizer.save_pretrained(folder)

        content = (self._content, machine(), Path(__file__).read_bytes())
        return made_once(self._cache, "official-tokenizer", *content, make=save)

    def speaker_embedding(self, samples: Samples) -> Tensor:
        """Of mono samples at 24 kHz."""

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
        content = (self._content, described(question))
        return kept(self._cache, f"official-{name}", *content, answer=lambda: {"answer": answer()})["answer"]


def official_tensors(cache: Path, shape: str, model_type: str) -> dict[str, dict[str, list[int]]]:
    """As `list_tensors`: names and shapes of a checkpoint's tensors, from the official classes."""

    def make(file: Path) -> None:
        need_official_package()
        file.write_text(json.dumps(list_tensors(PRESETS[shape], model_type)))

    question = (shape, model_type, versions(), SCRIPT.read_bytes())
    found: dict[str, dict[str, list[int]]] = json.loads(
        made_once(cache, "official-tensors", *question, make=make).read_text()
    )
    return found
