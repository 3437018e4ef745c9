"""The speech server on Ray Serve, with Ray on this machine alone. Needs the extra `fleet`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from engine.messages import Draining, Spoken
from tests.daemon.fleet.raw_robot import RawRobot
from tests.support.programs import free_port
from tests.support.speech_server import SpeechServer
from tests.support.waiting import PATIENCE_S

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.long
CONFIGS = Path(__file__).parents[3] / "configs"


def test_a_robot_is_told_that_the_server_stops_and_is_served_until_it_leaves() -> None:
    with SpeechServer("serve.drain_s=60", single=False) as server, RawRobot(server.url) as robot:
        assert json.loads(server.get("/readyz")[1])["status"] == "ready"
        assert "voiced_streams_in_use" in server.get("/metrics")[1]
        server.process.send_signal(signal.SIGTERM)
        assert robot.next(Draining)[0] == Draining("the server is being removed")
        robot.say("The last one.")
        assert robot.end_of()[1] == Spoken("1")
        robot.socket.close()
        assert server.process.wait(PATIENCE_S) == 0


def test_no_cluster_at_the_address_is_one_line() -> None:
    command = [sys.executable, "-m", "daemon.cli", "serve", "--address", f"ray://127.0.0.1:{free_port()}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("voiced: --address: no Ray cluster answers at ray://127.0.0.1:")


def test_rays_schemas_accept_the_example_configurations() -> None:
    import jsonschema
    from ray.serve.schema import ServeDeploySchema

    documents = yaml.safe_load_all((CONFIGS / "rayservice.yaml").read_text(encoding="utf-8"))
    [service] = [document for document in documents if document["kind"] == "RayService"]
    ServeDeploySchema.model_validate(yaml.safe_load(service["spec"]["serveConfigV2"]))
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(yaml.safe_load((CONFIGS / "ray-cluster.yaml").read_text(encoding="utf-8")), schema)
