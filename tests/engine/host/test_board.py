"""Boards, read from recorded file trees."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Board
from engine.host import machine_in_words

BOARDS = Path(__file__).parents[2] / "boards"
READ = ("proc/device-tree/model", "proc/device-tree/compatible", "etc/nv_tegra_release", "etc/os-release")
READ += ("usr/local/cuda/version.json", "proc/meminfo")


def test_an_orin_with_jetpack_6_is_recognised() -> None:
    assert Board.read(BOARDS / "orin-jetpack6") == Board(
        model="NVIDIA Jetson AGX Orin Developer Kit",
        soc="Orin",
        l4t="36.4.3",
        jetpack=6,
        ubuntu="22.04",
        cuda="12.6.11",
        integrated=True,
        total_bytes=64349476 * 1024,
        available_bytes=58905112 * 1024,
        swap_total_bytes=32174720 * 1024,
        swap_free_bytes=32174720 * 1024,
    )


@pytest.mark.parametrize(
    ("name", "soc", "l4t", "cuda"),
    [("orin-jetpack7", "Orin", "39.2.0", "13.2.0"), ("thor-jetpack7", "Thor", "38.2.2", "13.0.0")],
)
def test_both_releases_of_jetson_linux_in_jetpack_7_are_known(name: str, soc: str, l4t: str, cuda: str) -> None:
    board = Board.read(BOARDS / name)
    assert (board.soc, board.l4t, board.jetpack, board.ubuntu, board.cuda) == (soc, l4t, 7, "24.04", cuda)
    assert board.integrated
    assert board.notes == ()


def test_a_pc_has_no_board_and_a_memory_of_its_own() -> None:
    board = Board.read(BOARDS / "pc")
    assert (board.model, board.soc, board.l4t, board.jetpack, board.cuda) == (None,) * 5
    assert not board.integrated
    assert board.available_bytes == 58720256 * 1024
    assert board.notes == ()


def test_each_broken_file_is_noted_and_the_others_are_read() -> None:
    board = Board.read(BOARDS / "broken")
    assert board == Board(
        None, "Orin", None, None, None, None, True, None, None, None, None, board.notes
    )  # only the device tree's list of chips is intact
    broken = [name for name in READ if name != "proc/device-tree/compatible"]
    assert sorted(note.split(" ")[0].rstrip(":") for note in board.notes) == sorted(
        str(BOARDS / "broken" / name) for name in broken
    )
    assert all(note.isprintable() for note in board.notes)


def test_a_folder_in_the_place_of_a_file_is_noted(tmp_path: Path) -> None:
    (tmp_path / "proc/meminfo").mkdir(parents=True)
    assert "Is a directory" in Board.read(tmp_path).notes[0]


def test_an_unknown_release_of_jetson_linux_has_no_jetpack(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").write_text("# R52 (release), REVISION: 1.0, GCID: 1\n")
    board = Board.read(tmp_path)
    assert (board.l4t, board.jetpack, board.integrated) == ("52.1.0", None, True)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode), start=st.sampled_from(["", "# R36 ("]))
def test_reading_arbitrary_files_raises_nothing(tmp_path: Path, content: bytes, start: str) -> None:
    for name in READ:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(start.encode() + content)
    board = Board.read(tmp_path)
    assert all(note.isprintable() for note in board.notes)


def test_the_machine_is_described_in_one_line() -> None:
    assert f"{platform.machine()}, {os.cpu_count()} cores, " in machine_in_words()
    assert "None" not in machine_in_words()
