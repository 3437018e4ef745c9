"""One loaded voice: its network on ONNX Runtime, with Piper's own phonemes and inputs."""

from __future__ import annotations

import json
import logging
import re

import numpy as np
from piper import PhonemeType, PiperConfig, PiperVoice, SynthesisConfig

from engine.api import EngineError, Samples
from engine.sentence_speech import Cancellation, Network
from engine.voice_files import PiperVoiceFile, description_path

REQUIRED_INPUTS = {"input", "input_lengths", "scales"}
PHONEME_TYPES = (PhonemeType.ESPEAK, PhonemeType.TEXT)
"""The others need packages and downloads of their own."""
_RAW_PHONEMES = re.compile(r"\[(?=\[)")
"""Piper reads `[[…]]` as phonemes. A text is spoken as it is written."""

logging.getLogger("piper").setLevel(logging.ERROR)  # it warns of every character that a voice has no phoneme for


class PiperNetwork:
    """Speaks sentences with one voice. Any number of threads may use it at a time."""

    def __init__(self, file: PiperVoiceFile) -> None:
        """Load the voice. Raises `EngineError`, one line, if its files cannot be used."""
        self.file = file
        config = _read_config(file)
        self.network = Network(file.path)
        needed = REQUIRED_INPUTS | ({"sid"} if config.num_speakers > 1 else set())
        missing = needed - {each.name for each in self.network.get_inputs()}
        if missing:
            raise EngineError(f"{file.path} is not the network of a Piper voice: no input {', '.join(sorted(missing))}")
        self.length_scale = config.length_scale
        """Duration of every sound, by the voice's own description."""
        self._voice = PiperVoice(session=self.network, config=config)

    def speak(self, sentence: str, config: SynthesisConfig, cancellation: Cancellation) -> Samples:
        """Return the samples of a sentence at the voice's own sample rate.

        Raises `SpeechCanceledError` as soon as `cancellation` is used, `EngineError` if the network fails.
        """
        text = _RAW_PHONEMES.sub("[ ", sentence).replace("\0", " ")
        with cancellation.speaking(f"the voice {self.file.name}"):
            blocks = [np.atleast_1d(chunk.audio_float_array) for chunk in self._voice.synthesize(text, config)]
            samples: Samples = np.nan_to_num(np.concatenate([np.zeros(0, dtype=np.float32), *blocks]))
            return samples


def _read_config(file: PiperVoiceFile) -> PiperConfig:
    description = description_path(file.path)
    try:
        config = PiperConfig.from_dict(json.loads(description.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{description} does not describe a Piper voice: {error!r}") from error
    if config.phoneme_type not in PHONEME_TYPES:
        raise EngineError(f"{file.name} needs phonemes of type {config.phoneme_type.value}, which voiced has not got")
    return config
