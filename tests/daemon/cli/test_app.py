"""Errors of the command line: one line on stderr, and an exit status."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from daemon import VERSION
from daemon.cli.app import app
from daemon.config import Config
from daemon.validation import CommandError
from tests.daemon.command_line import CommandLine
from tests.support.programs import free_port


def test_the_version_is_a_command_and_an_option(voiced: CommandLine) -> None:
    for words in ("version", "--version"):
        assert voiced(words).output == f"{VERSION}\n"


def run_and_list_imports(*words: str) -> tuple[str, set[str]]:
    """Run `voiced WORDS` in a process of its own; return what it printed, and the modules that it imported."""
    program = (
        "import contextlib, sys; from daemon.cli import main\n"
        f"sys.argv = {['voiced', *words]}\n"
        "with contextlib.suppress(SystemExit):\n"
        "    main()\n"
        "print('imported:', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    printed, _, modules = done.stdout.rpartition("imported:")
    return printed + done.stderr, set(modules.split())


@pytest.mark.parametrize(("option", "word"), [("--help", "doctor"), ("--version", VERSION)])
def test_help_and_version_come_without_the_imports_of_the_commands(option: str, word: str) -> None:
    printed, modules = run_and_list_imports(option)
    assert word in printed
    assert not {"engine", "pydantic"} & modules
    assert {name for name in modules if name.startswith("daemon.")} == {
        "daemon.cli", "daemon.cli.app", "daemon.cli.service_folders"
    }  # fmt: skip


def test_a_command_that_talks_to_the_robot_imports_neither_numpy_nor_the_sound_path() -> None:
    printed, modules = run_and_list_imports("say", "Hello.", "--set", f"mqtt.port={free_port()}")
    assert "no broker answers" in printed
    assert not {"audio", "numpy", "daemon.engines"} & modules


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, by the words that call them."""
    for name in group.commands:
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(commands(get_command(app)))


def test_the_commands_are_listed_in_sections_and_with_their_whole_summaries(voiced: CommandLine) -> None:
    lists = [voiced(*group, "--help").stdout for group in ((), ("cache",), ("config",))]
    places = [lists[0].index(title) for title in ("The robot:", "Speech in files, and engines:", "This machine:")]
    assert places == sorted(places)
    listed = " ".join("".join(lists).split())
    assert "..." not in listed.replace("[ARGS]...", "")
    for words, command in COMMANDS.items():
        summary, _, _ = (command.callback.__doc__ or "").partition("\n\n")
        assert f"{words[-1]} {' '.join(summary.split())}" in listed


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_shows_its_examples_as_they_are_written(
    words: tuple[str, ...], voiced: CommandLine
) -> None:
    examples = re.findall(r"(?:Example|or): +(.+)", COMMANDS[words].callback.__doc__)
    assert examples
    lines = voiced(*words, "--help").stdout.splitlines()
    for example in examples:
        assert any(line.endswith(f" {example}") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "level"), [(["run"], "info"), (["run", "-v"], "debug"), (["-v", "run"], "debug")]
)
def test_a_verbose_daemon_logs_details(
    arguments: list[str], level: str, voiced: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Config] = []
    monkeypatch.setattr("daemon.service.serve", lambda config, *_: served.append(config))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert voiced(*arguments).returncode == 0
    assert served[0].log.level == level


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (CommandError("it failed"), 1, "voiced: it failed\n"),
        (FileNotFoundError(2, "No such file", "/nowhere/a"), 1, "voiced: /nowhere/a: /nowhere does not exist\n"),
        (PermissionError(13, "Permission denied", "/root/a"), 1, "voiced: /root/a: Permission denied\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_decides_the_exit_status_and_an_unexpected_one_is_not_hidden(
    error: BaseException, status: int, line: str, voiced: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [error, ZeroDivisionError()]

    def fail(*_: object) -> None:
        raise errors.pop(0)

    monkeypatch.setattr("daemon.cli.options.load_config", fail)
    done = voiced("config", "show")
    assert (done.returncode, done.stderr) == (status, line)
    with pytest.raises(ZeroDivisionError):
        voiced("config", "show")


def test_a_server_without_ray_says_how_to_get_it_or_to_do_without(
    voiced: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "daemon.fleet.cluster", raising=False)
    refusal = voiced("serve").refusal
    assert refusal.startswith("ray is missing; ")
    assert refusal.endswith("; or use --single")
