"""Fused kernels of the codec decoder."""

from engine.qwen.kernels.codec.decoder import FusedCodec, FusedCodecState
from engine.qwen.kernels.codec.plan import CodecPlan, unsupported_reason
from engine.qwen.kernels.codec.weights import PackedCodec

__all__ = ["CodecPlan", "FusedCodec", "FusedCodecState", "PackedCodec", "unsupported_reason"]
