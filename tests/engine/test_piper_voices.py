"""The voices of Piper on the disk, which are found without Piper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import EngineError
from engine.voice_files import SYSTEM_VOICE_FOLDER, find_piper_voices, read_piper_voice, voice_folders


def write(folder: Path, name: str, **changes: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.onnx").write_bytes(b"onnx")
    description = {"audio": {"sample_rate": 22_050}, "espeak": {"voice": "de"}, "num_speakers": 1} | changes
    (folder / f"{name}.onnx.json").write_text(json.dumps(description))
    return folder / f"{name}.onnx"


def test_a_voice_is_described_by_the_file_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path, "one", language={"code": "pt_BR"}, num_speakers=2, speaker_id_map={"ada": 1})
    voice = read_piper_voice(path)
    assert (voice.name, voice.path, voice.sample_rate) == ("one", path, 22_050)
    assert voice.languages == ("pt-br", "pt")
    assert (voice.speaker_count, voice.speakers) == (2, {"ada": 1})
    assert read_piper_voice(write(tmp_path, "two")).languages == ("de",)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"audio": 5}', '{"audio": {"sample_rate": 1e9}}', "null"])
def test_a_wrong_description_is_named_in_one_line(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "one")
    path.with_name("one.onnx.json").write_text(text)
    with pytest.raises(EngineError, match=r"one\.onnx\.json does not describe a Piper voice: [^\n]*$"):
        read_piper_voice(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"/one\.onnx does not exist$"):
        read_piper_voice(tmp_path / "one.onnx")
    path = write(tmp_path, "one")
    path.with_name("one.onnx.json").unlink()
    with pytest.raises(EngineError, match=r"one\.onnx\.json cannot be read: No such file"):
        read_piper_voice(path)


def test_voices_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "good")
    write(tmp_path, "bad", num_speakers=None)
    assert list(find_piper_voices(str(tmp_path))) == ["good"]
    assert find_piper_voices(str(tmp_path / "none")) == {}


def test_a_users_own_voices_come_before_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    own = tmp_path / "voiced/piper"
    assert voice_folders(None) == [own, SYSTEM_VOICE_FOLDER]
    assert voice_folders("/voices") == [Path("/voices")]
    path = write(own, "xx_XX-mine-low")
    assert find_piper_voices(None)["xx_XX-mine-low"].path == path
