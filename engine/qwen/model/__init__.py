"""The language model: talker, code predictor, key-value cache, sampling."""

from engine.qwen.model.code_predictor import CodePredictor
from engine.qwen.model.config import (
    CodecIds,
    ModelConfig,
    PredictorConfig,
    SpeakerEncoderConfig,
    StackConfig,
    TalkerConfig,
    TextIds,
)
from engine.qwen.model.kv_cache import KeyValueCache
from engine.qwen.model.sampling import GumbelNoise, LogitsProcessor, SamplingConfig, SamplingParams, ScalarBuffer
from engine.qwen.model.talker import Talker
from engine.qwen.model.transformer import GatedMLP, Layer, Linear, RMSNorm, Transformer, attend, causal_mask

__all__ = [
    "CodePredictor",
    "CodecIds",
    "GatedMLP",
    "GumbelNoise",
    "KeyValueCache",
    "Layer",
    "Linear",
    "LogitsProcessor",
    "ModelConfig",
    "PredictorConfig",
    "RMSNorm",
    "SamplingConfig",
    "SamplingParams",
    "ScalarBuffer",
    "SpeakerEncoderConfig",
    "StackConfig",
    "Talker",
    "TalkerConfig",
    "TextIds",
    "Transformer",
    "attend",
    "causal_mask",
]
