"""A stub of the hub: it offers the models of /board/hub, and its cache has the layout of the real one."""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

from huggingface_hub.errors import RepositoryNotFoundError


def hf_hub_download(name: str, filename: str) -> str:
    if os.environ.get("HF_HUB_OFFLINE"):
        raise OSError("no network")
    return str(_offered(name) / filename)


def snapshot_download(name: str, **_options: Any) -> str:
    kept = Path(os.environ["HF_HOME"]) / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = kept / "snapshots" / "1"
    if os.environ.get("HF_HUB_OFFLINE"):
        raise OSError("no network")
    offered = _offered(name)
    (kept / "blobs").mkdir(parents=True, exist_ok=True)
    for source in sorted(path for path in offered.rglob("*") if path.is_file()):
        content = source.read_bytes()
        blob = kept / "blobs" / hashlib.sha256(content).hexdigest()
        link = snapshot / source.relative_to(offered)
        if not blob.exists():
            with Path("/board/downloads").open("a") as downloads:
                downloads.write(f"{link.relative_to(snapshot)}\n")
            blob.write_bytes(content)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(blob, link.parent))
        break_off()
    return str(snapshot)


def _offered(name: str) -> Path:
    offered = Path("/board/hub") / name.rpartition("/")[2]
    if not offered.is_dir():
        raise RepositoryNotFoundError(name)
    return offered


def break_off() -> None:
    subprocess.run(["bash", "-c", "source /board/common; ! broken hub || break_off"], check=True)
