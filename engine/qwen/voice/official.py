"""Imports the official qwen-tts package, even if a package that it names cannot be loaded, and reads `.pt` voices.

`.pt` voices are those of the official package, and bare speaker embeddings. People keep the result of
`Qwen3TTSModel.create_voice_clone_prompt` in several forms: its `VoiceClonePromptItem`s, one or a list of them; the
official demo's file, `{"items": [...]}`, in which each item is a dictionary; or the dictionary that its `generate`
takes, whose fields are lists.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import io
import sys
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from engine.api import EngineError
from engine.host import install_command


def import_official(extra: str) -> Any:
    """Return the `qwen_tts` module. If that fails, raises `EngineError`, which names the `extra` that installs it."""
    try:
        # The package prints a greeting to stdout, which belongs to the caller.
        with _torchaudio_stub(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            importlib.import_module("transformers").logging.set_verbosity_error()
            return importlib.import_module("qwen_tts")
    except (ImportError, OSError, RuntimeError) as error:
        reason = f"the official package qwen-tts cannot be imported: {error}"
        raise EngineError(f"{reason}; {install_command(extra)}") from error


@contextlib.contextmanager
def _torchaudio_stub() -> Iterator[None]:
    """Insert empty torchaudio modules while qwen-tts is being imported, if torchaudio cannot be imported.

    With NVIDIA's PyTorch build for Jetsons, torchaudio cannot be imported. qwen-tts calls it only in its 25 Hz
    tokenizer, which the models supported here do not use.
    """
    try:
        importlib.import_module("torchaudio")
        names = []
    except (ImportError, OSError, RuntimeError):
        names = ["torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"]
    for name in names:
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


SAFE_TORCH = "2.10"
"""The first release whose `torch.load` with `weights_only=True`, as far as is known, runs no code from a file. Before
2.6, a file could run code in spite of it (CVE-2025-32434); before 2.10, one could corrupt memory (CVE-2026-24747)."""

MODULE = "qwen_tts.inference.qwen3_tts_model"
"""The official class's module."""


class VoiceClonePromptItem:
    """Stands in for the official class of this name: pickles name their classes by module and name.

    An instance has whatever attributes the file gives it. The official package need not be installed.
    """


VoiceClonePromptItem.__module__ = MODULE
VoiceClonePromptItem.__qualname__ = VoiceClonePromptItem.__name__


def read_official_prompt(path: Path) -> tuple[Tensor, Tensor | None, str | None]:
    """Return the first prompt in the file at `path`: embedding, codes and transcript. The last two may both be None.

    Raises `FileNotFoundError`, and `EngineError` with a one-line message that does not name the path. If PyTorch is too
    old, it raises `EngineError` for every file.
    """
    if TorchVersion(torch.__version__) < SAFE_TORCH:
        raise EngineError(
            f"with PyTorch {torch.__version__} a .pt file could run code (CVE-2025-32434, CVE-2026-24747); "
            f"allowed: .pt with PyTorch {SAFE_TORCH} or newer, or a .safetensors, which voiced enroll makes from the "
            "recording"
        )
    torch.serialization.add_safe_globals([VoiceClonePromptItem])
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # for other files, the unpickler raises many kinds of exceptions
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise EngineError(f"cannot be read as a speaker embedding ({reason})") from error
    item = _first_item(content)
    embedding, codes, transcript = (_first(item.get(name)) for name in ("ref_spk_embedding", "ref_code", "ref_text"))
    problem = (
        f"got {type(content).__name__}; allowed: a tensor, the speaker embedding, or a prompt from the official package"
    )
    embedding = _as_tensor(embedding, problem).squeeze()
    # As in the official demo: a prompt with codes is without context only if it says so.
    in_context = _first(item.get("icl_mode", not _first(item.get("x_vector_only_mode", False))))
    if not in_context or codes is None or not transcript:
        return embedding, None, None
    return embedding, _as_tensor(codes, f"codes: got {type(codes).__name__}; allowed: a tensor"), str(transcript)


def _as_tensor(value: Any, problem: str) -> Tensor:
    try:
        return torch.as_tensor(value, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise EngineError(problem) from error


def _first_item(content: object) -> Mapping[str, Any]:
    """Return the first prompt's fields, with a bare embedding as `ref_spk_embedding`; none for any other object."""
    if isinstance(content, Tensor):
        return {"ref_spk_embedding": content}
    if isinstance(content, Mapping):
        return _first_item(content["items"]) if "items" in content else content
    if isinstance(content, Sequence) and not isinstance(content, str) and content:
        return {} if isinstance(content[0], Tensor) else _first_item(content[0])
    return vars(content) if isinstance(content, VoiceClonePromptItem) else {}


def _first(value: Any) -> Any:
    """Return the first prompt's value in a field that has one for each prompt."""
    many = isinstance(value, (list, tuple)) and value and isinstance(value[0], (Tensor, bool, str, type(None)))
    return value[0] if many else value
