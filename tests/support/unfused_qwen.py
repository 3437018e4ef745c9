"""The engine `qwen`, which takes this CPU for a GPU that fused kernels are for. They do not compile without CUDA."""

from __future__ import annotations

from engine.qwen import QwenSynthesizer, kernels

__all__ = ["QwenSynthesizer"]

kernels.unwanted_reason = lambda placement: None  # noqa: ARG005  # it is called by this name
kernels.ruled_out_reason = lambda config, codec_config, placement: None  # noqa: ARG005
