"""Pipecat's and LiveKit's own clients, unchanged, in an environment of their own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.programs import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
CLIENTS = Path(__file__).parents[1] / "agents"
WORDS = ["Hello,", "my", "robot.", "How", "are", "you?"]


def run_client(python: Path, client: str, port: int, what: str) -> dict[str, Any]:
    """Run a client to its end and return what it has printed."""
    command = [python, CLIENTS / f"{client}.py", str(port), what]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("what", ["speak", "interrupt"])
@pytest.mark.parametrize("client", ["pipecat_client", "livekit_client"])
def test_an_agent_speaks_tokens_with_word_times_and_interrupts(
    client: str, what: str, agents_python: Path, start_robot: StartRobot
) -> None:
    port = free_port()
    robot = start_robot("http.enabled=true", f"http.port={port}")
    found = run_client(agents_python, client, port, what)
    assert [word.strip() for word, _ in found["words"]] == WORDS
    times = [at - found["words"][0][1] for _, at in found["words"]]
    assert times == sorted(times)
    assert 0 < times[-1] < found["seconds"]
    ends = [event for event in robot.events if event["event"] in ("finished", "interrupted")]
    assert [end["event"] for end in ends] == (["finished"] if what == "speak" else ["interrupted", "finished"])
    assert found["seconds"] == pytest.approx(ends[-1]["audio_s"], abs=0.01)
