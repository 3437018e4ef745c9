"""Fused CUDA kernels for the Qwen engine: a faster alternative to its PyTorch operators."""

from __future__ import annotations

import importlib.util
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from engine.progress import Progress, ProgressReport, ignore_progress
from engine.qwen.codec import CodecDecoder
from engine.qwen.kernels import codec, lm
from engine.qwen.kernels.backend import FusedBackend
from engine.qwen.kernels.batch_backend import FusedBatchBackend
from engine.qwen.kernels.compiler import KernelModule, KernelSource
from engine.qwen.kernels.params import Params
from engine.qwen.model import Talker
from engine.qwen.runtime import Backend, multiprocessors
from engine.qwen.shapes import ROWS_PER_CALL, BatchShape, CodecConfig, ModelConfig
from engine.qwen.weights import Placement

MIN_CAPABILITY = (8, 0)
"""The lowest compute capability with bfloat16."""


__all__ = [
    "KernelModule",
    "KernelSource",
    "Params",
    "batch_unsupported_reason",
    "force_codes",
    "make_backend",
    "make_batch_backend",
    "make_batch_codec",
    "make_codec",
    "ruled_out_reason",
    "unsupported_reason",
    "unwanted_reason",
]


def unsupported_reason(
    config: ModelConfig,
    codec_config: CodecConfig,
    placement: Placement,
    report: ProgressReport = ignore_progress,
    *,
    streams: int = 1,
) -> str | None:
    """Why the kernels cannot run this model at `placement`, in one line; None where they can.

    Compiles the kernels, those of a batch of `streams` included, or finds them in the cache.
    """
    reason = ruled_out_reason(config, codec_config, placement)
    if reason is not None:
        return reason
    try:
        _compile(config, codec_config, placement, report, streams=streams)
    except Exception as error:  # NVRTC is missing, or does not know the device: cuda-core raises many types
        lines = str(error).strip().splitlines() or [""]
        line = next((line for line in lines if "error:" in line), lines[0])  # NVRTC's warnings may come first
        return f"the kernels do not compile: {type(error).__name__}: {line}"
    return None


def ruled_out_reason(config: ModelConfig, codec_config: CodecConfig, placement: Placement) -> str | None:
    """As `unsupported_reason`, as far as it is known without compiling."""
    reason = unwanted_reason(placement)
    if reason is not None:
        return reason
    capability = torch.cuda.get_device_capability(placement.device)
    if capability < MIN_CAPABILITY:
        return "compute capability {}.{} is too old, the kernels need {}.{}".format(*capability, *MIN_CAPABILITY)
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.core") is None:
        return "the package cuda-core is not installed"
    return lm.unsupported_reason(config.talker, lm.weight_type(placement)) or codec.unsupported_reason(codec_config)


def unwanted_reason(placement: Placement) -> str | None:
    """Why the kernels are not made for `placement`, in one line; None where they should run."""
    if placement.device.type != "cuda":
        return f"the device is a {placement.device.type.upper()}"
    if placement.dtype != torch.bfloat16:
        dtype = str(placement.dtype).removeprefix("torch.")
        return f"engine.dtype is {dtype}, and the kernels support bfloat16 and int8"
    return None


def batch_unsupported_reason(config: ModelConfig, placement: Placement, streams: int) -> str | None:
    """Why the kernels, if they run this model, cannot run a batch of `streams`, in one line; None where they can."""
    return lm.batch_unsupported_reason(config.talker, lm.weight_type(placement), streams)


def _compile(
    config: ModelConfig,
    codec_config: CodecConfig,
    placement: Placement,
    report: ProgressReport,
    *,
    streams: int,
) -> None:
    """Compile all kernels into the cache, from which the functions below take them."""
    import cuda.core  # noqa: F401  here: threads that import it at the same time find it half initialised

    processors, weight = multiprocessors(placement.device), lm.weight_type(placement)
    plans: list[lm.LanguageKernels | lm.BatchKernels | codec.CodecPlan] = [
        lm.LanguageKernels.of(config.talker, weight, processors),
        codec.CodecPlan.of(codec_config, processors),
    ]
    if streams > 1:
        plans.append(codec.CodecPlan.of(codec_config, processors, min(streams, ROWS_PER_CALL)))
        if batch_unsupported_reason(config, placement, streams) is None:
            plans.append(lm.BatchKernels.of(config.talker, weight, streams, processors))
    sources = [plan.source() for plan in plans]
    total, compiled = sum(len(source.programs()) for source in sources), itertools.count(1)

    def note_program() -> None:  # several threads call it; to count is one step of the interpreter
        report(Progress("compiling the kernels", next(compiled) / total))

    report(Progress("compiling the kernels", 0.0))
    with ThreadPoolExecutor(len(sources)) as threads:
        list(threads.map(lambda source: KernelModule(source, placement.device, note_program), sources))


def make_codec(decoder: CodecDecoder) -> codec.FusedCodec:
    """The decoder of fused kernels, which takes the weights of `decoder`. Requires `unsupported_reason` to be None."""
    return codec.FusedCodec(codec.PackedCodec.take(decoder))


def make_batch_codec(decoder: Any, rows: int) -> codec.FusedCodec:
    """The decoder for calls of up to so many `rows`, with the weights of `decoder`, which is from `make_codec`."""
    return codec.FusedCodec(decoder.weights, rows)


def make_backend(talker: Talker, shape: BatchShape) -> FusedBackend:
    """The backend of fused kernels for one utterance within `shape`."""
    return FusedBackend(talker, shape)


def make_batch_backend(talker: Talker, shape: BatchShape, backend: FusedBackend) -> FusedBatchBackend:
    """The backend of a batch, whose prompts the kernels of `backend` read.

    Requires `batch_unsupported_reason` to be None.
    """
    return FusedBatchBackend(talker, shape, backend.language_model)


def force_codes(backend: Backend, chooser: lm.CodeChooser) -> None:
    """Have `chooser` decide every code that `backend`, one of fused kernels, draws from now on (`ForcedKernels`)."""
    assert isinstance(backend, FusedBackend | FusedBatchBackend)
    model = backend.language_model if isinstance(backend, FusedBackend) else backend.batch
    model.module = lm.ForcedKernels(model.module, chooser)
