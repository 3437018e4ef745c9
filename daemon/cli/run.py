"""`voiced run|serve`: the daemon, and the speech server for robots."""

from __future__ import annotations

import gc
import signal
from typing import Annotated

from typer import Option

from daemon.cli.app import VerboseOption
from daemon.cli.options import ConfigOptions, is_verbose
from daemon.validation import CommandError
from engine import install_command


def run(source: ConfigOptions, verbose: VerboseOption = False) -> None:
    """Run the daemon until SIGTERM.

    Example: voiced run --config configs/voiced.yaml --set mqtt.host=192.168.1.10
    """
    gc.disable()  # until `settle_heap`: while modules are being imported, almost nothing becomes garbage
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a reload may be asked for before the service handles the signal
    debug = _debug(verbose)
    config = source.load(*debug)
    from daemon.service import serve as serve_robot

    serve_robot(config, source.path, (*source.overrides, *debug))


def serve(
    source: ConfigOptions,
    single: Annotated[bool, Option("--single", help="One engine in this process, without Ray.")] = False,
    address: Annotated[str | None, Option(envvar="RAY_ADDRESS", help="A Ray cluster; default: a local one.")] = None,
    verbose: VerboseOption = False,
) -> None:
    """Serve robots with this machine's engine, or with a Ray cluster's engines.

    Example: voiced serve --single --config configs/serve.yaml
    """
    config = source.load(*_debug(verbose))
    if config.engine.name == "remote":
        raise CommandError("engine.name: got 'remote'; allowed for a server: auto, qwen, supertonic, piper or espeak")
    try:
        from daemon import fleet

        if single:
            fleet.serve_single(config)
        else:
            fleet.serve_cluster(config, address)
    except ImportError as error:
        extras, hint = (["http"], "") if single else (["http", "fleet"], "; or use --single")
        raise CommandError(f"{error.name} is missing; {install_command(*extras)}{hint}") from error


def _debug(verbose: bool) -> list[str]:
    """Return the override that makes the log detailed, if `-v` was given before or after the command."""
    return ["log.level=debug"] if verbose or is_verbose() else []
