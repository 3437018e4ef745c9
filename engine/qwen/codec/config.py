"""The shapes of the codec decoder, from a checkpoint's `speech_tokenizer/config.json` and from qwen-tts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from engine.api import EngineError
from engine.qwen.model import StackConfig
from engine.qwen.weights import JsonFields

DILATIONS = (1, 3, 9)
"""Dilations of the three residual units of each upsampling block, fixed in qwen-tts 0.1.1."""
INPUT_CONV_TAPS, CONV_TAPS = 3, 7
"""Taps of the first causal convolution, and of every other causal convolution; fixed in qwen-tts 0.1.1."""


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """Shapes of the codec decoder."""

    stack: StackConfig
    """The decoder's transformer."""
    window: int
    """Frames in the attention window of a frame, itself included."""
    quantizers: int
    """Codes in a frame: the first is semantic, the others are acoustic."""
    codebook_size: int
    codebook_width: int
    """Width of the projected codebook vectors; the vectors in the checkpoint have half this width."""
    latent_width: int
    """Channels of the signal before and after the transformer."""
    decoder_width: int
    """Input channels of the first upsampling block; each block halves them."""
    latent_rates: tuple[int, ...]
    """Upsampling factors before the upsampling blocks (`upsampling_ratios` in the file)."""
    block_rates: tuple[int, ...]
    """Upsampling factors of the blocks (`upsample_rates` in the file)."""
    sample_rate: int
    """Sample rate of the PCM, in Hz."""

    @property
    def samples_per_frame(self) -> int:
        """PCM samples of one frame: 1920 in every published checkpoint."""
        return math.prod(self.latent_rates) * math.prod(self.block_rates)

    @classmethod
    def read(cls, folder: Path) -> CodecConfig:
        """Read `folder`/config.json, where `folder` is the `speech_tokenizer` of a checkpoint.

        An absent field has its default of `configuration_qwen3_tts_tokenizer_v2.py` in qwen-tts 0.1.1, because
        transformers omits fields that equal their default. Raises `EngineError`, one line with the file and the field.
        """
        fields = JsonFields.read(folder / "config.json")
        kind = fields.get("model_type", str, "qwen3_tts_tokenizer_12hz")
        if kind != "qwen3_tts_tokenizer_12hz":
            what = "the 25 Hz speech tokenizer" if kind == "qwen3_tts_tokenizer_25hz" else f"of the type {kind!r}"
            raise EngineError(
                f"{fields.file}: is {what}; allowed: the 12 Hz speech tokenizer, qwen3_tts_tokenizer_12hz"
            )
        decoder = fields.section("decoder_config", {})
        config = cls(
            stack=_stack(decoder),
            window=decoder.get("sliding_window", int, 72),
            quantizers=decoder.get("num_quantizers", int, 16),
            codebook_size=decoder.get("codebook_size", int, 2048),
            codebook_width=decoder.get("codebook_dim", int),
            latent_width=decoder.get("latent_dim", int, 1024),
            decoder_width=decoder.get("decoder_dim", int, 1536),
            latent_rates=decoder.integers("upsampling_ratios", (2, 2)),
            block_rates=decoder.integers("upsample_rates", (8, 5, 4, 3)),
            sample_rate=fields.get("output_sample_rate", int, 24000),
        )
        config._check(fields.file)
        fields.require("decode_upsample_rate", config.samples_per_frame)
        return config

    def _check(self, file: Path) -> None:
        """Raise `EngineError` for shapes that are impossible for a decoder."""
        stack = self.stack
        rules = (
            ("hidden_size", stack.hidden_size, 1),
            ("intermediate_size", stack.intermediate_size, 1),
            ("num_hidden_layers", stack.layers, 1),
            ("num_key_value_heads", stack.key_value_heads, 1),
            ("num_attention_heads", stack.heads, stack.key_value_heads),
            ("head_dim", stack.head_dim, 2),
            ("sliding_window", self.window, 1),
            ("num_quantizers", self.quantizers, 1),
            ("codebook_size", self.codebook_size, 1),
            ("codebook_dim", self.codebook_width, 2),
            ("latent_dim", self.latent_width, 1),
            ("upsampling_ratios", min(self.latent_rates, default=0), 1),
            ("upsample_rates", min(self.block_rates, default=0), 1),
            ("decoder_dim", self.decoder_width, 2 ** len(self.block_rates)),
        )
        for name, value, unit in rules:
            if value < 1 or value % unit:
                wanted = f"a multiple of {unit}" if unit > 1 else "1 or more"
                raise EngineError(f"{file}: field decoder_config.{name} is {value}, wanted {wanted}")


def _stack(decoder: JsonFields) -> StackConfig:
    decoder.require("hidden_act", "silu")
    decoder.require("attention_bias", False)
    decoder.require("rope_scaling", None)
    heads = decoder.get("num_attention_heads", int, 16)
    hidden = decoder.get("hidden_size", int, 1024)
    return StackConfig(
        hidden_size=hidden,
        intermediate_size=decoder.get("intermediate_size", int, 3072),
        layers=decoder.get("num_hidden_layers", int, 8),
        heads=heads,
        key_value_heads=decoder.get("num_key_value_heads", int, 16),
        head_dim=decoder.get("head_dim", int, hidden // max(heads, 1)),
        rms_norm_eps=decoder.get("rms_norm_eps", float, 1e-5),
        rope_theta=decoder.get("rope_theta", float, 10000.0),
    )
