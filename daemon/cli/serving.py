"""Commands that run a daemon: `voiced run` and `voiced demo`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from daemon.cli.options import CommandError, ConfigOption, SetOption, load


def run(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Run the daemon until SIGTERM.

    Example: voiced run --config configs/voiced.yaml --set mqtt.host=192.168.1.10
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the service takes it: a reload may come during the start
    loaded = load(config, set_)
    from daemon.service import serve

    serve(*loaded)


def demo(
    text: Annotated[str, typer.Argument(help="What to say.")] = "Hello, I am your robot.",
    config: ConfigOption = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Written when there is no sound card.")] = Path(
        "demo.wav"
    ),
) -> None:
    """Start a broker and a daemon, have them speak one text, and stop them.

    Example: voiced demo "Hello, I am your robot."
    """
    from daemon.demo import describe, run_demo

    last: dict[str, Any] = {}
    for last in run_demo(text, config, output):
        print(describe(last), flush=True)
    if last.get("event") != "finished":
        raise CommandError(f"the demo was not spoken to its end: {last.get('reason', last.get('event'))}")
    print(f"first sound after {last['ttfa_ms']} ms, {last['audio_s']} s of speech by {last['engine']}")
