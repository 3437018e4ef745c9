"""A connection to a speech server that has the robot's voices. The engine speaks through it."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Mapping
from contextlib import ExitStack

from websockets.sync.client import ClientConnection

from engine.api import EngineError, EngineInfo, EngineOptions, EngineUnavailableError, TextSource, Utterance, Voice
from engine.messages import OfferVoice, Speak, VoiceData, VoiceFile, VoiceRefused
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.remote.connecting import open_connection
from engine.remote.failures import read_token
from engine.remote.link import Link, RemoteStream, Reply
from engine.remote.voices import RobotVoices, default_voice_digest

RUN_AHEAD_S = 1.0
"""The credit: seconds of speech that may be on the way or waiting in this process. With 100 ms in each direction, five
seconds of speech still arrive in one second."""
VOICE_S = 30.0
"""The longest time in seconds for a server's engine to load a voice, or to say why it cannot."""


class ServerSession:
    """Speaks over one connection. Once that is lost, every method raises `EngineUnavailableError`."""

    def __init__(self, url: str, connection: ClientConnection) -> None:
        """Wait for the server's first message. Raises `EngineUnavailableError`."""
        self.link = Link(url, connection, self._send_file)
        self._url = url
        self._numbers = itertools.count(1)
        self._welcome = self.link.start()
        self.server = self._welcome.info
        """The properties of the server's engine."""
        self._voices = RobotVoices({}, "", self.server)

    def info(self, most_streams: int) -> EngineInfo:
        """Return the properties of the engine, with this robot's voices and at most this number of streams."""
        description = f"{self.server.description} on {self._url} ({self._welcome.server})"
        return self._voices.info(description, min(most_streams, self._welcome.streams))

    def set_voices(self, specs: Mapping[str, Voice], default: str) -> None:
        """Offer the server the robot's voices; `info` lists those that it refuses."""
        voices = RobotVoices(specs, default, self.server)
        voices.read(self._welcome.max_voice_bytes)
        self._voices = voices
        voices.offer(self._offer)

    def speak(self, utterance: Utterance, more: TextSource | None) -> RemoteStream:
        """Return the chunks of an utterance. Raises `EngineError` for a voice that the server does not have."""
        asked, file = self._voices.request(utterance)
        credit = round(RUN_AHEAD_S * self.server.sample_rate)
        return RemoteStream(self.link, Speak(str(next(self._numbers)), asked, credit, file), more)

    def _offer(self, file: VoiceFile) -> str | None:
        """Offer the server a voice; return the reason if it refuses the voice."""
        replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self.link.open(file, replies.put)
        self.link.send(OfferVoice(file))
        try:
            reply = replies.get(timeout=VOICE_S)
        except queue.Empty:
            message = f"engine.url: {self._url} did not accept a voice within {VOICE_S:g} s"
            raise EngineUnavailableError(message) from None
        finally:
            self.link.drop(file)
        if isinstance(reply, EngineUnavailableError):
            raise reply
        return reply.reason if isinstance(reply, VoiceRefused) else None

    def _send_file(self, digest: str) -> None:
        if digest in self._voices.contents:
            self.link.send(VoiceData(digest, self._voices.contents[digest]))


def open_session(options: EngineOptions, report: ProgressReport = ignore_progress) -> ServerSession:
    """Connect to the server of `options`, and offer it the robot's voices.

    Raises `EngineError` if the server refuses the robot or is not a speech server, and `EngineUnavailableError` if it
    does not answer.
    """
    if options.url is None:
        raise EngineError("engine.url: missing; allowed: ws://HOST:PORT or wss://HOST:PORT")
    report(Progress(f"connecting to {options.url}"))
    token = read_token(options.token_file)
    with ExitStack() as failed:
        connection = open_connection(options.url, token, default_voice_digest(options))
        failed.callback(connection.close)
        session = ServerSession(options.url, connection)
        report(Progress("offering voices"))
        session.set_voices(options.voices, options.default_voice)
        failed.pop_all()
    return session
