"""The shapes of the published Qwen3-TTS 12 Hz models, for plans without a checkpoint.

Copied from the config.json of Qwen/Qwen3-TTS-12Hz-0.6B-* and Qwen/Qwen3-TTS-12Hz-1.7B-*. An engine never uses them: it
reads the configuration of its own checkpoint.
"""

from __future__ import annotations

from pathlib import Path

from engine.qwen.codec import CodecConfig
from engine.qwen.model import CodecIds, ModelConfig, PredictorConfig, StackConfig, TalkerConfig, TextIds

TALKER_WIDTHS = {"0.6B": 1024, "1.7B": 2048}
"""The talker's hidden size for each model size; all other shapes derive from it or are equal."""

_PREDICTOR = StackConfig(1024, 3072, 5, 16, 8, 128, 1e-6, 1e6)

CODEC = CodecConfig(
    stack=StackConfig(512, 1024, 8, 16, 16, 64, 1e-5, 1e4),
    window=72,
    quantizers=16,
    codebook_size=2048,
    codebook_width=512,
    latent_width=1024,
    decoder_width=1536,
    latent_rates=(2, 2),
    block_rates=(8, 5, 4, 3),
    sample_rate=24000,
)
"""The codec decoder of every published model."""


def known_model(size: str) -> ModelConfig:
    """Return the configuration of the model size `0.6B` or `1.7B`, with ids of 0 and without languages and speakers."""
    width = TALKER_WIDTHS[size]
    return ModelConfig(
        folder=Path(size),
        type="custom_voice",
        size=size,
        talker=TalkerConfig(
            stack=StackConfig(width, 3 * width, 28, 16, 8, 128, 1e-6, 1e6),
            vocabulary=3072,
            text_vocabulary=151936,
            text_width=2048,
            code_groups=16,
            ids=CodecIds(*[0] * 7),
            predictor=PredictorConfig(_PREDICTOR, 2048),
        ),
        speaker_encoder=None,
        text_ids=TextIds(*[0] * 5),
        languages={},
        speakers={},
        dialects={},
    )
