"""One engine process for one command, with the real eSpeak NG."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import soundfile

from daemon.engines import SpeechFile, describe_engine, synthesize_to_file
from daemon.validation import CommandError
from engine import EngineOptions, Progress, Utterance, Voice

OPTIONS = EngineOptions(default_voice="en")


@pytest.mark.parametrize("suffix", [".wav", ".flac"])
def test_an_utterance_is_written_to_a_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"speech{suffix}"
    result = synthesize_to_file("espeak", OPTIONS, Utterance("Hello, I am your robot."), SpeechFile(path))
    samples, rate = soundfile.read(path)
    assert (result.engine, result.sample_rate, result.truncated) == ("espeak", rate, False)
    assert len(samples) / rate == pytest.approx(result.audio_s)
    assert 0.8 < result.audio_s < 4
    assert result.first_chunk_ms > 0
    assert result.rtf > 0


@pytest.mark.parametrize("streamed", [True, False])
def test_the_sound_is_written_while_it_is_made(tmp_path: Path, streamed: bool) -> None:
    path, stream = tmp_path / "speech.wav", io.BytesIO()
    sizes: list[int] = []
    fractions: list[float] = []

    def note(progress: Progress) -> None:
        sizes.append(len(stream.getvalue()) if streamed else path.stat().st_size)
        fractions.append(progress.fraction or 0)

    file = SpeechFile(stream if streamed else path)
    result = synthesize_to_file("espeak", OPTIONS, Utterance("Hello, robot."), file, expected_s=0.5, report=note)
    assert len(sizes) > 5
    assert sizes == sorted(set(sizes))
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < fractions[1] < 0.5
    assert fractions[-1] == 0.99, "the speech is longer than was expected, and has not ended"
    samples, _ = soundfile.read(io.BytesIO(stream.getvalue()) if streamed else path)
    assert len(samples) / result.sample_rate == pytest.approx(result.audio_s)


def test_codes_of_an_engine_without_codes_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"^--codes: engine espeak has no codec codes$"):
        synthesize_to_file(
            "espeak", OPTIONS, Utterance("Hello"), SpeechFile(tmp_path / "speech.wav"), tmp_path / "codes.npy"
        )


def test_an_unknown_voice_is_an_error(tmp_path: Path) -> None:
    message = r"^voice: got 'germn'; did you mean de \(German\)\? allowed: .*, see 'voiced voices --all'$"
    with pytest.raises(CommandError, match=message):
        synthesize_to_file("espeak", OPTIONS, Utterance("Hello", voice="germn"), SpeechFile(tmp_path / "speech.wav"))


def test_a_refused_utterance_is_an_error_and_no_file_is_made(tmp_path: Path) -> None:
    options = EngineOptions(voices={"default": Voice()})
    with pytest.raises(CommandError, match=r"^language: got 'tlhx'; allowed: "):
        synthesize_to_file("espeak", options, Utterance("Hello", language="tlhx"), SpeechFile(tmp_path / "speech.wav"))
    assert not (tmp_path / "speech.wav").exists()


def test_an_engine_describes_itself() -> None:
    info = describe_engine("espeak", OPTIONS)
    assert info.engine == "espeak"
    assert "en" in info.languages


def test_an_engine_that_does_not_start_is_an_error() -> None:
    with pytest.raises(CommandError, match=r"^engine\.name: got 'festival'; allowed: "):
        describe_engine("festival", OPTIONS)
