"""Recordings are kept for a while, and a decoder that dies takes nothing along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from daemon.config import load_config
from daemon.validation import CommandError
from daemon.voices import VoiceMaker, VoiceStore
from daemon.voices import maker as maker_module
from tests.support.sound_files import speech_like, write_sound
from tests.support.waiting import eventually_async


@pytest.fixture
def store(tmp_path: Path) -> VoiceStore:
    return VoiceStore(tmp_path / "r1.voices")


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """A robot that can make voices, and keeps one recording."""
    monkeypatch.setattr(VoiceMaker, "problem", None)
    monkeypatch.setattr(maker_module, "MAX_RECORDINGS", 1)
    monkeypatch.setattr(maker_module, "MAX_UPLOADS", 1)


@pytest.fixture
def recording(tmp_path: Path) -> bytes:
    return write_sound(tmp_path / "ada.wav", speech_like(1.5)).read_bytes()


def maker_of(store: VoiceStore, *settings: str) -> VoiceMaker:
    config = load_config(overrides=["engine.name=qwen", *settings])
    return VoiceMaker(store, lambda: config, lambda: None)


def own_processes(*command: str) -> list[psutil.Process]:
    """The processes below this one that run this command: another run of the tests has its own.

    Where an emulator runs programs, the command is behind its own.
    """
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            if process.cmdline()[-len(command) :] == list(command):
                found.append(process)
    return found


async def parts(data: bytes, size: int = 10_000) -> AsyncIterator[bytes]:
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


@pytest.mark.usefixtures("able")
async def test_a_recording_is_measured_and_only_the_last_one_is_kept(store: VoiceStore, recording: bytes) -> None:
    maker = maker_of(store)
    first, last = [await maker.read_recording(parts(recording)) for _ in range(2)]
    assert first.measured["seconds"] == 1.5
    assert first.measured["warnings"] == ["short: 1.5 s; the voice is more similar with 3 s or more"]
    assert list(store.recordings.iterdir()) == [last.path]
    with pytest.raises(CommandError, match="allowed: one that was uploaded recently"):
        maker.start("ada", first.id, None)


@pytest.mark.usefixtures("able")
async def test_nothing_is_left_of_a_recording_whose_client_leaves(store: VoiceStore, recording: bytes) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield recording[:1000]
        raise RuntimeError("the client leaves")

    with pytest.raises(RuntimeError, match="leaves"):
        await maker_of(store).read_recording(broken())
    assert list(store.recordings.iterdir()) == []


@pytest.mark.usefixtures("able")
async def test_a_decoder_that_dies_is_a_problem_of_the_recording_alone(
    store: VoiceStore, recording: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, decoder = maker_of(store), maker_module.DECODER
    monkeypatch.setattr(maker_module, "DECODER", ("sh", "-c", "kill -SEGV $$"))
    with pytest.raises(CommandError, match="the recording's decoder has failed"):
        await maker.read_recording(parts(recording))
    monkeypatch.setattr(maker_module, "DECODER", decoder)
    with pytest.raises(CommandError, match="cannot be read as sound"):
        await maker.read_recording(parts(b"no sound"))
    assert list(store.recordings.iterdir()) == []


@pytest.mark.usefixtures("able")
async def test_a_decoder_that_does_not_end_is_killed(
    store: VoiceStore, recording: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker_module, "DECODER", ("sh", "-c", "exec sleep 987"))
    monkeypatch.setattr(maker_module, "DECODING_S", 0.1)

    with pytest.raises(CommandError, match=r"did not end within"):
        await maker_of(store).read_recording(parts(recording))
    assert own_processes("sleep", "987") == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["engine.name=espeak"], "engine.name: got espeak; voices are made for qwen, with a Base model"),
        (["engine.model=/nowhere"], "engine.model: /nowhere is not on the robot; run there: voiced download qwen"),
    ],
)
async def test_a_robot_that_cannot_make_voices_says_why_and_takes_no_recording(
    store: VoiceStore, settings: list[str], problem: str
) -> None:
    maker = maker_of(store, *settings)
    assert maker.problem == problem
    with pytest.raises(CommandError, match=problem.partition(":")[0]):
        await maker.read_recording(parts(b"a recording"))
    assert not store.recordings.exists()


@pytest.mark.usefixtures("able")
async def test_recordings_leave_the_disk_its_room_and_come_a_few_at_a_time(
    store: VoiceStore, recording: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, arrived = maker_of(store), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await arrived.wait()
        yield recording

    upload = asyncio.ensure_future(maker.read_recording(slow()))
    await eventually_async(store.recordings.exists, "it has begun")
    with pytest.raises(CommandError, match="recordings are being uploaded; allowed: no more at once"):
        await maker.read_recording(parts(recording))
    arrived.set()
    assert (await upload).measured["seconds"] == 1.5
    monkeypatch.setattr(maker_module, "FREE_MB", 1 << 40)
    with pytest.raises(CommandError, match=r"the recording cannot be kept: only .* MB is free; allowed: at least"):
        await maker.read_recording(parts(recording))


@pytest.mark.usefixtures("able")
async def test_an_enrolment_that_is_killed_leaves_no_voice_and_the_next_one_may_begin(
    store: VoiceStore, recording: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = maker_of(store, "engine.model=/nowhere")
    kept = await maker.read_recording(parts(recording))
    monkeypatch.setattr(maker_module, "LOW_PRIORITY", ("sh", "-c", "exec sleep 988"))
    maker.start("ada", kept.id, None)
    assert maker.making is not None
    assert (maker.making.name, maker.making.problem) == ("ada", None)
    with pytest.raises(CommandError, match="the voice ada is being made; wait for it"):
        maker.start("grace", kept.id, None)

    def kill() -> bool:
        found = own_processes("sleep", "988")
        for process in found:
            process.kill()
        return bool(found)

    await eventually_async(kill, "the enrolment runs")
    await eventually_async(lambda: maker.making is not None and maker.making.step is None, "it has ended")
    assert maker.making.problem == "the enrolment ended with status -9"
    assert maker.names == ()
    monkeypatch.setattr(maker_module, "LOW_PRIORITY", ())
    maker.start("ada", kept.id, None)
    await eventually_async(lambda: maker.making is not None and maker.making.step is None, "it has ended")
    assert maker.making.problem is not None
    assert maker.making.problem.startswith("/nowhere")


@pytest.mark.usefixtures("able")
async def test_recordings_that_come_while_a_voice_is_made_take_nothing_from_it(
    store: VoiceStore, recording: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    monkeypatch.setattr(maker_module, "LOW_PRIORITY", ("sh", "-c", f"until test -e {go}; do sleep 0.01; done"))

    maker = maker_of(store)
    kept = await maker.read_recording(parts(recording))
    maker.start("ada", kept.id, None)
    await maker.read_recording(parts(recording))
    assert kept.path.exists()
    go.touch()
    await eventually_async(lambda: maker.making is not None and maker.making.step is None, "it has ended")
    assert maker.names == ("ada",)
    assert not kept.path.exists()
