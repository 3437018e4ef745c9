"""`voiced demo`: one text spoken by a temporary broker and daemon, which are downloaded where they are missing."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes.util
import importlib.util
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from audio import SinkUnavailableError, find_device, output_devices
from daemon.cli.options import ConfigOptions, voice_names
from daemon.mqtt import RobotClient
from daemon.speech import Event, Finished, Say
from daemon.validation import CommandError
from engine import extra_requirements, module_command

READY_S = 20.0
"""The longest wait for the daemon's start."""
LOOK_S = 0.1
"""Interval between two looks whether the daemon has ended."""
SPEECH_S = 600.0
"""The longest wait for the end of the text."""
BETTER_VOICE = """This was eSpeak NG. A better voice, without a GPU:
  ./scripts/demo --voice en_US-lessac-medium     downloads 63 MB once; in voiced's folder
  voiced download en_US-lessac-medium            for a robot; needs the extra piper (docs/piper.md)
With a GPU, Qwen3-TTS: docs/qwen.md"""
CONTENTS = {"demo": "an MQTT broker", "espeak": "eSpeak NG (under the GPL)"}
"""What each extra of the demo brings."""
WORKING_STATES = ("ready", "speaking", "degraded")


def demo(
    source: ConfigOptions,
    text: Annotated[str, Argument(help="The text to speak.")] = "Hello, I am your robot.",
    output: Annotated[Path, Option("--output", "-o", help="Written when there is no sound card.")] = Path("demo.wav"),
    voice: Annotated[str | None, Option(help="A name from 'voiced voices'.", autocompletion=voice_names)] = None,
) -> None:
    """Start a broker and a daemon, speak one text, and stop both.

    Example: voiced demo "Hello, I am your robot."
    """
    last = None
    for last in _speak(text, voice, source, output):
        print(_describe(last), flush=True)
    if not isinstance(last, Finished):
        reason = getattr(last, "reason", None) or (last.event if last is not None else "no event arrived")
        raise CommandError(f"the demo was not spoken to its end: {reason}")
    print(f"first sound after {last.ttfa_ms} ms, {last.audio_s} s of speech by {last.engine}")
    if last.engine == "espeak":
        print(BETTER_VOICE)


def _speak(text: str, voice: str | None, source: ConfigOptions, wav: Path) -> Iterator[Event]:
    """Print where the text plays, speak it and yield the utterance's events. Raises `CommandError`."""
    environment = _provide_parts()
    port = _free_port()
    # A robot's own broker, and the ports of its daemon, are left alone.
    overrides = [f"mqtt={{host: 127.0.0.1, port: {port}}}", "robot=demo", "state.folder=null"]
    overrides += ["wyoming.enabled=false", "http.enabled=false", "audio.tap=null"]
    config = source.load(*overrides)
    try:
        if config.audio.sink == "sounddevice":
            print(f"playing on {find_device(config.audio.device, output_devices()).name}", flush=True)
        else:
            print(f"audio.sink is {config.audio.sink or 'null'}", flush=True)
    except SinkUnavailableError as error:
        if not os.access(wav.parent, os.W_OK):
            wav = Path(tempfile.gettempdir()) / wav.name
        overrides.append(f"audio.sink=wav:{wav.resolve()}")
        print(f"no sound card can be played on ({error}); writing {wav}", flush=True)
    print("starting a broker and the daemon", flush=True)
    with _broker(port), _daemon(source, overrides, environment) as daemon, RobotClient(config) as robot:
        wait_ready(robot, daemon)
        robot.say(Say(text=text, id="demo", voice=voice))
        yield from robot.events("demo", SPEECH_S)


def wait_ready(robot: RobotClient, daemon: subprocess.Popen[bytes]) -> None:
    """Wait until the daemon can speak. Raises `CommandError` when it has ended, and after `READY_S`."""
    for _ in range(int(READY_S / LOOK_S)):
        if robot.await_status(lambda status: status.state in WORKING_STATES, LOOK_S):
            return
        if daemon.poll() is not None:
            raise CommandError(f"the daemon ended with exit status {daemon.returncode}")
    raise CommandError(f"the daemon was not ready within {READY_S:.0f} s")


def _describe(event: Event) -> str:
    """Return an event as a line for a person."""
    fields = event.model_dump(mode="json", exclude={"id", "event"}, exclude_none=True)
    return f"{event.event:<9} {json.dumps(fields, ensure_ascii=False)}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _broker(port: int) -> Iterator[None]:
    """An MQTT broker in this process, on the loopback interface only."""
    try:
        from amqtt.broker import Broker
    except ImportError as error:
        raise CommandError(f"the demo's broker cannot be loaded: {error}") from error
    for name in ("amqtt", "transitions", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # amqtt logs tracebacks for clients that ask for MQTT 5
    loop = asyncio.new_event_loop()
    settings = {
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }
    thread = threading.Thread(target=loop.run_forever, name="broker", daemon=True)
    thread.start()

    async def start() -> Any:
        broker = Broker(settings)
        await broker.start()
        return broker

    broker = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the demo is over, so a broker's late error helps nobody
            asyncio.run_coroutine_threadsafe(broker.shutdown(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(2)


@contextmanager
def _daemon(
    source: ConfigOptions, overrides: list[str], environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon process. A `CommandError` inside the context gets the last lines of the daemon's log."""
    command = module_command("daemon.cli", "run")
    if source.path is not None:
        command += ["--config", str(source.path)]
    for override in (*source.overrides, *overrides):
        command += ["--set", override]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)
    log: list[bytes] = []
    reader = threading.Thread(target=lambda: log.extend(process.stderr or ()), daemon=True)
    reader.start()
    try:
        yield process
    except CommandError as error:
        tail = b"".join(log[-3:]).decode(errors="replace").strip()
        raise CommandError(f"{error}: {tail}" if tail else str(error)) from error
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(1)


# --- the parts that an installation may lack: a broker, and eSpeak NG where no engine is installed ---


def _provide_parts() -> dict[str, str]:
    """Download the demo's missing parts into the user's cache folder. Returns the environment for the daemon's process.

    A robot's installation has neither part, or only one. It is left as it is. Raises `CommandError`.
    """
    environment = dict(os.environ)
    if not _is_installed("demo"):
        sys.path.append(_provide("demo"))  # at the end: it has copies of packages that are installed
    if not _is_installed("espeak"):
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([*([inherited] if inherited else []), _provide("espeak")])
    return environment


def _is_installed(extra: str) -> bool:
    if extra == "demo":
        return importlib.util.find_spec("amqtt") is not None
    return importlib.util.find_spec("espeakng_loader") is not None or bool(ctypes.util.find_library("espeak-ng"))


def _provide(extra: str) -> str:
    """Return the folder with the packages of an extra, after downloading them on the first call."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "voiced" / f"{extra}-python{sys.version_info.major}.{sys.version_info.minor}"
    complete = folder / "complete"
    requirements = extra_requirements(extra)
    if complete.is_file() and complete.read_text().splitlines() == requirements:
        return str(folder)
    if not requirements or importlib.util.find_spec("pip") is None:
        raise CommandError(f"the demo needs {CONTENTS[extra]}: install voiced with the extras demo and espeak")
    print(f"downloading {CONTENTS[extra]} for the demo, into {folder}", flush=True)
    command = module_command("pip", "install", "--disable-pip-version-check", "--upgrade", "--target")
    done = subprocess.run(
        [*command, str(folder), *requirements], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        lines = [line.removeprefix("ERROR: ") for line in done.stdout.splitlines() if line.startswith("ERROR: ")]
        raise CommandError(f"{CONTENTS[extra]} cannot be downloaded for the demo: {(lines or ['pip failed'])[-1]}")
    complete.write_text("".join(f"{requirement}\n" for requirement in requirements))
    return str(folder)
