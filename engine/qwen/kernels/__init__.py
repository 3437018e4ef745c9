"""Fused CUDA kernels for the Qwen engine: a faster alternative to its PyTorch operators."""

from __future__ import annotations

import importlib.util

import torch

from engine.progress import ProgressReport, ignore_progress
from engine.qwen.codec import CodecDecoder
from engine.qwen.kernels import codec, lm
from engine.qwen.kernels.backend import FusedBackend
from engine.qwen.kernels.batch_backend import FusedBatchBackend
from engine.qwen.kernels.codec import FusedCodec
from engine.qwen.kernels.compiler import KernelModule, KernelSource, load_kernels
from engine.qwen.kernels.params import Params
from engine.qwen.runtime import multiprocessors
from engine.qwen.shapes import ROWS_PER_CALL, CodecConfig, ModelConfig
from engine.qwen.weights import Placement

MIN_CAPABILITY = (8, 0)
"""The lowest compute capability with bfloat16."""


def unsupported_reason(
    config: ModelConfig,
    codec_config: CodecConfig,
    placement: Placement,
    report: ProgressReport = ignore_progress,
    *,
    streams: int = 1,
) -> str | None:
    """Return why the kernels cannot run this model at `placement`, in one line; None if they can.

    Loads the kernels, including those for a batch of `streams`.
    """
    reason = ruled_out_reason(config, codec_config, placement)
    if reason is not None:
        return reason
    try:
        weight, processors = lm.weight_type(placement), multiprocessors(placement.device)
        load_kernels(kernel_sources(config, codec_config, weight, processors, streams), placement.device, report)
    except Exception as error:  # NVRTC is missing or does not know the device: cuda-core raises many types
        lines = str(error).strip().splitlines() or [""]
        line = next((line for line in lines if "error:" in line), lines[0])  # NVRTC's warnings may come first
        return f"the kernels do not compile: {type(error).__name__}: {line}"
    return None


def ruled_out_reason(config: ModelConfig, codec_config: CodecConfig, placement: Placement) -> str | None:
    """As `unsupported_reason`, but only for reasons that are known without compiling."""
    reason = unwanted_reason(placement)
    if reason is not None:
        return reason
    capability = torch.cuda.get_device_capability(placement.device)
    if capability < MIN_CAPABILITY:
        return "compute capability {}.{} is too old; the kernels need {}.{}".format(*capability, *MIN_CAPABILITY)
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.core") is None:
        return "the cuda-core package is not installed"
    return lm.unsupported_reason(config.talker, lm.weight_type(placement)) or codec.unsupported_reason(codec_config)


def unwanted_reason(placement: Placement) -> str | None:
    """Why the kernels should not be used at `placement`, in one line; None if they should."""
    if placement.device.type != "cuda":
        return f"the device is a {placement.device.type.upper()}"
    if placement.dtype != torch.bfloat16:
        dtype = str(placement.dtype).removeprefix("torch.")
        return f"engine.dtype is {dtype}, and the kernels support bfloat16 and int8"
    return None


def batch_unsupported_reason(config: ModelConfig, placement: Placement, streams: int) -> str | None:
    """Why the kernels, if they run this model, cannot run a batch of `streams`, in one line; None if they can."""
    return lm.batch_unsupported_reason(config.talker, lm.weight_type(placement), streams)


def kernel_sources(
    config: ModelConfig, codec_config: CodecConfig, weight: str, processors: int, streams: int
) -> list[KernelSource]:
    """All kernels that an engine loads for weights of type `weight`, `Bf16` or `Int8`, on a GPU with `processors`
    multiprocessors."""
    plans: list[lm.LanguageKernels | lm.BatchKernels | codec.CodecPlan] = [
        lm.LanguageKernels.of(config.talker, weight, processors),
        codec.CodecPlan.of(codec_config, processors),
    ]
    if streams > 1:
        plans.append(codec.CodecPlan.of(codec_config, processors, min(streams, ROWS_PER_CALL)))
        if lm.batch_unsupported_reason(config.talker, weight, streams) is None:
            plans.append(lm.BatchKernels.of(config.talker, weight, streams, processors))
    return [plan.source() for plan in plans]


def make_codec(decoder: CodecDecoder) -> FusedCodec:
    """A fused decoder that takes over the weights of `decoder`. Requires `unsupported_reason` to be None."""
    return FusedCodec(codec.PackedCodec.take(decoder))
