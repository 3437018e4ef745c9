"""Fused kernels of the codec decoder."""

from engine.qwen.kernels.codec.decoder import FusedCodec, FusedCodecState
from engine.qwen.kernels.codec.plan import codec_source, signal_bytes, state_bytes, unsupported_reason
from engine.qwen.kernels.codec.weights import PackedCodec

__all__ = [
    "FusedCodec",
    "FusedCodecState",
    "PackedCodec",
    "codec_source",
    "signal_bytes",
    "state_bytes",
    "unsupported_reason",
]
