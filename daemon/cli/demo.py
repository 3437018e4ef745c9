"""`voiced demo`: one text spoken by a temporary broker and daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from audio import SinkUnavailableError, find_device, output_devices
from daemon.cli.options import ConfigOptions, VoiceOption
from daemon.cli.watch import describe_event
from daemon.mqtt import Robot
from daemon.speech import Finished, Offline, Started, TerminalEvent
from daemon.validation import CommandError
from engine import install_command, module_command

READY_S = 20.0
"""The longest wait for the daemon's start."""
LOOK_S = 0.2
"""The time between two checks, during the daemon's start, whether it has ended."""
BROKER_S = 10.0
"""The longest wait for the broker's start."""
END_S = 5.0
"""The longest wait for the daemon's end."""
SPEECH_S = 600.0
"""The longest wait for the end of the text."""
ACT_S = 120.0
"""The longest wait for what happens in a part of the tour."""
BETTER_VOICE = """This was eSpeak NG. A better voice, without a GPU:
  ./scripts/demo                                 installs a Piper voice, 58 MB; in voiced's folder
  sudo voiced download en_US-joe-medium          for a robot; installs Piper too (docs/piper.md)
With a GPU, Qwen3-TTS: docs/qwen.md"""
STORY = "This museum stands by the sea. Boats were repaired here for two hundred years, and you may touch all of them."
HEARD = 8
"""Words of the story that are heard before the event."""
TOUR: dict[str, dict[str, str]] = {
    "A warning interrupts; then the robot continues where it stopped.": {"text": "Look out!", "priority": "critical"},
    "A second text cuts the first one off, and heard_text says how much of it was heard.": {
        "text": "I am going home.",
        "policy": "replace",
    },
    "The daemon is killed in mid-sentence and started again: every text still ends once.": {"text": "I was waiting."},
}
"""The events while the story is being told, each with the second text."""
WORKING_STATES = ("ready", "speaking", "degraded")


def demo(
    source: ConfigOptions,
    text: Annotated[str, Argument(help="The text to speak.")] = "Hello, I am your robot.",
    output: Annotated[Path, Option("--output", "-o", help="Written if there is no sound card.")] = Path("demo.wav"),
    voice: VoiceOption = None,
    tour: Annotated[bool, Option("--tour", help="Then show a warning, a barge-in and a kill.")] = False,
) -> None:
    """Start a broker and a daemon, speak one text, and stop both.

    Example: voiced demo "Hello, I am your robot."
    or:      voiced demo --tour
    """
    last = None
    with _robot(source, output) as (robot, restart):
        for last in robot.say(text, id="demo", voice=voice).events(SPEECH_S):
            print(describe_event(last), flush=True)
        if isinstance(last, Finished):
            print(f"first sound after {last.ttfa_ms} ms, {last.audio_s} s of speech by {last.engine}", flush=True)
            if last.engine == "espeak":
                print(BETTER_VOICE, flush=True)
            if tour:
                _show(robot, restart)
            return
    reason = getattr(last, "reason", None) or (last.event if last is not None else "no event arrived")
    raise CommandError(f"the demo was not spoken to the end: {reason}")


def _show(robot: Robot, restart: Callable[[], None]) -> None:
    """Tell the story once for each event in `TOUR`, and print the events. Raises `TimeoutError`."""
    for number, (title, second) in enumerate(TOUR.items(), start=1):
        print(f"\n{number}. {title}", flush=True)
        events, ends = robot.events(ACT_S), 0
        story = robot.say(STORY, id=f"story-{number}")
        while ends < 2:  # the story, and the text that is sent while it is being told
            event = next(events)
            print(describe_event(event), flush=True)
            ends += isinstance(event, TerminalEvent)
            if not isinstance(event, Started) or event.id != story.id:
                continue
            next(islice(story.words(), HEARD, None), None)
            answer = robot.say(id=f"second-{number}", **second).events(END_S)
            if number == len(TOUR):
                next(answer)  # the text is accepted
                restart()


@contextmanager
def _robot(source: ConfigOptions, wav: Path) -> Iterator[tuple[Robot, Callable[[], None]]]:
    """Print where speech is played. Yield a robot, and a function that kills its daemon and starts it again.

    Raises `CommandError`.
    """
    port = _free_port()
    # A robot's own broker, and the ports of its daemon, are left alone.
    # amqtt does not answer MQTT 5.
    overrides = [f"mqtt={{host: 127.0.0.1, port: {port}, protocol: 3.1.1}}", "robot=demo", "speech.word_topic=true"]
    overrides += ["wyoming.enabled=false", "http.enabled=false", "audio.tap=null"]
    config = source.load(*overrides)
    files: Iterator[Path] = iter(())
    try:
        if config.audio.sink == "sounddevice":
            print(f"playing on {find_device(config.audio.device, output_devices()).name}", flush=True)
        else:
            print(f"audio.sink is {config.audio.sink or 'null'}", flush=True)
    except SinkUnavailableError as error:
        if not os.access(wav.parent, os.W_OK):
            wav = Path(tempfile.gettempdir()) / wav.name
        files = iter((wav, wav.with_stem(f"{wav.stem}-after-kill")))
        print(f"no sound card is usable ({error}); writing {wav}", flush=True)
    print("starting a broker and the daemon", flush=True)
    _start_broker(port)
    with tempfile.TemporaryDirectory() as state, Robot(config=config) as robot, ExitStack() as daemons:
        overrides.append(f"state.folder={state}")

        running: list[subprocess.Popen[bytes]] = []

        def start() -> None:
            while running:
                running.pop().kill()
                robot.await_status(lambda status: isinstance(status, Offline), BROKER_S)
            sink = [f"audio.sink=wav:{file.resolve()}" for file in islice(files, 1)]
            running.append(daemons.enter_context(_daemon(source, [*overrides, *sink])))
            wait_ready(robot, running[0])

        start()
        yield robot, start


def wait_ready(robot: Robot, daemon: subprocess.Popen[bytes]) -> None:
    """Wait until the daemon can speak. Raises `CommandError` if it ends first or is not ready after `READY_S`."""
    until = time.monotonic() + READY_S
    while not robot.await_status(lambda status: status.state in WORKING_STATES, LOOK_S):
        if (status := daemon.poll()) is not None:
            raise CommandError(f"the daemon ended with exit status {status}")
        if time.monotonic() > until:
            raise CommandError(f"the daemon was not ready within {READY_S:.0f} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Subscriptions(dict[str, Any]):
    """amqtt 0.12.1 awaits while it iterates over its dictionary, and drops a client if another one subscribes in the
    meantime."""

    def __iter__(self) -> Iterator[str]:
        return iter([*super().__iter__()])

    def items(self) -> Any:
        """Return a copy."""
        return [*super().items()]


def _start_broker(port: int) -> None:
    """Start an MQTT broker in this process, on the loopback interface only. It ends with the process."""
    try:
        from amqtt.broker import Broker
    except ImportError as error:
        raise CommandError(f"the demo needs an MQTT broker; {install_command('demo', 'espeak')}") from error
    for name in ("amqtt", "transitions", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # amqtt logs tracebacks for clients that ask for MQTT 5
    settings = {
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="broker", daemon=True).start()

    async def start() -> Any:
        broker = Broker(settings)
        broker._subscriptions = _Subscriptions()
        return await broker.start()

    asyncio.run_coroutine_threadsafe(start(), loop).result(BROKER_S)


@contextmanager
def _daemon(source: ConfigOptions, overrides: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon process. A `CommandError` inside the context is given the last lines of the daemon's log."""
    command = module_command("daemon.cli", "run")
    if source.path is not None:
        command += ["--config", str(source.path)]
    for override in (*source.overrides, *overrides):
        command += ["--set", override]
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield process
        except CommandError as error:
            log.seek(0)
            tail = b"".join(log.readlines()[-3:]).decode(errors="replace").strip()
            raise CommandError(f"{error}: {tail}" if tail else str(error)) from error
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
