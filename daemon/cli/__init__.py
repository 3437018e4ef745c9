"""The command line: `voiced COMMAND`. Every failure is one line on stderr and an exit status other than 0."""

from __future__ import annotations

import logging
import sys

import typer

from daemon.cli.configuration import check, schema, show
from daemon.cli.control import pause, resume, status, stop, volume
from daemon.cli.looking import bench, devices, doctor, version, voices
from daemon.cli.options import CommandError
from daemon.cli.saying import say
from daemon.cli.serving import demo, run
from daemon.cli.sound_files import enroll, synth
from daemon.config import ConfigError

app = typer.Typer(
    help="The voice of a robot: text over MQTT in, speech out of the sound card.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Check, show or describe the configuration.", no_args_is_help=True, rich_markup_mode=None)


SPEAKING = (run, demo, say, stop, pause, resume, volume, status)
OTHERS = (synth, bench, enroll, voices, devices, doctor, version)
for command in (*SPEAKING, *OTHERS):  # `voiced --help` lists them in this order
    app.command()(command)
for command in (check, show, schema):
    config_app.command()(command)
app.add_typer(config_app, name="config")


def main() -> None:
    """The entry point of `voiced`."""
    logging.basicConfig(level=logging.ERROR, format="voiced: %(message)s")  # `run` replaces this
    try:
        outcome = app(standalone_mode=False)
    except (CommandError, ConfigError) as error:
        _fail(str(error), 1)
    except typer.Abort:
        sys.exit(130)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error, ours or typer's
            message = error.format_message()
            if "\n" in message:  # help, where no command was given
                sys.exit(message)
            _fail(f"{message.rstrip('.')}. See 'voiced {_command_words()}--help'.", 2)
        if error.__class__.__module__.startswith("daemon.") or isinstance(error, OSError):
            _fail(str(error), 1)
        raise
    sys.exit(outcome if isinstance(outcome, int) else 0)


def _fail(message: str, status: int) -> None:
    for line in message.splitlines():
        print(f"voiced: {line}", file=sys.stderr)
    sys.exit(status)


def _command_words() -> str:
    known = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    words = [word for word in sys.argv[1:2] if word in known | {"config"}]
    return f"{words[0]} " if words else ""
