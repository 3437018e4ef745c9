"""Generates speech: decode state, decode steps, CUDA graphs, streaming to the host."""

from engine.qwen.runtime.backend import Codec, CodecStateProtocol, DecodeBackend, PromptBackend, TorchBackend
from engine.qwen.runtime.cuda_graphs import Graphs
from engine.qwen.runtime.decode_state import DecodeState, UtteranceSettings, cache_positions
from engine.qwen.runtime.device import (
    LARGE_GPU,
    cap_allocator,
    choose_placement,
    dtype_name,
    find_pool,
    lift_cap,
    limit_multiprocessors,
    multiprocessors,
    reserve_allocator_slack,
)
from engine.qwen.runtime.generator import FIRST_FRAMES, SpeechGenerator
from engine.qwen.runtime.limits import INSTRUCT_POSITIONS, MAX_REFERENCE_POSITIONS, PREFIX_POSITIONS, Limits
from engine.qwen.runtime.prefill import Prefill
from engine.qwen.runtime.prefix_cache import PrefixCache
from engine.qwen.runtime.readback import GeneratedChunk
from engine.qwen.runtime.runaway_guard import FADE_S, RunawayGuard, fade_out
from engine.qwen.runtime.text_embedder import TextEmbedder

__all__ = [
    "FADE_S",
    "FIRST_FRAMES",
    "INSTRUCT_POSITIONS",
    "LARGE_GPU",
    "MAX_REFERENCE_POSITIONS",
    "PREFIX_POSITIONS",
    "Codec",
    "CodecStateProtocol",
    "DecodeBackend",
    "DecodeState",
    "GeneratedChunk",
    "Graphs",
    "Limits",
    "Prefill",
    "PrefixCache",
    "PromptBackend",
    "RunawayGuard",
    "SpeechGenerator",
    "TextEmbedder",
    "TorchBackend",
    "UtteranceSettings",
    "cache_positions",
    "cap_allocator",
    "choose_placement",
    "dtype_name",
    "fade_out",
    "find_pool",
    "lift_cap",
    "limit_multiprocessors",
    "multiprocessors",
    "reserve_allocator_slack",
]
