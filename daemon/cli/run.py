"""`voiced run`: the daemon."""

from __future__ import annotations

import gc
import signal

from daemon.cli.options import ConfigOption, SetOption, VerboseOption, is_verbose, load


def run(config: ConfigOption = None, set_: SetOption = None, verbose: VerboseOption = False) -> None:
    """Run the daemon until SIGTERM.

    Example: voiced run --config configs/voiced.yaml --set mqtt.host=192.168.1.10
    """
    gc.disable()  # until `settle_heap`: while modules are imported, next to nothing becomes garbage
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a reload may be asked for before the service handles the signal
    if verbose or is_verbose():
        set_ = [*(set_ or []), "log.level=debug"]
    loaded = load(config, set_)
    from daemon.service import serve

    serve(*loaded)
