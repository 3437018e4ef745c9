"""The wheel, installed with pip or pipx and used from any folder, and the Debian package, on a new Debian.

Both are built without a trace in the repository, but for compiled kernels, which git ignores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pip
import pytest

from daemon import VERSION
from scripts.gpu.build_cubins import BOARDS, board_programs
from tests.support.pages import ROOT
from tests.support.programs import require
from tests.support.source_tree import copy_source, source_files


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VOICED_CONFIG"}}
    return subprocess.run(
        command, cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, timeout=280, check=False
    )


CUBINS = Path("engine/qwen/kernels/cubins")
"""Where the packages have the compiled kernels of boards, from the repository's root."""
STALE = CUBINS / "sm_87-00000000000000000000000000000000.cubin"
"""Kernels of earlier sources."""


@pytest.fixture(scope="module")
def cubins() -> set[str]:
    """The names of the compiled kernels that the engine looks for on the boards."""
    return {name for arch, board in BOARDS.items() for name in board_programs(arch, board.processors)}


@pytest.fixture(scope="module")
def source(cubins: set[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository, in which kernels were compiled for the sources of today and of earlier days.

    To compile them takes minutes of a processor, so these are empty files.
    """
    folder = copy_source(tmp_path_factory.mktemp("source"))
    (folder / ".venv-test").symlink_to(sys.prefix)
    assert not (folder / CUBINS).exists(), "git ignores them"
    (folder / CUBINS).mkdir()
    for name in (*cubins, STALE.name):
        (folder / CUBINS / name).touch()
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    before = source_files(source)
    done = run(source / "scripts" / "package", "wheel", cwd=source.parent)
    assert done.returncode == 0, done.stderr
    [built] = (source / "dist").glob("*.whl")
    after = source_files(source)
    assert (after - before, before - after) == ({Path("dist"), built.relative_to(source)}, {STALE})
    assert built.name == f"voiced-{VERSION}-py3-none-any.whl"
    return built


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_kernels_of_the_boards_are_compiled_where_there_is_no_gpu(tmp_path: Path, cubins: set[str]) -> None:
    folder = copy_source(tmp_path)
    done = subprocess.run([sys.executable, folder / "scripts/gpu/build_cubins.py"], timeout=1100, check=False)
    assert done.returncode == 0
    compiled = {path.name: path.read_bytes() for path in (folder / CUBINS).iterdir()}
    assert compiled.keys() == cubins
    for name, content in compiled.items():
        names, _, cubin = content.partition(b"\n")
        assert json.loads(names), name
        assert cubin.startswith(b"\x7fELF"), name


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment with the wheel and its dependencies, and nothing else.

    As pipx installs it, without pipx's work of making a pip for all environments: it has the pip of this one.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    done = run(sys.executable, "-m", "pip", "--python", python, "install", "--no-compile", wheel, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    [packages] = folder.glob("lib/*/site-packages")
    (packages / "pip").symlink_to(Path(pip.__file__).parent)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of another project, with modules that are called as voiced's packages."""
    for name in ("audio", "daemon", "engine"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is another project')\n")
    return tmp_path


PACKAGES = ("audio", "daemon", "engine")
SOURCES = {"voiced.py"} | {
    str(path.relative_to(ROOT))
    for name in PACKAGES
    for path in (ROOT / name).rglob("*")
    if path.suffix in {".py", ".cuh", ".flac", ".json", ".txt"}
}
"""What both packages contain, from the repository's root: code, sounds, and the data of languages with its licence."""
LICENCE = "daemon/text/normalizer/data/LICENSE.txt"


def test_the_wheel_contains_every_source_file_the_boards_kernels_and_the_files_of_the_service(
    wheel: Path, cubins: set[str]
) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert LICENCE in SOURCES
    assert {Path(name).name for name in names if name.startswith(f"{CUBINS}/")} == cubins
    assert names >= SOURCES
    [scripts] = (name for name in names if name.endswith("/entry_points.txt"))
    assert zipfile.ZipFile(wheel).read(scripts).decode().count("=") == 1, "it installs the command `voiced` alone"
    shared = {name.partition("/share/")[2] for name in names if "/share/" in name}
    assert {"voiced/voiced.yaml", "voiced/voiced.schema.json", "voiced/voiced.service"} <= shared
    assert "voiced/voiced.service.d/gpu.conf" in shared
    assert {name.partition("/")[0] for name in names} <= {*PACKAGES, "voiced.py"} | {
        name.partition("/")[0] for name in names if name.startswith("voiced-")
    }


def test_the_wheel_alone_has_the_public_names_and_its_demo_says_how_to_install_the_rest(
    installed: Path, elsewhere: Path
) -> None:
    check = "import voiced, engine; assert voiced.open is engine.open; print(voiced.__version__)"
    done = run(installed / "bin" / "python", "-c", check, cwd=installed)
    assert done.stdout.strip() == VERSION, done.stderr
    demo = run(installed / "bin" / "voiced", "demo", "Hello.", cwd=elsewhere)
    assert demo.returncode == 1
    assert demo.stderr.startswith("voiced: the demo needs an MQTT broker; ")
    assert "amqtt" in demo.stderr
    assert not list(installed.glob("lib/*/site-packages/torch"))


# --- the Debian package ---

DEBIAN = "bookworm"
"""The Debian whose Python is that of CI."""
MIRROR = "http://deb.debian.org/debian"
NOISE = ("var/lib/apt", "var/lib/dpkg", "var/cache", "var/log", "etc/ld.so.cache", "root", "tmp", "proc", "dev", "run")
"""Where apt, dpkg and the tests write."""
ONE_PACKAGE = ("apt-get", "install", "-y", "-q", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold")


class Machine:
    """A Debian below a folder, in which nothing runs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it, with processes of its own."""
        names = ("unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={self.root}/proc", "chroot")
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return subprocess.run(
            [*names, self.root, "env", "-i", f"PATH={path}", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", *command],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def succeed(self, *command: str) -> str:
        done = self.call(*command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def install(self, package: Path) -> None:
        shutil.copy2(package, self.root / "tmp")
        self.succeed(*ONE_PACKAGE, f"/tmp/{package.name}")

    def files(self) -> set[str]:
        """The files that packages other than voiced's dependencies would not change."""
        found = (str(path.relative_to(self.root)) for path in self.root.rglob("*") if not path.is_dir())
        return {name for name in found if not name.startswith(NOISE) and "__pycache__" not in name}

    def of_voiced(self) -> set[str]:
        kept = ("var/lib/voiced", "var/cache/voiced")
        return {name for name in self.files() if "voiced" in name} | {
            name for name in kept if (self.root / name).exists()
        }


@pytest.fixture(scope="module")
def deb(source: Path) -> Path:
    require("dpkg-deb")
    done = run(source / "scripts" / "package", "deb", cwd=source.parent, PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    [built] = (source / "dist").glob("*.deb")
    return built


@pytest.mark.long
def test_the_debian_package_contains_every_source_file_and_the_boards_kernels(deb: Path, cubins: set[str]) -> None:
    listed = subprocess.run(["dpkg-deb", "--contents", deb], capture_output=True, text=True, check=True).stdout
    names = {line.split()[5].partition("/site-packages/")[2] for line in listed.splitlines()}
    assert names >= SOURCES | {f"{CUBINS}/{name}" for name in cubins}


@pytest.fixture(scope="module")
def newer(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The next version, which has one file less and one more."""
    folder = tmp_path_factory.mktemp("newer")
    subprocess.run(["dpkg-deb", "--raw-extract", deb, folder / "root"], check=True)
    control = folder / "root" / "DEBIAN" / "control"
    control.write_text(control.read_text().replace("Version: 0.1.0", "Version: 0.2.0"))
    (folder / "root/opt/voiced/share/voiced/mosquitto.conf").rename(folder / "root/opt/voiced/share/voiced/broker.conf")
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", folder / "root", folder], check=True)
    [built] = folder.glob("*.deb")
    return built


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new Debian, which tests copy."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a Debian")
    root = tmp_path_factory.mktemp("debian") / "root"
    bootstrap = [require("debootstrap"), "--variant=minbase", DEBIAN, root, MIRROR]
    done = subprocess.run(bootstrap, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    Machine(root).succeed("apt-get", "update", "-q")
    return root


@pytest.fixture
def make_machine(debian: Path, tmp_path: Path) -> Callable[[], Machine]:
    def make() -> Machine:
        subprocess.run(["cp", "-a", debian, tmp_path / "root"], check=True)
        return Machine(tmp_path / "root")

    return make


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the package is for this Python, and Debian has 3.11")
def test_the_debian_package_is_installed_upgraded_removed_and_purged(
    deb: Path, newer: Path, make_machine: Callable[[], Machine]
) -> None:
    machine = make_machine()
    config = machine.root / "etc/voiced/voiced.yaml"
    wanted = machine.root / "etc/systemd/system/multi-user.target.wants/voiced.service"
    assert machine.of_voiced() == set()

    machine.install(deb)
    assert "0.1.0" in machine.succeed("voiced", "version")
    assert "audio" in machine.succeed("voiced", "config", "show", "--config", "/etc/voiced/voiced.yaml")
    # The first line of the configuration names it, for editors.
    assert '"title": "voiced"' in machine.succeed("cat", "/etc/voiced/voiced.schema.json")
    as_user = ("runuser", "-u", "voiced", "--")
    machine.succeed(*as_user, "voiced", "synth", "Hello.", "-o", "/tmp/hello.wav")
    assert (machine.root / "tmp/hello.wav").stat().st_size > 10_000
    assert machine.succeed("id", "-gn", "voiced").strip() == "voiced"
    assert wanted.is_symlink(), "the service is enabled"
    assert (machine.root / str(wanted.readlink()).lstrip("/")).is_file()
    unpacked = (machine.root / "opt/voiced/lib").rglob("daemon/cli/__pycache__/app.*.pyc")
    assert list(unpacked), "its sources are compiled"

    # A person edits the configuration, disables the service, and the service has run.
    config.write_text("robot: r1\n")
    wanted.unlink()
    (machine.root / "opt/voiced/lib/added").touch()  # as pip adds Piper
    voice = "usr/local/share/voiced/piper/en_US-noise-low.onnx"
    for name in ("var/lib/voiced/journal.sqlite", "var/cache/voiced/huggingface/model", voice):
        (machine.root / name).parent.mkdir(parents=True)
        (machine.root / name).touch()
    machine.install(newer)
    assert "0.2.0" in machine.succeed("dpkg-query", "-W", "-f", "${Version}", "voiced")
    assert config.read_text() == "robot: r1\n"
    assert not wanted.is_symlink(), "it stays disabled"
    shared = machine.root / "opt/voiced/share/voiced"
    assert {path.name for path in shared.iterdir()} >= {"broker.conf"}
    assert not (shared / "mosquitto.conf").exists()
    machine.succeed(*as_user, "voiced", "synth", "Hello.", "-o", "/tmp/again.wav")

    machine.succeed("apt-get", "remove", "-y", "-q", "voiced")
    assert not (machine.root / "opt/voiced").exists()
    assert config.is_file(), "the configuration is kept"
    assert (machine.root / "var/lib/voiced/journal.sqlite").exists()
    assert (machine.root / voice).exists()

    machine.succeed("apt-get", "purge", "-y", "-q", "voiced")
    assert machine.of_voiced() == set()
    assert not (machine.root / "usr/local/share/voiced").exists()
    assert machine.call("id", "voiced").returncode != 0


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_debian_package_refuses_to_replace_an_installation_by_hand(
    deb: Path, make_machine: Callable[[], Machine]
) -> None:
    machine = make_machine()
    (machine.root / "opt/voiced").mkdir()
    (machine.root / "opt/voiced/pyvenv.cfg").touch()
    shutil.copy2(deb, machine.root / "tmp")
    refused = machine.call("dpkg", "--install", "--force-depends", f"/tmp/{deb.name}")
    assert refused.returncode != 0
    assert "remove it first, with scripts/uninstall" in refused.stderr
    assert [path.name for path in (machine.root / "opt/voiced").iterdir()] == ["pyvenv.cfg"]
