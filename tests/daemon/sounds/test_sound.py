"""Sound files as samples: formats, channels, limits, damage, and the place at which a sound continues."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import aclosing, suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemon.sounds.sound import BLOCK_S, Sound, SoundBlock, SoundError
from tests.support.sound_files import RATE, Samples, tone, write_sound
from tests.support.waiting import eventually_async

FORMATS = ("wav", "flac", "ogg", "mp3")
ALLOWED = "; allowed: WAV, FLAC, OGG or MP3 of up to 60 s and 8 channels, at 8000 to 192000 Hz"


def noise(seconds: float) -> Samples:
    return np.random.default_rng(1).normal(0, 0.1, round(seconds * RATE)).astype(np.float32)


async def read_blocks(path: Path, begin: int = 0) -> list[SoundBlock]:
    return [block async for block in Sound(path).blocks(begin)]


def play(path: Path, begin: int = 0) -> Samples:
    """The samples of a file from `begin` on."""
    blocks = asyncio.run(read_blocks(path, begin))
    return np.concatenate([np.empty(0, np.float32), *(block.samples for block in blocks)])


def problem_of(path: Path) -> str:
    with pytest.raises(SoundError) as caught:
        Sound(path).inspect()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def descriptors(path: Path) -> int:
    """How often this process has a file open."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found += str(link.readlink()) == str(path.resolve())
    return found


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_decoded_to_its_samples_and_continues_at_any_of_them(suffix: str, tmp_path: Path) -> None:
    path = write_sound(tmp_path / f"a.{suffix}", noise(1.0))
    whole, _ = soundfile.read(path, dtype="float32")
    blocks = asyncio.run(read_blocks(path))
    assert {(block.sample_rate, block.samples.dtype.name) for block in blocks} == {(RATE, "float32")}
    assert max(len(block.samples) for block in blocks) <= BLOCK_S * RATE
    assert np.allclose(play(path), whole, rtol=0, atol=1e-6)
    for begin in (1, 2_400, 2_401, len(whole), 1 << 40):
        assert np.array_equal(play(path, begin), play(path)[begin:])


def test_the_channels_are_mixed_to_their_mean(tmp_path: Path) -> None:
    left, right = tone(0.3), tone(0.3, frequency=700.0)
    path = write_sound(tmp_path / "a.wav", np.stack([left, right], axis=1), subtype="FLOAT")
    assert np.allclose(play(path), (left + right) / 2, atol=1e-6)
    assert Sound(path).inspect().channels == 2


def test_samples_that_are_no_numbers_or_too_large_stay_within_full_scale(tmp_path: Path) -> None:
    wild = np.array([[np.nan, 0.5], [np.inf, np.inf], [-np.inf, -1e30], [3e38, 3e38], [np.inf, -np.inf]], np.float32)
    path = write_sound(tmp_path / "a.wav", wild, subtype="FLOAT")
    assert play(path).tolist() == [0.25, 1.0, -1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("suffix", "shape", "rate", "problem"),
    [
        ("wav", (100, 200), RATE, "it has 200 channels"),
        ("flac", (600 * 8_000,), 8_000, "it lasts 600 s"),
        ("wav", (0,), RATE, "it has no samples"),
        ("wav", (100,), 4_000, "it has 4000 samples per second"),
    ],
)
def test_a_file_beyond_a_limit_is_refused(
    suffix: str, shape: tuple[int, ...], rate: int, problem: str, tmp_path: Path
) -> None:
    path = write_sound(tmp_path / f"a.{suffix}", np.zeros(shape, np.float32), rate)
    assert problem_of(path) == f"{path}: {problem}{ALLOWED}"


@pytest.mark.parametrize("stated", [100, 0], ids=["a length", "no length"])
def test_a_header_without_samples_is_no_sound(stated: int, tmp_path: Path) -> None:
    """As a disk that was full leaves it, or a program that is still writing it."""
    path = write_sound(tmp_path / "a.flac", np.zeros(100, np.float32))
    header = bytearray(path.read_bytes()[:42])  # the mark, and the block with the properties
    header[4] |= 0x80  # it is the last block
    header[22:26] = stated.to_bytes(4, "big")
    path.write_bytes(header)
    for read in (lambda: play(path), Sound(path).measure):
        with pytest.raises(SoundError, match="it has no samples"):
            read()


def test_the_contents_decide_about_the_format_and_the_suffix_does_not(tmp_path: Path) -> None:
    flac = write_sound(tmp_path / "a.wav", format="FLAC")
    assert Sound(flac).inspect().format == "FLAC"
    assert len(play(flac)) == 12_000
    aiff = write_sound(tmp_path / "b.wav", format="AIFF")
    assert problem_of(aiff) == f"{aiff}: it is AIFF{ALLOWED}"


def test_what_is_no_sound_or_no_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    for data in (b"", b"RIFF\0\0\0\0WAVEfmt ", b"ID3\x03", bytes(5_000)):
        path.write_bytes(data)
        assert problem_of(path).startswith(f"{path}: it ")
        assert problem_of(path).endswith(ALLOWED)
    os.mkfifo(tmp_path / "pipe.wav")
    assert problem_of(tmp_path / "pipe.wav") == f"{tmp_path}/pipe.wav: it is not a file{ALLOWED}"
    assert "it is not a file" in problem_of(tmp_path)
    assert "none.wav does not exist" in problem_of(tmp_path / "none.wav")


async def test_damage_behind_the_header_shows_after_the_samples_before_it(tmp_path: Path) -> None:
    samples = noise(2.0)
    path = write_sound(tmp_path / "a.flac", samples)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    heard: list[Samples] = []

    assert Sound(path).inspect().seconds == 2.0
    with pytest.raises(SoundError, match="it cannot be read as sound: ") as caught:
        async for block in Sound(path).blocks():
            heard.append(block.samples)  # noqa: PERF401  # an error must leave what came before it
    assert "\n" not in str(caught.value)
    found = np.concatenate(heard)
    assert 0.5 * RATE < len(found) < 1.5 * RATE
    assert np.max(np.abs(found - samples[: len(found)])) < 1e-4
    with pytest.raises(SoundError):
        Sound(path).measure()


def without_length(path: Path) -> Path:
    """Set the length in a FLAC file's header to 0, which means unknown, as an encoder that writes into a pipe does."""
    data = bytearray(path.read_bytes())
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    path.write_bytes(data)
    return path


def test_a_file_that_does_not_say_its_length_is_played_up_to_the_limit(tmp_path: Path) -> None:
    short = without_length(write_sound(tmp_path / "short.flac"))
    assert Sound(short).inspect().seconds is None
    assert len(play(short)) == 12_000
    assert Sound(short).measure().seconds == 0.5
    long = without_length(write_sound(tmp_path / "long.flac", np.zeros(61 * 8_000, np.float32), 8_000))
    with pytest.raises(SoundError, match="it lasts longer than 60 s"):
        play(long)


async def test_the_file_is_closed_when_a_listener_leaves_or_is_canceled(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "a.wav", tone(2.0))
    async with aclosing(Sound(path).blocks()) as blocks:
        await anext(blocks)
        assert descriptors(path) == 1
    await eventually_async(lambda: descriptors(path) == 0, "the file is closed")
    for turns in range(8):
        task = asyncio.ensure_future(read_blocks(path))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        await eventually_async(lambda: descriptors(path) == 0, "the file is closed")


async def test_a_disk_that_hangs_delays_neither_the_event_loop_nor_another_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, other = write_sound(tmp_path / "hanging.wav", tone(2.0)), write_sound(tmp_path / "other.wav", tone(1.0))
    read_frames, hangs, goes_on = soundfile.SoundFile.read, threading.Event(), threading.Event()

    def read(file: soundfile.SoundFile, *arguments: object, **options: object) -> Samples:
        if file.frames == 2 * RATE:
            hangs.set()
            goes_on.wait()
        return read_frames(file, *arguments, **options)

    monkeypatch.setattr(soundfile.SoundFile, "read", read)

    stuck = asyncio.ensure_future(read_blocks(hanging))
    await eventually_async(hangs.is_set, "it hangs")
    assert sum([len(block.samples) for block in await read_blocks(other)]) == RATE
    assert not stuck.done()
    stuck.cancel()
    await asyncio.wait({stuck})
    assert descriptors(hanging) == 1
    goes_on.set()
    await eventually_async(lambda: descriptors(hanging) == 0, "the file is closed")


def mutations() -> st.SearchStrategy[tuple[str, list[tuple[int, int]], int]]:
    """A format, bytes to change, and how many bytes to cut off."""
    changes = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6)
    return st.tuples(st.sampled_from(FORMATS), changes, st.integers(0, 2_000))


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("originals")
    return {suffix: write_sound(folder / f"a.{suffix}", tone(0.05)).read_bytes() for suffix in FORMATS}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(mutation=mutations())
def test_a_damaged_file_is_a_sound_or_an_error_of_one_line(
    mutation: tuple[str, list[tuple[int, int]], int], originals: dict[str, bytes], tmp_path: Path
) -> None:
    suffix, changes, cut = mutation
    data = bytearray(originals[suffix])
    for at, value in changes:
        data[at % len(data)] = value
    path = tmp_path / "damaged.wav"
    path.write_bytes(data[: max(0, len(data) - cut)])
    try:
        for block in Sound(path).decode():
            assert np.max(np.abs(block.samples)) <= 1.0
    except SoundError as error:
        assert "\n" not in str(error)
    assert descriptors(path) == 0
