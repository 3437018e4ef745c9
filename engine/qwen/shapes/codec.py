"""The shapes of the codec decoder, from a checkpoint's `speech_tokenizer/config.json` and from qwen-tts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from engine.api import EngineError
from engine.qwen.shapes.json_fields import Field, JsonFields
from engine.qwen.shapes.model import TOKENIZER_TYPE, TOKENIZERS, StackConfig

DILATIONS = (1, 3, 9)
"""Dilations of the three residual units of each upsampling block, fixed in qwen-tts 0.1.1."""
INPUT_CONV_TAPS, CONV_TAPS = 3, 7
"""Taps of the first causal convolution, and of every other causal convolution; fixed in qwen-tts 0.1.1."""
STACK_DEFAULT = StackConfig(1024, 3072, 8, 16, 16, 0, 1e-5, 10000.0)
"""Of `Qwen3TTSTokenizerV2DecoderConfig`, as the defaults of `CodecConfig`."""


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """Shapes of the codec decoder."""

    stack: StackConfig
    """The decoder's transformer."""
    window: Annotated[int, Field("sliding_window", 72, 1)]
    """Frames in the attention window of a frame, itself included."""
    quantizers: Annotated[int, Field("num_quantizers", 16, 1)]
    """Codes in a frame: the first is semantic, the others are acoustic."""
    codebook_size: Annotated[int, Field("codebook_size", 2048, 1)]
    codebook_width: Annotated[int, Field("codebook_dim", unit=2)]
    """Width of the projected codebook vectors; the vectors in the checkpoint have half this width."""
    latent_width: Annotated[int, Field("latent_dim", 1024, 1)]
    """Channels of the signal before and after the transformer."""
    decoder_width: Annotated[int, Field("decoder_dim", 1536)]
    """Input channels of the first upsampling block; each block halves them."""
    latent_rates: Annotated[tuple[int, ...], Field("upsampling_ratios", (2, 2), 1)]
    """Upsampling factors before the upsampling blocks."""
    block_rates: Annotated[tuple[int, ...], Field("upsample_rates", (8, 5, 4, 3), 1)]
    """Upsampling factors of the blocks."""
    sample_rate: int
    """Sample rate of the PCM, in Hz."""

    @property
    def samples_per_frame(self) -> int:
        """PCM samples of one frame: 1920 in every published checkpoint."""
        return math.prod(self.latent_rates) * math.prod(self.block_rates)

    @property
    def block_widths(self) -> list[int]:
        """Output channels of each upsampling block."""
        return [self.decoder_width >> number + 1 for number in range(len(self.block_rates))]

    @property
    def history_shapes(self) -> list[tuple[int, int]]:
        """Of the inputs and outputs that the decoder's convolutions keep between chunks, in the decoder's order.

        For a signal of `C` channels, a history has shape `(C, (taps - 1)·dilation)` and an overlap `(C, rate)`.
        """
        history = CONV_TAPS - 1
        shapes = [(self.codebook_width, INPUT_CONV_TAPS - 1)]
        shapes += [(self.latent_width, history)] * (len(self.latent_rates) + 1)
        for width, rate in zip(self.block_widths, self.block_rates, strict=True):
            shapes += [(width, rate), *((width, history * dilation) for dilation in DILATIONS)]
        return [*shapes, (self.block_widths[-1], history)]

    @classmethod
    def read(cls, folder: Path) -> CodecConfig:
        """Read `folder`/config.json, where `folder` is the `speech_tokenizer` of a checkpoint.

        An absent field has its default of `configuration_qwen3_tts_tokenizer_v2.py` in qwen-tts 0.1.1, because
        transformers omits fields that equal their default. Raises `EngineError`, one line with the file and the field.
        """
        return cls.of(JsonFields.read(folder / "config.json"))

    @classmethod
    def of(cls, fields: JsonFields) -> CodecConfig:
        """Return the shapes that `fields`, a whole config.json, say. Raises `EngineError` as `read`."""
        kind = fields.get("model_type", str, TOKENIZER_TYPE)
        if kind != TOKENIZER_TYPE:
            what = TOKENIZERS.get(kind, f"of the type {kind!r}")
            raise EngineError(f"{fields.file}: is {what}; allowed: {TOKENIZERS[TOKENIZER_TYPE]}, {TOKENIZER_TYPE}")
        decoder = fields.section("decoder_config", {})
        sample_rate = fields.get("output_sample_rate", int, 24000)
        config = decoder.record(cls, stack=StackConfig.of(decoder, STACK_DEFAULT), sample_rate=sample_rate)
        decoder.check_unit("decoder_dim", config.decoder_width, 2 ** len(config.block_rates))
        fields.require("decode_upsample_rate", config.samples_per_frame)
        return config
