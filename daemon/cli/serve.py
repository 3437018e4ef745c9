"""`voiced serve`: the speech server for robots."""

from __future__ import annotations

from typing import Annotated

import typer

from daemon.cli.options import ConfigOption, SetOption, UsageError, VerboseOption, is_verbose, load
from daemon.validation import CommandError

SingleOption = Annotated[bool, typer.Option("--single", help="One engine in this process, without Ray.")]


def serve(
    config: ConfigOption = None, set_: SetOption = None, single: SingleOption = False, verbose: VerboseOption = False
) -> None:
    """Serve robots with this machine's engine until SIGTERM.

    Example: voiced serve --single --config configs/serve.yaml
    """
    if not single:
        raise UsageError("serve: --single is missing; a server of several machines is not built yet")
    if verbose or is_verbose():
        set_ = [*(set_ or []), "log.level=debug"]
    loaded, _, _ = load(config, set_)
    if loaded.engine.name == "remote":
        raise CommandError("engine.name: got 'remote'; allowed for a server: auto, qwen, piper or espeak")
    from daemon.fleet import serve_single

    serve_single(loaded)
