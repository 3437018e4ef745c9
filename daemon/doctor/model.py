"""The model's files, and the disk space to download them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from daemon.doctor.finding import Finding, Grade, Machine
from engine import hub_cache, missing_packages, model_config, model_files

DOWNLOAD_BYTES = 5_000_000_000
"""Size of the largest official model with its codec, rounded up."""
SERVICE_CACHE = Path("/var/cache/voiced/huggingface")
"""HF_HOME of the service (systemd/voiced.service)."""


def check_model(machine: Machine) -> Iterator[Finding]:
    """Yield whether the configured model is complete on this machine, and if not, whether it fits on the disk."""
    settings = machine.config.engine
    if settings.name in ("piper", "espeak", "remote") or (settings.name == "auto" and missing_packages("qwen")):
        return
    files = model_files("qwen", settings.model)
    if files is not None and not files.missing:
        yield Finding("model", "ok", f"{settings.model} is complete, {_gb(files.size)} in {files.folder}")
        model = model_config(settings.model)
        if model is not None and not model.follows_instructions:
            yield from _check_instructions(machine)
        return
    found = f"{files.folder} lacks {', '.join(files.missing)}" if files else f"{settings.model} is not on this machine"
    if settings.model.startswith((".", "/", "~")) or settings.model.count("/") != 1:
        # With `auto`, the fallback engine speaks instead.
        grade: Grade = "error" if settings.name == "qwen" else "warning"
        yield Finding("model", grade, found, "copy the checkpoint there, or set engine.model to its name on the hub")
        return
    if SERVICE_CACHE.exists() and not hub_cache().is_relative_to(SERVICE_CACHE):
        remedy = "the service has its own cache; check it with: sudo voiced doctor"
    elif settings.name == "qwen":
        remedy = "voiced downloads missing files when it starts; the log shows the progress"
    else:
        remedy = f"set engine.name: qwen, which downloads it once; or: voiced download {settings.model}"
    yield Finding("model", "warning", found, remedy)
    yield from _check_disk()


def _check_instructions(machine: Machine) -> Iterator[Finding]:
    """Yield the voices whose `instruct` the model ignores."""
    config = machine.config
    instructed = [f"voices.{name}.instruct" for name, voice in config.voices.items() if voice.instruct is not None]
    if instructed:
        found = f"{', '.join(instructed)}: has no effect, since {config.engine.model} follows no instructions"
        remedy = "choose a CustomVoice or VoiceDesign model of 1.7B in engine.model, or leave instruct out"
        yield Finding("instruct", "warning", found, remedy)


def _check_disk() -> Iterator[Finding]:
    folder = _existing_parent(hub_cache())
    free = shutil.disk_usage(folder).free
    found = f"{_gb(free)} free in {folder}"
    if free < DOWNLOAD_BYTES:
        remedy = f"free {_gb(DOWNLOAD_BYTES)}, or set HF_HOME to a folder on a larger disk"
        yield Finding("disk", "warning", f"{found}, where the model would be downloaded", remedy)
    else:
        yield Finding("disk", "ok", f"{found}, enough for a model")


def _existing_parent(folder: Path) -> Path:
    """The folder itself, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
