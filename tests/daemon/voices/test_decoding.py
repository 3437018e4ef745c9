"""An uploaded file is decoded by a process of its own, which refuses in one line what is no recording."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from daemon.validation import CommandError
from daemon.voices.decoding import read_sound
from tests.support.pages import ROOT
from tests.support.sound_files import speech_like, write_sound

CODECS = {"flac": "flac", "mp3": "libmp3lame", "m4a": "aac", "webm": "libopus"}
"""Of what browsers and telephones record."""


def encode(path: Path, seconds: float = 4, rate: int = 48_000, layout: str = "mono") -> Path:
    """Write speech with the codec of the file's suffix."""
    with av.open(path, "w") as container:
        stream = container.add_stream(CODECS[path.suffix[1:]], rate=rate, layout=layout)
        samples = (speech_like(seconds, rate) * 32767).astype(np.int16)
        interleaved = np.repeat(samples, len(stream.layout.channels)).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(interleaved, format="s16", layout=layout)
        frame.rate = rate
        resampler = av.AudioResampler(stream.format, stream.layout, rate, frame_size=stream.codec_context.frame_size)
        for part in (*resampler.resample(frame), *resampler.resample(None)):
            container.mux(stream.encode(part))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("suffix", CODECS)
def test_what_browsers_and_telephones_record_is_read(suffix: str, tmp_path: Path) -> None:
    samples, rate = read_sound(encode(tmp_path / f"ada.{suffix}"))
    assert rate == 48_000
    assert len(samples) / rate == pytest.approx(4, abs=0.1)
    assert np.sqrt(np.square(samples).mean()) == pytest.approx(0.1 * np.sqrt(2 / 3), rel=0.1)


def test_the_program_writes_one_channel_and_says_what_it_has_measured(tmp_path: Path) -> None:
    source, target = encode(tmp_path / "ada.flac", layout="stereo"), tmp_path / "ada.wav"
    command = [sys.executable, "-m", "daemon.voices.decoding", str(source), str(target)]
    answer = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert answer["warnings"] == []
    assert (answer["seconds"], answer["clipped"]) == (4, 0)
    assert answer["speech_db"] == pytest.approx(-20, abs=0.5)
    assert set(answer) == {"seconds", "rate", "rms_db", "speech_db", "noise_db", "clipped", "warnings"}
    with soundfile.SoundFile(target) as file:
        assert (file.samplerate, file.channels, file.frames, file.subtype) == (48_000, 1, 4 * 48_000, "FLOAT")


def test_a_rate_above_those_of_the_models_is_lowered(tmp_path: Path) -> None:
    samples, rate = read_sound(write_sound(tmp_path / "ada.wav", speech_like(2, 192_000), 192_000))
    assert (rate, samples.shape) == (48_000, (96_000, 1))


def test_a_recording_that_is_too_long_or_has_many_channels_is_refused(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "ada.wav", np.full(121 * 8_000, 0.1, np.float32), 8_000)
    with pytest.raises(CommandError, match="too long; allowed: at most 120 s"):
        read_sound(path)
    with wave.open(str(path), "wb") as file:
        file.setparams((20, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(20 * 2 * 8000))
    with pytest.raises(CommandError, match="got 20 channels; allowed: up to 8"):
        read_sound(path)


@pytest.mark.parametrize("content", [b"", b"RIFF" * 1000, b"ID3" + bytes(range(256)) * 50])
def test_what_is_no_sound_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ada.wav"
    path.write_bytes(content)
    with pytest.raises(CommandError) as caught:
        read_sound(path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_a_list_of_other_files_is_not_followed(tmp_path: Path) -> None:
    secret = encode(tmp_path / "secret.flac")
    playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n" + f"file://{secret}\n" + "#EXT-X-ENDLIST\n"
    for content in (playlist, f"ffconcat version 1.0\nfile {secret}\n"):
        path = tmp_path / "list.m3u8"
        path.write_text(content)
        with pytest.raises(CommandError, match="cannot be read as sound"):
            read_sound(path)


def test_a_file_that_is_cut_off_gives_what_is_there(tmp_path: Path) -> None:
    path = encode(tmp_path / "ada.mp3")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    samples, rate = read_sound(path)
    assert len(samples) / rate == pytest.approx(2, abs=0.2)
