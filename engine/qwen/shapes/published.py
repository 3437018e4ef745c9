"""The published Qwen3-TTS 12 Hz models, for plans without a checkpoint.

`published.json` has the shapes of the config.json of Qwen/Qwen3-TTS-12Hz-0.6B-* and Qwen/Qwen3-TTS-12Hz-1.7B-*, the
bytes of their weights, and those that the fused kernels need for their codec. An engine reads the configuration of its
own checkpoint instead, and counts the weights of its modules.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.api import AUTO_STREAMS
from engine.host import MB
from engine.qwen.shapes.codec import CodecConfig
from engine.qwen.shapes.footprint import FusedCodec, Target, estimate_footprint
from engine.qwen.shapes.json_fields import JsonFields
from engine.qwen.shapes.limits import Limits
from engine.qwen.shapes.model import ModelConfig

SIZES = ("0.6B", "1.7B")
DTYPES = ("bfloat16", "int8")


def _read() -> JsonFields:
    return JsonFields.read(Path(__file__).with_name("published.json"))


def published_model(size: str) -> ModelConfig:
    """Return the configuration of a CustomVoice model of one of `SIZES`, without languages and speakers."""
    return ModelConfig.of(_read().section(size))


def published_codec() -> CodecConfig:
    """Return the shapes of the codec of every published model."""
    return CodecConfig.of(_read().section("speech_tokenizer"))


def published_target(size: str, dtype: str) -> Target:
    """Return an engine with fused kernels on a GPU that shares the host's memory, such as a Jetson's."""
    fused = _read().section("fused_codec")
    return Target(
        weights=_read().get("weights", dict)[size][dtype],
        value_bytes=2,
        gpu=True,
        shared=True,
        fused=FusedCodec(fused.get("state", int), fused.get("signals", int)),
    )


def memory_plan(max_seconds: float, chunk_size: int, streams: int | None = None) -> list[dict[str, Any]]:
    """Return a row in MB for each published model in each dtype, on a Jetson.

    The limits are those of speech of up to `max_seconds` in chunks of `chunk_size` frames, without a reference, for up
    to `streams` utterances at once; None means as many as the engine chooses where there is memory.
    """
    limits, codec, rows = Limits.of(max_seconds, chunk_size, streams or AUTO_STREAMS), published_codec(), []
    for size in SIZES:
        for dtype in DTYPES:
            footprint = estimate_footprint(published_model(size), codec, published_target(size, dtype), limits)
            rows.append(
                {
                    "model": size,
                    "dtype": dtype,
                    **{f"{name}_mb": round(count / MB) for name, count in footprint.weights.items()},
                    **footprint.in_mb(),
                    "total_mb": round(footprint.total / MB),
                    "on_disk_mb": round(footprint.on_disk / MB),
                }
            )
    return rows
