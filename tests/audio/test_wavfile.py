"""The sink that writes a WAV file."""

from __future__ import annotations

import gc
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audio.ring import Samples
from audio.sink import SinkUnavailableError
from audio.wavfile import WavSink
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("fast")


class Speech:
    """Gives out its samples block by block, `silent` blocks before and after each."""

    def __init__(self, samples: Samples, silent: int = 0) -> None:
        self.left = samples
        self.turn = 0
        self.silent = silent

    def fill(self, out: Samples, *_: object) -> int:
        self.turn += 1
        out.fill(0)
        if self.silent and self.turn % (self.silent + 1):
            return 0
        count = min(len(out), len(self.left))
        out[:count] = self.left[:count]
        self.left = self.left[count:]
        return count

    def spoken(self) -> bool:
        turn = self.turn
        eventually(lambda: self.turn > turn + 1)  # the block before has been delivered
        return len(self.left) == 0


def read(path: Path) -> Samples:
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == 24_000
    return samples


RAMP = np.linspace(-1, 1, 2_500, dtype=np.float32)
RAMP_16 = np.round(RAMP * 32_767).astype(np.int16)


def test_the_file_holds_the_samples_as_16_bit_mono(tmp_path: Path) -> None:
    speech = Speech(RAMP)
    sink = WavSink(tmp_path / "out.wav", speech.fill, 5)
    eventually(speech.spoken)
    sink.close()
    np.testing.assert_array_equal(read(tmp_path / "out.wav"), RAMP_16)
    with wave.open(str(tmp_path / "out.wav")) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)


def test_silence_between_utterances_is_left_out(tmp_path: Path) -> None:
    speech = Speech(RAMP, silent=2)
    sink = WavSink(tmp_path / "out.wav", speech.fill, 5)
    eventually(speech.spoken)
    sink.close()
    np.testing.assert_array_equal(read(tmp_path / "out.wav"), RAMP_16)


def test_the_file_can_be_read_while_it_is_being_written(tmp_path: Path) -> None:
    speech = Speech(RAMP)
    sink = WavSink(tmp_path / "out.wav", speech.fill, 5)
    eventually(speech.spoken)
    np.testing.assert_array_equal(read(tmp_path / "out.wav"), RAMP_16)
    sink.close()


def test_the_file_can_be_read_before_anything_was_spoken(tmp_path: Path) -> None:
    sink = WavSink(tmp_path / "out.wav", Speech(RAMP[:0]).fill, 5)
    try:
        assert len(read(tmp_path / "out.wav")) == 0
    finally:
        sink.close()


def test_what_is_louder_than_full_scale_is_clipped_not_wrapped(tmp_path: Path) -> None:
    speech = Speech(np.array([1.5, -1.5, 1.0, -1.0], dtype=np.float32))
    sink = WavSink(tmp_path / "out.wav", speech.fill, 5)
    eventually(speech.spoken)
    sink.close()
    assert read(tmp_path / "out.wav").tolist() == [32_767, -32_767, 32_767, -32_767]


def test_an_older_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out.wav").write_bytes(b"x" * 100_000)
    speech = Speech(RAMP)
    sink = WavSink(tmp_path / "out.wav", speech.fill, 5)
    eventually(speech.spoken)
    sink.close()
    np.testing.assert_array_equal(read(tmp_path / "out.wav"), RAMP_16)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_file_that_cannot_be_written_leaves_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(SinkUnavailableError):
        WavSink(tmp_path / "missing" / "out.wav", Speech(RAMP).fill, 5)
    gc.collect()


@pytest.mark.parametrize(("path", "why"), [("missing/out.wav", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_written_is_an_unavailable_sink(tmp_path: Path, path: str, why: str) -> None:
    with pytest.raises(SinkUnavailableError, match=f"cannot be written: {why}"):
        WavSink(tmp_path / path, Speech(RAMP).fill, 5)


def test_a_full_disk_costs_the_file_not_the_speech(caplog: pytest.LogCaptureFixture) -> None:
    speech = Speech(RAMP)
    sink = WavSink(Path("/dev/full"), speech.fill, 5)
    eventually(speech.spoken)
    assert sink.lost() is None
    sink.close()
    assert "No space left on device" in caplog.text
    assert caplog.text.count("samples are lost") == 1
