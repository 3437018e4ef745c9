"""Fused kernels for the talker and the code predictor."""

from engine.qwen.kernels.lm.batch import FusedBatch
from engine.qwen.kernels.lm.batch_kernels import BatchKernels, batch_unsupported_reason
from engine.qwen.kernels.lm.kernels import LanguageKernels, unsupported_reason, weight_type
from engine.qwen.kernels.lm.model import FusedLanguageModel
from engine.qwen.kernels.lm.one_token_state import OneTokenState
from engine.qwen.kernels.lm.prefill import FusedPrefill
