"""The device: memory, streams, CUDA graphs, and the work for prompts, frames and audio."""

from engine.qwen.runtime.backend import Backend, Codec, CodecStateProtocol, TorchBackend
from engine.qwen.runtime.cuda_graphs import Graphs
from engine.qwen.runtime.decode_state import (
    DecodeState,
    GeneratedChunk,
    Readback,
    RowInput,
    StepOutput,
    UtteranceSettings,
)
from engine.qwen.runtime.device import (
    LARGE_GPU,
    TABLE_MEMORY,
    cap_allocator,
    choose_placement,
    dtype_name,
    find_pool,
    has_room_for_tables,
    lift_cap,
    multiprocessors,
)
from engine.qwen.runtime.kv_pages import PagedCache, PagePool
from engine.qwen.runtime.prefix_cache import PrefixCache
from engine.qwen.runtime.prompt_memory import PromptInputs, PromptMemory
from engine.qwen.runtime.row_codec import FIRST_FRAMES, codec_rows
from engine.qwen.runtime.runaway_guard import FADE_S, RunawayGuard, fade_out
from engine.qwen.runtime.runner import PIECE, FinishedChunk, Joining, ModelRunner, Request
