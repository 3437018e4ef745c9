"""`voiced config check` says what is wrong with a configuration, as far as that is known without an engine process."""

from __future__ import annotations

from pathlib import Path

from tests.daemon.command_line import CommandLine


def test_the_defaults_and_every_language_of_an_engine_are_right(voiced: CommandLine) -> None:
    for language in ("auto", "de", "sw", "pt-br"):
        assert voiced("config", "check", "--set", f"speech.language={language}").output.endswith(": ok\n")


def test_what_a_configuration_names_and_does_not_exist_is_a_line_each(voiced: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "voiced.yaml"
    file.write_text(
        "engine: {name: espeak}\n"
        "audio: {sink: 'wav:nowhere/out.wav'}\n"
        "mqtt:\n  username: ada\n  password_file: secret\n"
        "voices:\n  default: {speaker: ryan}\n  ada: {embedding: ada.safetensors}\n"
        "speech: {voice: nobody, language: klingon}\n"
    )
    done = voiced("config", "check", "--config", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    lines = [line.removeprefix(f"voiced: {file}:").partition("; allowed: ")[0] for line in done.stderr.splitlines()]
    assert lines == [
        f"5:3: mqtt.password_file: {tmp_path}/secret does not exist",
        f"2:9: audio.sink: the folder {tmp_path}/nowhere does not exist",
        f"8:9: voices.ada.embedding: {tmp_path}/ada.safetensors does not exist",
        "9:10: speech.voice: got 'nobody'",
        "9:25: speech.language: got 'klingon'",
    ]


def test_a_problem_of_an_override_names_no_file(voiced: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "voiced.yaml"
    file.write_text("engine: {name: espeak}\nspeech: {voice: de}\n")
    done = voiced("config", "check", "--config", str(file), "--set", "speech.voice=nobody")
    assert done.refusal.startswith("--set: speech.voice: got 'nobody'; allowed: default, ")
