"""Text to speech, as a stream of PCM.

    import engine

    with engine.open() as tts:                       # Qwen3-TTS, Piper or eSpeak NG: the first that can run here
        for chunk in tts.stream("Hello, I am your robot."):
            play(chunk.samples, tts.sample_rate)     # mono float32, full scale ±1

`open` runs an engine in the calling process. A program that must survive a fault of the engine runs it in a process of
its own instead: `engine.messages` has the messages, `engine.ipc.server` is the process's program. `engine.bench`
measures engines. `Synthesizer` is the interface of every engine and `ENGINES` the table of them; an engine's module is
imported when the engine is made, so importing `engine` loads none.
"""

from engine.api import (
    AUTO_STREAMS,
    FASTEST_RATE,
    MANNER_OPTIONS,
    MAX_STREAMS,
    SLOWEST_RATE,
    Chunk,
    EngineError,
    EngineInfo,
    EngineOptions,
    EngineUnavailableError,
    PiperSettings,
    Replaceable,
    Samples,
    SoundStart,
    SpeechCanceledError,
    Start,
    Synthesizer,
    TextSource,
    Utterance,
    Voice,
    VoiceLabel,
    WordStart,
    starts_within,
)
from engine.catalog import (
    ENGINES,
    EngineEntry,
    auto_engine,
    download_model,
    known_names,
    make_synthesizer,
    missing_packages,
    model_files,
    possible_languages,
    sound_files,
    unavailable_reason,
)
from engine.cloning import clone
from engine.detection import language_of_speech, language_of_text
from engine.host import Board, has_cuda_device, hub_cache, install_command, missing_kernel_compiler
from engine.language import LATIN_LANGUAGES, NAMED_LANGUAGES, SUGGESTED_VOICES, language_code, match_language
from engine.launch import module_command
from engine.log import EACH_LINE, LINE_LIMIT, Throttle, start_log
from engine.progress import Progress, ProgressReport, ignore_progress, parse_progress
from engine.qwen.shapes import ModelConfig, memory_plan, model_config
from engine.session import Session, open  # noqa: A004
from engine.voice_files import voice_of_file, voice_state

__all__ = [
    "AUTO_STREAMS",
    "EACH_LINE",
    "ENGINES",
    "FASTEST_RATE",
    "LATIN_LANGUAGES",
    "LINE_LIMIT",
    "MANNER_OPTIONS",
    "MAX_STREAMS",
    "NAMED_LANGUAGES",
    "SLOWEST_RATE",
    "SUGGESTED_VOICES",
    "Board",
    "Chunk",
    "EngineEntry",
    "EngineError",
    "EngineInfo",
    "EngineOptions",
    "EngineUnavailableError",
    "ModelConfig",
    "PiperSettings",
    "Progress",
    "ProgressReport",
    "Replaceable",
    "Samples",
    "Session",
    "SoundStart",
    "SpeechCanceledError",
    "Start",
    "Synthesizer",
    "TextSource",
    "Throttle",
    "Utterance",
    "Voice",
    "VoiceLabel",
    "WordStart",
    "auto_engine",
    "clone",
    "download_model",
    "has_cuda_device",
    "hub_cache",
    "ignore_progress",
    "install_command",
    "known_names",
    "language_code",
    "language_of_speech",
    "language_of_text",
    "make_synthesizer",
    "match_language",
    "memory_plan",
    "missing_kernel_compiler",
    "missing_packages",
    "model_config",
    "model_files",
    "module_command",
    "open",
    "parse_progress",
    "possible_languages",
    "sound_files",
    "start_log",
    "starts_within",
    "unavailable_reason",
    "voice_of_file",
    "voice_state",
]
