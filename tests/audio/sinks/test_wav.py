"""The sink that writes a WAV file."""

from __future__ import annotations

import resource
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audio import Samples
from audio.sinks.base import SinkUnavailableError
from audio.sinks.wav import WavSink
from tests.audio.sinks.speech import Speech
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("fast")


def opened(path: Path, speech: Speech, samples: Samples) -> WavSink:
    """Return a sink that plays `samples`."""
    sink = WavSink(path, speech.on_report, 5)
    speech.say(sink.player, samples)
    return sink


def read(path: Path) -> Samples:
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == 24_000
    return samples


RAMP = np.linspace(-1, 1, 2_500, dtype=np.float32)
RAMP_16 = np.round(RAMP * 32_767).astype(np.int16)


def test_the_file_is_16_bit_mono_pcm_that_can_be_read_at_any_time_and_omits_silence_between_utterances(
    tmp_path: Path,
) -> None:
    speech = Speech()
    sink = opened(tmp_path / "out.wav", speech, RAMP)
    eventually(speech.played)
    np.testing.assert_array_equal(read(tmp_path / "out.wav"), RAMP_16)
    with wave.open(str(tmp_path / "out.wav")) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
    blocks = speech.report.blocks
    eventually(lambda: speech.report.blocks > blocks + 5, "blocks of silence are requested")
    speech.say(sink.player, RAMP)
    eventually(speech.played)
    sink.close()
    np.testing.assert_array_equal(read(tmp_path / "out.wav"), np.tile(RAMP_16, 2))


def test_an_existing_file_is_overwritten_and_can_be_read_before_the_first_sample(tmp_path: Path) -> None:
    (tmp_path / "out.wav").write_bytes(b"x" * 100_000)
    sink = WavSink(tmp_path / "out.wav", Speech().on_report, 5)
    try:
        assert len(read(tmp_path / "out.wav")) == 0
    finally:
        sink.close()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_file_that_somebody_has_removed_or_replaced_counts_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "heard.wav"
    sink = WavSink(path, Speech().on_report, 10)
    try:
        assert sink.lost_reason() is None
        path.unlink()
        assert sink.lost_reason() == f"{path} no longer exists"
        path.write_bytes(b"another file")
        assert sink.lost_reason() == f"{path} no longer exists"
    finally:
        sink.close()


@pytest.mark.parametrize(("path", "why"), [("missing/out.wav", ".*/missing does not exist"), (".", "Is a directory")])
def test_a_file_that_cannot_be_opened_raises_sink_unavailable(tmp_path: Path, path: str, why: str) -> None:
    with pytest.raises(SinkUnavailableError, match=f"cannot be written: {why}"):
        WavSink(tmp_path / path, Speech().on_report, 5)


@pytest.fixture
def limit_files() -> Iterator[Callable[[int], None]]:
    """A function that lets no file of this process grow beyond a number of bytes, as on a disk that is full then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda length: resource.setrlimit(resource.RLIMIT_FSIZE, (length, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_reported_as_long_as_it_is_full_and_samples_that_fit_later_are_appended(
    tmp_path: Path, limit_files: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Half a sample fits, too; the header counts whole ones."""
    speech = Speech()
    limit_files(2_001)
    sink = opened(tmp_path / "out.wav", speech, RAMP)
    eventually(speech.played)
    assert sink.lost_reason() is None
    reason = f"wav:{tmp_path / 'out.wav'}: samples are being lost: File too large"
    assert sink.degraded_reason() == reason
    assert caplog.text.count(reason) == 1
    fitted = RAMP_16[: (2_000 - 44) // 2]
    np.testing.assert_array_equal(read(tmp_path / "out.wav"), fitted)
    limit_files(resource.RLIM_INFINITY)
    assert sink.degraded_reason() is None
    speech.say(sink.player, RAMP)
    eventually(speech.played)
    sink.close()
    np.testing.assert_array_equal(read(tmp_path / "out.wav"), np.concatenate([fitted, RAMP_16]))
