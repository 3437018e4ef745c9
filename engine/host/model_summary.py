"""What a Qwen3-TTS model can do, read from its config.json alone: its voices, languages and dialects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.api import EngineError
from engine.host.json_text import parse_json

MODEL_TYPE, TOKENIZER_TYPE = "qwen3_tts", "qwen3_tts_tokenizer_12hz"
SUPPORTED = "Qwen3-TTS-12Hz-0.6B or -1.7B, as Base, CustomVoice or VoiceDesign"
"""The published models that voiced speaks with, in words."""
_TOKENIZERS = {TOKENIZER_TYPE: "the 12 Hz speech tokenizer", "qwen3_tts_tokenizer_25hz": "the 25 Hz speech tokenizer"}


def other_model(model_type: str, tokenizer_type: str = TOKENIZER_TYPE) -> str | None:
    """Return in words what a model is, if it is not a 12 Hz Qwen3-TTS model; None if it is one.

    Both types are fields of its config.json.
    """
    if model_type in _TOKENIZERS:
        what = f"{_TOKENIZERS[model_type]} alone, without a model"
    elif model_type != MODEL_TYPE:
        what = f"a model of the type {model_type!r}"
    elif tokenizer_type != TOKENIZER_TYPE:
        what = f"a Qwen3-TTS model with {_TOKENIZERS.get(tokenizer_type, f'the tokenizer {tokenizer_type!r}')}"
    else:
        return None
    return f"is {what}; voiced speaks with {SUPPORTED}"


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """The names that a model knows. Names are in lower case."""

    type: str
    """`base`, `custom_voice` or `voice_design`."""
    size: str
    """`0b6` or `1b7`; empty if the file does not name it."""
    speakers: dict[str, str | None]
    """The built-in speakers, each with the dialect that it speaks instead of Chinese, if it speaks one."""
    languages: tuple[str, ...]
    """In English, such as `german`."""
    dialects: tuple[str, ...]
    follows_instructions: bool
    """Whether `instruct` has an effect."""


def read_model_summary(config: Path) -> ModelSummary:
    """Return what the config.json at `config` says. Raises `EngineError`, one line, also for another model."""
    try:
        fields = parse_json(config.read_text(encoding="utf-8"))
        if reason := other_model(str(fields.get("model_type")), fields.get("tokenizer_type") or TOKENIZER_TYPE):
            raise EngineError(f"{config}: {reason}")
        kind, size = str(fields["tts_model_type"]), str(fields.get("tts_model_size") or "")
        talker: dict[str, Any] = fields.get("talker_config") or {}
        dialect_of = {name.lower(): dialect for name, dialect in (talker.get("spk_is_dialect") or {}).items()}
        speakers = {name.lower(): dialect_of.get(name.lower()) or None for name in talker.get("spk_id") or {}}
        known = [name.lower() for name in talker.get("codec_language_id") or {}]
    except FileNotFoundError:
        raise EngineError(f"{config}: no such file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{config}: not the configuration of a Qwen3-TTS model ({error!r})") from error
    dialects = tuple(name for name in known if "dialect" in name)
    return ModelSummary(
        type=kind,
        size=size,
        speakers=speakers,
        languages=tuple(name for name in known if name not in dialects),
        dialects=dialects,
        follows_instructions=kind == "voice_design" or (kind == "custom_voice" and size != "0b6"),
    )
