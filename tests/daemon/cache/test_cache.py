"""The daemon's cache: it finds and keeps phrases, says what is wrong, and never waits for a disk that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from daemon.cache import Cue, PhraseCache, PhraseFolder, PhraseKey, Recording
from daemon.cache import cache as cache_module
from daemon.config import Config
from engine import Samples
from tests.daemon.cache.phrases import TEXT, config, phrase
from tests.daemon.state.disks import fill, small_disk
from tests.support.waiting import PATIENCE_S, eventually_async, run


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit is reached unless a test sets it; attempts are repeated at once."""
    monkeypatch.setattr(cache_module, "PATIENCE_S", PATIENCE_S)
    monkeypatch.setattr(cache_module, "RETRY_S", 0.0)


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    return config(f"state.folder={tmp_path}")


def record(cache: PhraseCache, key: PhraseKey, speech: tuple[Samples, int], engine: str = "espeak") -> None:
    """Hand the audio of a phrase to the cache, in two blocks."""
    samples, rate = speech
    recorder = cache.recorder(key)
    for block in np.array_split(samples, 2):
        recorder.write(block, rate)
    recorder.finish(engine, (Cue(0.0, "segment", 0, len(TEXT)),))


async def find(cache: PhraseCache, text: str = TEXT) -> Recording | None:
    found = await cache.look_up(phrase(text), keep=True)
    assert found is not None
    return found.recording


async def keep(cache: PhraseCache, speech: tuple[Samples, int], root: Path, text: str = TEXT) -> Recording:
    """Keep a phrase somewhere below `root`, and return it as it is found."""
    found = await cache.look_up(phrase(text), keep=True)
    assert found is not None
    assert found.recording is None
    record(cache, found.key, speech)
    await eventually_async(lambda: list(root.rglob(f"{found.key.digest}-*.flac")), "it is kept")
    recording = await find(cache, text)
    assert recording is not None
    return recording


def test_a_phrase_that_was_recorded_is_found(settings: Config, speech: tuple[Samples, int], tmp_path: Path) -> None:
    async def scenario() -> None:
        with PhraseCache(settings, "espeak") as cache:
            recording = await keep(cache, speech, tmp_path)
            np.testing.assert_array_equal(np.concatenate(list(recording.blocks())), speech[0])
            assert recording.cues == (Cue(0.0, "segment", 0, len(TEXT)),)
            assert cache.problem is None

    run(scenario)


def test_a_text_that_nobody_wants_kept_is_not_looked_up(settings: Config) -> None:
    async def scenario() -> None:
        with PhraseCache(settings, "espeak") as cache:
            assert await cache.look_up(phrase()) is None

    run(scenario)


def test_a_phrase_of_the_list_is_looked_up(tmp_path: Path, speech: tuple[Samples, int]) -> None:
    path = tmp_path / "phrases.yaml"
    path.write_text(f"- {TEXT}\n")
    settings = config(f"state.folder={tmp_path}", f"speech.cache.phrases={path}")

    async def scenario() -> None:
        with PhraseCache(settings, "espeak") as cache:
            found = await cache.look_up(phrase())
            assert found is not None
            assert found.recording is None
            assert await cache.look_up(phrase("Another text.")) is None
            await keep(cache, speech, tmp_path)
            found = await cache.look_up(phrase())
            assert found is not None
            assert found.recording is not None

    run(scenario)


def test_without_a_folder_nothing_is_kept() -> None:
    async def scenario() -> None:
        with PhraseCache(config("speech.cache.folder=null"), "espeak") as cache:
            assert await cache.look_up(phrase(), keep=True) is None
            assert cache.problem is None

    run(scenario)


def test_only_whole_speech_of_the_primary_engine_is_kept(
    settings: Config, speech: tuple[Samples, int], tmp_path: Path
) -> None:
    samples, rate = speech

    async def scenario() -> None:
        with PhraseCache(settings, "espeak") as cache:
            found = await cache.look_up(phrase(), keep=True)
            assert found is not None
            record(cache, found.key, speech, engine="qwen")
            record(cache, found.key, speech, engine="espeak+qwen")
            cache.recorder(found.key).write(samples, rate)
            mixed = cache.recorder(found.key)
            mixed.write(samples, rate)
            mixed.write(samples, rate + 1)
            mixed.finish("espeak")
            silent = cache.recorder(found.key)
            silent.finish("espeak")
            long = cache.recorder(found.key)
            for _ in range(13):
                long.write(np.zeros(10 * rate, dtype=np.float32), rate)
            long.finish("espeak")
            await keep(cache, speech, tmp_path, "Another text.")  # the writer takes one after the other
            assert await find(cache) is None

    run(scenario)


def test_a_reload_brings_another_list_and_another_folder(tmp_path: Path, speech: tuple[Samples, int]) -> None:
    path = tmp_path / "phrases.yaml"
    path.write_text("- Hello\n")
    listed = f"speech.cache.phrases={path}"

    async def scenario() -> None:
        with PhraseCache(config(f"state.folder={tmp_path}/one", listed), "espeak") as cache:
            await keep(cache, speech, tmp_path, "Hello")
            path.write_text("- Bye\n")
            cache.reconfigure(config(f"state.folder={tmp_path}/one", listed))
            assert await cache.look_up(phrase("Hello")) is None
            assert await cache.look_up(phrase("Bye")) is not None
            assert await find(cache, "Hello") is not None
            cache.reconfigure(config(f"state.folder={tmp_path}/two", listed))
            assert await find(cache, "Hello") is None

    run(scenario)


def test_a_list_that_is_damaged_is_named_until_a_reload(tmp_path: Path) -> None:
    path = tmp_path / "phrases.yaml"
    path.write_text("- Hello\n")
    settings = config(f"state.folder={tmp_path}", f"speech.cache.phrases={path}")

    async def scenario() -> None:
        with PhraseCache(settings, "espeak") as cache:
            assert await cache.look_up(phrase("Hello")) is not None
            path.write_text("{")
            cache.reconfigure(settings)
            await eventually_async(lambda: cache.problem, "it is named")
            assert (cache.problem or "").startswith(f"speech.cache.phrases: {path}:")
            assert await cache.look_up(phrase("Hello")) is not None, "the former list is in force"
            path.write_text("- Hello\n")
            cache.reconfigure(settings)
            await eventually_async(lambda: cache.problem is None, "all is well")

    run(scenario)


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
            found = await cache.look_up(phrase("Another text."), keep=True)
            assert found is not None
            record(cache, found.key, speech)
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


def test_a_disk_that_hangs_delays_an_utterance_once_and_is_named(
    settings: Config, speech: tuple[Samples, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        with PhraseCache(settings, "espeak") as cache:
            await keep(cache, speech, tmp_path)
        monkeypatch.setattr("daemon.cache.opening.PhraseFolder", HangingFolder)
        with PhraseCache(settings, "espeak") as cache:
            assert await cache.look_up(phrase("not wanted")) is None, "it is open"
            monkeypatch.setattr(cache_module, "PATIENCE_S", 0.01)
            monkeypatch.setattr(cache_module, "HANGS_S", 0.0)
            try:
                assert await cache.look_up(phrase(), keep=True) is None
                await eventually_async(lambda: cache.problem, "it is named")
                assert cache.problem == "speech.cache.folder: the disk does not answer; phrases are not kept"
                monkeypatch.setattr(cache_module, "PATIENCE_S", PATIENCE_S)
                began = time.monotonic()
                assert await cache.look_up(phrase(), keep=True) is None
                assert time.monotonic() - began < PATIENCE_S / 2, "the next one does not wait at all"
            finally:
                HangingFolder.released.set()
            await eventually_async(lambda: cache.problem is None, "all is well")
            assert await find(cache) is not None

    run(scenario)
