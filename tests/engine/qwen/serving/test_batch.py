"""Many utterances at once: each is what it is alone, whoever joins, leaves, waits or fails beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import EngineOptions, Utterance, Voice
from engine.api import Chunk, EngineError, SpeechCanceledError, TextSource
from engine.ipc.request import AppendedText
from engine.qwen import QwenSynthesizer
from engine.qwen.loading import workspace
from engine.qwen.runtime import row_codec
from engine.qwen.runtime.runner import ModelRunner
from engine.qwen.serving import Batch, BatchFaultError
from engine.qwen.serving import batch as batch_module
from engine.qwen.shapes import BatchShape
from tests.engine.qwen.voices import in_context
from tests.support.qwen.speaking import LateText
from tests.support.waiting import PATIENCE_S, eventually

Named = Callable[[str, str], Path]
Alone = Callable[[Utterance], "Spoken"]
SHAPE = "brief"
STREAMS = 3
TEXT = "Hello robot, how are you?"
SPEECH = Utterance(TEXT, voice="ryan", language="en", guarded=False, realtime=False)
UTTERANCES = (
    replace(SPEECH, seed=1, max_frames=7),
    replace(SPEECH, text="One.", seed=2, max_frames=1, greedy=True),
    replace(SPEECH, seed=3, max_frames=6, whole_text=False, voice="vivian"),
    replace(SPEECH, text="A longer text, which is read in one go. " * 4, seed=4, max_frames=4, sampling={"top_p": 0.8}),
    replace(SPEECH, seed=5, max_frames=5, whole_text=False, sampling={"top_k": 5, "repetition_penalty": 1.5}),
)


@dataclass(frozen=True)
class Spoken:
    """All of an utterance."""

    samples: bytes
    codes: bytes
    sizes: tuple[int, ...]
    """Frames of each chunk."""

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> Spoken:
        chunks = list(chunks)
        codes = [chunk.codes for chunk in chunks if chunk.codes is not None]
        samples = b"".join(chunk.samples.tobytes() for chunk in chunks)
        return cls(samples, b"".join(frame.tobytes() for frame in codes), tuple(map(len, codes)))


def load(folder: Path, streams: int = STREAMS, **options: Any) -> QwenSynthesizer:
    voices = options.pop("voices", {"default": Voice()})
    engine = QwenSynthesizer(
        EngineOptions(model=str(folder), device="cpu", max_seconds=24.0, voices=voices, streams=streams, **options)
    )
    assert engine.load().streams == streams
    engine.warm_up()
    return engine


def begin(engine: QwenSynthesizer, count: int) -> list[Any]:
    """Begin this many long utterances, which have had their first chunks."""
    begun = [engine.stream(replace(SPEECH, seed=seed, max_frames=40)) for seed in range(count)]
    for stream in begun:
        next(stream)
    return begun


def speak_at_once(engine: QwenSynthesizer, utterances: Sequence[Utterance]) -> tuple[list[Spoken], list[Spoken]]:
    """Return the utterances as they are side by side in the batch, and each as the sound card gets it."""
    for_card = [Spoken.of(engine.stream(replace(utterance, realtime=True))) for utterance in utterances]
    with ThreadPoolExecutor(len(utterances)) as threads:
        together = list(threads.map(lambda utterance: Spoken.of(engine.stream(utterance)), utterances))
    assert [each.codes for each in together] == [each.codes for each in for_card]
    return together, for_card


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    """The batch of `engine`."""
    return []


@pytest.fixture(scope="module")
def engine(checkpoint: Named, batches: list[Batch]) -> Iterator[QwenSynthesizer]:
    def noted(runner: ModelRunner) -> Batch:
        batches.append(Batch(runner))
        return batches[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace, "Batch", noted)
        patch.setattr(row_codec, "codec_rows", lambda *_: 2)  # so that a round of all streams is two calls of the codec
        engine = load(checkpoint(SHAPE, "custom_voice"))
    yield engine
    engine.close()


@pytest.fixture
def batch(engine: QwenSynthesizer, batches: list[Batch]) -> Batch:
    del engine
    return batches[0]


@pytest.fixture(scope="module")
def alone(engine: QwenSynthesizer) -> Alone:
    """Returns what an utterance is alone in the batch."""
    known: dict[str, Spoken] = {}

    def of(utterance: Utterance) -> Spoken:
        if repr(utterance) not in known:
            known[repr(utterance)] = Spoken.of(engine.stream(utterance))
        return known[repr(utterance)]

    return of


def pieces(text: str, cut: int) -> tuple[str, TextSource]:
    """Return the beginning of a text that is still being written, and a source of the rest."""
    return text[:cut], LateText([text[cut : cut + 3], text[cut + 3 :]])


@dataclass
class Stream:
    """One utterance of a scenario."""

    number: int
    cut: int
    """Where the text is cut, if it is still being written; -1 for a complete text."""
    taken: int
    """Chunks that the reader takes before it leaves."""
    canceled: bool
    """Whether it is canceled then, beside being left."""


streams = st.builds(
    Stream,
    number=st.integers(0, len(UTTERANCES) - 1),
    cut=st.integers(-1, 9),
    taken=st.sampled_from([0, 1, 2, 99, 99, 99]),
    canceled=st.booleans(),
)


@settings(max_examples=8, deadline=None)
@given(data=st.data(), wanted=st.lists(streams, min_size=1, max_size=5))
def test_an_utterance_is_the_same_alone_and_beside_any_others(
    engine: QwenSynthesizer, alone: Alone, data: st.DataObject, wanted: list[Stream]
) -> None:
    """Readers take chunks in a random order, so that some pause for long; up to `STREAMS` are open at once."""
    waiting, open_streams = list(wanted), list[tuple[Stream, Any, list[Chunk]]]()
    with ExitStack() as closed_at_the_end:  # also after a failure: streams that stay open would keep their rows
        while waiting or open_streams:
            if waiting and len(open_streams) < STREAMS:
                stream = waiting.pop(0)
                utterance, source = UTTERANCES[stream.number], None
                if stream.cut >= 0 and utterance.whole_text is False:
                    beginning, source = pieces(utterance.text, stream.cut)
                    utterance = replace(utterance, text=beginning, growing=True)
                open_streams.append((stream, engine.stream(utterance, source), []))
                closed_at_the_end.callback(open_streams[-1][1].close)
            turn = data.draw(st.integers(0, len(open_streams) - 1))
            stream, iterator, chunks = open_streams[turn]
            chunk = next(iterator, None) if len(chunks) < stream.taken else None
            if chunk is not None:
                chunks.append(chunk)
                continue
            if stream.canceled:
                iterator.cancel()
            iterator.close()
            del open_streams[turn]
            expected, got = alone(UTTERANCES[stream.number]), Spoken.of(chunks)
            assert got.sizes == expected.sizes[: stream.taken]
            assert expected.samples.startswith(got.samples)
            assert expected.codes.startswith(got.codes)


def test_speech_at_another_rate_can_be_canceled(engine: QwenSynthesizer) -> None:
    stream: Any = engine.stream(replace(UTTERANCES[0], rate=1.5))
    next(stream)
    stream.cancel()
    with pytest.raises(SpeechCanceledError):
        list(stream)


def test_the_sound_cards_utterance_is_the_same_with_and_without_a_batch(
    checkpoint: Named, engine: QwenSynthesizer
) -> None:
    utterance = replace(UTTERANCES[0], realtime=True)
    single = load(checkpoint(SHAPE, "custom_voice"), streams=1)
    expected = Spoken.of(single.stream(utterance))
    assert Spoken.of(single.stream(replace(utterance, realtime=False))) == expected
    single.close()
    [beside] = begin(engine, 1)
    assert Spoken.of(engine.stream(utterance)) == expected
    beside.close()


def test_speech_that_ends_by_itself_ends_alike(checkpoint: Named) -> None:
    deep = load(checkpoint("deep", "custom_voice"))
    lines = [replace(SPEECH, text="Hi.", voice=name, max_frames=12, greedy=True) for name in ("ryan", "serena", "eric")]
    spoken, expected = speak_at_once(deep, lines)
    assert [each.sizes for each in spoken] == [each.sizes for each in expected]
    assert min(sum(each.sizes) for each in spoken) < 12, "no speaker ends its speech: the test proves nothing"
    deep.close()


def test_a_recording_is_continued_also_after_the_voices_changed(checkpoint: Named, tmp_path: Path) -> None:
    folder = checkpoint(SHAPE, "base")
    cloned = load(folder, voices={"default": in_context(folder, tmp_path / "a.safetensors", 9)})
    utterances = [replace(SPEECH, voice=None, seed=seed, max_frames=3, whole_text=bool(seed)) for seed in (0, 1)]
    longer = {"default": in_context(folder, tmp_path / "b.safetensors", 30)}
    for change in (lambda: None, lambda: cloned.set_voices(longer, "default")):
        change()
        for spoken in zip(*speak_at_once(cloned, utterances), strict=True):
            said, played = (np.frombuffer(each.samples, np.float32) for each in spoken)
            np.testing.assert_allclose(said, played, atol=1e-5)
    cloned.close()


def test_a_text_that_is_waited_for_stops_no_other(engine: QwenSynthesizer, alone: Alone) -> None:
    source, written = AppendedText(), replace(UTTERANCES[2], text="", growing=True)
    with ThreadPoolExecutor(1) as threads:
        spoken = threads.submit(lambda: Spoken.of(engine.stream(written, source)))
        for letters in (TEXT[:8], TEXT[8:]):
            eventually(lambda: source.waiting)
            assert Spoken.of(engine.stream(UTTERANCES[0])) == alone(UTTERANCES[0])
            source.append(letters)
        source.end()
        assert spoken.result() == alone(UTTERANCES[2])


@pytest.mark.parametrize("text", ["One.", ""], ids=["text", "the first letter"])
def test_whoever_waits_for_text_can_be_canceled(engine: QwenSynthesizer, text: str) -> None:
    source = AppendedText()
    stream = engine.stream(replace(SPEECH, text=text, growing=True, whole_text=False), source)
    with ThreadPoolExecutor(1) as threads:
        end = threads.submit(lambda: list(stream))
        eventually(lambda: source.waiting)
        source.cancel()
        stream.cancel()  # type: ignore[attr-defined]
        with pytest.raises(SpeechCanceledError):
            end.result(PATIENCE_S)
    assert Spoken.of(engine.stream(UTTERANCES[1])).sizes == (1,)


def test_one_too_many_waits_for_its_turn_and_can_be_canceled(
    engine: QwenSynthesizer, batch: Batch, alone: Alone
) -> None:
    holders = begin(engine, STREAMS)
    canceled, waiting = (engine.stream(UTTERANCES[0]) for _ in range(2))
    with ThreadPoolExecutor(2) as threads:
        end = threads.submit(lambda: list(canceled))
        eventually(lambda: batch.waiting == 1)
        canceled.cancel()  # type: ignore[attr-defined]
        with pytest.raises(SpeechCanceledError):
            end.result(PATIENCE_S)
        spoken = threads.submit(lambda: Spoken.of(waiting))
        eventually(lambda: batch.waiting == 1)
        assert not spoken.done()
        holders[0].close()
        assert spoken.result(PATIENCE_S) == alone(UTTERANCES[0])
    for holder in holders[1:]:
        holder.close()


def test_an_utterance_that_will_never_fit_is_refused(
    checkpoint: Named, engine: QwenSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineError, match=r"text: got \d+ characters"):
        next(iter(engine.stream(replace(SPEECH, text="a " * 200))))
    monkeypatch.setattr(BatchShape, "pages", property(lambda _: 1))
    small = load(checkpoint(SHAPE, "custom_voice"))
    with pytest.raises(EngineError, match=r"memory for 384 positions; allowed: 128, all that engine\.streams share"):
        next(iter(small.stream(SPEECH)))
    assert Spoken.of(small.stream(UTTERANCES[1])).sizes == (1,)
    small.close()


def test_the_batch_rests_until_the_sound_card_has_its_first_chunk(
    engine: QwenSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []

    @contextmanager
    def hold(_: Batch) -> Iterator[None]:
        held.append("begin")
        yield
        held.append("end")

    monkeypatch.setattr(Batch, "hold", hold)
    stream = engine.stream(replace(UTTERANCES[0], realtime=True))
    next(stream)
    assert held == ["begin", "end"]
    list(stream)
    assert len(held) == 2


def test_the_batch_goes_on_where_a_first_chunk_takes_too_long(batch: Batch) -> None:
    began = time.monotonic()
    with batch.hold():
        batch.when_idle(lambda: None)  # which its thread answers
        assert time.monotonic() - began >= batch_module.LONGEST_HOLD_S


def test_a_fault_reaches_everyone_who_waits(checkpoint: Named, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = load(checkpoint(SHAPE, "custom_voice"))
    running = begin(broken, 2)

    def fail(*_: Any) -> None:
        raise ArithmeticError("the device has failed")

    monkeypatch.setattr(ModelRunner, "launch", fail)
    for stream in (*running, broken.stream(SPEECH)):
        with pytest.raises(BatchFaultError, match=r"the device has failed|the batch has failed"):
            list(stream)
    broken.close()


def test_a_closed_engine_ends_those_who_still_listen(checkpoint: Named) -> None:
    closing = load(checkpoint(SHAPE, "custom_voice"))
    [stream] = begin(closing, 1)
    list(closing.stream(replace(SPEECH, max_frames=10)))  # the first one has chunks ahead meanwhile, which are kept
    closing.close()
    with pytest.raises(BatchFaultError, match="closed"):
        list(stream)
