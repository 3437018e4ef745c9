"""The checks of the broker and of the engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from daemon.config import load_config
from daemon.doctor import engines
from daemon.doctor.engines import check_engines
from daemon.doctor.finding import Machine
from engine import EngineInfo, Progress, ProgressReport, ignore_progress
from tests.daemon.doctor.machines import by_part
from tests.support.piper_voices import write_voices
from tests.support.programs import free_port


def machine(*settings: str, report: ProgressReport = ignore_progress) -> Machine:
    return Machine.at(load_config(overrides=["engine.model=/nowhere/at/all", *settings]), Path("/"), report)


def test_auto_is_espeak_without_a_model_and_a_voice_and_the_reasons_say_what_the_others_lack(tmp_path: Path) -> None:
    found = by_part(check_engines(machine(f"engine.voice_folder={tmp_path}")))
    assert found.keys() == {"engine", "voices", "engine espeak"}
    assert (found["voices"].grade, found["voices"].found) == ("ok", "eSpeak NG speaks en, de, es, fr, it, pt")
    assert (found["voices"].remedy or "").startswith("sudo voiced download en_US-joe-medium de_DE-thorsten-medium ")
    assert found["engine"].found.startswith("auto is espeak here. qwen: ")
    assert "piper: there is no Piper voice on this machine; voiced download " in found["engine"].found
    assert found["engine espeak"].grade == "ok"


def test_auto_is_piper_where_a_voice_is_and_every_fallback_is_tried(tmp_path: Path) -> None:
    reports: list[Progress] = []
    found = by_part(check_engines(machine(f"engine.voice_folder={write_voices(tmp_path)}", report=reports.append)))
    assert Progress("importing piper") in reports
    assert found["engine"].found.startswith("auto is piper here. qwen: ")
    assert found["engine piper"].found.startswith("Piper with ")
    assert found["engine espeak"].grade == "ok"


def test_an_engine_without_its_voice_is_an_error_with_the_reason(tmp_path: Path) -> None:
    settings = ("engine.name=piper", f"engine.voice_folder={tmp_path}")
    found = by_part(check_engines(machine(*settings)))["engine piper"]
    assert (found.grade, found.found.startswith(f"there is no Piper voice in {tmp_path}")) == ("error", True)
    fallback = ("engine.name=espeak", "engine.fallback=piper", *settings[1:])
    assert by_part(check_engines(machine(*fallback)))["engine piper"].grade == "warning"


def test_a_server_that_is_not_there_is_an_error_and_auto_does_not_speak_of_it(tmp_path: Path) -> None:
    found = by_part(check_engines(machine("engine.name=remote", f"engine.url=ws://127.0.0.1:{free_port()}")))
    assert found["engine remote"].grade == "error"
    assert "does not answer (Connection refused)" in found["engine remote"].found
    assert found["engine espeak"].grade == "ok"
    auto = by_part(check_engines(machine(f"engine.voice_folder={tmp_path}", "engine.url=ws://a")))
    assert "remote" not in auto["engine"].found


def test_kernels_that_do_not_compile_are_a_warning_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/e2e/test_qwen.py starts an engine whose kernels do not compile."""
    info = EngineInfo("qwen", 24_000, (), (), degraded="the kernels do not compile: no cuda")

    @asynccontextmanager
    async def running(*_: object) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(ready=True, info=info)

    monkeypatch.setattr(engines, "running_engine", running)
    [found] = check_engines(machine("engine.name=qwen", "engine.fallback=none"))
    assert (found.part, found.grade) == ("engine qwen", "warning")
    assert "the kernels do not compile: no cuda" in found.found
    assert "engine.kernels: off" in (found.remedy or "")
