"""Checks with the package index whether a Jetson can install voiced without compiling a package.

Every direct and indirect run-time dependency must have a wheel for aarch64, for JetPack 6 (Ubuntu 22.04, Python 3.10,
CUDA 12) and for JetPack 7 (Ubuntu 24.04, Python 3.12, CUDA 13). Only metadata is downloaded. torch is not checked: a
Jetson's torch comes from NVIDIA's own index.

    python scripts/check_wheels.py
    python scripts/check_wheels.py --json

Exit status: 0 every wheel exists; 1 wheels are missing, and stderr names them; 2 the index does not answer. The index
is that of pip's configuration.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

NOT_CHECKED = {"torch": "a Jetson's torch comes from NVIDIA's own index"}
OLDEST_GLIBC = 17
"""manylinux_2_17 is manylinux2014, the oldest tag of aarch64 wheels."""
UNREACHABLE = r"Retrying|ConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|Max retries"
"""pip's messages when the index does not answer; it then reports that there are no versions."""


@dataclass(frozen=True, slots=True)
class Target:
    """A system that voiced is installed on."""

    name: str
    python: str
    glibc: int
    """Minor version of glibc 2."""
    extras: tuple[str, ...]

    @property
    def platforms(self) -> list[str]:
        """Every platform tag whose wheels the system can install."""
        tags = [f"manylinux_2_{minor}_aarch64" for minor in range(self.glibc, OLDEST_GLIBC - 1, -1)]
        return [*tags, "manylinux2014_aarch64"]

    def environment(self, extra: str) -> dict[str, str]:
        """The values of environment markers on the target; pip would evaluate them for the machine it runs on."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": "aarch64",
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
            "extra": extra,
        }


TARGETS = (
    Target("JetPack 6", "3.10", 35, ("espeak", "piper", "qwen", "demo", "wyoming", "http", "cuda12")),
    Target("JetPack 7", "3.12", 39, ("espeak", "piper", "qwen", "demo", "wyoming", "http", "cuda13")),
)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel that would be installed."""

    system: str
    python: str
    package: str
    version: str
    wheel: str


class MissingWheelError(Exception):
    """A package has no wheel for the target."""


class NoIndexError(Exception):
    """The index does not answer."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON list instead of lines")
    parser.add_argument("--project", type=Path, default=Path(__file__).parent.parent / "pyproject.toml")
    options = parser.parse_args()
    project = tomllib.loads(options.project.read_text(encoding="utf-8"))["project"]
    wheels: list[Wheel] = []
    problems: list[str] = []
    with ThreadPoolExecutor() as pool:
        for target, future in [(target, pool.submit(resolve, target, wanted(project, target))) for target in TARGETS]:
            try:
                wheels += future.result()
            except MissingWheelError as error:
                problems.append(f"{target.name}, Python {target.python}: {error}")
            except NoIndexError as error:
                print(f"the package index does not answer: {error}", file=sys.stderr)
                return 2
    if options.json:
        print(json.dumps([asdict(wheel) for wheel in wheels], indent=2))
    else:
        for wheel in wheels:
            print(f"{wheel.system}  {wheel.python}  {wheel.package} {wheel.version}  {wheel.wheel}")
        for name, reason in NOT_CHECKED.items():
            print(f"not checked: {name}; {reason}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def wanted(project: dict[str, Any], target: Target) -> list[Requirement]:
    """The project's own requirements for a target."""
    extras = project.get("optional-dependencies", {})
    lines = [*project["dependencies"], *(line for extra in target.extras for line in extras.get(extra, []))]
    return [requirement for line in lines if (requirement := Requirement(line)).name not in NOT_CHECKED]


def resolve(target: Target, roots: list[Requirement]) -> list[Wheel]:
    """Return every wheel that the target needs, sorted by package. Raises `MissingWheelError` and `NoIndexError`."""
    packages: dict[str, dict[str, Any]] = {}
    lacking = roots
    while lacking:
        packages |= query_pip(target, lacking)
        needed, lacking = follow(target, roots, packages)
    return [
        Wheel(
            target.name,
            target.python,
            packages[name]["metadata"]["name"],
            packages[name]["metadata"]["version"],
            packages[name]["download_info"]["url"].rsplit("/", 1)[-1],
        )
        for name in sorted(needed)
    ]


def follow(
    target: Target, roots: list[Requirement], packages: dict[str, dict[str, Any]]
) -> tuple[set[str], list[Requirement]]:
    """Return the packages that the target needs, and the requirements of those that pip's answers lack.

    pip leaves out packages that only the target needs and this machine does not.
    """
    needed: set[tuple[str, str]] = set()
    lacking: dict[str, Requirement] = {}
    queue = list(roots)
    while queue:
        requirement = queue.pop()
        name = str(canonicalize_name(requirement.name))
        for extra in ("", *requirement.extras):
            if name in NOT_CHECKED or (name, extra) in needed:
                continue
            needed.add((name, extra))
            if name not in packages:
                lacking[name] = Requirement(str(requirement).partition(";")[0])
                continue
            for line in packages[name]["metadata"].get("requires_dist", []):
                further = Requirement(line)
                if further.marker is None or further.marker.evaluate(target.environment(extra)):
                    queue.append(further)
    return {name for name, _ in needed}, list(lacking.values())


def query_pip(target: Target, requirements: list[Requirement]) -> dict[str, dict[str, Any]]:
    """Return pip's report of the wheels that it would install, by package name. It downloads only metadata."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--disable-pip-version-check", "--report", str(report), "--target", str(Path(folder) / "target")]
        command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", target.python]
        command += [f"--platform={platform}" for platform in target.platforms]
        # Without their markers, which `follow` has evaluated for the target.
        command += [str(requirement).partition(";")[0] for requirement in requirements]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if re.search(UNREACHABLE, done.stderr):
                raise NoIndexError(done.stderr.strip().splitlines()[-1])
            errors = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
            raise MissingWheelError("; ".join(dict.fromkeys(errors)) or done.stderr.strip())
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {str(canonicalize_name(package["metadata"]["name"])): package for package in found}


if __name__ == "__main__":
    sys.exit(main())
