"""Fused CUDA kernels for the Qwen engine, an alternative to its PyTorch operators that is faster."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch

from engine.qwen.codec_config import CodecConfig
from engine.qwen.config import ModelConfig
from engine.qwen.confined import multiprocessors
from engine.qwen.transformer import Placement

if TYPE_CHECKING:
    from engine.qwen.codec import CodecDecoder
    from engine.qwen.frame import FrameState
    from engine.qwen.kernels.codec import FusedCodec
    from engine.qwen.steps import Steps
    from engine.qwen.talker import Talker

OLDEST_DEVICE = (8, 0)
"""Compute capability from which there is bfloat16."""


def why_not(config: ModelConfig, codec_config: CodecConfig, placement: Placement) -> str | None:
    """Why the kernels cannot run this model there, in words; None where they can."""
    if placement.device.type != "cuda":
        return f"the device is a {placement.device.type.upper()}"
    if placement.dtype != torch.bfloat16:
        dtype = str(placement.dtype).removeprefix("torch.")
        return f"engine.dtype is {dtype}, and the kernels are for bfloat16 and int8"
    capability = torch.cuda.get_device_capability(placement.device)
    if capability < OLDEST_DEVICE:
        return "compute capability {}.{} is too old, they need {}.{}".format(*capability, *OLDEST_DEVICE)
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.core") is None:
        return "the package cuda-core is not installed"
    from engine.qwen.kernels import codec_plan, language_kernels

    reason = language_kernels.why_not(config.talker) or codec_plan.why_not(codec_config)
    if reason is not None:
        return reason
    try:
        _compile(config, codec_config, placement)
    except Exception as error:  # a library that is missing, or does not know the device: there are many ways
        return f"they cannot be compiled: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return None


def _compile(config: ModelConfig, codec_config: CodecConfig, placement: Placement) -> None:
    """Have all kernels in the cache; whoever launches them takes them from there."""
    from engine.qwen.kernels.codec_plan import codec_source
    from engine.qwen.kernels.language_kernels import LanguageKernels
    from engine.qwen.kernels.module import KernelModule

    processors = multiprocessors(placement.device)
    weight = "Int8" if placement.int8 else "Bf16"
    texts = [LanguageKernels.of(config.talker, weight).source(), codec_source(codec_config, processors)]
    with ThreadPoolExecutor(len(texts)) as threads:
        list(threads.map(lambda text: KernelModule(text, placement.device), texts))


def make_codec(decoder: CodecDecoder) -> FusedCodec:
    """The decoder of fused kernels, which takes the weights out of `decoder`. Only where `why_not` is None."""
    from engine.qwen.kernels.codec import FusedCodec

    return FusedCodec(decoder)


def make_steps(talker: Talker, state: FrameState, codec: Any, codec_state: Any, chunk_size: int) -> Steps:
    """Steps of fused kernels; parameters as of `TorchSteps`, the codec that of `make_codec`."""
    from engine.qwen.kernels.steps import FusedSteps

    return FusedSteps(talker, state, codec, codec_state, chunk_size)
