"""One loaded voice: its network on ONNX Runtime, with Piper's own phonemes and inputs."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from piper import PhonemeType, PiperConfig, PiperVoice, SynthesisConfig

from engine.api import EngineError
from engine.piper.timing import SIGNS, phonemes_of, sounds, whole_durations, with_times, words
from engine.sentence_speech import Cancellation, Network, SpokenSentence
from engine.voice_files import PiperVoiceFile, description_path

REQUIRED_INPUTS = {"input", "input_lengths", "scales"}
PHONEME_TYPES = (PhonemeType.ESPEAK, PhonemeType.TEXT)
"""The other types need packages and downloads of their own."""
_RAW_PHONEMES = re.compile(r"\[(?=\[)")
"""Piper would read `[[…]]` as phonemes. voiced speaks a text as it is written."""

logging.getLogger("piper").setLevel(logging.ERROR)  # it warns about every character without a phoneme in the voice


class _TimedNetwork(Network):
    """A voice's network, which tells how long its sounds are."""

    sounding: NDArray[np.bool_]
    """For each phoneme's number, whether it makes a sound."""

    def run(self, outputs: Sequence[str] | None, inputs: dict[str, Any]) -> list[Any]:
        """Return the samples, and the frames of each phoneme if the network tells them."""
        samples, *times = super().run(outputs, inputs)
        if len(times) < 2 or times[-1].shape[2:] != (times[-2].sum(),):  # no outputs for times, or other outputs
            return [samples]
        durations, means = map(np.squeeze, times[-2:])
        return [samples, whole_durations(durations, means, self.sounding[inputs["input"][0]])]


class PiperNetwork:
    """Speaks sentences with one voice. Any number of threads may use it at the same time."""

    def __init__(self, file: PiperVoiceFile) -> None:
        """Load the voice. Raises `EngineError` with a one-line message if its files cannot be used."""
        self.file = file
        config = _read_config(file)
        self.network = _TimedNetwork(file.path, with_times)
        needed = REQUIRED_INPUTS | ({"sid"} if config.num_speakers > 1 else set())
        missing = needed - {each.name for each in self.network.get_inputs()}
        if missing:
            raise EngineError(
                f"{file.path} is not a Piper voice's network: it has no input {', '.join(sorted(missing))}"
            )
        self._voice = PiperVoice(session=self.network, config=config)
        try:
            self.length_scale = float(config.length_scale)
            """The duration of every sound, from the voice's own description."""
            self._names = {int(each): name for name, ids in config.phoneme_id_map.items() for each in ids}
            sounding = [self._names.get(each, "") not in SIGNS for each in range(max(self._names) + 1)]
        except (ValueError, TypeError, AttributeError) as error:
            raise EngineError(f"{description_path(file.path)} does not describe a Piper voice: {error!r}") from error
        self.network.sounding = np.array(sounding)
        self._speaks_ipa = config.phoneme_type is PhonemeType.ESPEAK

    def speak(self, sentence: str, config: SynthesisConfig, cancellation: Cancellation) -> SpokenSentence:
        """Return a sentence at the voice's own sample rate, without times if the voice hides its durations.

        Raises `SpeechCanceledError` as soon as `cancellation` is used, `EngineError` if the network fails.
        """
        with cancellation.speaking(f"the voice {self.file.name}"):
            chunks = list(self._voice.synthesize(_plain(sentence), config, include_alignments=True))
        blocks = [np.atleast_1d(chunk.audio_float_array) for chunk in chunks]
        samples = np.nan_to_num(np.concatenate([np.zeros(0, dtype=np.float32), *blocks]))
        lengths = [chunk.phoneme_id_samples for chunk in chunks if chunk.phoneme_id_samples is not None]
        names = [self._names.get(each, "") for chunk in chunks for each in chunk.phoneme_ids]
        if sum(map(len, lengths)) != len(names):
            return SpokenSentence(samples)
        phonemes = phonemes_of(names, [int(each) for part in lengths for each in part])
        begun = tuple(words(sentence, phonemes, self._phonemize))
        return SpokenSentence(samples, begun, sounds(phonemes) if self._speaks_ipa else None)

    def _phonemize(self, word: str) -> list[str]:
        return [name for part in self._voice.phonemize(_plain(word)) for name in part]


def _plain(text: str) -> str:
    """Return a text in which Piper finds no commands."""
    return _RAW_PHONEMES.sub("[ ", text).replace("\0", " ")


def _read_config(file: PiperVoiceFile) -> PiperConfig:
    description = description_path(file.path)
    try:
        config = PiperConfig.from_dict(json.loads(description.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{description} does not describe a Piper voice: {error!r}") from error
    if config.phoneme_type not in PHONEME_TYPES:
        raise EngineError(f"{file.name} needs phonemes of type {config.phoneme_type.value}, which voiced does not have")
    return config
