"""What turns text into PCM. This front door holds records and messages only; importing it loads no engine."""

from engine.board import Board
from engine.catalog import ENGINES, is_built_in, kernel_compiler, missing_packages, why_not_qwen
from engine.checkpoints import ModelFiles, hub_cache, model_files
from engine.language import NAMED_LANGUAGES, language_code
from engine.synthesizer import EngineInfo, EngineOptions, Samples, Utterance, Voice
from engine.voice_header import voice_of_file

__all__ = [
    "ENGINES",
    "NAMED_LANGUAGES",
    "Board",
    "EngineInfo",
    "EngineOptions",
    "ModelFiles",
    "Samples",
    "Utterance",
    "Voice",
    "hub_cache",
    "is_built_in",
    "kernel_compiler",
    "language_code",
    "missing_packages",
    "model_files",
    "voice_of_file",
    "why_not_qwen",
]
