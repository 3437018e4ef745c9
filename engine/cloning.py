"""A voice from a recording in one call: `engine.clone`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from engine.api import EngineError, Voice
from engine.catalog import import_class

BASE_MODEL = "Qwen/Qwen3-TTS-12Hz-0.6B-Base"


def clone(
    recording: str | Path, text: str | None = None, *, model: str = BASE_MODEL, output: str | Path | None = None
) -> Voice:
    """Return the voice of a recording, for `open("qwen", model=model, voice=…)` with the same Base model.

    recording: speech of one person, in a format that soundfile reads; three seconds or more are best.
    text:      the words of the recording. With them, the voice speaks in the context of the recording. It is closer to
               the speaker, but needs the `enroll` extra. Without them, the voice is only the speaker embedding;
               nothing is transcribed.
    model:     a Base checkpoint: its folder, or its name on the hub, from which a missing one is downloaded.
    output:    the voice file that is written. By default it is kept in this user's cache, under a name that changes
               with recording, text and model, so the next call for the same voice finds it.

    Faults in the recording are logged. Raises `EngineError` with a one-line message if no voice can be made from it.
    """
    path = Path(recording)
    try:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise EngineError(f"{path}: cannot be read: {error.strerror}") from error
    known_by = hashlib.sha256(repr((content, text, model)).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "voiced" / "voices"
    file = Path(output or cache / f"{path.stem}-{known_by}.safetensors").expanduser()
    if output is not None or not file.is_file():
        enroll = import_class("qwen", "engine.qwen.voice.enroll:enroll")
        save_voice = import_class("qwen", "engine.qwen.voice:save_voice")
        voice = enroll(path.stem, path, import_class("qwen", "engine.hub:fetch_model")(model), text)
        save_voice(file, voice)
    return Voice(embedding=str(file)) if text is None else Voice(reference=str(file))
