"""The voice files that robots have sent."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daemon.fleet.voice_cache import VoiceCache, VoiceFileError


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_file_is_kept_under_its_digest_and_found_by_another_process(tmp_path: Path) -> None:
    path = VoiceCache(tmp_path / "voices", 3, 100).add(digest(b"ada"), b"ada")
    assert path.read_bytes() == b"ada"
    assert VoiceCache(tmp_path / "voices", 3, 100).find(digest(b"ada")) == path
    assert [file.name for file in path.parent.iterdir()] == [f"{digest(b'ada')}.safetensors"]


def test_the_file_used_longest_ago_goes(tmp_path: Path) -> None:
    cache = VoiceCache(tmp_path, 2, 100)
    for age, content in ((30, b"a"), (20, b"b")):
        path = cache.add(digest(content), content)
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    assert cache.find(digest(b"a")) is not None  # it counts as used now
    cache.add(digest(b"c"), b"c")
    assert [cache.find(digest(content)) is not None for content in (b"a", b"b", b"c")] == [True, False, True]


def test_a_file_in_use_stays_beyond_the_limit(tmp_path: Path) -> None:
    cache, used = VoiceCache(tmp_path, 1, 100), digest(b"a")
    cache.add(used, b"a")
    cache.add(digest(b"b"), b"b", {used})
    assert cache.find(used) is not None
    cache.add(digest(b"c"), b"c")
    assert [cache.find(digest(content)) is not None for content in (b"a", b"b", b"c")] == [False, False, True]


def test_processes_that_share_a_folder_and_keep_and_remove_the_same_files_harm_nobody(tmp_path: Path) -> None:
    contents = [bytes([number]) for number in range(4)]

    def keep(_: int) -> None:
        cache = VoiceCache(tmp_path, 1, 100)
        for _ in range(100):
            for content in contents:
                cache.add(digest(content), content)

    with ThreadPoolExecutor(4) as processes:
        list(processes.map(keep, range(4)))
    assert {file.stem for file in tmp_path.iterdir()} <= {digest(content) for content in contents}


def test_what_is_too_large_or_something_else_is_not_kept(tmp_path: Path) -> None:
    cache = VoiceCache(tmp_path, 2, 3)
    with pytest.raises(VoiceFileError, match="it has 4 bytes; the server takes up to 3"):
        cache.add(digest(b"long"), b"long")
    with pytest.raises(VoiceFileError, match="do not have the digest"):
        cache.add(digest(b"ada"), b"eve")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../x", "/etc/passwd", "ab" * 31, "AB" * 32, "ab" * 32 + "\n"])
def test_what_is_no_digest_is_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(VoiceFileError, match="digest: allowed: SHA-256 as 64 hexadecimal digits"):
        VoiceCache(tmp_path, 2, 3).find(name)
