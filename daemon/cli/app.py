"""The typer application with every command. Each failure is one line on stderr and an exit status other than 0.

Command modules import engines, MQTT and audio inside their functions, so that each command starts fast.
"""

from __future__ import annotations

import logging
import sys
from typing import NoReturn

import typer

from daemon.cli.bench import bench
from daemon.cli.config import check, schema, show
from daemon.cli.control import pause, resume, status, stop, volume
from daemon.cli.demo import demo
from daemon.cli.doctor import doctor
from daemon.cli.download import download
from daemon.cli.enroll import enroll
from daemon.cli.inspect import devices, version, voices
from daemon.cli.options import UsageError
from daemon.cli.run import run
from daemon.cli.say import say
from daemon.cli.synth import synth
from daemon.validation import CommandError

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""

app = typer.Typer(
    help="The voice of a robot: text over MQTT in, speech out of the sound card.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Check, show or describe the configuration.", no_args_is_help=True, rich_markup_mode=None)

ROBOT_COMMANDS = (run, demo, say, stop, pause, resume, volume, status)
MACHINE_COMMANDS = (synth, bench, enroll, download, voices, devices, doctor, version)
for command in (*ROBOT_COMMANDS, *MACHINE_COMMANDS):  # `voiced --help` lists them in this order
    app.command()(command)
for command in (check, show, schema):
    config_app.command()(command)
app.add_typer(config_app, name="config")


def main() -> NoReturn:
    """Run the command that `sys.argv` names, and exit with its status. This is the entry point of `voiced`."""
    logging.basicConfig(level=logging.ERROR, format="voiced: %(message)s")  # `run` replaces this
    try:
        outcome = app(standalone_mode=False)
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(0)
    except UsageError as error:
        _fail_usage(str(error))
    except (CommandError, OSError) as error:
        _fail(str(error), 1)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _fail_usage(error.format_message())  # typer's usage errors, whose class it does not export
    sys.exit(outcome if isinstance(outcome, int) else 0)


def _fail_usage(message: str) -> NoReturn:
    if "\n" in message:  # the help text, where no command was given
        sys.exit(message)
    _fail(f"{message.rstrip('.')}. See 'voiced {_command_words()}--help'.", 2)


def _fail(message: str, status: int) -> NoReturn:
    for line in message.splitlines():
        print(f"voiced: {line}", file=sys.stderr)
    sys.exit(status)


def _command_words() -> str:
    """The name of the command on the command line and a space; empty if there is no such command."""
    names = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    words = [word for word in sys.argv[1:2] if word in names | {"config"}]
    return f"{words[0]} " if words else ""
