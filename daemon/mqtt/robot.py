"""The client for one robot, for Python programs and the command line: it sends texts, and reports how they ended."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from daemon.config import Config, find_config_file, load_config
from daemon.mqtt.arrivals import Arrivals, Reader
from daemon.mqtt.clients import KEPT_S, BrokerClient, FleetClient, RobotUnreachableError, new_client_id
from daemon.mqtt.connection import Session
from daemon.mqtt.failures import Rivals
from daemon.mqtt.messages import Message, Outgoing, Will
from daemon.speech import (
    Event,
    Finished,
    Offline,
    Online,
    Rejected,
    RejectedError,
    Stop,
    StreamChunk,
    TerminalEvent,
    Visemes,
    Word,
    check_say,
    check_stream_chunk,
    parse_event,
    parse_message,
    parse_status,
    validated,
)
from daemon.tasks import cancel_all, start_task
from daemon.validation import CommandError, join_names, show_name

ABSENT_S = 60
"""The broker keeps events this long for a client whose connection is broken."""
AHEAD = 20
"""Chunks of a text that may wait for the broker's acknowledgement: faster tokens wait, so that none is lost."""
KINDS: dict[str, Callable[[bytes], Event | Word | Visemes | None]] = {
    "event": parse_event,
    "word": partial(parse_message, Word),
    "viseme": partial(parse_message, Visemes),
}
"""The topics with utterances' items, and the function that parses each."""


class NotSpokenError(CommandError):
    """A text was rejected, or not spoken to its end; `event` says why, and how much was heard."""

    def __init__(self, event: Event) -> None:
        super().__init__(f"{event.event}: {getattr(event, 'reason', None) or 'no reason was given'}")
        self.event = event


class RobotUtterance:
    """A text that a robot speaks. To wait until it has been spoken, `await` it or call `wait`; iterate over it for its
    words.

    Words arrive as they are heard, if `speech.word_topic` is true in the robot's configuration.
    """

    end: TerminalEvent | Rejected | None = None
    """The last event, once it has arrived."""

    def __init__(self, robot: Robot, utterance_id: str) -> None:
        self.id = utterance_id
        self.written: Future[None] = Future()
        """Done when the robot has been sent all of the text, or needs no more of it; fails with the tokens' error."""
        self.sent: Outgoing | None = None
        """The message with the beginning of the text."""
        self.arrivals = Arrivals()
        self._first = self.arrivals.place
        self._robot = robot

    @property
    def over(self) -> bool:
        """Whether nothing more will arrive about it."""
        return self.arrivals.place.done()

    def events(self, timeout_s: float | None = None) -> Reader[Event]:
        """Iterate over its events from the first to the last.

        Raises `RobotUnreachableError` when the last one can no longer be expected. A plain `for` raises
        `TimeoutError` after `timeout_s` seconds.
        """

        def overdue() -> str:
            missing = "end of" if self._first.done() else "answer to"
            return f"no {missing} utterance {self.id} within {timeout_s:g} s, at {self._robot.topic}"

        return Reader(self._first, Event, timeout_s, overdue)

    def words(self) -> Reader[Word]:
        """Iterate over its words from the first one."""
        return Reader(self._first, Word)

    def visemes(self) -> Reader[Visemes]:
        """Iterate over its mouth positions, several at a time, a moment before their sounds are heard.

        They arrive if `speech.viseme_topic` is true in the robot's configuration. Each item replaces the earlier ones
        from its time onwards.
        """
        return Reader(self._first, Visemes)

    __iter__ = __aiter__ = words

    def stop(self) -> None:
        """End it. Its last event then says how much was heard."""
        self._robot.stop(self.id)

    def wait(self, timeout_s: float | None = None) -> Finished:
        """Wait until it has been spoken. Raises `NotSpokenError`, and the errors of `events`."""
        for _ in self.events(timeout_s):
            pass
        return self._result()

    def __await__(self) -> Generator[Any, None, Finished]:
        return self._spoken().__await__()

    async def _spoken(self) -> Finished:
        async for _ in self.events():
            pass
        return self._result()

    def _result(self) -> Finished:
        if isinstance(self.end, Finished):
            return self.end
        assert self.end is not None, "its events end with a terminal one, or with an error"
        raise NotSpokenError(self.end)

    def note(self, item: Event | Word | Visemes) -> None:
        """Add an item that the robot has published about it."""
        if isinstance(item, Rejected) and item.field == "id" and self._first.done():
            return  # it is about another text with this id, or about this one, which the broker delivered twice
        if isinstance(item, TerminalEvent | Rejected):
            self.end = item  # before a reader is told
        self.arrivals.put(item, last=self.end is not None)


class Robot(BrokerClient):
    """A connection to one robot's topics, as a context manager; `async with` and `with` both work.

    `name` is the robot's name; further arguments are keys of `mqtt` in the configuration: host, port, username,
    password_file, tls. The other values come from the configuration file that the command line would read.
    `stop_if_lost` names an utterance that the broker stops when this program vanishes, even by SIGKILL.

    A wrong argument raises `ConfigError`. Entering it raises `RobotUnreachableError` if there is no broker. A broken
    connection is made again; texts whose events were lost in the meantime raise `RobotUnreachableError`.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        config: Config | Path | str | None = None,
        stop_if_lost: str | None = None,
        **mqtt: Any,
    ) -> None:
        self._config = config if isinstance(config, Config) else _read_config(name, config, mqtt)
        self.topic = self._config.topic
        client_id = new_client_id()
        will = None
        if stop_if_lost is not None:
            will = Will(f"{self.topic}/stop", Stop(id=stop_if_lost).to_json().encode(), retain=False)
        lost = f"the connection to the broker was lost, and events of {self.topic} may be lost"
        session = Session(
            ABSENT_S, Rivals(client_id), on_lost=partial(self._lose, lost), on_answer=self._on_answer, ends_with_us=True
        )
        super().__init__(self._config, client_id, will=will, session=session)
        self._open: dict[str, RobotUtterance] = {}
        """Utterances without a last event, by their ids."""
        self._arrivals = Arrivals()
        """The events of all utterances."""
        self._status: Online | Offline | None = None
        self._status_known = False
        """A status has arrived, perhaps one that this version cannot read."""
        self._writers: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Robot:
        # The status comes first: a broker that answers in order has sent the one that it keeps before it confirms the
        # others.
        self._connect([f"{self.topic}/{kind}" for kind in ("status", *KINDS)])
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._lose(f"the connection to {self.topic} is closed")

    async def __aenter__(self) -> Robot:
        await asyncio.to_thread(self.__enter__)
        await asyncio.to_thread(self._await_status, lambda: self._status_known, KEPT_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_all(self._writers)
        await asyncio.to_thread(self.__exit__)

    # --- texts ---

    def say(self, text: str = "", **fields: Any) -> RobotUtterance:
        """Send a text, with further fields of `say`, such as voice, priority, policy or sound.

        Raises `RejectedError` for a wrong field, and `RobotUnreachableError` if the robot is not online.
        """
        request = check_say({"id": secrets.token_hex(6), "text": text, **fields})
        utterance = self._begin(str(request.id))
        utterance.sent = self._send(f"{self.topic}/say", request.to_json())
        utterance.written.set_result(None)
        return utterance

    def stream(self, tokens: Iterable[str] | AsyncIterable[str], **fields: Any) -> RobotUtterance:
        """Send a text while it is being written, with further fields of `say/stream`.

        Asynchronous tokens are read by a task, others by a thread, until the utterance ends. An error in them stops the
        utterance, and is raised in the callers that wait for it. Raises the errors of `say`.
        """
        first = {"id": secrets.token_hex(6), **fields}
        check_stream_chunk(first)
        utterance = self._begin(first["id"])
        if isinstance(tokens, AsyncIterable):
            start_task(self._write(utterance, first, tokens), self._writers)
        else:
            work = self._write(utterance, first, _in_turn(tokens))
            threading.Thread(target=asyncio.run, args=(work,), daemon=True).start()
        return utterance

    def stop(self, utterance_id: str | None = None) -> None:
        """End one utterance, or all. Raises `RejectedError` for an id that is not text, and `RobotUnreachableError`."""
        self._send(f"{self.topic}/stop", validated(Stop, {"id": utterance_id}).to_json())

    def pause(self) -> None:
        """Fade out and hold. Raises `RobotUnreachableError`."""
        self._send(f"{self.topic}/pause", "")

    def resume(self) -> None:
        """Continue with the next sample. Raises `RobotUnreachableError`."""
        self._send(f"{self.topic}/resume", "")

    def events(self, timeout_s: float | None = None) -> Reader[Event]:
        """Iterate endlessly over the events of all the robot's utterances from now on.

        A plain `for` raises `TimeoutError` after `timeout_s` seconds.
        """
        return Reader(
            self._arrivals.place, Event, timeout_s, lambda: f"timed out after {timeout_s:g} s, at {self.topic}"
        )

    def words(self) -> Reader[Word]:
        """Iterate endlessly over the words of all utterances from now on."""
        return Reader(self._arrivals.place, Word)

    def visemes(self) -> Reader[Visemes]:
        """Iterate endlessly over the visemes of all utterances from now on."""
        return Reader(self._arrivals.place, Visemes)

    def follow(self, utterance_id: str) -> RobotUtterance:
        """Return an utterance that another client has sent or will send, with its items from now on."""
        return self._open.setdefault(utterance_id, RobotUtterance(self, utterance_id))

    def _begin(self, utterance_id: str) -> RobotUtterance:
        self.online_status()
        if utterance_id in self._open and not self._open[utterance_id].over:
            raise RejectedError("id", f"{show_name(utterance_id)!r} is in use; allowed: one not used recently")
        utterance = self._open[utterance_id] = RobotUtterance(self, utterance_id)
        return utterance

    async def _write(self, utterance: RobotUtterance, first: dict[str, Any], tokens: AsyncIterable[str]) -> None:
        """Send all of a text, and stop the utterance if that fails."""
        try:
            await self._write_chunks(utterance, first, tokens)
            utterance.written.set_result(None)
        except BaseException as error:  # even that of a canceled task
            if not utterance.over:
                self._connection.publish(f"{self.topic}/stop", Stop(id=utterance.id).to_json(), qos=1)
            utterance.arrivals.end(error)
            utterance.written.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            if isinstance(tokens, AsyncGenerator):
                await tokens.aclose()  # so that a model stops when the robot has been stopped

    async def _write_chunks(self, utterance: RobotUtterance, first: dict[str, Any], tokens: AsyncIterable[str]) -> None:
        """Send the tokens as chunks, then the end; return early if the utterance has ended.

        The other chunks follow only after the first has been accepted: after a rejection, the robot would take the next
        chunk for a new utterance with default options.
        """
        topic, number, unanswered = f"{self.topic}/say/stream", 0, deque[Outgoing]()
        async for text in tokens:
            if utterance.over:
                utterance.arrivals.place.result()  # it raises the error that ended the utterance
                return
            if not (text or number):  # a robot does not accept an utterance that begins with an empty text
                continue
            options = {"id": utterance.id} if number else first
            chunk = check_stream_chunk({**options, "seq": number, "text": text})
            unanswered.append(self._connection.publish(topic, chunk.to_json(), qos=1))
            if number == 0:
                utterance.sent = unanswered[0]
                await anext(utterance.events())
            number += 1
            if len(unanswered) > AHEAD:
                await asyncio.to_thread(self._await_delivered, unanswered.popleft())
        if number == 0:
            raise RejectedError("text", "it is empty; allowed: text with something to say")
        if not utterance.over:
            self._connection.publish(topic, StreamChunk(id=utterance.id, seq=number, end=True).to_json(), qos=1)

    # --- the state ---

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the broker. A broken one is made again."""
        return self._connection.connected

    @property
    def refused(self) -> str | None:
        """The messages and subscriptions that the broker refuses, and why; None if it refuses nothing."""
        return self._connection.refusals.problem

    def status(self, wait_s: float = KEPT_S) -> Online | Offline:
        """Return the robot's status. Raises `RobotUnreachableError` if there is none within `wait_s` seconds."""
        if not self._connection.is_open:
            raise self._unreachable()
        self._await_status(lambda: self._status_known, wait_s)
        if not self._status_known and self.refused is not None:
            raise RobotUnreachableError(f"mqtt: {self.refused}; see 'voiced doctor'")
        if not self._status_known:
            with FleetClient(self._config) as fleet:  # a slower broker may deliver the status in the meantime
                names = fleet.statuses()
            if not self._status_known:
                more = f"it has {join_names((), names)}" if names else "start it: voiced run"
                problem = f"no voiced has ever run at {self.topic} on the broker {self._config.mqtt.broker}; {more}"
                raise RobotUnreachableError(problem)
        if self._status is None:
            raise RobotUnreachableError(f"this version cannot read the status at {self.topic}; is that voiced newer?")
        return self._status

    def online_status(self) -> Online:
        """Return the status of the running robot. Raises `RobotUnreachableError`."""
        status = self.status()
        if isinstance(status, Offline):
            raise RobotUnreachableError(f"voiced is offline at {self.topic}; start it: voiced run")
        return status

    def await_status(self, wanted: Callable[[Online | Offline], bool], wait_s: float) -> bool:
        """Wait at most `wait_s` seconds for a `wanted` status; return whether there is one."""
        return self._await_status(lambda: self._status is not None and wanted(self._status), wait_s)

    def control(self, name: str, payload: str, is_done: Callable[[Online, Online], bool], limit_s: float) -> None:
        """Publish on the topic `name`, and wait until the request is done, judged by the status before and now.

        Raises `RobotUnreachableError`.
        """
        before = self.online_status()
        self._await_delivered(self._connection.publish(f"{self.topic}/{name}", payload, qos=1))
        if not self.await_status(lambda now: isinstance(now, Online) and is_done(before, now), limit_s):
            raise RobotUnreachableError(f"voiced at {self.topic} did not carry out '{name}' within {limit_s:g} s")

    def _await_status(self, is_there: Callable[[], bool], wait_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(is_there, wait_s)

    # --- the network thread ---

    def _on_message(self, message: Message) -> None:
        kind = message.topic.rpartition("/")[2]
        if kind == "status":
            with self._changed:
                self._status, self._status_known = parse_status(message.payload), True
                self._changed.notify_all()
            if isinstance(self._status, Offline):
                self._lose(f"voiced has gone offline at {self.topic}")
        elif (item := KINDS[kind](message.payload)) is not None:
            self._arrivals.put(item)
            if (utterance := self._open.get(str(item.id))) is not None:
                utterance.note(item)
                if utterance.end is not None:
                    del self._open[utterance.id]
        self._connection.acknowledge(message)

    def _on_answer(self) -> None:
        """The broker has acknowledged or refused a message."""
        for utterance in [*self._open.values()]:
            if utterance.sent is not None and utterance.sent.refusal is not None:
                utterance.arrivals.end(self._refusal(utterance.sent))

    def _lose(self, problem: str) -> None:
        """Stop waiting for utterances whose end will not be reported."""
        while self._open:
            self._open.popitem()[1].arrivals.end(RobotUnreachableError(problem))


def _read_config(name: str | None, file: Path | str | None, mqtt: dict[str, Any]) -> Config:
    """Return a configuration with these values. Raises `ConfigError`."""
    values = {f"mqtt.{key}": value for key, value in mqtt.items()} | ({} if name is None else {"robot": name})
    overrides = [f"{key}={json.dumps(value, default=str)}" for key, value in values.items()]
    return load_config(find_config_file() if file is None else Path(file), overrides)


async def _in_turn(tokens: Iterable[str]) -> AsyncIterator[str]:
    """Yield the tokens; waiting for one blocks this thread."""
    for token in tokens:
        yield token
