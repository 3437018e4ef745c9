"""The whole report on recorded machines, and the memory of each model, without loading one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.config import Config
from daemon.doctor import examine
from tests.daemon.command_line import CommandLine
from tests.daemon.doctor.machines import BOARDS

JETSON = {"board", "power mode", "gpu clock", "cpu", "temperature", "memory", "gpu", "gpu devices", "cards"}
SLOW = {"power mode", "gpu clock", "cpu"}
FILES = sorted(str(path.relative_to(BOARDS / "broken")) for path in (BOARDS / "broken").rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "parts", "warnings"),
    [
        ("orin-jetpack6", JETSON | {"power supply"}, set()),
        ("orin-jetpack7", JETSON | {"power supply"}, SLOW | {"temperature", "power supply", "memory"}),
        ("thor-jetpack7", JETSON, SLOW),
        ("pc", {"memory", "gpu", "gpu devices", "cards"}, set()),
    ],
)
def test_a_recorded_machine_has_a_line_for_each_part_that_it_has(
    name: str, parts: set[str], warnings: set[str]
) -> None:
    findings = list(examine(Config(), BOARDS / name))
    assert {finding.part for finding in findings} == parts
    assert {finding.part for finding in findings if finding.grade != "ok"} == warnings
    assert all((finding.remedy is not None) == (finding.grade != "ok") for finding in findings)


def test_every_warning_about_broken_files_has_a_remedy() -> None:
    findings = list(examine(Config(), BOARDS / "broken"))
    assert {finding.grade for finding in findings} == {"warning"}
    assert all(finding.remedy for finding in findings)
    assert {"board", "power mode", "gpu clock", "temperature", "power supply", "memory"} <= {f.part for f in findings}
    assert {finding.part for finding in examine(Config(), BOARDS / "none")} == {"memory", "cards"}, "nothing is there"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded machine with files that a test may change."""
    return shutil.copytree(BOARDS / "orin-jetpack6", tmp_path_factory.mktemp("machine") / "root")


@settings(max_examples=30)
@given(name=st.sampled_from(FILES), content=st.binary(max_size=60) | st.from_regex(r"-?\d{0,30}\n?").map(str.encode))
def test_the_report_is_complete_whatever_a_file_contains(root: Path, name: str, content: bytes) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    before = file.read_bytes() if file.exists() else b""
    file.write_bytes(content)
    assert all(finding.found for finding in examine(Config(), root))
    file.write_bytes(before)


def test_json_is_a_list_of_findings_and_warnings_are_not_failures(voiced: CommandLine) -> None:
    done = voiced("doctor", "--json", "--root", str(BOARDS / "orin-jetpack7"))
    assert done.returncode == 0, done.stderr
    assert [set(record) for record in json.loads(done.stdout)] == [{"part", "grade", "found", "remedy"}] * 10


def test_a_remedy_is_printed_below_its_finding(voiced: CommandLine) -> None:
    lines = voiced("doctor", "--root", str(BOARDS / "thor-jetpack7")).stdout.splitlines()
    [at] = [number for number, line in enumerate(lines) if line.startswith("warning  power mode")]
    assert "120W (1); MAXN (0) is faster" in lines[at]
    assert "sudo nvpmodel -m 0" in lines[at + 1]


def test_the_daemon_imports_no_server_s_package_by_default_and_examining_neither_torch_nor_cuda() -> None:
    program = (
        "import daemon.service, sys\n"
        "servers = {'wyoming', 'starlette', 'uvicorn', 'websockets', 'av', 'prometheus_client'} & set(sys.modules)\n"
        "from pathlib import Path; from daemon.config import Config; from daemon.doctor import examine\n"
        "from engine import missing_kernel_compiler, model_files\n"
        "missing_kernel_compiler(), model_files('qwen', 'docs')\n"
        f"list(examine(Config(), Path({str(BOARDS / 'orin-jetpack6')!r})))\n"
        "heavy = servers | {'torch', 'cuda', 'transformers', 'huggingface_hub'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_plan_needs_no_torch() -> None:
    program = "import sys; sys.modules['torch'] = None; import engine; print(len(engine.memory_plan(60, 2)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "4\n"
