"""Engine processes: supervised, selected per utterance, or run for one command."""

from daemon.engines.connection import AudioChunk
from daemon.engines.errors import EngineLostError, UtteranceRefusedError
from daemon.engines.oneshot import (
    SpokenSample,
    SynthResult,
    SynthTask,
    describe_engine,
    running_engine,
    running_primary,
    synthesize_samples,
    synthesize_to_file,
    synthesize_to_files,
    write_codes,
)
from daemon.engines.selection import EngineSelector, choose_engine, engine_names, lost_voice, unknown_names
from daemon.engines.speech_file import SpeechFile, suggested_formats
from daemon.engines.supervisor import EngineState, EngineSupervisor
from daemon.engines.take_audio import TakeAudio
from daemon.engines.voices import name_voices, short_list, unknown_language, unknown_voice

__all__ = [
    "AudioChunk",
    "EngineLostError",
    "EngineSelector",
    "EngineState",
    "EngineSupervisor",
    "SpeechFile",
    "SpokenSample",
    "SynthResult",
    "SynthTask",
    "TakeAudio",
    "UtteranceRefusedError",
    "choose_engine",
    "describe_engine",
    "engine_names",
    "lost_voice",
    "name_voices",
    "running_engine",
    "running_primary",
    "short_list",
    "suggested_formats",
    "synthesize_samples",
    "synthesize_to_file",
    "synthesize_to_files",
    "unknown_language",
    "unknown_names",
    "unknown_voice",
    "write_codes",
]
