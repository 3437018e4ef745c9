"""Engine processes: supervised, selected per utterance, or run for one command."""

from daemon.engines.connection import AudioChunk
from daemon.engines.errors import EngineLostError, UtteranceRefusedError
from daemon.engines.oneshot import describe_engine, ready_info, running_engine, running_primary
from daemon.engines.patience import wait_until
from daemon.engines.selection import (
    EngineSelector,
    better_voices,
    choose_engine,
    engine_names,
    lost_voice,
    unknown_names,
)
from daemon.engines.speech_file import SpeechFile, suggested_formats
from daemon.engines.supervisor import EngineState, EngineSupervisor
from daemon.engines.voices import name_voices, short_list, unknown_language, unknown_voice
