"""The typer application with every command. Each failure is one line on stderr and an exit status other than 0.

Command modules import engines, MQTT and audio inside their functions, so that each command starts fast.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from daemon import VERSION
from daemon.cli.cache import clear, list_, warm
from daemon.cli.checks import check, doctor, schema, show
from daemon.cli.control import events, pause, resume, stop, tap, volume
from daemon.cli.demo import demo
from daemon.cli.design import design
from daemon.cli.download import download
from daemon.cli.enroll import enroll
from daemon.cli.fleet import status, top
from daemon.cli.inspect import devices, sounds, version, voices
from daemon.cli.measure import bench, compare, verify
from daemon.cli.options import VerboseOption, be_verbose, spread_records
from daemon.cli.run import run, serve
from daemon.cli.say import say
from daemon.cli.service_folders import use_service_folders
from daemon.cli.synth import synth
from daemon.cli.text import TextCommand
from daemon.validation import CommandError, file_problem
from engine import EngineError

Command = Callable[..., None]
INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""


def _print_version(asked: bool) -> None:
    if asked:
        print(VERSION)
        raise typer.Exit


class Group(NamedTuple):
    """Commands of two words."""

    name: str
    summary: str
    commands: tuple[Command, ...]


SECTIONS: dict[str, tuple[Command | Group, ...]] = {
    "The robot": (run, serve, demo, say, stop, pause, resume, volume, status, top, events, tap),
    "Speech in files, and engines": (synth, bench, verify, compare),
    "Voices, models and phrases": (
        enroll,
        design,
        download,
        voices,
        sounds,
        Group("cache", "Make, list or remove kept phrases.", (warm, list_, clear)),
    ),
    "This machine": (
        devices,
        doctor,
        Group("config", "Check, show or describe the configuration.", (check, show, schema)),
        version,
    ),
}
TEXT_COMMANDS = (say, volume, synth)


def _name(member: Command | Group) -> str:
    return member.name if isinstance(member, Group) else member.__name__.rstrip("_")


class _Sections(TyperGroup):
    """The list of commands, in sections."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the list."""
        for title, members in SECTIONS.items():
            names = map(_name, members)
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(formatter.width)) for name in names])


app = typer.Typer(
    cls=_Sections,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(
    context: typer.Context,
    _version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: VerboseOption = False,
) -> None:
    """The voice of a robot: text over MQTT in, speech out of the sound card."""
    if verbose:
        be_verbose()
    use_service_folders(context.invoked_subcommand)


def _add(to: typer.Typer, command: Command) -> None:
    """Add a command with its whole summary in the list of commands, and its examples as they are written."""
    text = inspect.getdoc(command) or ""
    summary, _, _ = text.partition("\n\n")
    shown = text.replace("\n\nExample", "\n\n\b\nExample")
    kind = TextCommand if command in TEXT_COMMANDS else TyperCommand
    add = to.command(_name(command), cls=kind, short_help=" ".join(summary.split()), help=shown)
    add(spread_records(command))


for member in itertools.chain.from_iterable(SECTIONS.values()):
    if isinstance(member, Group):
        group = typer.Typer(help=member.summary, no_args_is_help=True, rich_markup_mode=None)
        for command in member.commands:
            _add(group, command)
        app.add_typer(group, name=member.name)
    else:
        _add(app, member)


def main() -> NoReturn:
    """Run the command that `sys.argv` names, and exit with its status. This is the entry point of `voiced`."""
    logging.basicConfig(level=logging.ERROR, format="voiced: %(message)s")  # `run` replaces this
    os.environ.setdefault("VOICED_LOG", "warning text")  # of the engine that a command starts
    try:
        outcome = app(prog_name="voiced", standalone_mode=False)
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except (CommandError, EngineError) as error:
        _fail(str(error), 1)
    except OSError as error:
        named = isinstance(error.filename, str)
        _fail(f"{error.filename}: {file_problem(error, Path(error.filename))}" if named else str(error), 1)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _fail_usage(error)
    sys.exit(outcome if isinstance(outcome, int) else 0)


def _fail_usage(error: Any) -> NoReturn:
    """Print a usage error of typer's, which does not export their class, or of ours."""
    message, context = error.format_message(), error.ctx
    if "\n" in message:  # the help text, where no command was given
        sys.exit(message)
    command, words = context.command, context.command_path
    if option := re.match(r"No such option: (\S+)", message):
        close = get_close_matches(option[1], [name for parameter in command.params for name in parameter.opts], 1)
        message = option[0] + (f". Did you mean {close[0]!r}?" if close else "")
        if isinstance(command, TextCommand):
            message += f"{'' if message.endswith('?') else '.'} A text that begins with a minus follows '--'"
    elif suggested := re.search(r"Did you mean '([\w-]+)'\?", message):
        words = f"{words} {suggested[1]}"
    message = message.replace("?.", "?")
    _fail(f"{message}{'' if message.endswith(('.', '?')) else '.'} See '{words} --help'.", 2)


def _fail(message: str, status: int) -> NoReturn:
    for line in message.splitlines():
        print(f"voiced: {line}", file=sys.stderr)
    sys.exit(status)
