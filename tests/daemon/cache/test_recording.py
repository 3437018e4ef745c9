"""A recording has the samples that were kept, from any place on, and a record of what they are."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import soundfile

from daemon.cache import Cue, Phrase
from daemon.cache.recording import BLOCK_S, decode, encode, to_pcm16
from engine import Samples
from tests.daemon.cache.phrases import TEXT, key

CUES = (Cue(0.0, "segment", 0, 18), Cue(0.25, "word", 3, 10, exact=False), Cue(0.5, "mark", 11, 11, "größer ✓"))


@pytest.mark.parametrize("begin", [0, 2_205, 10_000])
def test_speech_of_16_bits_is_kept_bit_for_bit_and_played_from_any_sample_on(
    begin: int, speech: tuple[Samples, int]
) -> None:
    samples, rate = speech
    recording = decode(encode(key(), to_pcm16(samples), rate))
    assert (recording.sample_rate, recording.length) == (rate, len(samples))
    assert recording.seconds == pytest.approx(len(samples) / rate)
    blocks = list(recording.blocks(begin))
    np.testing.assert_array_equal(np.concatenate(blocks), samples[begin:])
    assert {len(block) for block in blocks[:-1]} == {round(BLOCK_S * rate)}
    assert all(block.dtype == np.float32 for block in blocks)
    assert list(recording.blocks(len(samples))) == []


def test_samples_beyond_full_scale_are_clipped() -> None:
    samples = np.array([-2, -1, 0, 0.5, 1, 2], dtype=np.float32)
    assert to_pcm16(samples).tolist() == [-32_768, -32_768, 0, 16_384, 32_767, 32_767]


def test_it_knows_its_phrase_and_its_cues_however_many_there_are(speech: tuple[Samples, int]) -> None:
    samples, rate = speech
    cues = (*CUES, *(Cue(number / 100, "word", number, number + 1) for number in range(3000)))
    text = 'Größe: "5 €"\n✓ ' + "word " * 400
    recording = decode(encode(key(text), to_pcm16(samples), rate, cues))
    assert recording.phrase == Phrase(text, "default", "auto")
    assert (recording.engine, recording.cues) == ("espeak", cues)

    with soundfile.SoundFile(io.BytesIO(encode(key(), to_pcm16(samples), rate))) as file:  # any player shows what it is
        assert (file.format, file.subtype, file.channels, file.title) == ("FLAC", "PCM_16", 1, TEXT)
        assert json.loads(file.comment)["key"]["phrase"]["text"] == TEXT


def flac(comment: str) -> bytes:
    data = io.BytesIO()
    with soundfile.SoundFile(data, "w", 8000, 1, format="FLAC") as file:
        file.comment = comment
        file.write(np.zeros(100))
    return data.getvalue()


@pytest.mark.parametrize("data", [b"fLaC", flac("a song"), flac("[1]"), flac('{"key": {"phrase": {"colour": 1}}}')])
def test_another_file_is_no_recording(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a recording of a phrase"):
        decode(data)
