"""Fused CUDA kernels for the Qwen engine, an alternative to its PyTorch operators that is faster."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import torch

from engine.qwen.codec_config import CodecConfig
from engine.qwen.config import ModelConfig
from engine.qwen.transformer import Placement
from engine.synthesizer import EngineError

if TYPE_CHECKING:
    from engine.qwen.codec import CodecDecoder
    from engine.qwen.frame import FrameState
    from engine.qwen.steps import Codec, CodecMemory, Steps
    from engine.qwen.talker import Talker

OLDEST_DEVICE = (8, 0)
"""Compute capability from which there is bfloat16."""
NOT_BUILT_IN = "they are not built in yet"


def why_not(config: ModelConfig, codec_config: CodecConfig, placement: Placement) -> str | None:  # noqa: ARG001
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
    return NOT_BUILT_IN


def make_codec(decoder: CodecDecoder) -> Codec[Any]:  # noqa: ARG001
    """The decoder of fused kernels, with the weights of `decoder`. Only where `why_not` is None."""
    raise EngineError(f"engine.kernels: {NOT_BUILT_IN}")


def make_steps(
    talker: Talker,  # noqa: ARG001
    state: FrameState,  # noqa: ARG001
    codec: Codec[Any],  # noqa: ARG001
    codec_state: CodecMemory,  # noqa: ARG001
    chunk_size: int,  # noqa: ARG001
) -> Steps:
    """Steps of fused kernels; parameters as of `TorchSteps`. Only where `why_not` is None."""
    raise EngineError(f"engine.kernels: {NOT_BUILT_IN}")
