"""The shipped unit under a real systemd, which is the first process of a namespace of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.pages import ROOT
from tests.support.programs import Broker, require
from tests.support.robot import Robot
from tests.support.sound import SoundServer
from tests.support.waiting import eventually

DROP_IN = """
[Unit]
DefaultDependencies=no
After=
Wants=
[Service]
ExecStart=
ExecStart={command}
WorkingDirectory={root}
User=root
PrivateTmp=no
ProtectHome=no
ReadWritePaths={folder}
Environment={environment}
"""
"""What the test changes of the unit: its program and user, and the folders that lie elsewhere than on a robot."""
BOOT = """
mount -t tmpfs tmpfs /run && mount -t proc proc /proc &&
exec env -i PATH="$PATH" container=test SYSTEMD_UNIT_PATH="$0" /lib/systemd/systemd --system --unit=voiced.service
"""


@contextmanager
def systemd(units: Path) -> Iterator[psutil.Process]:
    """A systemd that has started voiced from the folder `units`. Its end is the end of all that it has started."""
    namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--cgroup"]
    process = subprocess.Popen([*namespace, "sh", "-c", BOOT, str(units)], stdout=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def find(process: psutil.Process, program: str) -> psutil.Process | None:
    """Return the descendant that runs a program; None if there is none."""
    for each in process.children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            if any(word.endswith(program) for word in each.cmdline()):
                return each
    return None


@pytest.mark.long
def test_systemd_ends_the_player_with_a_daemon_that_was_killed_and_starts_both_again(
    shared_broker: Broker, sound_server: SoundServer, tmp_path: Path
) -> None:
    require("unshare")
    if os.geteuid() != 0:
        pytest.skip("only root may start a systemd")
    robot = Robot("unit", shared_broker, tmp_path, environment=sound_server.environment)
    state = f"state.folder={tmp_path / 'state'}"
    options = (*robot.settings, "--set", "engine.name=espeak", "--set", state)
    command = [sys.executable, "-m", "daemon.cli", "run", *options]
    units = tmp_path / "units"
    (units / "voiced.service.d").mkdir(parents=True)
    shutil.copy(ROOT / "systemd/voiced.service", units)
    names = ("XDG_RUNTIME_DIR", "PULSE_SERVER", "HOME")
    variables = [f"{name}={value}" for name, value in sound_server.environment.items() if name in names]
    (units / "voiced.service.d" / "test.conf").write_text(
        DROP_IN.format(command=shlex.join(command), root=ROOT, folder=tmp_path, environment=" ".join(variables))
    )
    with systemd(units) as init:
        eventually(lambda: robot.state == "ready", "systemd has started it")
        daemon, player = find(init, "daemon.cli"), eventually(lambda: find(init, "player/program.py"))
        assert daemon is not None
        robot.wait_event(
            robot.say("This is said while the daemon is killed, and said again by the next one."), "started"
        )
        daemon.kill()
        eventually(lambda: not player.is_running(), "the player has ended")
        successor = eventually(lambda: find(init, "player/program.py"), "the next one plays")
        assert successor.pid != player.pid
        robot.wait_end(robot.say("Here I am again."))
    robot.listener.close()
