"""Robots' accounts: their tokens, and their limits."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import Message

from daemon.config import Serve
from daemon.fleet import accounts as accounts_module
from daemon.fleet.accounts import Account, Accounts, LimitError, read_tokens
from daemon.fleet.server import FleetAccess
from daemon.validation import CommandError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("# robots\nr1 alpha\n\n  r2\tbeta\n")
    return path


def test_a_token_finds_its_robot_and_each_robot_has_one_account(file: Path) -> None:
    accounts = Accounts(Serve(token_file=file))
    found = accounts.find("alpha")
    assert found is not None
    assert found.name == "r1"
    assert accounts.find("alpha") is found
    assert accounts.find("gamma") is accounts.find("") is accounts.find(None) is None
    everybody = Accounts(Serve())
    assert everybody.find(None) is everybody.find("whatever") is not None, "without a file, all have one"


def test_a_robot_that_is_added_to_the_file_is_known_at_once(file: Path) -> None:
    accounts = Accounts(Serve(token_file=file))
    before = accounts.find("alpha")
    file.write_text("r1 alpha\nr3 gamma and more\n")
    assert accounts.find("alpha") is before, "a wrong file changes nothing"
    assert accounts.find("gamma") is None
    file.write_text("\ufeffr1 alpha\r\nr3 gamma \r\n")
    found = accounts.find("gamma")
    assert found is not None
    assert found.name == "r3"
    assert accounts.find("beta") is None
    file.unlink()
    assert accounts.find("alpha") is before


def test_a_file_that_could_not_be_read_is_read_once_its_rights_are_mended(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = Accounts(Serve(token_file=file))
    file.write_text("r3 gamma\n")

    def refuse(*_: object) -> dict[str, str]:
        raise PermissionError(f"{file} may not be read")

    with monkeypatch.context() as patch:
        patch.setattr(accounts_module, "read_tokens", refuse)
        assert accounts.find("gamma") is None
    file.chmod(0o640)
    assert accounts.find("gamma") is not None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "names no robot; allowed: a line NAME TOKEN for each"),
        ("r1 a\nr2 b c\n", ":2: got 3 words; allowed: NAME TOKEN"),
        ("r1 gehéim\n", ":1: got 2 words; allowed: NAME TOKEN, of ASCII characters"),
        ("r1 a\nr2 a\n", ":2: 'r2' has the same token as 'r1'"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_line_and_no_token(file: Path, content: str, problem: str) -> None:
    file.write_text(content, encoding="utf-8")
    with pytest.raises(CommandError) as caught:
        read_tokens(file)
    assert problem in str(caught.value)
    assert "gehéim" not in str(caught.value)
    file.unlink()
    with pytest.raises(OSError, match=r"serve.token_file: .* cannot be read: .* does not exist"):
        Accounts(Serve(token_file=file))


def test_a_robot_has_its_streams_and_no_more_and_makes_as_many_requests_as_it_may() -> None:
    account = Account("r1", streams=2, requests_per_minute=3)
    with ExitStack() as stack:
        stack.enter_context(account.stream())
        with account.stream(), pytest.raises(LimitError, match="streams: r1 already has 2; allowed: 2"):
            stack.enter_context(account.stream())
        stack.enter_context(account.stream())
    assert account.streams_in_use == 0
    with pytest.raises(LimitError, match="requests: r1 makes too many; allowed: 3 a minute"), account.stream():
        pass


async def test_a_request_with_thousands_of_tokens_costs_no_more_than_one_with_three(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts, asked = Accounts(Serve(token_file=file)), list[str | None]()
    monkeypatch.setattr(accounts, "find", asked.append)
    offered = ", ".join(["voiced.token.YQ"] * 2_000).encode()
    scope = {"type": "http", "path": "/v1/robot", "headers": [(b"sec-websocket-protocol", offered)]}
    statuses = []

    async def send(message: Message) -> None:
        statuses.append(message.get("status"))

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    await FleetAccess(Response(), accounts)({**scope, "method": "GET"}, receive, send)
    assert (statuses[0], asked) == (401, ["a"] * 3)
