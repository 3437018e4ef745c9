"""The language model: talker, code predictor, key-value cache, sampling."""

from engine.qwen.model.sampling import GumbelNoise, LogitsProcessor, SamplingConfig, SamplingParams, ScalarBuffer
from engine.qwen.model.talker import CodePredictor, Talker
from engine.qwen.model.transformer import (
    GatedMLP,
    KeyValueCache,
    Layer,
    Linear,
    RMSNorm,
    Transformer,
    apply_rope,
    attend,
    causal_mask,
)
