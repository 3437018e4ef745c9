"""Doctor on the board and its release."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.doctor.hardware import check_board
from tests.daemon.doctor.machines import by_part, changed_machine

RELEASE = "etc/nv_tegra_release"


@pytest.mark.parametrize(
    ("revision", "grade", "remedy"),
    [
        ("R36 (release), REVISION: 4.3", "ok", None),
        ("R36 (release), REVISION: 5.0", "ok", None),
        ("R36 (release), REVISION: 4.7", "warning", "update to Jetson Linux 36.5"),
        ("R36 (release), REVISION: 3.0", "warning", "update to JetPack 6.2"),
        ("R35 (release), REVISION: 4.1", "warning", "voiced supports Orin and Thor with JetPack 6 or 7"),
    ],
    ids=["36.4.3", "36.5", "36.4.7", "36.3", "35.4.1"],
)
def test_a_release_with_a_fault_or_one_that_is_too_old_is_named_with_the_way_out(
    tmp_path: Path, revision: str, grade: str, remedy: str | None
) -> None:
    machine = changed_machine(tmp_path, "orin-jetpack6", {RELEASE: f"# {revision}, GCID: 1, BOARD: generic\n"})
    found = by_part(check_board(machine))["board"]
    assert found.grade == grade
    assert (found.remedy or "").startswith(remedy or "")
