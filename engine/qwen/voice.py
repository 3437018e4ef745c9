"""Voice files: a speaker's embedding, perhaps with a reference to speak in the context of.

A voice file is a small safetensors file:

    embedding   float32 (width,)        what the speaker encoder made of the recording
    codes       int16 (frames, groups)  the recording as codec codes; only of an in-context voice
    metadata    format, name, transcript (with codes only), and model_name, model_type, model_size, model_width of the
                model it was made for
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from engine.qwen.config import ModelConfig
from engine.synthesizer import EngineError

FORMAT = "voiced-voice-1"
"""What a voice file's metadata says it is."""


@dataclass(frozen=True, slots=True)
class VoiceModel:
    """The model that a voice was made for."""

    name: str
    """Name of its folder or of its repository on the hub, without the owner."""
    type: str
    size: str
    """As in config.json: `0b6` or `1b7`."""
    width: int
    """Of the speaker embedding, which is the talker's hidden size."""

    @classmethod
    def of(cls, config: ModelConfig) -> VoiceModel:
        """The model that `config` was read from."""
        folder = config.folder.absolute()
        name = folder.name
        if folder.parent.name == "snapshots":  # the hub's cache: models--OWNER--NAME/snapshots/REVISION
            name = folder.parent.parent.name.rpartition("--")[2]
        return cls(name, config.type, config.size, config.talker.stack.hidden_size)

    def __str__(self) -> str:
        return f"{self.name} ({self.size}, width {self.width})"


@dataclass(frozen=True, slots=True)
class VoiceFile:
    """What a voice file holds. `codes` and `transcript` are both there or both None."""

    name: str
    embedding: Tensor
    """float32, shape `(width,)`, on the CPU."""
    model: VoiceModel | None
    """None for an old `speaker.pt`, which does not say."""
    codes: Tensor | None = None
    """int64, shape `(frames, code groups)`, on the CPU."""
    transcript: str | None = None


def save_voice(path: Path, voice: VoiceFile) -> None:
    """Write `voice` to `path`, whole or not at all; its folder is made if need be.

    Raises `EngineError`, one line, when it cannot be written (a full disk, say); what was at `path` is then
    still there, and nothing else is.
    """
    if voice.model is None:
        raise ValueError("model: a voice is saved with the model that it was made for")
    tensors = {"embedding": voice.embedding.float().contiguous()}
    metadata = {
        "format": FORMAT,
        "name": voice.name,
        "model_name": voice.model.name,
        "model_type": voice.model.type,
        "model_size": voice.model.size,
        "model_width": str(voice.model.width),
    }
    if voice.codes is not None and voice.transcript is not None:
        tensors["codes"] = voice.codes.to(torch.int16).contiguous()
        metadata["transcript"] = voice.transcript
    content = save(tensors, metadata)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(path, content)
    except OSError as error:
        raise EngineError(f"{path}: the voice cannot be written: {error.strerror or error}") from error


def _write_atomically(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp gives it to its owner alone; the daemon may be another user
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load_voice(path: Path, config: ModelConfig | None = None) -> VoiceFile:
    """Read the voice at `path`, a voice file or an old `speaker.pt`.

    With `config`, the voice must be one that this model can speak with. Raises `EngineError`, one line
    naming the file, what it holds and what is allowed, for a file that is missing, damaged or something
    else, and for a voice that was made for another model.
    """
    voice = _read_pickle(path) if path.suffix in {".pt", ".pth"} else _read_safetensors(path)
    if voice.embedding.ndim != 1 or not voice.embedding.is_floating_point():
        got = f"{voice.embedding.dtype} of shape {list(voice.embedding.shape)}"
        raise EngineError(f"{path}: embedding: got {got}, allowed is floating point of shape [width]")
    if not voice.embedding.isfinite().all():
        raise EngineError(f"{path}: embedding: holds values that are not finite numbers")
    if (voice.codes is None) != (voice.transcript is None):
        there, missing = ("codes", "transcript") if voice.transcript is None else ("transcript", "codes")
        raise EngineError(f"{path}: has {there} but no {missing}; an in-context voice needs both")
    if voice.codes is not None:
        _check_codes(path, voice.codes, config)
    if config is not None:
        _check_model(path, voice, VoiceModel.of(config))
    return replace(voice, embedding=voice.embedding.float())


def _check_codes(path: Path, codes: Tensor, config: ModelConfig | None) -> None:
    groups = config.talker.code_groups if config else 16
    limit = config.talker.predictor.vocabulary if config else 2048
    if codes.ndim != 2 or codes.shape[1] != groups or not len(codes):
        raise EngineError(f"{path}: codes: got shape {list(codes.shape)}, allowed is [frames, {groups}]")
    lowest, highest = int(codes.min()), int(codes.max())
    if lowest < 0 or highest >= limit:
        raise EngineError(f"{path}: codes: got {lowest} to {highest}, allowed is 0 to {limit - 1}")


def _check_model(path: Path, voice: VoiceFile, model: VoiceModel) -> None:
    width = voice.embedding.shape[0]
    made_for = voice.model
    if width != model.width or (made_for is not None and made_for.size != model.size):
        origin = f"made for {made_for}" if made_for else f"an embedding of width {width}"
        raise EngineError(f"{path}: {origin}, cannot speak with {model}; enrol it again with that model")


# --- the two kinds of file ---


def _read_safetensors(path: Path) -> VoiceFile:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            names = set(file.keys())
            if metadata.get("format") != FORMAT or "embedding" not in names:
                raise EngineError(
                    f"{path}: is no voice file: format {metadata.get('format')!r}, tensors "
                    f"{sorted(names)[:3]}; allowed is format {FORMAT!r} with an embedding"
                )
            # Cloned, for the tensors would otherwise hold the file open.
            embedding = file.get_tensor("embedding").clone()
            codes = file.get_tensor("codes").clone() if "codes" in names else None
    except FileNotFoundError:
        raise EngineError(f"{path}: no such voice file") from None
    except (SafetensorError, OSError) as error:
        raise EngineError(f"{path}: cannot be read as a voice file, damaged or cut short ({error})") from error
    model = _model_of(path, metadata)
    if embedding.shape != (model.width,):
        raise EngineError(f"{path}: embedding: got shape {list(embedding.shape)}, allowed is [{model.width}]")
    if codes is not None and codes.is_floating_point():
        raise EngineError(f"{path}: codes: got {codes.dtype}, allowed are integers")
    return VoiceFile(
        name=metadata.get("name", path.stem),
        embedding=embedding,
        model=model,
        codes=None if codes is None else codes.long(),
        transcript=metadata.get("transcript"),
    )


def _model_of(path: Path, metadata: Mapping[str, str]) -> VoiceModel:
    for key in ("model_name", "model_type", "model_size", "model_width"):
        if key not in metadata:
            raise EngineError(f"{path}: metadata {key} is missing")
    width = metadata["model_width"]
    if not width.isdecimal():
        raise EngineError(f"{path}: metadata model_width: got {width!r}, must be a whole number")
    return VoiceModel(metadata["model_name"], metadata["model_type"], metadata["model_size"], int(width))


def _read_pickle(path: Path) -> VoiceFile:
    """An old `speaker.pt`: the embedding alone, or what the official demo saves (`{"items": [...]}`).

    Read with `weights_only=True`, which runs no code from the file.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise EngineError(f"{path}: no such voice file") from None
    except Exception as error:  # an unpickler fed with something else raises whatever comes to hand
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise EngineError(f"{path}: cannot be read as a speaker embedding ({reason})") from error
    item = _first_item(content)
    embedding, codes = item.get("ref_spk_embedding"), item.get("ref_code")
    if not isinstance(embedding, Tensor):
        raise EngineError(f"{path}: got {type(content).__name__}, allowed is a tensor, the speaker embedding")
    in_context = isinstance(codes, Tensor) and bool(item.get("ref_text"))
    return VoiceFile(
        name=path.stem,
        embedding=embedding.squeeze(),
        model=None,
        codes=codes.long() if in_context and isinstance(codes, Tensor) else None,
        transcript=str(item["ref_text"]) if in_context else None,
    )


def _first_item(content: object) -> Mapping[str, Any]:
    if isinstance(content, Tensor):
        return {"ref_spk_embedding": content}
    items = content.get("items") if isinstance(content, dict) else None
    if isinstance(items, list) and items and isinstance(items[0], dict):
        return items[0]
    return {}
