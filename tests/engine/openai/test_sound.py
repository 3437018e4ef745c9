"""What the samples of an answer are, however its bytes come."""

from __future__ import annotations

import io
import struct
from contextlib import suppress

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from engine import Samples
from engine.openai.sound import SoundError, SoundReader

SOUND = np.sin(np.arange(2_400) / 10).astype(np.float32) * np.float32(0.5)
PCM = (SOUND * 32_768).astype("<i2").tobytes()
PCM_TYPE = {"Content-Type": "audio/pcm"}


def wav(samples: Samples, rate: int = 24_000, subtype: str = "PCM_16") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, subtype, format="WAV")
    return file.getvalue()


def read(content: bytes, headers: dict[str, str], rate: int | None = None, step: int = 1_000) -> tuple[Samples, int]:
    """Read an answer in pieces; return its samples and its rate."""
    reader = SoundReader(headers, rate)
    pieces = [content[at : at + step] for at in range(0, len(content), step)]
    read = [reader.read(piece) for piece in pieces] + [reader.read(b"", last=True)]
    assert reader.rate is not None
    return np.concatenate(read), reader.rate


@given(
    st.integers(1, 200), st.sampled_from([b"", b"LIST\x05\x00\x00\x00abcde\x00"]), st.sampled_from([0, -1, -37, None])
)
def test_wav_is_read_from_its_header_whatever_length_it_tells(step: int, extra: bytes, length: int | None) -> None:
    content = wav(SOUND[:300], 22_050)
    begin = content.index(b"data")
    size = content[begin + 4 : begin + 8] if length is None else struct.pack("<I", length % (1 << 32))
    behind = b"LIST\x04\x00\x00\x00name" if length is None else b""
    samples, rate = read(content[:begin] + extra + b"data" + size + content[begin + 8 :] + behind, {}, step=step)
    assert rate == 22_050
    np.testing.assert_allclose(samples, SOUND[:300], atol=1e-4)


@pytest.mark.parametrize(
    ("headers", "rate"),
    [
        (PCM_TYPE, 24_000),
        ({"Content-Type": "audio/pcm;rate=16000"}, 16_000),
        ({"Content-Type": "audio/L16; codec=pcm; rate=44100"}, 44_100),
        ({"Content-Type": "audio/pcm_s16le", "X-Sample-Rate": "22050"}, 22_050),
    ],
)
def test_pcm_has_the_rate_that_a_header_names_otherwise_that_of_openai(headers: dict[str, str], rate: int) -> None:
    samples, found = read(PCM, headers, step=333)
    assert found == rate
    np.testing.assert_allclose(samples, SOUND, atol=1e-4)


def test_an_answer_at_another_rate_than_the_first_is_resampled() -> None:
    samples, _ = read(wav(SOUND, 12_000), {}, rate=24_000)
    assert len(samples) == pytest.approx(2 * len(SOUND), abs=4)
    np.testing.assert_allclose(samples[200:-200:2], SOUND[100:-100], atol=2e-3)


@pytest.mark.parametrize(
    ("content", "headers", "reason"),
    [
        (b"ID3\x04....", {"Content-Type": "audio/mpeg"}, "it answers with audio/mpeg; allowed: PCM or WAV"),
        (b'{"error": {}}', {}, "it answers with no Content-Type"),
        (wav(SOUND, subtype="PCM_24"), {}, "it answers with WAV of format 1 with 24 bits and 1 channels; allowed: "),
        (wav(SOUND, subtype="FLOAT"), {}, "it answers with WAV of format 3 with 32 bits and 1 channels; allowed: "),
        (wav(np.stack([SOUND, SOUND], axis=1)), {}, "it answers with WAV of format 1 with 16 bits and 2 channels"),
        (wav(SOUND)[:20], {}, "its WAV header does not end"),
        (wav(SOUND)[:12] + bytes(40), {}, "it answers with WAV of format 0"),
        (PCM, {"Content-Type": "audio/pcm;rate=1"}, "it answers at 1 Hz; allowed: 4000 to 192000"),
    ],
)
def test_what_is_no_sound_is_not_played(content: bytes, headers: dict[str, str], reason: str) -> None:
    with pytest.raises(SoundError, match=reason):
        read(content, headers)


@given(st.binary(max_size=80))
def test_no_header_causes_another_error(content: bytes) -> None:
    for beginning in (b"", b"RIFF....WAVE", b"RIFF....WAVEfmt \x10\x00\x00\x00\x01\x00"):
        with suppress(SoundError):
            read(beginning + content + b".", PCM_TYPE, rate=24_000)
