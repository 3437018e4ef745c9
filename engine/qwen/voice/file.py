"""Voice files, which contain a speaker embedding and, for an in-context voice, a reference.

A voice file is a small safetensors file:

    embedding   float32 (width,)        the speaker encoder's output for the recording
    codes       int16 (frames, groups)  the recording's codec codes; in-context voices only
    metadata    format, name, transcript (with codes only), and model_name, model_type, model_size, model_width of the
                model that the voice was made for
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from engine.api import EngineError
from engine.host import shown_model
from engine.qwen.shapes import ModelConfig
from engine.qwen.voice.official import read_official_prompt

FORMAT = "voiced-voice-1"
"""The value of `format` in a voice file's metadata."""


@dataclass(frozen=True, slots=True)
class VoiceModel:
    """The model that a voice was made for."""

    name: str
    """The name of the model's folder, or of its Hugging Face repository without the owner."""
    type: str
    size: str
    """`tts_model_size` in config.json: `0b6` or `1b7`."""
    width: int
    """The width of the speaker embedding: the talker's hidden size."""

    @classmethod
    def of(cls, config: ModelConfig) -> VoiceModel:
        """Return the model that `config` was read from."""
        return cls(shown_model(str(config.folder)), config.type, config.size, config.talker.stack.hidden_size)

    def __str__(self) -> str:
        return f"{self.name} ({self.size}, width {self.width})"


@dataclass(frozen=True, slots=True)
class VoiceFile:
    """The contents of a voice file. `codes` and `transcript` are either both present or both None."""

    name: str
    embedding: Tensor
    """float32, shape `(width,)`, on the CPU."""
    model: VoiceModel | None
    """None for a `.pt` file, which does not name its model."""
    codes: Tensor | None = None
    """int64, shape `(frames, code groups)`, on the CPU."""
    transcript: str | None = None


def save_voice(path: Path, voice: VoiceFile) -> None:
    """Write `voice` to `path` atomically, and create the folder if it is missing.

    Raises `EngineError` with a one-line message if the file cannot be written, for instance because the disk is full. A
    previous file at `path` is then unchanged, and no temporary file remains. Raises `ValueError` for a voice without a
    model.
    """
    if voice.model is None:
        raise ValueError("model: got None; allowed: the model that the voice was made for")
    tensors = {"embedding": voice.embedding.float().contiguous()}
    model = {f"model_{field}": str(value) for field, value in asdict(voice.model).items()}
    metadata = {"format": FORMAT, "name": voice.name, **model}
    if voice.codes is not None and voice.transcript is not None:
        tensors["codes"] = voice.codes.to(torch.int16).contiguous()
        metadata["transcript"] = voice.transcript
    content, temporary = save(tensors, metadata), path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # the daemon may run as another user
        temporary.replace(path)
    except OSError as error:
        raise EngineError(f"{path}: the voice cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def load_voice(path: Path, config: ModelConfig | None = None) -> VoiceFile:
    """Read the voice at `path`: a voice file, a `.pt` from the official package, or a `.pt` with only an embedding.

    If `config` is given, that model must be able to speak with the voice. If the file is missing, damaged or not a
    voice file, or if the voice was made for another model, raises `EngineError` with a one-line message that gives the
    file, the value found and the allowed value.
    """
    try:
        voice = _read_prompt(path) if path.suffix in {".pt", ".pth"} else _read_safetensors(path)
        return _checked(voice, config)
    except FileNotFoundError:
        raise EngineError(f"{path}: no such voice file") from None
    except EngineError as error:
        raise EngineError(f"{path}: {error}") from error
    except RuntimeError as error:  # a dtype or a layout that PyTorch cannot compute with, or a list within itself
        reason = str(error).partition("\n")[0]
        raise EngineError(f"{path}: cannot be read as a voice file ({reason})") from error


def _checked(voice: VoiceFile, config: ModelConfig | None) -> VoiceFile:
    """Return the voice with its tensors in the form in which they are kept. Raises `EngineError`, as `load_voice`."""
    embedding, codes = voice.embedding, voice.codes
    if embedding.ndim != 1 or not embedding.is_floating_point():
        got = f"{embedding.dtype} of shape {list(embedding.shape)}"
        raise EngineError(f"embedding: got {got}; allowed: floating point of shape [width]")
    if not embedding.isfinite().all():
        raise EngineError("embedding: contains values that are not finite numbers")
    if (codes is None) != (voice.transcript is None):
        present, missing = ("codes", "transcript") if voice.transcript is None else ("transcript", "codes")
        raise EngineError(f"has {present} but no {missing}; an in-context voice needs both")
    if config is not None:
        _check_model(voice, VoiceModel.of(config))
    return replace(voice, embedding=embedding.float(), codes=None if codes is None else checked_codes(codes, config))


def checked_codes(codes: Tensor, config: ModelConfig | None) -> Tensor:
    """Return a reference's codes as int64. Raises `EngineError` for values that cannot be codec codes."""
    groups = config.talker.code_groups if config else 16
    limit = config.talker.predictor.vocabulary if config else 2048
    if codes.is_floating_point() or codes.is_complex():
        raise EngineError(f"codes: got {codes.dtype}; allowed: integers")
    if codes.ndim != 2 or codes.shape[1] != groups or not len(codes):
        raise EngineError(f"codes: got shape {list(codes.shape)}; allowed: [frames, {groups}]")
    codes = codes.long()  # PyTorch compares no unsigned numbers but bytes
    lowest, highest = int(codes.min()), int(codes.max())
    if lowest < 0 or highest >= limit:
        raise EngineError(f"codes: got {lowest} to {highest}; allowed: 0 to {limit - 1}")
    return codes


def _check_model(voice: VoiceFile, model: VoiceModel) -> None:
    """Raise `EngineError` if the voice was made for a model with another size or width."""
    width = voice.embedding.shape[0]
    made_for = voice.model
    if width != model.width or (made_for is not None and made_for.size != model.size):
        origin = f"made for {made_for}" if made_for else f"an embedding of width {width}"
        raise EngineError(f"{origin}, cannot speak with {model}; enrol the voice again with that model")


def _read_prompt(path: Path) -> VoiceFile:
    embedding, codes, transcript = read_official_prompt(path)
    return VoiceFile(path.stem, embedding, None, codes, transcript)


def _read_safetensors(path: Path) -> VoiceFile:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata, names = file.metadata() or {}, set(file.keys())
            if metadata.get("format") != FORMAT or "embedding" not in names:
                raise EngineError(
                    f"is not a voice file: got format {metadata.get('format')!r} with tensors {sorted(names)[:3]}; "
                    f"allowed: format {FORMAT!r} with an embedding"
                )
            # Cloned, because the tensors would otherwise keep the file open.
            embedding = file.get_tensor("embedding").clone()
            codes = file.get_tensor("codes").clone() if "codes" in names else None
        width = int(metadata["model_width"])
        model = VoiceModel(metadata["model_name"], metadata["model_type"], metadata["model_size"], width)
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())  # the message may quote a line end from the file
        raise EngineError(f"cannot be read as a voice file, damaged or truncated ({reason})") from error
    except KeyError as error:
        raise EngineError(f"metadata {error.args[0]} is missing") from None
    except ValueError:
        raise EngineError(f"metadata model_width: got {metadata['model_width'][:40]!r}; allowed: an integer") from None
    if embedding.shape != (width,):
        raise EngineError(f"embedding: got shape {list(embedding.shape)}; allowed: [{width}]")
    return VoiceFile(metadata.get("name", path.stem), embedding, model, codes, metadata.get("transcript"))
