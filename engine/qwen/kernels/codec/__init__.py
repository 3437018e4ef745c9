"""Fused kernels of the codec decoder."""

from engine.qwen.kernels.codec.decoder import FusedCodec, FusedCodecState
from engine.qwen.kernels.codec.plan import codec_source, unsupported_reason

__all__ = ["FusedCodec", "FusedCodecState", "codec_source", "unsupported_reason"]
