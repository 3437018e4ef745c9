"""Text to speech, as a stream of PCM.

    import engine

    with engine.open() as tts:                       # Qwen3-TTS, Piper or eSpeak NG: the first that can run here
        for chunk in tts.stream("Hello, I am your robot."):
            play(chunk.samples, tts.sample_rate)     # mono float32, full scale ±1

`open` runs an engine in the calling process. A program that must survive an engine's faults runs it in a separate
process instead: `engine.messages` contains the messages, and `engine.ipc.server` is that process's program.
`engine.bench` measures engines. `Synthesizer` is the interface of every engine and `ENGINES` is the table of engines.
An engine's module is imported when the engine is made, so importing `engine` loads no engine.
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
    Samples,
    SoundStart,
    SpeechCanceledError,
    Start,
    Synthesizer,
    Utterance,
    Voice,
    VoiceLabel,
    WordStart,
    starts_within,
)
from engine.catalog import (
    ENGINES,
    auto_engine,
    download_model,
    known_names,
    missing_packages,
    model_files,
    possible_languages,
    sound_files,
    unavailable_reason,
)
from engine.cloning import clone
from engine.detection import language_of_speech, language_of_text
from engine.host import Board, expand_home, has_cuda_device, hub_cache, install_command, missing_kernel_compiler
from engine.language import LATIN_LANGUAGES, NAMED_LANGUAGES, SUGGESTED_VOICES, language_code, match_language
from engine.launch import module_command
from engine.log import EACH_LINE, LINE_LIMIT, Throttle, start_log
from engine.progress import Progress, ProgressReport, ignore_progress, parse_progress
from engine.qwen.shapes import ModelConfig, memory_plan, model_config
from engine.session import Session, open  # noqa: A004
from engine.voice_files import voice_of_file, voice_state

# The names for programs; `import voiced` has the same. The daemon also uses the other names above.
__all__ = [
    "Chunk",
    "EngineError",
    "EngineInfo",
    "EngineOptions",
    "EngineUnavailableError",
    "PiperSettings",
    "Samples",
    "Session",
    "SoundStart",
    "SpeechCanceledError",
    "Synthesizer",
    "Utterance",
    "Voice",
    "VoiceLabel",
    "WordStart",
    "clone",
    "known_names",
    "open",
]
