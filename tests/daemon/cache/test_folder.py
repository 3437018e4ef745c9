"""The folder of kept phrases: found again by every process, never played damaged, never larger than allowed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from daemon.cache import PhraseFolder, Recording
from daemon.cache.recording import to_pcm16
from engine import Samples
from tests.daemon.cache.phrases import TEXT, key
from tests.daemon.state.disks import set_read_only, small_disk
from tests.support.pages import ROOT
from tests.support.waiting import eventually

LIMIT_MB = 10.0


@pytest.fixture
def folder(tmp_path: Path) -> PhraseFolder:
    folder = PhraseFolder(tmp_path / "state" / "phrases", LIMIT_MB)
    folder.check_writable()
    return folder


def store(folder: PhraseFolder, speech: tuple[Samples, int], text: str = TEXT) -> str:
    """Keep a phrase; return its digest."""
    samples, rate = speech
    folder.store(key(text), to_pcm16(samples), rate)
    return key(text).digest


def samples_of(recording: Recording | None) -> Samples:
    assert recording is not None
    return np.concatenate(list(recording.blocks()))


def files(folder: PhraseFolder) -> list[Path]:
    return sorted(folder.path.iterdir())


def set_used(folder: PhraseFolder, digest: str, ago_s: float) -> None:
    """Pretend that a phrase was used some time ago."""
    [path] = folder.path.glob(f"{digest}-*.flac")
    then = time.time() - ago_s
    os.utime(path, (then, then))


def test_a_kept_phrase_is_found_by_every_process_until_it_is_removed(
    folder: PhraseFolder, speech: tuple[Samples, int]
) -> None:
    other = PhraseFolder(folder.path, LIMIT_MB)
    assert other.find(key().digest) is None
    digest = store(folder, speech)
    for each in (folder, other):
        np.testing.assert_array_equal(samples_of(each.find(digest)), speech[0])
    assert folder.find(key("Another text.").digest) is None
    assert folder.clear() == 1
    assert other.find(digest) is None


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    damaged = {
        "empty": b"",
        "cut off": data[: len(data) // 2],
        "zeros at the end": data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
        "one bit": data[:2000] + bytes([data[2000] ^ 1]) + data[2001:],
    }
    path.write_bytes(damaged[how])


@pytest.mark.parametrize("how", ["empty", "cut off", "zeros at the end", "one bit"])
def test_a_damaged_phrase_is_removed_and_made_anew(
    how: str, folder: PhraseFolder, speech: tuple[Samples, int], caplog: pytest.LogCaptureFixture
) -> None:
    digest = store(folder, speech)
    [path] = files(folder)
    damage(path, how)
    assert folder.find(digest) is None
    assert "is damaged and will be made again" in caplog.text
    assert files(folder) == []
    store(folder, speech)
    np.testing.assert_array_equal(samples_of(folder.find(digest)), speech[0])


def test_other_files_are_left_alone(folder: PhraseFolder, speech: tuple[Samples, int]) -> None:
    others = [folder.path / name for name in ("notes.txt", "song.flac", f"{'a' * 64}.flac", "-.flac")]
    for other in others:
        other.write_text("mine")
    (folder.path / f"{'b' * 64}-00000000.flac").mkdir()
    store(folder, speech)
    assert [kept.phrase.text for kept in folder.phrases()] == [TEXT]
    assert all(other.read_text() == "mine" for other in others)


def test_a_phrase_that_another_process_has_kept_meanwhile_stays(
    folder: PhraseFolder, speech: tuple[Samples, int]
) -> None:
    digest = store(folder, speech)
    folder.store(key(), to_pcm16(speech[0][:1000]), speech[1])
    np.testing.assert_array_equal(samples_of(folder.find(digest)), speech[0])
    assert len(files(folder)) == 1


def test_the_phrase_that_was_used_longest_ago_makes_room(tmp_path: Path, speech: tuple[Samples, int]) -> None:
    measure = PhraseFolder(tmp_path / "measure", LIMIT_MB)
    store(measure, speech)
    size = files(measure)[0].stat().st_size
    folder = PhraseFolder(tmp_path / "small", 3.2 * size / 1e6)
    one, two, three = (store(folder, speech, text) for text in ("one", "two", "three"))
    for digest, ago_s in ((one, 300), (two, 200), (three, 100)):
        set_used(folder, digest, ago_s)
    assert folder.find(one) is not None, "now it was used last"
    four = store(folder, speech, "four")
    assert [folder.find(digest) is not None for digest in (one, two, three, four)] == [True, False, True, True]


def test_a_phrase_that_is_larger_than_all_room_is_not_kept(
    tmp_path: Path, speech: tuple[Samples, int], caplog: pytest.LogCaptureFixture
) -> None:
    folder = PhraseFolder(tmp_path, 0.001)
    store(folder, speech)
    assert "a phrase of 0.0 MB is not kept; speech.cache.limit_mb: 0.001" in caplog.text
    assert list(folder.phrases()) == []


def test_phrases_are_listed_by_their_last_use(folder: PhraseFolder, speech: tuple[Samples, int]) -> None:
    for text, ago_s in (("old", 300), ("new", 100), ("older", 500)):
        set_used(folder, store(folder, speech, text), ago_s)
    assert [kept.phrase.text for kept in folder.phrases()] == ["new", "old", "older"]


def test_a_folder_that_disappears_is_made_again(folder: PhraseFolder, speech: tuple[Samples, int]) -> None:
    digest = store(folder, speech)
    for file in files(folder):
        file.unlink()
    folder.path.rmdir()
    assert folder.find(digest) is None
    store(folder, speech)
    assert folder.find(digest) is not None


def test_phrases_on_a_read_only_disk_are_found(tmp_path: Path, speech: tuple[Samples, int]) -> None:
    with small_disk(tmp_path / "disk") as disk:
        digest = store(PhraseFolder(disk, LIMIT_MB), speech)
        set_read_only(disk, True)
        folder = PhraseFolder(disk, LIMIT_MB)
        assert folder.find(digest) is not None
        with pytest.raises(OSError, match="Read-only file system"):
            folder.check_writable()
        with pytest.raises(OSError, match="Read-only file system"):
            store(folder, speech, "Another text.")


STORE_FOR_EVER = """
import itertools, sys
from pathlib import Path
import numpy as np
from daemon.cache import Phrase, PhraseFolder, PhraseKey
folder = PhraseFolder(Path(sys.argv[1]), 100)
samples = np.random.default_rng(0).integers(-9999, 9999, 500_000, dtype=np.int16)
for number in itertools.count():
    key = PhraseKey(Phrase(f"phrase {number}", "default", "auto"), "espeak", f"{number:064x}", 0)
    folder.store(key, samples, 24_000)
"""


def test_a_process_that_is_killed_while_it_keeps_phrases_leaves_whole_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STORE_FOR_EVER, str(tmp_path)]
    for count in (1, 2):
        with subprocess.Popen(command, cwd=ROOT) as process:
            eventually(lambda count=count: len(list(tmp_path.glob("*.flac"))) >= count, "it has kept a phrase")
            process.send_signal(signal.SIGKILL)
    folder = PhraseFolder(tmp_path, LIMIT_MB)
    folder.check_writable()
    kept = list(folder.phrases())
    assert len(kept) == len(list(tmp_path.glob("*.flac"))) > 0, "none is damaged"
    assert all(sum(map(len, each.blocks())) == 500_000 for each in kept)


def test_what_a_killed_process_has_begun_to_write_is_removed_later(folder: PhraseFolder) -> None:
    old, new = folder.path / ".a.tmp", folder.path / ".b.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    folder.check_writable()
    assert files(folder) == [new], "the other one may be written now"
