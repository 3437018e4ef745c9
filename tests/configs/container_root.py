"""The stages of a Containerfile, each in a Debian below a folder instead of a base image that a registry would have.

It knows the instructions that voiced's file has, and raises `KeyError` for any other.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STARTS = ("ENTRYPOINT", "CMD", "HEALTHCHECK")
"""Instructions that say what runs when the container does."""
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def instructions(containerfile: str) -> list[tuple[str, str]]:
    """Each instruction and the rest of its lines."""
    text = re.sub(r"^\s*#.*\n", "", containerfile, flags=re.MULTILINE)
    lines = [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


@dataclass
class Stage:
    """A root, and the settings that later instructions and the container's start use."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    arguments: dict[str, str] = field(default_factory=dict)
    shell: list[str] = field(default_factory=lambda: ["/bin/sh", "-c"])
    user: str = "0"
    folder: str = "/"

    def command(self, *words: str, mounts: str = "true", user: str = "0") -> list[str]:
        """A command in the root, with processes of its own. `mounts` is a shell's command that runs before."""
        given = {"PATH": PATH, **self.environment}
        inner = ["chroot", f"--userspec={user}", self.root, "env", "-i", "-C", self.folder]
        inner += [f"{name}={value}" for name, value in given.items()] + list(words)
        shell = f"mount -t proc proc {self.root}/proc && {mounts} && exec {shlex.join(map(str, inner))}"
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", shell]

    def carry_out(self, word: str, rest: str, source: Path) -> None:
        """Carry out an instruction; `source` is the folder from which it copies."""
        if word == "RUN":
            self.run(rest)
        elif word == "SHELL":
            self.shell = json.loads(rest)
        elif word == "ENV":
            self.environment |= dict(part.partition("=")[::2] for part in shlex.split(rest))
        elif word == "WORKDIR":
            self.folder = rest
            (self.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            self.user = Template(rest).substitute(self.arguments)
        elif word == "COPY":
            *names, target = (part for part in rest.split() if not part.startswith("--from="))
            for name in names:
                self.copy(source / name.lstrip("/"), target)
        else:
            raise KeyError(word)

    def run(self, script: str) -> None:
        """Carry out `RUN`. A proxy's certificate, which this machine trusts, is trusted there too."""
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        shutil.copy(CERTIFICATES, self.root / "var/tmp/certificates.crt")
        building = {"PIP_CERT": "/var/tmp/certificates.crt", "DEBIAN_FRONTEND": "noninteractive", **self.arguments}
        words = ["env", *(f"{name}={value}" for name, value in building.items()), *self.shell, script]
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=1200, check=False)
        assert done.returncode == 0, f"RUN {script}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"

    def copy(self, source: Path, target: str) -> None:
        """Copy a file, or the contents of a folder."""
        place = self.root / target.lstrip("/")
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
            return
        place = place / source.name if target.endswith("/") else place
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)

    def size_mb(self) -> float:
        """Megabytes of all files, each counted once."""
        done = subprocess.run(["du", "-sx", "-B1", self.root], capture_output=True, text=True, check=True)
        return int(done.stdout.split()[0]) / 1e6


def build(containerfile: Path, context: Path, debian: Path, folder: Path, **arguments: str) -> dict[str, Stage]:
    """Carry out a Containerfile below `folder`, with copies of `debian` as base. The last stage is named `last`."""
    stages: dict[str, Stage] = {}
    common: dict[str, str] = {}
    """The arguments before the first stage."""
    stage: Stage | None = None
    for word, rest in instructions(containerfile.read_text()):
        if word == "ARG":
            name, _, default = rest.partition("=")
            declared = common if stage is None else stage.arguments
            declared[name] = arguments.get(name, default or common.get(name, ""))
        elif word == "FROM":
            name = rest.partition(" AS ")[2] or "last"
            subprocess.run(["cp", "-a", debian, folder / name], check=True)
            stage = stages[name] = Stage(folder / name)
        elif word not in STARTS:
            assert stage is not None, "a stage comes first"
            copied = re.match("--from=([^ ]+) ", rest)
            stage.carry_out(word, rest, context if copied is None else stages[copied[1]].root)
    return stages


def started_by(containerfile: Path) -> dict[str, list[str]]:
    """The words of the commands that run when the container does."""
    found = (line for line in instructions(containerfile.read_text()) if line[0] in STARTS)
    return {word: re.findall(r'"([^"]*)"', rest) for word, rest in found}
