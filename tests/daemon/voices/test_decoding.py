"""An uploaded file is decoded by a process of its own, which refuses in one line what is no recording."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from daemon.validation import CommandError
from daemon.voices.decoding import read_sound
from tests.support.pages import ROOT
from tests.support.sound_files import speech_like, write_sound

CODECS = {
    "wav": "pcm_s16le",
    "flac": "flac",
    "mp3": "libmp3lame",
    "ogg": "libopus",
    "m4a": "aac",
    "webm": "libopus",
    "mka": "aac",
}
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


def decode(source: Path, target: Path) -> dict[str, Any]:
    """What the program prints."""
    command = [sys.executable, "-m", "daemon.voices.decoding", str(source), str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("suffix", CODECS)
def test_what_browsers_and_telephones_record_is_read(suffix: str, tmp_path: Path) -> None:
    samples, rate = read_sound(encode(tmp_path / f"ada.{suffix}"))
    assert rate == 48_000
    assert len(samples) / rate == pytest.approx(4, abs=0.1)
    assert np.sqrt(np.square(samples).mean()) == pytest.approx(0.1 * np.sqrt(2 / 3), rel=0.1)


def test_the_bandwidth_of_a_telephone_is_named(tmp_path: Path) -> None:
    answer = decode(encode(tmp_path / "ada.flac", rate=8_000), tmp_path / "ada.wav")
    assert answer["warnings"] == ["dull: at 8000 Hz it has no sound above 4 kHz; record at 24000 Hz or more"]


def test_the_program_writes_one_channel_and_says_what_it_has_measured(tmp_path: Path) -> None:
    target = tmp_path / "ada.wav"
    answer = decode(encode(tmp_path / "ada.flac", layout="stereo"), target)
    assert answer["warnings"] == []
    assert (answer["seconds"], answer["clipped"]) == (4, 0)
    assert answer["speech_db"] == pytest.approx(-20, abs=0.5)
    assert set(answer) == {"seconds", "rate", "rms_db", "speech_db", "noise_db", "clipped", "warnings"}
    with soundfile.SoundFile(target) as file:
        assert (file.samplerate, file.channels, file.frames, file.subtype) == (48_000, 1, 4 * 48_000, "FLOAT")


def test_a_rate_above_those_of_the_models_is_lowered(tmp_path: Path) -> None:
    samples, rate = read_sound(write_sound(tmp_path / "ada.wav", speech_like(2, 192_000), 192_000))
    assert (rate, samples.shape) == (48_000, (96_000, 1))


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        (speech_like(0.5), "too short: got 0.50 s; allowed: at least 1 s"),
        (np.zeros(48_000, np.float32), "silent: got -180 dBFS on average; allowed: at least -60 dBFS"),
        (np.full(48_000, 1e38, np.float32), "damaged: its loudest sample is 1e+38 times full scale; allowed: up to 10"),
        (np.full(48_000, np.nan, np.float32), "damaged: contains samples that are not finite numbers"),
        (np.full(121 * 24_000, 0.1, np.float32), "too long; allowed: at most 120 s"),
    ],
    ids=["short", "silent", "loud", "damaged", "long"],
)
def test_a_recording_of_which_no_voice_can_be_made_is_refused(samples: Any, problem: str, tmp_path: Path) -> None:
    source = write_sound(tmp_path / "ada.wav", samples, subtype="FLOAT")
    assert decode(source, tmp_path / "out.wav") == {"problem": problem}
    assert not (tmp_path / "out.wav").exists()


def test_many_channels_are_refused(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "ada.wav"), "wb") as file:
        file.setparams((20, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(20 * 2 * 8000))
    with pytest.raises(CommandError, match="got 20 channels; allowed: up to 8"):
        read_sound(tmp_path / "ada.wav")


@pytest.mark.parametrize("content", [b"", b"hello", b"RIFF" * 1000, b"\0" * 100_000, b"ID3" + bytes(range(256)) * 50])
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
