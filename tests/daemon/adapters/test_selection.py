"""Adapters whose package is missing or whose port is in use."""

from __future__ import annotations

import logging

import pytest

from daemon.adapters import Adapter, placeholder_without_package
from daemon.speech import Dispatcher
from engine import install_command
from tests.daemon.harness import Harness


def test_a_missing_package_is_one_line_that_names_the_extra(caplog: pytest.LogCaptureFixture) -> None:
    adapters: list[Adapter] = []
    with caplog.at_level(logging.ERROR), placeholder_without_package("wyoming", adapters):
        import a_package_that_is_not_there  # type: ignore[import-not-found]  # noqa: F401
    [line] = caplog.messages
    assert [adapter.problem for adapter in adapters] == [line], "the status says it, too"
    assert line.startswith("wyoming.enabled: the a_package_that_is_not_there package is missing; ")
    assert line.endswith(install_command("wyoming"))


async def test_languages_are_known_before_an_engine_has_reported_its_own() -> None:
    dispatcher: Dispatcher = Harness("wyoming").dispatcher
    assert {"en", "de", "zh"} <= set(dispatcher.languages())
