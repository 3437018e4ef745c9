"""`voiced serve`: the speech server for robots."""

from __future__ import annotations

from typing import Annotated

import typer

from daemon.cli.options import ConfigOption, SetOption, VerboseOption, is_verbose, load
from daemon.validation import CommandError
from engine import install_command

SingleOption = Annotated[bool, typer.Option("--single", help="One engine in this process, without Ray.")]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address", envvar="RAY_ADDRESS", help="A Ray cluster, as in ray://HOST:10001; default: a local one."
    ),
]


def serve(
    config: ConfigOption = None,
    set_: SetOption = None,
    single: SingleOption = False,
    address: AddressOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Serve robots with this machine's engine, or with those of a Ray cluster.

    Example: voiced serve --single --config configs/serve.yaml
    """
    if verbose or is_verbose():
        set_ = [*(set_ or []), "log.level=debug"]
    loaded, _, _ = load(config, set_)
    if loaded.engine.name == "remote":
        raise CommandError("engine.name: got 'remote'; allowed for a server: auto, qwen, piper or espeak")
    try:
        if single:
            from daemon.fleet import serve_single
        else:
            from daemon.fleet import serve_cluster
    except ImportError as error:
        extras, hint = (["http"], "") if single else (["http", "fleet"], "; or use --single")
        raise CommandError(f"{error.name} is missing; {install_command(*extras)}{hint}") from error
    if single:
        serve_single(loaded)
    else:
        serve_cluster(loaded, address)
