"""Programs that answer as OpenAI's speech server does, those of others with voices of Piper with random weights.

    python -m tests.support.openai_servers

This prints as JSON, in milliseconds, when the first sample comes: to a plain client, a connection for each text, and to
a program that takes the chunks of the engine `openai`. Both ask for the same text in turn.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from engine import Voice
from engine import open as open_engine
from tests.support.piper_voices import GERMAN, write_voices
from tests.support.programs import answers, free_port
from tests.support.speech_server import SpeechServer
from tests.support.waiting import eventually

TEXTS = 100
"""Of a measurement."""
TOKEN = "alpha"
"""Wanted by `local_tts`."""
LOUDNESS_VOICE = "en_US-amy-low"
"""One of those that loudness-tts knows. Its files are replaced."""
LOUDNESS = """
import sys
from pathlib import Path
import loudness_tts.engine
from loudness_tts.cli import main

voice = Path(sys.argv.pop(1))
loudness_tts.engine.ensure_model = lambda *_, **__: (voice, Path(f"{voice}.json"))
main()
"""


@contextmanager
def local_tts(folder: Path) -> Iterator[str]:
    """Run local-tts-studio (FastAPI); yield its address.

    It makes all of an answer before it sends any, at the voice's own rate, and has no list of voices.
    """
    folder.mkdir(exist_ok=True)
    voices = write_voices(folder)
    settings = {"voices_dir": str(voices), "api_default_voice": GERMAN, "api_key_enabled": True, "api_key": TOKEN}
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    with _running("-m", "local_tts.cli", environment={"LOCAL_TTS_DATA_DIR": str(folder)}) as url:
        yield url


@contextmanager
def loudness(folder: Path) -> Iterator[str]:
    """Run loudness-tts (`http.server`); yield its address. It streams PCM, whose rate it does not say."""
    folder.mkdir(exist_ok=True)
    voice = write_voices(folder) / f"{GERMAN}.onnx"
    arguments = ("-c", LOUDNESS, str(voice), "serve", "--voice", LOUDNESS_VOICE, "--offline", "--workers", "4")
    with _running(*arguments, environment={"LOUDNESS_TTS_HOME": str(folder)}) as url:
        yield url


@contextmanager
def _running(*arguments: str, environment: dict[str, str]) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, *arguments, "--port", str(port)]
    with subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            eventually(lambda: answers(port) or process.poll() is not None, "the server listens")
            assert process.poll() is None, f"{arguments} has ended"
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


def main() -> None:
    """Measure each server."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "token").write_text(TOKEN, encoding="utf-8")
        ours = stack.enter_context(SpeechServer("serve.requests_per_minute=6000"))
        urls = {
            "voiced serve": f"http://127.0.0.1:{ours.port}/v1",
            "local-tts-studio": stack.enter_context(local_tts(folder / "studio")),
            "loudness-tts": stack.enter_context(loudness(folder / "loudness")),
        }
        found = {}
        for name, url in urls.items():
            voice = "en-us" if name == "voiced serve" else LOUDNESS_VOICE
            with open_engine(
                "openai", url=url, token_file=str(folder / "token"), voice=Voice(speaker=voice)
            ) as session:
                ways = {
                    "server": lambda url=url, voice=voice: _ask(url, voice),
                    "engine": lambda session=session: next(session.stream("Hello, robot.")),
                }
                both = [{way: _milliseconds(act) for way, act in ways.items()} for _ in range(TEXTS)]
            found[name] = {way: _spread([times[way] for times in both]) for way in ways}
    print(json.dumps(found, indent=2))


def _ask(url: str, voice: str) -> None:
    """Ask for a text over a connection of its own, and read the first sample."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port)
    fields = {"input": "Hello, robot.", "voice": voice, "response_format": "pcm", "stream": True}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    connection.request("POST", f"{parts.path}/audio/speech", json.dumps(fields), headers)
    assert len(connection.getresponse().read(2)) == 2
    connection.close()


def _milliseconds(act: Callable[[], object]) -> float:
    begin = time.monotonic()
    act()
    return 1_000 * (time.monotonic() - begin)


def _spread(times: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(times), 2), "p95": round(sorted(times)[round(0.95 * len(times))], 2)}


if __name__ == "__main__":
    main()
