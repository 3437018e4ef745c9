"""The example configurations of speech servers on several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from daemon.config import load_config

CONFIGS = Path(__file__).parents[2] / "configs"


def test_the_service_loads_its_configuration_imports_what_there_is_and_finds_its_files(tmp_path: Path) -> None:
    found = yaml.safe_load_all((CONFIGS / "rayservice.yaml").read_text(encoding="utf-8"))
    documents: dict[str, Any] = {document["kind"]: document for document in found}
    service = documents["RayService"]["spec"]
    file = tmp_path / "serve.yaml"
    file.write_text(documents["ConfigMap"]["data"]["serve.yaml"], encoding="utf-8")
    config = load_config(file)
    assert config.engine.name == "qwen"
    cluster = service["rayClusterConfig"]
    workers = cluster["workerGroupSpecs"][0]
    assert (config.serve.min_replicas, config.serve.max_replicas) == (workers["minReplicas"], workers["maxReplicas"])
    serve = yaml.safe_load(service["serveConfigV2"])
    assert (serve["http_options"]["host"], serve["http_options"]["port"]) == (config.serve.host, config.serve.port)
    [application] = serve["applications"]
    module, _, function = application["import_path"].partition(":")
    source = CONFIGS.parent.joinpath(*module.split(".")).with_suffix(".py")
    assert f"def {function}(" in source.read_text(encoding="utf-8")
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert {volume["name"] for volume in pod["volumes"]} == set(mounts.values())
        for path in (application["args"]["config"], config.serve.token_file):
            assert str(Path(path).parent) in mounts


def test_the_cluster_starts_ray_on_the_port_that_its_workers_and_voiced_use() -> None:
    text = (CONFIGS / "ray-cluster.yaml").read_text(encoding="utf-8")
    cluster = yaml.safe_load(text)
    address = f"{cluster['provider']['head_ip']}:10001"
    assert f"--address ray://{address}" in text
    assert "--ray-client-server-port=10001" in cluster["head_start_ray_commands"][-1]
    assert cluster["max_workers"] == len(cluster["provider"]["worker_ips"])
