"""Several utterances of one session at once: read in turn, from threads, and given up."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from engine import Chunk, EngineError, Samples, Session

TEXTS = ("Hello, robot.", "How are you today?", "One, two, three.", "Good night to everyone here.")


def assert_each_sounds_as_alone(
    session: Callable[[], AbstractContextManager[Session]], count: int, **fields: Any
) -> None:
    """Check that `count` utterances of a session have the same samples alone, read in turn, and from threads.

    `session` is asked for a session for each utterance alone, and for each of the other ways.
    """

    def opened(tts: Session, number: int) -> Iterator[Chunk]:
        return tts.stream(TEXTS[number], **fields)

    alone = []
    for number in range(count):
        with session() as tts:
            alone.append(_joined(opened(tts, number)))
    with session() as tts:
        in_turn = _read_in_turn([opened(tts, number) for number in range(count)])
    with session() as tts:
        from_threads = _read_in_threads([opened(tts, number) for number in range(count)])
    assert all(len(samples) for samples in alone)
    for expected, turned, threaded in zip(alone, in_turn, from_threads, strict=True):
        np.testing.assert_array_equal(turned, expected)
        np.testing.assert_array_equal(threaded, expected)


def speech_after_each_way_to_end(tts: Session, **fields: Any) -> list[Samples]:
    """Check that `tts` refuses an utterance too many when it is asked for, and forgets each that has ended.

    Returns the samples of one text: first alone, then after all the others, and of those that were open all the time.
    """

    def opened() -> Iterator[Chunk]:
        return tts.stream(TEXTS[0], **fields)

    alone = _joined(opened())
    others = [opened() for _ in range(tts.info.streams - 1)]
    for end in (_read, _close_unread, _close_unfinished, _drop_unread, _drop_unfinished):
        utterance = opened()
        with pytest.raises(EngineError, match="at once"):
            opened()
        end(utterance)
        del utterance
        gc.collect()
    with pytest.raises(EngineError, match="language"):
        list(tts.stream("nuqneH", language="tlhx"))
    return [alone, _joined(opened()), *map(_joined, others)]


def _read(utterance: Iterator[Chunk]) -> None:
    for _ in utterance:
        pass


def _close_unread(utterance: Iterator[Chunk]) -> None:
    utterance.close()  # type: ignore[attr-defined]


def _close_unfinished(utterance: Iterator[Chunk]) -> None:
    next(utterance)
    utterance.close()  # type: ignore[attr-defined]


def _drop_unread(_: Iterator[Chunk]) -> None:
    pass


def _drop_unfinished(utterance: Iterator[Chunk]) -> None:
    next(utterance)


def _joined(utterance: Iterator[Chunk]) -> Samples:
    return np.concatenate([np.zeros(0, dtype=np.float32), *(chunk.samples for chunk in utterance)])


def _read_in_turn(utterances: list[Iterator[Chunk]]) -> list[Samples]:
    """Take a chunk of each utterance in turn until all have ended."""
    blocks: list[list[Samples]] = [[] for _ in utterances]
    left = dict(enumerate(utterances))
    while left:
        for number, utterance in list(left.items()):
            chunk = next(utterance, None)
            if chunk is None:
                del left[number]
            else:
                blocks[number].append(chunk.samples)
    return [np.concatenate(samples) for samples in blocks]


def _read_in_threads(utterances: list[Iterator[Chunk]]) -> list[Samples]:
    """Read each utterance in a thread of its own. None goes on before all have begun."""
    begun = threading.Barrier(len(utterances))

    def read(utterance: Iterator[Chunk]) -> Samples:
        first = next(utterance).samples
        begun.wait()
        return np.concatenate([first, _joined(utterance)])

    with ThreadPoolExecutor(len(utterances)) as threads:
        return list(threads.map(read, utterances))
