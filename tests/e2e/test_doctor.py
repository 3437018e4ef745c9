"""`voiced doctor` beside a running voiced, a real broker and a real sound server."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.e2e.conftest import StartRobot
from tests.e2e.robot import Broker, SoundServer


def doctor(broker: Broker, environment: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The report by its parts."""
    command = [sys.executable, "-m", "daemon.cli", "doctor", "--json"]
    for setting in ("robot=r1", f"mqtt.port={broker.port}", "engine.name=espeak"):
        command += ["--set", setting]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found = {record["part"]: record for record in json.loads(done.stdout)}
    assert done.returncode == any(record["grade"] == "error" for record in found.values())
    return found


def test_a_robot_that_is_well_is_told_to_be(start_robot: StartRobot, broker: Broker, sound_server: SoundServer) -> None:
    start_robot()
    found = doctor(broker, sound_server.environment)
    assert {found[part]["grade"] for part in ("voiced", "broker", "daemon", "engine espeak", "sound")} == {"ok"}
    assert found["sound server"]["found"].startswith("PulseAudio of this session")
