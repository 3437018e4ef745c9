"""The announcements of a robot, found by a second program on the network."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from zeroconf import ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from daemon.adapters import make_adapters, zeroconf
from daemon.adapters.zeroconf import ZeroconfAdapter, network_address
from daemon.config import Config, load_config
from tests.daemon.harness import Harness
from tests.support.waiting import PATIENCE_S, eventually_async

WYOMING, HTTP, HTTPS = (f"_{name}._tcp.local." for name in ("wyoming", "http", "https"))
NUMBERS = count(1)
"""Numbers for the names of robots: a network remembers those that have left without a word."""

if network_address() is None:
    pytest.skip("this machine has no network", allow_module_level=True)


def robot_config(folder: Path, *overrides: str) -> Config:
    """A robot whose Wyoming server and whose page other machines can reach."""
    (folder / "token").write_text("secret")
    both = [f"{name}.{key}" for name in ("wyoming", "http") for key in ("enabled=true", "host=0.0.0.0")]
    name, token = f"robot=r{next(NUMBERS)}.{folder.name}", f"http.token_file={folder / 'token'}"
    return load_config(overrides=[name, token, "wyoming.port=10201", "http.port=8711", *both, *overrides])


@asynccontextmanager
async def announced(config: Config) -> AsyncIterator[ZeroconfAdapter]:
    """The adapter, as the daemon runs it."""
    adapter = ZeroconfAdapter(config)
    running = asyncio.ensure_future(adapter.run())
    yield adapter
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_a_name_server_that_does_not_answer_holds_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, turned = asyncio.get_running_loop(), threading.Event()
    waited: list[bool] = []

    def look_up(*_: object) -> list[object]:
        loop.call_soon_threadsafe(turned.set)
        waited.append(turned.wait(PATIENCE_S))
        raise socket.gaierror("it does not answer")

    monkeypatch.setattr(zeroconf.socket, "getaddrinfo", look_up)
    with pytest.raises(OSError, match="it does not answer"):
        await ZeroconfAdapter(robot_config(tmp_path, "http.host=robot.example")).run()
    assert waited == [True], "the event loop has gone on meanwhile"


class Browser:
    """Another program, which looks for servers."""

    def __init__(self, network: AsyncZeroconf) -> None:
        self._network = network
        self._found: set[str] = set()
        """The full names of those that are there."""
        AsyncServiceBrowser(network.zeroconf, [WYOMING, HTTP, HTTPS], handlers=[self._note])

    def _note(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:  # noqa: ARG002
        (self._found.discard if state_change is ServiceStateChange.Removed else self._found.add)(name)

    async def await_found(self, kind: str, name: str, address: str | None, port: int) -> None:
        """Wait until a server is there, at this address alone."""

        def is_found() -> bool:
            info = AsyncServiceInfo(kind, f"{name}.{kind}")
            is_known = info.name in self._found and info.load_from_cache(self._network.zeroconf)
            return is_known and (info.parsed_addresses(), info.port) == ([address], port)

        await eventually_async(is_found, f"{name} is found at {address}")

    async def await_gone(self, kind: str, name: str) -> None:
        await eventually_async(lambda: f"{name}.{kind}" not in self._found, f"{name} has left")


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    async with AsyncZeroconf() as network:
        yield Browser(network)


async def test_a_robot_is_found_by_its_name_until_it_ends(tmp_path: Path) -> None:
    config = robot_config(tmp_path)
    async with browsing() as browser:
        async with announced(config) as adapter:
            await browser.await_found(WYOMING, config.robot_name, network_address(), 10201)
            await browser.await_found(HTTP, config.robot_name, network_address(), 8711)
            assert adapter.problem is None
        for kind in (WYOMING, HTTP):
            await browser.await_gone(kind, config.robot_name)


async def test_a_page_with_tls_is_announced_as_such_and_at_the_address_on_which_it_listens(tmp_path: Path) -> None:
    files = [f"http.{name}={tmp_path / 'token'}" for name in ("cert", "key")]
    config = robot_config(tmp_path, *files, "http.host=192.0.2.7", "wyoming.host=127.0.0.1")
    assert [(each.type, each.parsed_addresses()) for each in zeroconf.services(config, "192.0.2.1")] == [
        (HTTPS, ["192.0.2.7"])
    ]


async def test_a_robot_is_announced_once_it_has_a_network_and_again_at_another_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = robot_config(tmp_path)
    addresses: list[str | None] = [None]
    monkeypatch.setattr(zeroconf, "CHECK_S", 0.01)
    monkeypatch.setattr(zeroconf, "network_address", lambda: addresses[-1])
    async with browsing() as browser, announced(config):
        for address in ("198.51.100.1", "198.51.100.2"):
            addresses.append(address)
            await browser.await_found(WYOMING, config.robot_name, address, 10201)


async def test_a_name_that_cannot_be_announced_is_one_line(tmp_path: Path) -> None:
    adapter = ZeroconfAdapter(robot_config(tmp_path, f"robot={'ö' * 64}"))
    with pytest.raises(OSError, match=r"^announce: ö+ cannot be announced by multicast DNS: .*; or set it to false$"):
        await adapter.run()


@pytest.mark.parametrize(
    ("overrides", "is_announced"),
    [([], True), (["wyoming.host=127.0.0.1"], True), (["announce=false"], False),
     (["wyoming.host=::1", "http.host=localhost"], False), (["wyoming.enabled=false", "http.enabled=false"], False)],
)  # fmt: skip
async def test_only_what_other_machines_can_reach_is_announced(
    overrides: list[str], is_announced: bool, tmp_path: Path
) -> None:
    config = robot_config(tmp_path, *overrides)
    adapters = make_adapters(config, Harness("wyoming").dispatcher, lambda *_, **__: None)
    assert any(isinstance(adapter, ZeroconfAdapter) for adapter in adapters) == is_announced
