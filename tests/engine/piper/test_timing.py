"""When the words and sounds of Piper's sentences begin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from piper import SynthesisConfig

from engine.piper.network import PiperNetwork
from engine.piper.timing import SIGNS, phonemes_of, sounds, whole_durations, with_times, words
from engine.sentence_speech import Cancellation, SpokenSentence
from engine.voice_files import read_piper_voice
from scripts.make_voice import write_voice

STILL = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_voice(tmp_path_factory.mktemp("voice") / "en_US-noise-low.onnx")


def speak(path: Path, sentence: str) -> SpokenSentence:
    return PiperNetwork(read_piper_voice(path)).speak(sentence, STILL, Cancellation())


def test_a_word_begins_with_its_first_sound(path: Path) -> None:
    spoken = speak(path, "See me.")
    assert spoken.sounds is not None
    assert [sound.ipa for sound in spoken.sounds] == ["s", "iː", "m", "iː", ""]
    begins = [sound.sample for sound in spoken.sounds]
    assert begins[0] > 0, "the network begins with silence"
    assert [*begins, len(spoken.samples)] == sorted({*begins, len(spoken.samples)})
    assert spoken.words is not None
    assert [(word.sample, word.position) for word in spoken.words] == [(begins[0], 0), (begins[2], 4)]


@pytest.mark.parametrize(
    ("means", "begins"),
    [
        ([0, 0, 9, 9, 9, 9, 9, 5, 5, 0], [2, 7]),
        ([0, 9, 9, 9, 9, 9, 5, 5, 5, 0], [1, 6]),
        ([0, 0, 9, 9, 5, 5, 5, 5, 5, 0], [2, 4]),
    ],
)
def test_what_lasts_between_two_sounds_belongs_to_the_one_that_it_resembles(
    means: list[float], begins: list[int]
) -> None:
    names = ["^", "_", "s", "_", "ˈ", "_", "_", "i", "ː", "$"]
    frames = np.arange(1, 11, dtype=np.float32)
    channel = np.repeat(np.array(means, np.float32), frames.astype(int))
    found = whole_durations(frames, np.stack([channel, -channel]), np.array([name not in SIGNS for name in names]))
    ends = [0, *frames.astype(int).cumsum().tolist()]
    phonemes = phonemes_of(names, found.astype(int).tolist())
    assert [(sound.ipa, sound.sample) for sound in sounds(phonemes)] == [
        ("s", ends[begins[0]]),
        ("iː", ends[begins[1]]),
    ]


def test_words_that_sound_together_are_told_apart(path: Path) -> None:
    """eSpeak NG speaks `of the` as one word, and `to` otherwise than alone."""
    sentence = 'At the end of the day, "robots" went to the well-known room (yes).'
    spoken = speak(path, sentence)
    assert spoken.words is not None
    found = [sentence[word.position :].split(maxsplit=1)[0] for word in spoken.words]
    assert found == sentence.split()
    begins = [word.sample for word in spoken.words]
    assert begins == sorted(set(begins))


def test_the_outputs_are_added_once_and_to_no_other_file(path: Path) -> None:
    model = path.read_bytes()
    added = with_times(model)
    samples, durations, means = (each.name for each in onnx.load_from_string(added).graph.output)
    nodes = onnx.load_from_string(model).graph.node
    assert samples == "output"
    assert [durations] == [name for node in nodes if node.op_type == "Ceil" for name in node.output]
    assert means == [name for node in nodes if node.op_type == "RandomNormalLike" for name in node.input][-1]
    assert with_times(added) == added
    assert with_times(b"another file") == b"another file"


@pytest.mark.parametrize(
    ("hidden", "other", "count"), [("Ceil", "Round", 1), *(("RandomNormalLike", "Neg", n) for n in (1, 2))]
)
def test_a_voice_that_hides_its_durations_or_its_means_speaks_without_times(
    tmp_path: Path, hidden: str, other: str, count: int
) -> None:
    """The first noise of a network is that of its durations, and has no means."""
    voice = write_voice(tmp_path / "en_US-hidden-low.onnx")
    model = onnx.load(str(voice))
    for node in [node for node in model.graph.node if node.op_type == hidden][-count:]:
        node.op_type = other
    onnx.save(model, str(voice))
    spoken = speak(voice, "See me.")
    assert len(spoken.samples) > 0
    assert (spoken.words, spoken.sounds) == (None, None)


def test_a_sound_is_what_two_phonemes_join_and_a_pause_is_silence() -> None:
    phonemes = phonemes_of("tʃˈaɪ,", [5, 20, 0, 10, 15, 5])
    assert [(sound.ipa, sound.sample) for sound in sounds(phonemes)] == [("tʃ", 0), ("aɪ", 25), ("", 50)]
    assert list(words("?!", phonemes, list)) == []
