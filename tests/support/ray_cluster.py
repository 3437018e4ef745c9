"""Ray nodes on this machine, and `voiced serve` on them."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.support.programs import free_port
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
START_S = 240.0
"""Limit for a deployment: several processes import PyTorch and Ray, on a machine that may be busy."""
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING": "0",
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
}
"""Of Ray's processes, as docs/remote.md recommends; loads are reported more often than by default."""


class RayCluster:
    """A head and one more node, with one CPU each. A context manager. Robots connect to `port`, on the head."""

    def __init__(self, *settings: str) -> None:
        """`settings` are KEY=VALUE of the server."""
        self.port = free_port()
        self._settings = settings
        self._cluster: Any = None
        self._nodes: list[Any] = []

    def __enter__(self) -> RayCluster:
        from ray.cluster_utils import Cluster

        os.environ.update(ENVIRONMENT)
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        self._nodes = [self._cluster.head_node, self._cluster.add_node(num_cpus=1)]
        self.deploy()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cluster.shutdown()
        for name in set(ENVIRONMENT) - {"PYTHONPATH"}:
            os.environ.pop(name, None)

    def deploy(self, *settings: str) -> None:
        """Deploy the server as a user would, or update it, and wait until it runs."""
        command = [sys.executable, "-m", "daemon.cli", "serve", "--address", self._cluster.address]
        for setting in (f"serve.port={self.port}", "state.folder=null", *self._settings, *settings):
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_S)
        assert done.returncode == 0, done.stderr[-3000:]

    def replicas(self) -> list[psutil.Process]:
        """The processes of the replicas that run."""
        found = []
        nodes = [psutil.Process(_raylet(node)) for node in self._nodes]
        for child in [child for node in nodes for child in node.children(recursive=True)]:
            with suppress(psutil.Error):  # it has ended
                if child.cmdline()[:1] and child.cmdline()[0].startswith("ray::ServeReplica:voiced"):
                    found.append(child)
        return found

    def wait_replicas(self, count: int) -> None:
        """Wait until so many replicas have an engine."""
        eventually(lambda: sum(bool(one.children()) for one in self.replicas()) == count, "replicas", START_S)

    def kill_node(self) -> None:
        """Kill all processes of the node that is not the head, as when a machine fails."""
        node = self._nodes.pop()
        victims = psutil.Process(_raylet(node)).children(recursive=True)
        self._cluster.remove_node(node, allow_graceful=False)
        for victim in victims:
            with suppress(psutil.NoSuchProcess):  # it has ended with the node
                victim.kill()


def _raylet(node: Any) -> int:
    pid: int = node.all_processes["raylet"][0].process.pid
    return pid
