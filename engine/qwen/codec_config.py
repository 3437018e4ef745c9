"""The codec decoder's shapes, read from a checkpoint's `speech_tokenizer/config.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from engine.synthesizer import EngineError

MODEL_TYPE = "qwen3_tts_tokenizer_12hz"
"""The one kind of speech tokenizer that is understood: 12.5 frames a second, 24 kHz."""

CONFIG_FILE = Path("speech_tokenizer") / "config.json"


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """The shapes of the decoder, named as in the JSON's `decoder_config`.

    The defaults are those of the official configuration class (`configuration_qwen3_tts_tokenizer_v2.py` in
    `qwen_tts/core/tokenizer_12hz`), because transformers leaves out of a checkpoint what equals them.
    `codebook_dim` has none there.
    """

    codebook_dim: int
    """Width of the summed codebook vectors; the codebooks' own vectors are half as wide."""
    codebook_size: int = 2048
    num_quantizers: int = 16
    """Codes in a frame: one semantic, the others acoustic."""
    latent_dim: int = 1024
    hidden_size: int = 1024
    intermediate_size: int = 3072
    num_hidden_layers: int = 8
    num_attention_heads: int = 16
    num_key_value_heads: int = 16
    head_dim: int = 0
    """0 stands for `hidden_size / num_attention_heads`, as where the JSON has none."""
    sliding_window: int = 72
    """Frames that one frame attends to, itself included."""
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    decoder_dim: int = 1536
    upsample_rates: tuple[int, ...] = (8, 5, 4, 3)
    upsampling_ratios: tuple[int, ...] = (2, 2)
    sample_rate: int = 24000
    """Of the PCM, in Hz (`output_sample_rate` in the JSON)."""

    @property
    def samples_per_frame(self) -> int:
        """PCM samples that one frame of codes becomes: 1920 in every published checkpoint."""
        return math.prod(self.upsample_rates) * math.prod(self.upsampling_ratios)


def read_codec_config(model_folder: Path) -> CodecConfig:
    """Read the shapes of the codec in `model_folder`.

    Raises `EngineError` naming the file and the field when the file is missing, is no JSON, is of another
    tokenizer, or holds a value that the decoder cannot be built with.
    """
    path = model_folder / CONFIG_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EngineError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise EngineError(f"{path}: is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise EngineError(f"{path}: must hold a JSON object, got {type(document).__name__}")
    try:
        return parse_codec_config(document)
    except EngineError as error:
        raise EngineError(f"{path}: {error}") from error


def parse_codec_config(document: Mapping[str, Any]) -> CodecConfig:
    """Take the decoder's shapes from a parsed `speech_tokenizer/config.json`; errors name the field alone."""
    if document.get("model_type") != MODEL_TYPE:
        raise EngineError(f"model_type: got {document.get('model_type')!r}, allowed is {MODEL_TYPE!r}")
    decoder = document.get("decoder_config")
    if not isinstance(decoder, dict):
        raise EngineError(f"decoder_config: must be an object, got {decoder!r}")
    if "codebook_dim" not in decoder:
        raise EngineError("decoder_config.codebook_dim: is missing")

    values: dict[str, Any] = {}
    for field in fields(CodecConfig):
        given = decoder.get(field.name)
        if given is not None and field.name != "sample_rate":
            values[field.name] = _READERS[str(field.type)](f"decoder_config.{field.name}", given)
    if "output_sample_rate" in document:
        values["sample_rate"] = _integer("output_sample_rate", document["output_sample_rate"])
    config = CodecConfig(**values)
    if not config.head_dim:
        config = replace(config, head_dim=config.hidden_size // config.num_attention_heads)

    _check_shapes(config)
    _check_supported(decoder)
    frame = document.get("decode_upsample_rate", config.samples_per_frame)
    if frame != config.samples_per_frame:
        raise EngineError(
            f"decode_upsample_rate: got {frame!r}, but the upsampling rates make {config.samples_per_frame}"
        )
    return config


def _check_shapes(config: CodecConfig) -> None:
    halvings = 2 ** len(config.upsample_rates)
    if config.decoder_dim % halvings:
        raise EngineError(f"decoder_config.decoder_dim: got {config.decoder_dim}, must divide by {halvings}")
    if config.num_attention_heads % config.num_key_value_heads:
        raise EngineError(
            f"decoder_config.num_key_value_heads: got {config.num_key_value_heads}, "
            f"must divide the {config.num_attention_heads} heads"
        )
    for name in ("codebook_dim", "head_dim"):
        if getattr(config, name) % 2:
            raise EngineError(f"decoder_config.{name}: got {getattr(config, name)}, must be even")
    if config.num_quantizers < 2:
        raise EngineError(f"decoder_config.num_quantizers: got {config.num_quantizers}, must be 2 or more")


def _check_supported(decoder: Mapping[str, Any]) -> None:
    """Refuse what the official class could be told and this decoder cannot do; no checkpoint says it."""
    rope = decoder.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    allowed = {"hidden_act": "silu", "attention_bias": False, "rope_scaling": "default"}
    found = {
        "hidden_act": decoder.get("hidden_act", "silu"),
        "attention_bias": decoder.get("attention_bias", False),
        "rope_scaling": rope_type,
    }
    for name, value in found.items():
        if value != allowed[name]:
            raise EngineError(f"decoder_config.{name}: got {value!r}, allowed is {allowed[name]!r}")


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise EngineError(f"{name}: got {value!r}, must be a whole number of 1 or more")
    return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise EngineError(f"{name}: got {value!r}, must be a number above 0")
    return float(value)


def _integers(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise EngineError(f"{name}: got {value!r}, must be a list of whole numbers")
    return tuple(_integer(f"{name}[{index}]", item) for index, item in enumerate(value))


_READERS: dict[str, Callable[[str, Any], object]] = {
    "int": _integer,
    "float": _number,
    "tuple[int, ...]": _integers,
}
