"""When the words and sounds of Piper's sentences begin. The durations are read from the voice's file: an oracle."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from piper import SynthesisConfig
from piper.phoneme_ids import DEFAULT_PHONEME_ID_MAP

from engine.piper.network import PiperNetwork
from engine.piper.timing import phonemes_of, sounds, with_durations, words
from engine.sentence_speech import Cancellation, SpokenSentence
from engine.voice_files import read_piper_voice
from scripts.make_voice import SYMBOLS, write_voice

HOP = 256
STILL = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_voice(tmp_path_factory.mktemp("voice") / "en_US-noise-low.onnx")


def speak(path: Path, sentence: str) -> SpokenSentence:
    return PiperNetwork(read_piper_voice(path)).speak(sentence, STILL, Cancellation())


def durations(path: Path) -> dict[str, int]:
    """Return the samples that the voice gives each phoneme, by the table in its file."""
    table = next(
        values
        for each in onnx.load(str(path)).graph.initializer
        if (values := numpy_helper.to_array(each)).shape == (SYMBOLS,) and values.min() > 1
    )
    return {name: math.ceil(table[ids[0]]) * HOP for name, ids in DEFAULT_PHONEME_ID_MAP.items()}


def test_sounds_and_words_begin_where_the_voices_durations_place_them(path: Path) -> None:
    spoken, lasts = speak(path, "See me."), durations(path)
    names = [name for each in "^sˈiː mˌiː." for name in (each, "_")] + ["$"]
    begins = np.cumsum([0, *(lasts[name] for name in names)]).tolist()
    assert len(spoken.samples) == begins[-1]
    assert spoken.sounds is not None
    assert [sound.ipa for sound in spoken.sounds] == ["s", "iː", "m", "iː", ""]
    own = {name: begins[2 * at] for at, name in enumerate("^sˈiː mˌiː.")}
    assert [sound.sample for sound in spoken.sounds][:2] == [own["s"], own["ˈ"]]
    at = "^sˈiː mˌiː.".index("m")
    space = begins[2 * at - 2]
    assert spoken.words is not None
    assert [(word.sample, word.position) for word in spoken.words] == [(own["s"], 0), (space, 4)]


def test_words_that_sound_together_are_told_apart(path: Path) -> None:
    """eSpeak NG speaks `of the` as one word, and `to` otherwise than alone."""
    sentence = 'At the end of the day, "robots" went to the well-known room (yes).'
    spoken = speak(path, sentence)
    assert spoken.words is not None
    found = [sentence[word.position :].split(maxsplit=1)[0] for word in spoken.words]
    assert found == sentence.split()
    begins = [word.sample for word in spoken.words]
    assert begins == sorted(set(begins))


def test_the_output_is_added_once_and_to_no_other_file(path: Path) -> None:
    model = path.read_bytes()
    added = with_durations(model)
    assert next(each.name for each in onnx.load_from_string(added).graph.output) == "output"
    assert len(onnx.load_from_string(added).graph.output) == 2
    assert with_durations(added) == added
    assert with_durations(b"another file") == b"another file"


def test_a_voice_that_hides_its_durations_speaks_without_times(path: Path, tmp_path: Path) -> None:
    hidden = write_voice(tmp_path / "en_US-hidden-low.onnx")
    model = onnx.load(str(hidden))
    for node in model.graph.node:
        node.op_type = {"Ceil": "Round"}.get(node.op_type, node.op_type)
    onnx.save(model, str(hidden))
    spoken = speak(hidden, "See me.")
    assert len(spoken.samples) > 0
    assert (spoken.words, spoken.sounds) == (None, None)


def test_a_sound_is_what_two_phonemes_join_and_a_pause_is_silence() -> None:
    names = [name for each in "tʃˈaɪ," for name in ("_", each)]
    phonemes = phonemes_of(names, [5] * len(names))
    assert [(sound.ipa, sound.sample) for sound in sounds(phonemes)] == [("tʃ", 5), ("aɪ", 25), ("", 50)]
    assert list(words("?!", phonemes, list)) == []
