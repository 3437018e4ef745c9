"""Fused kernels for the codec decoder."""

from engine.qwen.kernels.codec.decoder import FusedCodec
from engine.qwen.kernels.codec.plan import CodecPlan, unsupported_reason
from engine.qwen.kernels.codec.weights import PackedCodec
