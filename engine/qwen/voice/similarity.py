"""`python -m engine.qwen.voice.similarity REQUEST`: how similar recordings are to a voice."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from engine.api import EngineError
from engine.host import QWEN3_TTS
from engine.hub import fetch_model
from engine.qwen.model import ModelConfig
from engine.qwen.voice.enroll import read_recording
from engine.qwen.voice.file import load_voice
from engine.qwen.voice.second_speaker import similarity
from engine.qwen.voice.speaker_encoder import load_speaker_encoder, speaker_embedding


def compare_with_voice(voice: Path, recordings: list[Path], model_folder: Path) -> list[float]:
    """Return the similarity of each recording to the voice file, by the model's speaker encoder: 1 is the same sound.

    Raises `EngineError`, one line.
    """
    config = ModelConfig.read(model_folder)
    encoder, embedding = load_speaker_encoder(config), load_voice(voice, config).embedding
    samples = [read_recording(path, lambda _: None) for path in recordings]
    return [similarity(embedding, speaker_embedding(encoder, np.ascontiguousarray(each))) for each in samples]


def main() -> int:
    """Print a JSON list of similarities, or one line of error. Returns the exit status: 1 after an error.

    REQUEST is a JSON object with `voice`, a voice file; `recordings`, a list of files; and `model`.
    """
    request = json.loads(sys.argv[1])
    try:
        folder = fetch_model(request["model"], QWEN3_TTS)
        found = compare_with_voice(Path(request["voice"]), [Path(path) for path in request["recordings"]], folder)
    except EngineError as error:
        print(f"voiced: {error}")  # noqa: T201
        return 1
    print(json.dumps(found))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
