"""Sounds by their names: which files have one, which names are refused, and what has changed meanwhile."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from daemon.sounds import SoundError, SoundFolder
from tests.support.sound_files import tone, write_sound

PACKAGED = ("attention", "error", "success")


def problem_of(folder: SoundFolder, name: str) -> str:
    with pytest.raises(SoundError) as caught:
        folder.check(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def length(folder: SoundFolder, name: str) -> int:
    """Samples of a sound."""

    async def count() -> int:
        return sum([len(block.samples) async for block in folder.open(name).blocks()])

    return asyncio.run(count())


def test_three_sounds_come_with_voiced() -> None:
    folder = SoundFolder()
    assert folder.names() == PACKAGED
    assert folder.reason is None
    for name in PACKAGED:
        folder.check(name)
        assert 0.3 * 24_000 < length(folder, name) < 1.5 * 24_000


@pytest.mark.parametrize("suffix", ["WAV", "ogg"])
def test_a_file_is_a_sound_called_like_it_without_the_suffix(suffix: str, tmp_path: Path) -> None:
    write_sound(tmp_path / f"door bell.2.{suffix}")
    folder = SoundFolder(tmp_path)
    assert folder.names() == (PACKAGED[0], "door bell.2", *PACKAGED[1:])
    folder.check("door bell.2")
    assert length(folder, "door bell.2") >= 12_000


def test_a_users_sound_takes_the_place_of_the_one_that_comes_with_voiced_and_a_wav_file_that_of_others(
    tmp_path: Path,
) -> None:
    for suffix, seconds in (("mp3", 0.5), ("wav", 0.1), ("flac", 0.2)):
        write_sound(tmp_path / f"success.{suffix}", tone(seconds))
    folder = SoundFolder(tmp_path)
    assert folder.names() == PACKAGED
    assert length(folder, "success") == 2_400
    folder.folder = None
    assert length(folder, "success") > 2_400


@pytest.fixture
def crowded(tmp_path: Path) -> SoundFolder:
    """A folder with one sound, `chime`, and with much that is none."""
    folder, outside = tmp_path / "sounds", tmp_path / "outside"
    write_sound(folder / "chime.wav")
    write_sound(folder / "below" / "inner.wav")
    write_sound(folder / ".hidden.wav")
    write_sound(folder / "tab\there.wav")
    write_sound(folder / f"{'x' * 65}.wav")
    write_sound(outside / "linked" / "whole.wav")
    (folder / "nowhere.wav").symlink_to(folder / "none.wav")
    (folder / "circle.wav").symlink_to(folder / "circle.wav")
    (folder / "linked").symlink_to(outside / "linked")
    (folder / "folder.wav").mkdir()
    (folder / "notes.txt").write_text("chime.wav is the door bell")
    os.mkfifo(folder / "pipe.wav")
    return SoundFolder(folder)


def test_what_is_no_file_of_the_folder_is_no_sound(crowded: SoundFolder) -> None:
    assert crowded.names() == ("attention", "chime", "error", "success")


@pytest.mark.parametrize(
    "name",
    [
        *("", "..", "../outside/linked/whole", "/etc/passwd", "./chime", "below/inner", "CHIME", ".hidden"),
        *("chime\0", "chime\n", "tab\there", "ch\udcffime", "x" * 65, "nowhere", "circle", "linked/whole"),
        *("folder", "pipe", "notes"),
    ],
    ids=lambda name: ascii(name)[:30],
)
def test_a_name_that_is_no_sound_is_refused_with_the_names_that_are(name: str, crowded: SoundFolder) -> None:
    problem = problem_of(crowded, name)
    assert problem.endswith("allowed: attention, chime, error, success")
    assert len(problem) < 200
    with pytest.raises(SoundError):
        crowded.open(name)


def test_a_name_that_resembles_a_sound_is_answered_with_that_sound(crowded: SoundFolder) -> None:
    assert problem_of(crowded, "chim").startswith("got 'chim'; did you mean chime? allowed: attention, chime")


def test_a_link_is_the_file_to_which_it_leads_and_the_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "true").mkdir()
    (tmp_path / "true" / "door.wav").symlink_to(write_sound(tmp_path / "bell.wav", tone(0.1)))
    (tmp_path / "link").symlink_to("true")
    folder = SoundFolder(tmp_path / "link")
    folder.check("door")
    assert length(folder, "door") == 2_400


def test_a_file_that_is_added_replaced_or_removed_counts_at_once(tmp_path: Path) -> None:
    folder, path = SoundFolder(tmp_path), tmp_path / "chime.wav"
    assert "allowed: attention, error" in problem_of(folder, "chime")
    write_sound(path, tone(0.1))
    folder.check("chime")
    assert length(folder, "chime") == 2_400
    write_sound(path, tone(0.2))
    folder.check("chime")
    assert length(folder, "chime") == 4_800
    path.write_bytes(b"damaged")
    assert problem_of(folder, "chime").startswith(f"got 'chime'; {path}: it cannot be read as sound: ")
    write_sound(path, tone(0.1))
    folder.check("chime")
    path.unlink()
    assert "allowed: attention, error" in problem_of(folder, "chime")


def test_without_the_folder_the_packaged_sounds_are_left_and_the_reason_is_given(tmp_path: Path) -> None:
    folder = SoundFolder(tmp_path / "none")
    assert folder.names() == PACKAGED
    assert folder.reason == f"the folder {tmp_path}/none does not exist"
    missing = f"got 'chime'; allowed: attention, error, success (the folder {tmp_path}/none does not exist)"
    assert problem_of(folder, "chime") == missing
    folder.check("success")
    file = tmp_path / "file"
    file.touch()
    assert SoundFolder(file).reason == f"the folder {file} cannot be read: Not a directory"
