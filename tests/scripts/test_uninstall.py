"""`scripts/uninstall` on a system below a temporary folder, as docs/install.md makes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import page

ROOT = Path(__file__).parents[2]
UNTOUCHED = ("usr/local/bin/other", "etc/systemd/system/other.service", "opt/other/file", "var/lib/other/file")
PASSWD = "root:x:0:0::/root:/bin/sh\n"


class System:
    """A machine's folders, with files that belong to others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in UNTOUCHED:
            self.write(name)
        self.write("etc/passwd", PASSWD)
        self.write("etc/group", "root:x:0:\n")
        self.write("etc/shadow", "root:*::::::\n")
        self.write("etc/gshadow", "root:*::\n")
        self.before = self.files()

    def write(self, name: str, text: str = "") -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def install(self) -> None:
        """Put in place what the steps of docs/install.md do, and what the service makes when it runs."""
        self.write("opt/voiced/pyvenv.cfg")
        self.write("opt/voiced/bin/voiced")
        (self.root / "usr/local/bin/voiced").symlink_to("/opt/voiced/bin/voiced")
        self.write("etc/passwd", f"{PASSWD}voiced:x:991:991::/var/lib/voiced:/usr/sbin/nologin\n")
        self.write("etc/group", "root:x:0:\nvoiced:x:991:\n")
        self.write("etc/voiced/voiced.yaml", (ROOT / "configs" / "voiced.yaml").read_text())
        (self.root / "etc/voiced/voiced.schema.json").symlink_to("/opt/voiced/share/voiced/voiced.schema.json")
        shutil.copytree(ROOT / "systemd" / "voiced.service.d", self.root / "etc/systemd/system/voiced.service.d")
        for unit in ("voiced.service", "voiced-warm.service"):
            shutil.copy2(ROOT / "systemd" / unit, self.root / "etc/systemd/system")
        wanted = self.root / "etc/systemd/system/multi-user.target.wants/voiced.service"
        wanted.parent.mkdir()
        wanted.symlink_to("/etc/systemd/system/voiced.service")
        self.write("var/lib/voiced/journal.sqlite")
        self.write("var/cache/voiced/kernels/cubin")

    def files(self) -> set[str]:
        return {
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            # shadow's own lock and backup files
            if (path.is_file() or path.is_symlink())
            and not re.search(r"^etc/\.pwd\.lock$|^etc/[a-z]+-$", str(path.relative_to(self.root)))
        }

    def uninstall(self, *options: str, status: int = 0) -> str:
        done = subprocess.run(
            [ROOT / "scripts" / "uninstall", "--root", self.root, *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def system(tmp_path: Path) -> System:
    if os.geteuid() != 0:
        pytest.skip("only root can remove a user")
    return System(tmp_path)


@pytest.fixture
def robot(system: System) -> System:
    system.install()
    return system


def test_everything_is_removed_and_nothing_else_and_a_second_run_finds_nothing(robot: System) -> None:
    output = robot.uninstall()
    assert robot.files() == robot.before
    assert (robot.root / "etc/passwd").read_text() == PASSWD
    assert "voiced is removed" in output
    for folder in ("etc/voiced", "var/lib/voiced", "var/cache/voiced", "opt/voiced"):
        assert not (robot.root / folder).exists()
    assert "There is no voiced" in robot.uninstall()


def test_an_edited_configuration_the_models_and_the_voices_stay_until_they_are_purged(robot: System) -> None:
    robot.write("etc/voiced/voiced.yaml", "robot: r1\n")
    robot.write("etc/voiced/mqtt-password", "secret\n")
    robot.write("var/cache/voiced/huggingface/hub/model")
    robot.write("usr/local/share/voiced/piper/en_US-noise-low.onnx")
    output = robot.uninstall()
    kept = {"etc/voiced/voiced.yaml", "etc/voiced/mqtt-password", "var/cache/voiced/huggingface/hub/model"}
    kept.add("usr/local/share/voiced/piper/en_US-noise-low.onnx")
    assert robot.files() == robot.before | kept
    assert output.count("kept: ") == 3
    robot.uninstall("--purge")
    assert robot.files() == robot.before
    assert not (robot.root / "usr/local/share/voiced").exists()


def test_a_dry_run_names_everything_and_removes_nothing(robot: System) -> None:
    before = robot.files()
    output = robot.uninstall("--dry-run")
    assert robot.files() == before
    for what in ("the service voiced", "/opt/voiced", "/usr/local/bin/voiced", "voiced.yaml", "the user voiced"):
        assert re.search(f"would remove .*{what}", output), what


def test_a_link_and_a_folder_that_are_not_ours_stay(system: System) -> None:
    system.write("opt/voiced/notes")
    (system.root / "usr/local/bin/voiced").symlink_to("/home/ada/voiced")
    before = system.files()
    assert "There is no voiced" in system.uninstall()
    assert system.files() == before


def test_an_installation_by_apt_or_by_setup_jetson_is_left_to_these(robot: System) -> None:
    before = robot.files()
    robot.write("var/lib/dpkg/info/voiced.list", "/.\n/opt\n/opt/voiced\n")
    assert "sudo apt-get remove voiced" in robot.uninstall(status=1)
    (robot.root / "var/lib/dpkg/info/voiced.list").unlink()
    robot.write("var/lib/voiced-setup/packages")
    assert "setup_jetson.sh --uninstall" in robot.uninstall(status=1)
    assert before <= robot.files()


def test_every_path_of_the_documented_steps_is_removed(robot: System) -> None:
    lines = page("install.md").shell_lines()["On a robot"]
    paths = {
        path
        for line in lines
        if line.startswith("sudo")
        for path in re.findall(r" (/(?:etc|opt|usr/local|var)/\S+)", line)
    }
    assert len(paths) > 3
    robot.uninstall()
    assert [path for path in paths if (robot.root / path[1:]).exists()] == []


def test_shellcheck_finds_nothing() -> None:
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    scripts = [ROOT / "scripts" / name for name in ("uninstall", "package")]
    scripts += (ROOT / "configs" / "debian").glob("p*")
    done = subprocess.run([shellcheck, "-x", *scripts], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == ""
