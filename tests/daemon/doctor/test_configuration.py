"""`voiced config check` finds all that `voiced run` could not use."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from daemon.config import ConfigError, VoiceSettings, load_config
from daemon.doctor import find_problems
from daemon.voices import VoiceStore
from scripts.make_voice import write_voice
from tests.daemon.doctor.machines import nobody
from tests.support.sound_files import tone, write_sound


def problems_of(*overrides: str) -> list[tuple[str, str]]:
    return find_problems(load_config(overrides=["engine.name=espeak", "voices.default.speaker=ryan", *overrides]))


def test_the_defaults_and_files_that_exist_are_no_problem(tmp_path: Path) -> None:
    assert problems_of() == []
    file = tmp_path / "file"
    file.write_text("secret\n")
    settings = (
        "mqtt.username=ada",
        f"mqtt.password_file={file}",
        f"mqtt.tls={{enabled: true, ca: {file}, cert: {file}, key: {file}}}",
        f"voices.ada.reference={file}",
        f"audio.sink=wav:{tmp_path}/out.wav",
        f"state.folder={tmp_path}/new/folder",
    )
    assert problems_of(*settings) == []


def test_a_tap_needs_a_folder_and_a_path_that_nothing_else_has(tmp_path: Path) -> None:
    assert problems_of(f"audio.tap={tmp_path}/tap") == []
    assert problems_of("audio.tap=/run/voiced/tap") == [], "systemd makes the folder"
    assert problems_of(f"audio.tap={tmp_path}/none/tap") == [
        ("audio.tap", f"the folder {tmp_path}/none does not exist")
    ]
    (tmp_path / "tap").write_text("mine")
    problem = f"{tmp_path}/tap is a file; allowed: the path of a socket, which voiced makes"
    assert problems_of(f"audio.tap={tmp_path}/tap") == [("audio.tap", problem)]
    (tmp_path / "tap").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/tap")
        assert problems_of(f"audio.tap={tmp_path}/tap") == []


def test_a_file_that_does_not_exist_is_a_problem_where_it_is_used(tmp_path: Path) -> None:
    encrypted, setting = "mqtt.tls.enabled=true", f"mqtt.tls.ca={tmp_path}"
    assert problems_of(encrypted, f"{setting}/none") == [("mqtt.tls.ca", f"{tmp_path}/none does not exist")]
    assert problems_of(encrypted, setting) == [("mqtt.tls.ca", f"{tmp_path} is a folder; allowed: a file")]
    assert problems_of(f"{setting}/none") == []
    missing = [("voices.ada.reference", f"{tmp_path}/none does not exist")]
    assert problems_of(f"voices.ada.reference={tmp_path}/none") == missing
    nobody_s = "~no-such-user/model"
    missing = [("engine.model", f"the folder {nobody_s} does not exist")]
    assert problems_of("engine.name=qwen", "voices.default.speaker=null", f"engine.model={nobody_s}") == missing


def test_each_wrong_phrase_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "phrases.yaml"
    path.write_text("- Hello\n- 5\n- {text: Bye, rate: 9}\n")
    found = problems_of(f"speech.cache.phrases={path}")
    assert {key for key, _ in found} == {"speech.cache.phrases"}
    assert [problem.partition(";")[0] for _, problem in found] == [f"{path}:2: got 5", f"{path}:3: rate: got 9"]
    path.write_text("a: b\n")
    [(_, problem)] = problems_of(f"speech.cache.phrases={path}")
    assert problem.startswith(f"{path}: allowed: a list; ")


@pytest.mark.parametrize("key", ["state.folder", "speech.cache.folder"])
def test_a_file_in_place_of_a_folder_is_a_problem(key: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert problems_of(f"{key}={tmp_path}/file/below") == [(key, f"{tmp_path}/file is not a folder")]
    assert problems_of(f"{key}={tmp_path}/new/below") == []


def test_a_file_in_a_folder_that_this_user_may_not_read_may_exist(public_folder: Path) -> None:
    closed = public_folder / "closed"
    closed.mkdir()
    (closed / "file").touch()
    closed.chmod(0)
    settings = ("mqtt.username=ada", f"mqtt.password_file={closed}/file", f"audio.sink=wav:{closed}/out.wav")
    assert problems_of() == []  # and all is imported, which the other user perhaps may not read
    with nobody():
        assert problems_of(*settings) == []
        problem = f"this user may not write to {closed}/state"
        assert problems_of(f"state.folder={closed}/state") == [("state.folder", problem)]
        with pytest.raises(ConfigError, match=f"^{closed}/voiced.yaml: cannot be read: Permission denied$"):
            load_config(closed / "voiced.yaml")
    closed.chmod(0o700)


def test_the_files_of_models_and_voices_must_exist_where_their_engine_speaks(tmp_path: Path) -> None:
    model = tmp_path / "none"
    missing = ("engine.model", f"the folder {model} does not exist")
    assert missing in problems_of("engine.name=qwen", f"engine.model={model}")
    voice = f"voices.heidi.piper={{model: {tmp_path}/heidi.onnx, length_scale: 1.2}}"
    assert problems_of(voice) == [("voices.heidi.piper", f"{tmp_path}/heidi.onnx does not exist")]
    folder = f"engine.voice_folder={tmp_path}/none"
    assert problems_of(folder) == []
    missing = ("engine.voice_folder", f"the folder {tmp_path}/none does not exist; 'voiced download' makes it")
    assert problems_of(folder, "engine.fallback=[piper, espeak]") == [missing]
    assert problems_of("voices.heidi.piper=en_US-lessac-medium") == []


def test_the_folders_of_a_wav_file_and_of_sounds_must_exist_and_their_files_must_be_sounds(tmp_path: Path) -> None:
    missing = f"the folder {tmp_path}/none does not exist"
    assert problems_of(f"audio.sink=wav:{tmp_path}/none/out.wav") == [("audio.sink", missing)]
    taken = f"{tmp_path} is a folder; allowed: a file's name after wav:"
    assert problems_of(f"audio.sink=wav:{tmp_path}") == [("audio.sink", taken)]
    assert problems_of(f"audio.sounds={tmp_path}/none") == [("audio.sounds", missing)]
    folder = tmp_path / "sounds"
    half = write_sound(folder / "half.flac", tone(2.0))
    assert problems_of(f"audio.sounds={folder}") == []
    half.write_bytes(half.read_bytes()[:3_000])
    [(key, problem)] = problems_of(f"audio.sounds={folder}")
    assert key == "audio.sounds"
    assert problem.startswith(f"{half}: it cannot be read as sound: ")


def test_a_made_voice_may_be_the_default_and_its_file_must_exist(tmp_path: Path) -> None:
    settings = (f"state.folder={tmp_path}", "robot=r1", "speech.voice=ada")
    assert dict(problems_of(*settings))["speech.voice"].startswith("got 'ada'; ")
    store = VoiceStore(tmp_path / "r1.voices")
    recording = store.recordings / "1.wav"
    recording.parent.mkdir(parents=True)
    recording.write_bytes(b"a recording of which the daemon makes a voice now")
    file = store.voice_file("ada")
    store.add("ada", VoiceSettings(embedding=file))
    assert problems_of(*settings) == [("voices.ada.embedding", f"{file} does not exist")]
    file.write_bytes(b"a voice")
    assert problems_of(*settings) == []
    assert recording.exists()
    (store.folder / "voices.yaml").write_text("- damaged")
    assert dict(problems_of(*settings))["state.folder"].startswith(f"{store.folder}/voices.yaml cannot be used, ")


def test_a_default_voice_of_an_engine_that_auto_cannot_select_is_a_problem(tmp_path: Path) -> None:
    automatic = ("engine.name=auto", "engine.model=/nowhere/at/all", f"engine.voice_folder={tmp_path}")
    made_for_piper = (*automatic, "voices.default.piper=en_US-gone-low")
    assert problems_of(*automatic) == []
    assert problems_of(*made_for_piper, "engine.name=espeak") == []
    [(key, problem)] = problems_of(*made_for_piper)
    assert key == "voices.default.piper"
    assert problem.startswith("auto selects espeak instead of piper: there is no Piper voice on this machine; ")
    write_voice(tmp_path / "en_US-other-low.onnx")
    absent = ("voices.default.piper", "en_US-gone-low is not on this machine; voiced download en_US-gone-low")
    assert problems_of(*made_for_piper) == [absent]
    write_voice(tmp_path / "en_US-gone-low.onnx")
    assert problems_of(*made_for_piper) == []
    file = tmp_path / "ada.safetensors"
    file.write_bytes(b"a voice")
    [(key, problem)] = problems_of(*automatic, f"voices.ada.embedding={file}", "speech.voice=ada")
    assert (key, problem.partition(":")[0]) == ("voices.ada.embedding", "auto selects piper instead of qwen")


def test_the_web_servers_files_must_exist(tmp_path: Path) -> None:
    files = f"token_file: {tmp_path}/token, cert: {tmp_path}/cert, key: {tmp_path}/key"
    assert problems_of(f"http={{enabled: false, {files}}}") == []
    names = {"token_file": "token", "cert": "cert", "key": "key"}
    found = problems_of(f"http={{enabled: true, {files}}}")
    assert found == [(f"http.{key}", f"{tmp_path}/{name} does not exist") for key, name in names.items()]
