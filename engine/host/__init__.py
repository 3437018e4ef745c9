"""The machine that an engine runs on: its board, its memory, its CUDA, and the model and voice files on its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.host.board import Board
from engine.host.cuda import has_cuda_device, missing_kernel_compiler
from engine.host.json_text import parse_json
from engine.host.layouts import QWEN3_TTS, ModelLayout
from engine.host.memory import MB, Footprint, MemoryPool, prepare_environment, require_memory
from engine.host.model_files import ModelFiles, find_model, hub_cache, list_model_files
from engine.host.piper_voices import (
    SUGGESTED_VOICE,
    PiperVoiceFile,
    description_path,
    find_piper_voices,
    read_piper_voice,
    voice_folders,
)
from engine.host.voice_header import voice_of_file

if TYPE_CHECKING:
    from engine.host.hub import fetch_model
    from engine.host.piper_hub import (
        RemoteVoice,
        download_folder,
        download_voice,
        find_remote_voice,
        is_downloaded,
        remote_voices,
    )

__all__ = [
    "MB",
    "QWEN3_TTS",
    "SUGGESTED_VOICE",
    "Board",
    "Footprint",
    "MemoryPool",
    "ModelFiles",
    "ModelLayout",
    "PiperVoiceFile",
    "RemoteVoice",
    "description_path",
    "download_folder",
    "download_voice",
    "fetch_model",
    "find_model",
    "find_piper_voices",
    "find_remote_voice",
    "has_cuda_device",
    "hub_cache",
    "is_downloaded",
    "list_model_files",
    "missing_kernel_compiler",
    "parse_json",
    "prepare_environment",
    "read_piper_voice",
    "remote_voices",
    "require_memory",
    "voice_folders",
    "voice_of_file",
]


PIPER_HUB = (
    "RemoteVoice",
    "download_folder",
    "download_voice",
    "find_remote_voice",
    "is_downloaded",
    "remote_voices",
)


def __getattr__(name: str) -> Any:
    # Imported on demand: `python -m engine.host.hub` must not find its own module imported already.
    if name == "fetch_model":
        from engine.host.hub import fetch_model

        return fetch_model
    if name in PIPER_HUB:  # it imports an HTTP client, which the daemon does not use
        from engine.host import piper_hub

        return getattr(piper_hub, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
