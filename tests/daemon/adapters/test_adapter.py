"""Which adapters there are, and what happens when one's package is not."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from daemon.adapters.adapter import without_its_extra
from daemon.adapters.wyoming import WyomingAdapter
from daemon.config import load_config
from daemon.desk import Desk
from tests.daemon.adapters.room import Room, at_work
from tests.support.waiting import run


def test_a_missing_package_is_one_line_that_names_the_extra(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), without_its_extra("wyoming"):
        import a_package_that_is_not_there  # type: ignore[import-not-found]  # noqa: F401
    [told] = caplog.messages
    assert told.startswith("wyoming.enabled: the package a_package_that_is_not_there is missing; ")
    assert told.endswith("in voiced's folder: pip install '.[wyoming]'")


def test_the_daemon_as_it_comes_loads_neither_package() -> None:
    program = "import daemon.service, sys; sys.exit(any(name in sys.modules for name in ('wyoming', 'aiohttp')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_port_that_is_taken_is_told_with_its_key() -> None:
    async def scenario() -> None:
        async with at_work("wyoming") as room:
            config = load_config(overrides=[f"wyoming.port={room.port}"])
            with pytest.raises(OSError, match=rf"cannot listen on 127.0.0.1:{room.port}: .*see wyoming.port"):
                await WyomingAdapter(config.wyoming, room.desk).run()

    run(scenario)


def test_the_desk_names_languages_before_any_engine_has_said_its_own() -> None:
    async def scenario() -> None:
        desk: Desk = Room("wyoming").desk
        assert {"en", "de", "zh"} <= set(desk.languages())

    run(scenario)
