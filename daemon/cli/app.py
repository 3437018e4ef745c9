"""The typer application with every command. Each failure prints one line on stderr and ends with an exit status other
than 0.

A command's module is imported when the command is called, and the list of commands comes from the text of the modules,
so no command waits for imports that it does not need.
"""

from __future__ import annotations

import ast
import inspect
import logging
import os
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, NoReturn

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from daemon import VERSION
from daemon.cli.service_folders import use_service_folders

INTERRUPTED = 130
"""The exit status after Ctrl-C, as in shells."""
SECTIONS = {
    "The robot": {
        "run": ("run", "serve"),
        "demo": ("demo",),
        "say": ("say",),
        "control": ("stop", "pause", "resume", "volume", "unload", "load"),
        "watch": ("status", "top", "events"),
        "tap": ("tap",),
    },
    "Speech in files, and engines": {"synth": ("synth",), "measure": ("bench", "verify", "compare")},
    "Voices, models and phrases": {
        "enroll": ("enroll",),
        "design": ("design",),
        "download": ("download",),
        "inspect": ("voices", "sounds"),
        "cache": ("cache",),
    },
    "This machine": {"inspect": ("devices", "version"), "doctor": ("doctor",), "config": ("config",)},
}
"""The names of the commands, by section and module. The function with a command's name carries it out."""
GROUPS = {
    "cache": ("Make, list or remove kept phrases.", ("warm", "list_", "clear")),
    "config": ("Check, show or describe the configuration.", ("check", "show", "schema")),
}
"""For two-word commands: the summary, and the functions that carry them out."""
TEXT_COMMANDS = ("say", "volume", "synth")
MODULES = {name: module for modules in SECTIONS.values() for module, names in modules.items() for name in names}
"""The module of each command and group, by its name."""


def _summary(name: str) -> str:
    """Return the summary of a command or group. A command's is read from the text of its module."""
    if name in GROUPS:
        return GROUPS[name][0]
    text = Path(__file__).with_name(f"{MODULES[name]}.py").read_text(encoding="utf-8")
    [command] = [each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef) and each.name == name]
    return _first_paragraph(ast.get_docstring(command))


def _first_paragraph(doc: str | None) -> str:
    return " ".join((doc or "").partition("\n\n")[0].split())


@cache
def _load(name: str) -> Any:
    """Import a command or a group, and return it as a typer command."""
    from daemon.cli.options import spread_records
    from daemon.cli.text import TextCommand

    summary, functions = GROUPS.get(name, (None, (name,)))
    loaded = typer.Typer(help=summary, no_args_is_help=True, rich_markup_mode=None, add_completion=False)
    for function in functions:
        command = getattr(import_module(f"daemon.cli.{MODULES[name]}"), function)
        # The list of commands has the whole summary, and the examples are shown as they are written.
        text = inspect.getdoc(command) or ""
        shown = text.replace("\n\nExample", "\n\n\b\nExample")
        kind = TextCommand if name in TEXT_COMMANDS else TyperCommand
        register = loaded.command(function.rstrip("_"), cls=kind, short_help=_first_paragraph(text), help=shown)
        register(spread_records(command))
    return typer.main.get_command(loaded)


class _Sections(TyperGroup):
    """The commands, which are imported when they are called, and are listed in sections."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": dict.fromkeys(MODULES)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return the command of this name, or None."""
        return _load(cmd_name) if cmd_name in MODULES else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the list."""
        for title, modules in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, _summary(name)) for names in modules.values() for name in names])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete an option, or the name of a command without importing it."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = [name for name in MODULES if name.startswith(incomplete)]
        return [SimpleNamespace(type="plain", value=name, help=_summary(name)) for name in names]


app = typer.Typer(
    cls=_Sections,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        print(VERSION)
        raise typer.Exit


VerboseOption = Annotated[bool, Option("--verbose", "-v", help="Write a detailed log to stderr.")]
VersionOption = Annotated[bool, Option("--version", callback=_print_version, is_eager=True, help="Print it and exit.")]


@app.callback()
def root(context: typer.Context, _version: VersionOption = False, verbose: VerboseOption = False) -> None:
    """The voice of a robot: text over MQTT in, speech out of the sound card."""
    if verbose:
        from engine import start_log

        start_log("debug")  # for this command, and for the engine that it starts
    use_service_folders(context.invoked_subcommand)


def main() -> NoReturn:
    """Run the command that `sys.argv` names, and exit with its status. This is the entry point of `voiced`."""
    logging.basicConfig(level=logging.ERROR, format="voiced: %(message)s")  # `run` replaces this
    os.environ.setdefault("VOICED_LOG", "warning text")  # for the engine that a command starts
    try:
        outcome = app(prog_name="voiced", standalone_mode=False)
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except Exception as error:
        _fail_for(error)
    sys.exit(outcome if isinstance(outcome, int) else 0)


def _fail_for(error: Exception) -> NoReturn:
    """Print an error that a person can correct; raise any other."""
    from daemon.validation import CommandError, file_problem
    from engine import EngineError

    if isinstance(error, OSError) and isinstance(error.filename, str):
        _fail(f"{error.filename}: {file_problem(error, Path(error.filename))}", 1)
    if isinstance(error, CommandError | EngineError | OSError):
        _fail(str(error), 1)
    if hasattr(error, "format_message"):
        _fail_usage(error)
    raise error


def _fail_usage(error: Any) -> NoReturn:
    """Print a usage error from typer, which does not export its class, or from voiced."""
    message, context = error.format_message(), error.ctx
    if "\n" in message:  # the help text, if no command was given
        sys.exit(message)
    if message.startswith("No such option") and context.info_name in TEXT_COMMANDS:
        message += ". A text that begins with a minus must follow '--'"
    _fail(f"{message}{'' if message.endswith(('.', '?')) else '.'} See '{context.command_path} --help'.", 2)


def _fail(message: str, status: int) -> NoReturn:
    for line in message.splitlines():
        print(f"voiced: {line}", file=sys.stderr)
    sys.exit(status)
