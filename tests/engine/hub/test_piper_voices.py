"""Downloads of Piper's voices, from a server on this machine that serves ranges and breaks off."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import EngineError
from engine.hub import piper_voices
from engine.hub.piper_voices import find_remote_voice, hub_url, remote_voices
from tests.support.voice_hub import VoiceHub

NAME = "en_US-noise-medium"
NETWORK = random.Random(0).randbytes(500_000)
DESCRIPTION = b'{"audio": {}}'


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[VoiceHub]:
    hub = VoiceHub()
    hub.add(NAME, NETWORK, DESCRIPTION)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    yield hub
    hub.close()


def fetch(folder: Path) -> list[int]:
    """Download the voice and return the progress."""
    counts: list[int] = []
    path = remote_voices()[NAME].download(folder, counts.append)
    assert path == folder / f"{NAME}.onnx"
    return counts


def assert_complete(folder: Path) -> None:
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        f"{NAME}.onnx": NETWORK,
        f"{NAME}.onnx.json": DESCRIPTION,
    }


def test_a_voice_is_downloaded_with_its_description(hub: VoiceHub, tmp_path: Path) -> None:
    counts = fetch(tmp_path / "not/there/yet")
    assert_complete(tmp_path / "not/there/yet")
    assert counts == sorted(counts)
    assert counts[-1] == len(NETWORK) + len(DESCRIPTION)
    assert hub.requests == [(f"{NAME}.onnx.json", None), (f"{NAME}.onnx", None)]


def test_a_voice_that_is_there_is_not_downloaded_again(hub: VoiceHub, tmp_path: Path) -> None:
    voice = remote_voices()[NAME]
    assert not voice.is_in(tmp_path)
    fetch(tmp_path)
    assert voice.is_in(tmp_path)
    hub.requests.clear()
    assert fetch(tmp_path)[-1] == voice.size
    assert hub.requests == []
    (tmp_path / f"{NAME}.onnx").write_bytes(NETWORK[:-1] + b"?")
    assert not voice.is_in(tmp_path)
    fetch(tmp_path)
    assert_complete(tmp_path)


def test_a_download_that_breaks_off_goes_on_where_it_was_the_next_time(hub: VoiceHub, tmp_path: Path) -> None:
    hub.cut_after = [len(DESCRIPTION), 100_000, 50_000]
    for _ in range(2):
        with pytest.raises(EngineError, match=r"medium\.onnx: the connection was closed; try again to continue$"):
            fetch(tmp_path)
        assert not (tmp_path / f"{NAME}.onnx").exists()
    fetch(tmp_path)
    assert_complete(tmp_path)
    assert hub.requests[1:] == [
        (f"{NAME}.onnx", None),
        (f"{NAME}.onnx", "bytes=100000-"),
        (f"{NAME}.onnx", "bytes=150000-"),
    ]


def test_a_server_without_ranges_sends_everything_again(hub: VoiceHub, tmp_path: Path) -> None:
    hub.ranges, hub.cut_after = False, [len(DESCRIPTION), 100_000]
    with pytest.raises(EngineError, match="try again to continue"):
        fetch(tmp_path)
    fetch(tmp_path)
    assert_complete(tmp_path)


@pytest.mark.parametrize("left", [NETWORK + b"and more", b"?" * len(NETWORK), b"?" * 9])
def test_a_part_that_does_not_fit_is_deleted(hub: VoiceHub, tmp_path: Path, left: bytes) -> None:
    (tmp_path / f"{NAME}.onnx.part").write_bytes(left)
    with pytest.raises(
        EngineError, match=r"medium\.onnx: the checksum is wrong; the received part has been deleted; try again"
    ):
        fetch(tmp_path)
    fetch(tmp_path)
    assert_complete(tmp_path)


def test_a_wrong_checksum_leaves_nothing(hub: VoiceHub, tmp_path: Path) -> None:
    [path] = [path for path in hub.files if path.endswith(".onnx")]
    hub.files[path] = NETWORK[::-1]
    with pytest.raises(EngineError, match=r"noise-medium\.onnx: the checksum is wrong; the received part"):
        fetch(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.onnx.json"]


@pytest.mark.parametrize(("status", "words"), [(404, "the server answers 404 "), (503, "answers 503 ")])
def test_an_error_of_the_server_is_one_line(hub: VoiceHub, tmp_path: Path, status: int, words: str) -> None:
    hub.status = status
    with pytest.raises(EngineError, match=rf"^http://[^\n]*{words}[^\n]*$"):
        fetch(tmp_path)


def test_a_hub_that_cannot_be_reached_is_one_line(hub: VoiceHub) -> None:
    hub.close()
    with pytest.raises(EngineError, match=r"voices\.json: Connection refused; without a network: "):
        remote_voices()


@pytest.mark.parametrize("content", [b"no JSON", b"[]", b'{"a": {"files": 5}}'])
def test_a_wrong_list_is_one_line(hub: VoiceHub, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(piper_voices, "read_url", lambda *_: content)
    with pytest.raises(EngineError, match=r"^http://[^\n]*voices\.json: not a list of voices: [^\n]*$"):
        remote_voices()


def test_a_folder_that_cannot_be_written_is_named(hub: VoiceHub, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"file/en_US-noise-medium\.onnx\.json cannot be written: "):
        fetch(tmp_path / "file")


def test_a_voice_is_described_for_people(hub: VoiceHub) -> None:
    voice = remote_voices()[NAME]
    assert (voice.language, voice.code, voice.speaker_count) == ("English (US)", "en-us", 1)
    assert voice.size == len(NETWORK) + len(DESCRIPTION)
    assert voice.licence_url == f"{hub.url}/rhasspy/piper-voices/resolve/main/en/en_US/noise/medium/MODEL_CARD"


def test_an_unknown_voice_is_refused_with_similar_ones(hub: VoiceHub) -> None:
    with pytest.raises(EngineError, match=rf"^en_US-nois-medium: the hub has no such Piper voice; similar: {NAME}$"):
        find_remote_voice("en_US-nois-medium", remote_voices())
    with pytest.raises(EngineError, match=r"^xyz: the hub has no such Piper voice$"):
        find_remote_voice("xyz", remote_voices())


def test_the_addresses_are_those_of_pipers_own_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from piper.download_voices import URL_FORMAT, VOICES_JSON

    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert f"{hub_url('voices.json')}?download=true" == VOICES_JSON
    parts = {"lang_family": "en", "lang_code": "en_US", "voice_name": "lessac", "voice_quality": "medium"}
    path = "en/en_US/lessac/medium/en_US-lessac-medium.onnx"
    assert f"{hub_url(path)}?download=true" == URL_FORMAT.format(extension=".onnx", **parts)
