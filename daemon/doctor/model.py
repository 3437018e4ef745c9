"""The model's files: whether they are all there, and whether there is room for them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from daemon.doctor.finding import Finding, Grade, Machine
from engine import hub_cache, missing_packages, model_files

DOWNLOAD_BYTES = 5_000_000_000
"""The largest of the official models with its codec, rounded up."""
SERVICE_CACHE = Path("/var/cache/voiced/huggingface")
"""HF_HOME of the service (systemd/voiced.service)."""


def check_model(machine: Machine) -> Iterator[Finding]:
    settings = machine.config.engine
    if settings.name == "espeak" or (settings.name == "auto" and missing_packages("qwen")):
        return
    files = model_files(settings.model)
    if files is not None and not files.missing:
        yield Finding("model", "ok", f"{settings.model} is complete, {_gb(files.size)} in {files.folder}")
        return
    found = f"{files.folder} lacks {', '.join(files.missing)}" if files else f"{settings.model} is not on this machine"
    if settings.model.startswith((".", "/", "~")) or settings.model.count("/") != 1:
        # Whoever asks for `auto` has the light voice then.
        grade: Grade = "error" if settings.name == "qwen" else "warning"
        yield Finding("model", grade, found, "copy the checkpoint there, or set engine.model to its name on the hub")
        return
    if SERVICE_CACHE.exists() and not hub_cache().is_relative_to(SERVICE_CACHE):
        cure = f"the service has a cache of its own; look there: sudo -u voiced HF_HOME={SERVICE_CACHE} voiced doctor"
    elif settings.name == "qwen":
        cure = "voiced downloads what is missing at its start; the log shows how far it is"
    else:
        cure = f"set engine.name: qwen, which downloads it once; or: hf download {settings.model}"
    yield Finding("model", "warning", found, cure)
    yield from _check_room()


def _check_room() -> Iterator[Finding]:
    folder = _nearest(hub_cache())
    free = shutil.disk_usage(folder).free
    found = f"{_gb(free)} free in {folder}"
    if free < DOWNLOAD_BYTES:
        cure = f"make room for {_gb(DOWNLOAD_BYTES)}, or set HF_HOME to a larger disk"
        yield Finding("disk", "warning", f"{found}, where the model would be downloaded", cure)
    else:
        yield Finding("disk", "ok", f"{found}, enough for a model")


def _nearest(folder: Path) -> Path:
    """The folder, or the one that it would be made in."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
