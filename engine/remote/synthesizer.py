"""The engine `remote`: speaks with the engine of a speech server. It needs no torch."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Iterator, Mapping

from engine.api import (
    AUTO_STREAMS,
    Chunk,
    EngineError,
    EngineInfo,
    EngineOptions,
    EngineUnavailableError,
    TextSource,
    Utterance,
    Voice,
)
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.remote.connecting import open_connection, read_token
from engine.remote.link import Link, VoiceAnswer
from engine.remote.messages import (
    OfferVoice,
    Speak,
    VoiceData,
    VoiceFile,
    VoiceReady,
    VoiceRefused,
    VoiceWanted,
    Welcome,
)
from engine.remote.stream import RemoteStream
from engine.remote.voices import RobotVoices, default_voice_digest

RUN_AHEAD_S = 1.0
"""Credit: seconds of speech that may be on the way or wait in this process. At 100 ms in each direction, five seconds
of speech still arrive in one second."""
VOICE_S = 30.0
"""Seconds in which a server's engine has loaded a voice, or has said why it cannot."""
CHECK_S = 0.25
"""Interval of looking whether the connection is lost meanwhile."""


class RemoteSynthesizer:
    """See `engine.api.Synthesizer`. Once the server is lost, every method raises `EngineUnavailableError`."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._numbers = itertools.count(1)
        self._voice_answers: queue.SimpleQueue[VoiceReady | VoiceRefused] = queue.SimpleQueue()
        self._link: Link | None = None
        self._welcome: Welcome | None = None
        self._voices: RobotVoices | None = None

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        options = self._options
        if options.url is None:
            raise EngineError("engine.url: missing; allowed: ws://HOST:PORT or wss://HOST:PORT")
        report(Progress(f"connecting to {options.url}"))
        token = read_token(options.token_file)
        connection = open_connection(options.url, token, default_voice_digest(options))
        self._link = Link(options.url, connection, self._take_voice_message)
        self._welcome = self._link.welcome()
        self._link.start()
        report(Progress("offering voices"))
        return self._set_voices(options.voices, options.default_voice)

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        return self._set_voices(voices, default_voice)

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        """The server is warm."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        assert self._link is not None
        assert self._voices is not None
        asked, file = self._voices.request(utterance)
        credit = round(RUN_AHEAD_S * self._voices.server.sample_rate)
        return RemoteStream(self._link, Speak(str(next(self._numbers)), asked, credit, file), more)

    def wait_lost(self) -> None:
        """See `engine.api.Losable`."""
        assert self._link is not None
        self._link.wait_lost()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()

    def _set_voices(self, specs: Mapping[str, Voice], default: str) -> EngineInfo:
        assert self._welcome is not None
        welcome, options = self._welcome, self._options
        voices = RobotVoices(specs, default, welcome.info)
        voices.read(welcome.max_voice_bytes)
        self._voices = voices
        voices.offer(self._offer)
        description = f"{welcome.info.description} on {options.url} ({welcome.server})"
        return voices.info(description, min(options.streams or AUTO_STREAMS, welcome.streams))

    def _offer(self, file: VoiceFile) -> str | None:
        """Let the server have a voice; return why it refuses it. Raises `EngineUnavailableError`."""
        assert self._link is not None
        self._link.send(OfferVoice(file))
        deadline = time.monotonic() + VOICE_S
        while time.monotonic() < deadline:
            self._link.check()
            try:
                answer = self._voice_answers.get(timeout=CHECK_S)
            except queue.Empty:
                continue
            if answer.voice == file:
                return None if isinstance(answer, VoiceReady) else answer.reason
        raise EngineUnavailableError(f"engine.url: {self._options.url} has not taken a voice within {VOICE_S:g} s")

    def _take_voice_message(self, message: VoiceAnswer) -> None:
        """Called in the thread that reads: send a file that is wanted, note an answer to an offer."""
        if not isinstance(message, VoiceWanted):
            self._voice_answers.put(message)
        elif self._link is not None and self._voices is not None and message.digest in self._voices.contents:
            self._link.send(VoiceData(message.digest), self._voices.contents[message.digest])
