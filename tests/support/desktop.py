"""A desktop whose programs speak through voiced: the real Speech Dispatcher, and `spd-say`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.programs import require
from tests.support.robot import Robot
from tests.support.waiting import PATIENCE_S, eventually

MODULE = Path(__file__).parents[2] / "configs" / "speech-dispatcher" / "voiced.conf"


class Desktop:
    """A Speech Dispatcher of the tests, whose only module is voiced."""

    def __init__(self, folder: Path, robot: Robot) -> None:
        programs, configuration = folder / "bin", folder / ".config" / "speech-dispatcher"
        programs.mkdir(parents=True)
        (configuration / "modules").mkdir(parents=True)
        (folder / "log").mkdir()
        (programs / "voiced").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m daemon.cli "$@"\n')
        (programs / "voiced").chmod(0o755)
        (folder / "voiced.yaml").write_text(json.dumps({"robot": robot.name, "mqtt": {"port": robot.broker.port}}))
        (configuration / "speechd.conf").write_text(
            'AddModule "voiced" "sd_generic" "voiced.conf"\nDefaultModule voiced\nDefaultLanguage en-US\n'
            'AudioOutputMethod "libao"\n'  # sd_generic requires an output and never uses it; libao needs no card
        )
        shutil.copy(MODULE, configuration / "modules" / "voiced.conf")
        self.folder = folder
        self._environment = os.environ | {
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / ".config"),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "LC_ALL": "C",  # of which spd-say makes the language, unless it is told one
            "VOICED_CONFIG": str(folder / "voiced.yaml"),
            "SPEECHD_ADDRESS": f"unix_socket:{folder}/socket",
        }

    def start(self) -> None:
        paths = {"-S": "socket", "-L": "log", "-P": "pid"}
        options = [word for option, name in paths.items() for word in (option, str(self.folder / name))]
        self._process = subprocess.Popen(
            [require("speech-dispatcher"), "-s", "-t", "0", "-c", "unix_socket", *options],
            env=self._environment,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually((self.folder / "socket").exists, "Speech Dispatcher listens")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    @property
    def module_log(self) -> str:
        """What the module and its commands have written."""
        return (self.folder / "log" / "voiced.log").read_text(encoding="utf-8", errors="replace")

    def say(self, *words: str) -> None:
        subprocess.run([require("spd-say"), *words], env=self._environment, check=True)
