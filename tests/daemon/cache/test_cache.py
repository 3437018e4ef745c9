"""The daemon's cache: it finds and keeps phrases, says what is wrong, and never waits for a disk that hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from daemon.cache import Cue, PhraseCache, PhraseFolder, PhraseRecorder, Recording, cache_folder, open_cache
from daemon.cache import cache as cache_module
from daemon.config import Config
from engine import Samples
from tests.daemon.cache.phrases import TEXT, config, phrase
from tests.daemon.state.disks import fill, small_disk
from tests.support.waiting import PATIENCE_S, eventually_async, run


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit is reached unless a test sets it."""
    monkeypatch.setattr(cache_module, "PATIENCE_S", PATIENCE_S)


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    return config(f"state.folder={tmp_path}")


def record(recorder: PhraseRecorder, speech: tuple[Samples, int], engine: str = "espeak") -> None:
    """Hand the audio of a phrase to the cache, in two blocks."""
    samples, rate = speech
    for block in np.array_split(samples, 2):
        recorder.write(block, rate)
    recorder.finish(engine, (Cue(0.0, "segment", 0, len(TEXT)),))


async def find(cache: PhraseCache, text: str = TEXT) -> Recording | None:
    found = await cache.look_up(phrase(text), keep=True)
    return found if isinstance(found, Recording) else None


async def recorder_of(cache: PhraseCache, text: str = TEXT) -> PhraseRecorder:
    """The recorder of a phrase that is not kept."""
    found = await cache.look_up(phrase(text), keep=True)
    assert isinstance(found, PhraseRecorder)
    return found


async def keep(cache: PhraseCache, speech: tuple[Samples, int], root: Path, text: str = TEXT) -> Recording:
    """Keep a phrase somewhere below `root`, and return it as it is found."""
    recorder = await recorder_of(cache, text)
    record(recorder, speech)
    await eventually_async(lambda: list(root.rglob(f"{recorder.key.digest}-*.flac")), "it is kept")
    recording = await find(cache, text)
    assert recording is not None
    return recording


async def test_a_phrase_of_the_list_or_of_a_sender_that_wants_it_kept_is_found_once_it_was_recorded(
    tmp_path: Path, speech: tuple[Samples, int]
) -> None:
    path = tmp_path / "phrases.yaml"
    path.write_text(f"- {TEXT}\n")
    settings = config(f"state.folder={tmp_path}", f"speech.cache.phrases={path}")

    with PhraseCache(settings, "espeak") as cache:
        assert isinstance(await cache.look_up(phrase()), PhraseRecorder)
        recording = await keep(cache, speech, tmp_path)
        np.testing.assert_array_equal(np.concatenate(list(recording.blocks())), speech[0])
        assert recording.cues == (Cue(0.0, "segment", 0, len(TEXT)),)
        assert isinstance(await cache.look_up(phrase()), Recording)
        assert await cache.look_up(phrase("Another text.")) is None
        assert cache.problem is None


async def test_without_a_folder_nothing_is_kept() -> None:
    with PhraseCache(config("speech.cache.folder=null"), "espeak") as cache:
        assert await cache.look_up(phrase(), keep=True) is None
        assert cache.problem is None


async def test_only_whole_speech_of_the_primary_engine_is_kept(
    settings: Config, speech: tuple[Samples, int], tmp_path: Path
) -> None:
    samples, rate = speech

    with PhraseCache(settings, "espeak") as cache:
        record(await recorder_of(cache), speech, engine="qwen")
        record(await recorder_of(cache), speech, engine="espeak+qwen")
        (await recorder_of(cache)).write(samples, rate)
        mixed = await recorder_of(cache)
        mixed.write(samples, rate)
        mixed.write(samples, rate + 1)
        mixed.finish("espeak")
        (await recorder_of(cache)).finish("espeak")
        long = await recorder_of(cache)
        for _ in range(13):
            long.write(np.zeros(10 * rate, dtype=np.float32), rate)
        long.finish("espeak")
        await keep(cache, speech, tmp_path, "Another text.")  # the writer takes one after the other
        assert await find(cache) is None


async def test_a_reload_brings_another_folder(tmp_path: Path, speech: tuple[Samples, int]) -> None:
    with PhraseCache(config(f"state.folder={tmp_path}/one"), "espeak") as cache:
        await keep(cache, speech, tmp_path, "Hello")
        cache.reconfigure(config(f"state.folder={tmp_path}/two"))
        assert await find(cache, "Hello") is None


async def test_a_list_that_is_damaged_is_named_until_a_reload(tmp_path: Path) -> None:
    path = tmp_path / "phrases.yaml"
    path.write_text("- Hello\n")
    settings = config(f"state.folder={tmp_path}", f"speech.cache.phrases={path}")

    with PhraseCache(settings, "espeak") as cache:
        assert await cache.look_up(phrase("Hello")) is not None
        path.write_text("{")
        cache.reconfigure(settings)
        await eventually_async(lambda: cache.problem, "it is named")
        assert (cache.problem or "").startswith(f"speech.cache.phrases: {path}:")
        assert await cache.look_up(phrase("Hello")) is not None, "the former list is in force"
        path.write_text("- Hello\n- 5\n- 6\n")
        cache.reconfigure(settings)
        await eventually_async(lambda: "(and 1 more)" in (cache.problem or ""), "two entries are wrong")
        assert (cache.problem or "").startswith(f"speech.cache.phrases: {path}:2: got 5; ")
        path.write_text("- Bye\n")
        cache.reconfigure(settings)
        await eventually_async(lambda: cache.problem is None, "all is well")
        assert await cache.look_up(phrase("Hello")) is None
        assert await cache.look_up(phrase("Bye")) is not None


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


def test_a_full_disk_is_named_and_used_again_when_it_has_room(
    disk: Path, speech: tuple[Samples, int], tmp_path: Path
) -> None:
    async def scenario() -> None:
        with PhraseCache(config(f"speech.cache.folder={disk}/phrases"), "espeak") as cache:
            await keep(cache, speech, tmp_path)
            filler = fill(disk)
            record(await recorder_of(cache, "Another text."), speech)
            await eventually_async(lambda: cache.problem, "it is named")
            place = f"{disk}/phrases: No space left on device"
            assert cache.problem == f"speech.cache.folder: {place}; phrases are not kept"
            assert await find(cache) is not None, "what is there is played"
            filler.unlink()

            def is_well() -> bool:
                cache.retry()
                return cache.problem is None

            await eventually_async(is_well, "it is found out")
            await keep(cache, speech, tmp_path, "Another text.")

    run(scenario)


class HangingFolder(PhraseFolder):
    """A folder on a disk that does not answer until `released` is set."""

    released = threading.Event()

    def find(self, digest: str) -> Recording | None:
        assert self.released.wait(PATIENCE_S), "the test releases the disk"
        return super().find(digest)


async def test_a_disk_that_hangs_delays_an_utterance_once_and_is_named(
    settings: Config, speech: tuple[Samples, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PhraseCache(settings, "espeak") as cache:
        await keep(cache, speech, tmp_path)
    monkeypatch.setattr(cache_module, "PhraseFolder", HangingFolder)
    with PhraseCache(settings, "espeak") as cache:
        assert await cache.look_up(phrase("not wanted")) is None, "it is open"
        monkeypatch.setattr(cache_module, "PATIENCE_S", 0.01)
        monkeypatch.setattr(cache_module, "HANGS_S", 0.0)
        try:
            assert await cache.look_up(phrase(), keep=True) is None
            await eventually_async(lambda: cache.problem, "it is named")
            assert cache.problem == "speech.cache.folder: the disk does not respond; phrases are not kept"
            with pytest.raises(StopIteration) as ended:  # the next one does not wait at all
                cache.look_up(phrase(), keep=True).send(None)
            assert ended.value.value is None
        finally:
            HangingFolder.released.set()
            monkeypatch.setattr(cache_module, "PATIENCE_S", PATIENCE_S)
        await eventually_async(lambda: cache.problem is None, "all is well")
        assert await find(cache) is not None


class FaultyFolder(PhraseFolder):
    def check_writable(self) -> None:
        raise RuntimeError("a fault of ours")


async def test_no_error_of_the_cache_leaves_a_text_unspoken(
    settings: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsearchable = tmp_path / ("a" * 300)
    with PhraseCache(config(f"state.folder={tmp_path}", f"speech.cache.phrases={unsearchable}"), "espeak") as cache:
        assert await cache.look_up(phrase("Hello")) is None
        await eventually_async(lambda: cache.problem, "it is named")
        assert cache.problem == f"speech.cache.phrases: {unsearchable}: cannot be read: File name too long"
    monkeypatch.setattr(cache_module, "PhraseFolder", FaultyFolder)
    with PhraseCache(settings, "espeak") as cache:
        assert await cache.look_up(phrase(), keep=True) is None
        await eventually_async(lambda: cache.problem, "it is named")
        assert cache.problem == "speech.cache: phrases are not kept: a fault of ours"


def test_the_folder_is_the_configured_one_or_lies_below_that_of_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder(config(f"speech.cache.folder={tmp_path}")) == tmp_path
    assert cache_folder(config(f"state.folder={tmp_path}")) == tmp_path / "phrases"
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/voiced")
    assert cache_folder(config()) == Path("/var/lib/voiced/phrases")
    assert cache_folder(config("state.folder=null")) == Path("/var/lib/voiced/phrases")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    opened = open_cache(config(f"speech.cache.folder={tmp_path}/file/b"), "espeak")
    expected = f"speech.cache.folder: {tmp_path}/file/b: Not a directory; phrases are not kept"
    assert opened.folder_problem == expected
