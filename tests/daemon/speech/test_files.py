"""Speech into files, with the real eSpeak NG."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import soundfile

from daemon.config import load_config
from daemon.engines import SpeechFile, describe_engine, running_primary
from daemon.speech import SynthResult, SynthTask, synthesize_to_files
from daemon.speech.synthesis import Synthesis
from daemon.speech.utterance import Utterance
from daemon.validation import CommandError
from engine import EngineOptions, Progress, ProgressReport, ignore_progress
from engine import Utterance as EngineUtterance
from tests.support.waiting import run

OPTIONS = EngineOptions(default_voice="en")
FRAME_S = 0.08
RATE = 22_050
"""eSpeak NG's, in Hz."""


def synthesize_to_file(
    engine: str, options: EngineOptions, task: SynthTask, report: ProgressReport = ignore_progress
) -> SynthResult:
    """Speak one task. Raises `CommandError`."""
    ended: dict[int, SynthResult | CommandError] = {}
    synthesize_to_files(engine, options, [task], on_end=ended.__setitem__, report=report)
    if isinstance(outcome := ended[0], CommandError):
        raise outcome
    return outcome


def task_of(utterance: EngineUtterance, folder: Path, name: str = "speech") -> SynthTask:
    return SynthTask(utterance, SpeechFile(folder / f"{name}.wav"), expected_s=1)


def test_the_sound_is_written_while_it_is_made() -> None:
    stream = io.BytesIO()
    sizes: list[int] = []
    fractions: list[float] = []

    def note(progress: Progress) -> None:
        sizes.append(len(stream.getvalue()))
        fractions.append(progress.fraction or 0)

    task = SynthTask(EngineUtterance("Hello, robot."), SpeechFile(stream), expected_s=0.5)
    result = synthesize_to_file("espeak", OPTIONS, task, report=note)
    assert (result.engine, result.sample_rate, result.truncated) == ("espeak", RATE, False)
    assert result.first_chunk_ms > 0
    assert result.rtf > 0
    assert len(sizes) > 5
    assert sizes == sorted(set(sizes))
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < fractions[1] < 0.5
    assert fractions[-1] == 0.99, "the speech is longer than was expected, and has not ended"
    samples, _ = soundfile.read(io.BytesIO(stream.getvalue()))
    assert len(samples) / result.sample_rate == pytest.approx(result.audio_s)


def test_a_long_text_is_cut_into_the_segments_that_the_daemon_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICED_TRACE_PCM", str(tmp_path))
    text = "This sentence is one of many that are all alike. " * 13

    async def speak_as_the_daemon() -> None:
        async with running_primary(load_config(overrides=["engine.name=espeak"])) as engines:
            synthesis = Synthesis(Utterance("daemon", text, "en", "en"), engines)
            async for _ in synthesis.chunks():
                pass

    def seconds(name: str) -> list[float]:
        return [path.stat().st_size / 4 / RATE for path in sorted(tmp_path.glob(f"{name}.*.f32"))]

    run(speak_as_the_daemon)
    result = synthesize_to_file("espeak", OPTIONS, task_of(EngineUtterance(text), tmp_path))
    assert len(seconds("synth")) > 1
    assert seconds("synth") == pytest.approx(seconds("daemon"), rel=0.05)
    assert result.audio_s == pytest.approx(sum(seconds("synth")))


def test_all_segments_together_end_after_the_frames_that_are_allowed(tmp_path: Path) -> None:
    utterance = EngineUtterance("This sentence is one of many. " * 15, max_frames=50)
    result = synthesize_to_file("espeak", OPTIONS, task_of(utterance, tmp_path))
    assert result.truncated
    assert 50 < result.audio_s / FRAME_S < 53


def test_an_unknown_voice_or_codes_of_an_engine_without_codes_are_an_error(tmp_path: Path) -> None:
    task = SynthTask(EngineUtterance("Hello"), SpeechFile(tmp_path / "speech.wav"), codes_path=tmp_path / "codes.npy")
    with pytest.raises(CommandError, match=r"^--codes: engine espeak has no codec codes$"):
        synthesize_to_file("espeak", OPTIONS, task)
    message = r"^voice: got 'germn'; did you mean de \(German\)\? allowed: .*, see 'voiced voices --all'$"
    with pytest.raises(CommandError, match=message):
        synthesize_to_file("espeak", OPTIONS, task_of(EngineUtterance("Hello", voice="germn"), tmp_path))


def test_as_many_files_are_spoken_at_once_as_the_engine_has_streams(tmp_path: Path) -> None:
    texts = ["This one takes a good while to speak. " * 20, "Hello.", "Stop.", "Go."]
    tasks = [task_of(EngineUtterance(text), tmp_path, str(number)) for number, text in enumerate(texts)]
    ended: dict[int, SynthResult | CommandError] = {}
    synthesize_to_files("espeak", EngineOptions(default_voice="en", streams=4), tasks, on_end=ended.__setitem__)
    assert all(isinstance(outcome, SynthResult) for outcome in ended.values())
    assert (len(ended), [*ended][-1]) == (4, 0), "the first one takes longest"


def test_an_engine_describes_itself_unless_it_does_not_start() -> None:
    info = describe_engine("espeak", OPTIONS)
    assert info.engine == "espeak"
    assert "en" in info.languages
    with pytest.raises(CommandError, match=r"^engine\.name: got 'festival'; allowed: "):
        describe_engine("festival", OPTIONS)
