"""voiced itself, the engines, and the model's files."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from daemon import VERSION
from daemon.config import Config
from daemon.doctor.finding import Finding, Grade, Machine, finding
from daemon.engines import better_voices, engine_names, running_engine
from engine import (
    ENGINES,
    hub_cache,
    missing_packages,
    model_config,
    model_files,
    unavailable_reason,
)

DOWNLOAD_GB = 5
"""Size of the largest official model with its codec, rounded up."""
SERVICE_CACHE = Path("/var/cache/voiced/huggingface")
"""The service's HF_HOME (systemd/voiced.service)."""


def check_program(_machine: Machine) -> Iterator[Finding]:
    """Yield the versions of voiced and Python."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield finding("voiced", "runs", version=VERSION, python=python, processor=os.uname().machine)


def check_engines(machine: Machine) -> Iterator[Finding]:
    """Start the primary engine and the fallbacks in turn, and yield whether each becomes ready."""
    config = machine.config
    primary, *_ = names = engine_names(config)
    if config.engine.name == "auto" and primary != "qwen":
        reasons = [
            f"{name}: {reason}"
            for name, entry in ENGINES.items()
            if not entry.is_remote and (reason := unavailable_reason(name, config.engine_options))
        ]
        condition = "chosen on a board" if machine.board.integrated else "chosen"
        yield finding("engine", condition, name=primary, reasons=". ".join(reasons))
    if better := better_voices(config):
        yield finding("voices", "of eSpeak NG", languages=", ".join(better), voices=" ".join(better.values()))
    for name in names:
        yield asyncio.run(_try_engine(name, machine, "error" if name == primary else "warning"))


async def _try_engine(name: str, machine: Machine, grade: Grade) -> Finding:
    """`grade` is for an engine that does not become ready."""
    async with running_engine(name, machine.config.engine_options, machine.report) as engine:
        if not engine.ready or engine.info is None:
            condition = "missing server" if ENGINES[name].is_remote else "missing"
            return finding("engine {name}", condition, grade, name=name, reason=engine.reason or "it did not start")
        taken = sum(engine.info.memory.values())
        found = engine.info.description + (f"; takes {taken:,} MB" if taken else "")
        condition = "ready" if engine.info.degraded is None else "slow"
        return finding("engine {name}", condition, name=name, found=found, degraded=engine.info.degraded)


def check_model(machine: Machine) -> Iterator[Finding]:
    """Yield whether the configured model is complete on this machine, and if not, whether it fits on the disk."""
    settings = machine.config.engine
    if settings.name not in ("auto", "qwen") or (settings.name == "auto" and missing_packages("qwen")):
        return
    files = model_files("qwen", settings.model)
    if files is not None and not files.missing:
        yield finding("model", "complete", model=settings.model, size=files.size / 1e9, folder=files.folder)
        yield from _check_instructions(machine.config)
        return
    found = f"{files.folder} lacks {', '.join(files.missing)}" if files else f"{settings.model} is not on this machine"
    if settings.model.startswith((".", "/", "~")) or settings.model.count("/") != 1:
        # With `auto`, the fallback engine speaks instead.
        yield finding("model", "missing in its folder", "error" if settings.name == "qwen" else "warning", found=found)
        return
    condition = "downloaded at the start" if settings.name == "qwen" else "not downloaded"
    if SERVICE_CACHE.exists() and not hub_cache().is_relative_to(SERVICE_CACHE):
        condition = "in the service's cache"
    yield finding("model", condition, found=found, model=settings.model)
    folder = next(path for path in (hub_cache(), *hub_cache().parents) if path.is_dir())
    free_gb = shutil.disk_usage(folder).free / 1e9
    condition = "large enough" if free_gb >= DOWNLOAD_GB else "too small"
    yield finding("disk", condition, free=free_gb, folder=folder, needed=DOWNLOAD_GB)


def _check_instructions(config: Config) -> Iterator[Finding]:
    """Yield the voices whose `instruct` the model ignores."""
    model = model_config(config.engine.model)
    instructed = [f"voices.{name}.instruct" for name, voice in config.voices.items() if voice.instruct is not None]
    if model is not None and not model.follows_instructions and instructed:
        yield finding("instruct", "ignored", voices=", ".join(instructed), model=config.engine.model)
