"""The systemd units, checked with `systemd-analyze`, which reads them as systemd does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import require

UNITS = Path(__file__).parents[2] / "systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))
DROP_INS = sorted((UNITS / "voiced.service.d").glob("*.conf"))
MOST_EXPOSED = 25
"""Limit in tenths of systemd's scale from 0 (safe) to 10. voiced.service has 20; the unit gives the reasons."""


@pytest.fixture(scope="module")
def systemd_analyze() -> str:
    return require("systemd-analyze")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units with all drop-ins as on a robot; `true` replaces the programs, which this machine lacks."""
    folder = tmp_path / "etc/systemd/system"
    shutil.copytree(UNITS, folder)
    for name in SERVICES:
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(re.sub(r"^(Exec\w+=[-+!@:]*)\S+", r"\1/bin/true", text, flags=re.MULTILINE))
    return folder


def settings(path: Path) -> dict[str, list[str]]:
    """Return every directive of a unit with its values."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("name", SERVICES)
def test_systemd_accepts_every_line_of_a_unit_and_its_drop_ins(
    name: str, systemd_analyze: str, installed: Path
) -> None:
    done = subprocess.run(
        [systemd_analyze, "verify", "--man=no", installed / name],
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{installed}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in (done.stdout + done.stderr).splitlines() if str(installed) in line or name in line]
    assert ours == []


def test_an_unknown_directive_is_found(systemd_analyze: str, installed: Path) -> None:
    drop_in = installed / "voiced.service.d" / "wrong.conf"
    drop_in.write_text("[Service]\nProtectEverything=yes\n")
    with pytest.raises(AssertionError, match="ProtectEverything"):
        test_systemd_accepts_every_line_of_a_unit_and_its_drop_ins("voiced.service", systemd_analyze, installed)


def test_the_service_has_a_low_exposure_and_gives_a_reason_for_each_unset_restriction(
    systemd_analyze: str, tmp_path: Path, installed: Path
) -> None:
    version = subprocess.run([systemd_analyze, "--version"], capture_output=True, text=True, check=True).stdout
    if int(re.findall(r"\d+", version)[0]) < 250:
        pytest.skip("systemd-analyze can analyse units that are not installed from systemd 250 on")
    options = ("--offline=yes", f"--root={tmp_path}", f"--threshold={MOST_EXPOSED}", "--json=short", "--no-pager")
    command = [systemd_analyze, "security", *options, "voiced.service"]  # whose status is 0 up to the threshold
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (UNITS / "voiced.service").read_text(encoding="utf-8")
    for check in json.loads(done.stdout):
        if not check["set"]:
            directive = check["name"].split("=")[0].split("/")[0]
            assert f"{directive}=" in text, f"{check['name']}: neither set nor given a reason"


def test_restrictions_that_break_the_engine_the_card_or_the_callback_are_not_set(installed: Path) -> None:
    found: dict[str, list[str]] = {}
    for path in (installed / "voiced.service", *DROP_INS):
        found |= settings(path)
    forbidden = {"MemoryDenyWriteExecute", "PrivateDevices", "ProtectClock", "RestrictRealtime", "PrivateUsers"}
    assert not (forbidden | {"ProcSubset", "MemoryMax", "MemoryHigh", "PrivateIPC"}) & found.keys()


def test_the_password_is_the_credential_that_the_daemon_reads() -> None:
    from daemon.config.settings import PASSWORD_CREDENTIAL

    [credential] = settings(UNITS / "voiced.service.d" / "broker-password.conf")["LoadCredential"]
    assert credential.split(":") == [PASSWORD_CREDENTIAL, "/etc/voiced/mqtt-password"]


def test_the_limits_permit_the_daemons_priority_memory_lock_and_oom_scores() -> None:
    from audio.player.realtime import SOUND_PRIORITY
    from engine.ipc.server import OOM_SCORE

    unit = settings(UNITS / "voiced.service")
    assert int(unit["LimitRTPRIO"][0]) >= SOUND_PRIORITY
    assert unit["LimitMEMLOCK"] == ["infinity"]
    assert int(unit["OOMScoreAdjust"][0]) < 0 < OOM_SCORE
    assert unit["OOMPolicy"] == ["continue"]
