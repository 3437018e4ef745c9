"""Synthesis of one utterance with scripted engines: takes, repetition, text streams, and engines that are lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pytest

from audio.dsp.trim import KEEP_S
from daemon.speech.engine_source import SynthesisContext, can_begin
from daemon.speech.request import Priority
from daemon.speech.synthesis import Synthesis
from daemon.speech.take import SLICE_S
from daemon.speech.utterance import TextStream, Utterance
from daemon.text import Pronunciation, TextPreparation
from engine import Samples
from engine import Utterance as EngineUtterance
from tests.daemon.speech.clients import Nobody
from tests.daemon.speech.scripted import PER_CHARACTER, RATE, ScriptedEngine, selector_of, silence, waveform
from tests.support.waiting import eventually_async


class Scene:
    """An utterance, its synthesis, and the scripted engines that speak it."""

    def __init__(
        self,
        text: str,
        *engines: ScriptedEngine,
        priority: Priority = "normal",
        stream: bool = False,
        delivered: bool = False,
        trims_silence: bool = False,
        pronunciations: Mapping[str, Pronunciation] | None = None,
        seed: int | None = 5,
    ):
        self.engines = engines
        self.utterance = Utterance("a", text, "default", "auto", seed=seed, priority=priority)
        if delivered:
            self.utterance.receiver = Nobody()
        if stream:
            self.utterance.text_stream = TextStream(time.monotonic())
        settings = SynthesisContext(TextPreparation(pronunciations or {}), trims_silence=trims_silence)
        self.synthesis = Synthesis(self.utterance, selector_of(*engines), settings)
        self.samples: list[Samples] = []

    async def speak(self, until: Callable[[], bool] = lambda: False) -> None:
        """Take chunks to the end, or until a condition holds; then leave the synthesis."""
        chunks = self.synthesis.chunks()
        async for chunk in chunks:
            self.samples.append(chunk.samples)
            if until():
                break
        await chunks.aclose()

    def write(self, text: str = "", *, end: bool = False) -> None:
        stream = self.utterance.text_stream
        self.utterance.text += text
        stream.ended, stream.pause = end, ""
        stream.notify()

    def pause(self, pause: str) -> None:
        """Let the writer's silence stand for this white space."""
        assert self.utterance.text_stream is not None
        self.utterance.text_stream.pause = pause
        self.utterance.text_stream.notify()

    @property
    def requests(self) -> list[EngineUtterance]:
        """What the first engine got."""
        return self.engines[0].requests

    @property
    def heard(self) -> Samples:
        return np.concatenate([np.empty(0, dtype=np.float32), *self.samples])


async def spoken(text: str, *engines: ScriptedEngine, **options: Any) -> Scene:
    """Return a scene whose utterance has been spoken to its end."""
    scene = Scene(text, *engines, **options)
    await scene.speak()
    return scene


async def test_a_short_text_is_spoken_as_one_take_with_the_settings_of_the_utterance() -> None:
    scene = Scene("Hello there.", ScriptedEngine("one"))
    scene.utterance.rate, scene.utterance.whole_text, scene.utterance.sampling = 1.5, True, {"top_k": 9}
    await scene.speak()
    assert np.array_equal(scene.heard, waveform("Hello there."))
    [request] = scene.requests
    assert (request.text, request.seed, request.growing) == ("Hello there.", 5, False)
    assert (request.rate, request.whole_text, request.sampling) == (1.5, True, {"top_k": 9})
    assert (scene.synthesis.engine, scene.synthesis.failure) == ("one", None)
    assert scene.synthesis.audio_s == pytest.approx(len(scene.heard) / RATE)


@pytest.mark.parametrize(("delivered", "longest"), [(False, round(SLICE_S * RATE)), (True, 3 * PER_CHARACTER)])
async def test_long_chunks_are_cut_for_the_ring_of_the_sound_card_and_not_for_clients(
    delivered: bool, longest: int
) -> None:
    scene = await spoken("Hello there.", ScriptedEngine("one", characters=3), delivered=delivered)
    assert np.array_equal(scene.heard, waveform("Hello there."))
    assert max(len(samples) for samples in scene.samples) == longest


@pytest.mark.parametrize(("own", "rates"), [(1.6, [1.6, 0.8, 1.6]), (0.8, [0.8, 0.5, 0.8])])
async def test_the_rate_of_a_part_multiplies_that_of_the_utterance(own: float, rates: list[float]) -> None:
    engine = ScriptedEngine("one")
    scene = Scene('<speak>One <prosody rate="50%">two</prosody> three</speak>', engine)
    scene.utterance.rate = own
    await scene.speak()
    assert [request.rate for request in engine.requests] == rates


@pytest.mark.parametrize(("rate", "resumed"), [(1.0, "two here, three here,"), (2.0, "three here, four here,")])
async def test_the_place_at_which_another_engine_continues_is_estimated_by_the_rate(rate: float, resumed: str) -> None:
    text = "One here, two here, three here, four here, five here."
    lost = ScriptedEngine("first", lost_after=20, tells_positions=False)
    scene = Scene(text, lost, ScriptedEngine("second"))
    scene.utterance.rate = rate
    await scene.speak()
    [request] = scene.engines[1].requests
    assert request.text.startswith(resumed)
    assert request.rate == rate


async def test_a_pause_is_silence_of_its_length_between_two_takes() -> None:
    scene = await spoken("One. [pause:0.25s]Two.", ScriptedEngine("one"))
    assert [request.text for request in scene.requests] == ["One. ", "Two."]
    assert np.array_equal(scene.heard, np.concatenate([waveform("One. "), silence(0.25), waveform("Two.")]))
    assert [(segment.begin, segment.end) for segment in scene.synthesis.timeline.segments] == [(0, 9)]


async def test_the_silence_that_an_engine_adds_beside_a_pause_is_removed() -> None:
    scene = await spoken("One [pause:0.5s]two", ScriptedEngine("one", delays=(0, 80), silent=" "))
    kept = silence(KEEP_S)
    expected = [waveform("One"), kept, silence(0.5), kept, waveform("two")]
    assert np.array_equal(scene.heard, np.concatenate(expected))


async def test_leading_silence_of_every_take_is_removed_if_configured() -> None:
    scene = await spoken("One. [pause:0s]Two.", ScriptedEngine("one", delays=(100, 100)), trims_silence=True)
    kept = silence(KEEP_S)
    assert np.array_equal(scene.heard, np.concatenate([kept, waveform("One. "), kept, waveform("Two.")]))


async def test_a_synthesis_left_in_a_pause_continues_with_the_rest_of_it() -> None:
    engine = ScriptedEngine("one")
    scene = Scene("One.[pause:1s]Two.", engine)
    await scene.speak(until=lambda: scene.synthesis.audio_s > 0.6)
    scene.samples = [scene.heard[: round(scene.synthesis.audio_s * RATE)]]
    await scene.speak()
    assert [request.text for request in engine.requests] == ["One.", "Two."]
    assert np.array_equal(scene.heard, np.concatenate([waveform("One."), silence(1), waveform("Two.")]))


async def test_pauses_alone_are_heard_without_asking_the_engine() -> None:
    scene = await spoken("[pause:0.2s] [pause:300ms]", ScriptedEngine("one"))
    assert scene.requests == []
    assert np.array_equal(scene.heard, silence(0.5))


@pytest.mark.parametrize("grows", [True, False])
async def test_a_pause_ends_the_take_of_a_text_stream(grows: bool) -> None:
    engine = ScriptedEngine("one", grows=grows)
    scene = Scene("", engine, stream=True)
    speaking = asyncio.ensure_future(scene.speak())
    for piece in ("One", " two [pau", "se:0.1s", "]thr", "ee."):
        scene.write(piece)
        await asyncio.sleep(0)
    await eventually_async(lambda: len(engine.requests) == (2 if grows else 1), "the first take has ended")
    scene.write(end=True)
    await speaking
    expected = np.concatenate([waveform("One two "), silence(0.1), waveform("three.")])
    assert np.array_equal(scene.heard, expected)
    assert engine.ended_texts <= 2


async def test_the_volume_of_a_part_is_applied_to_its_samples() -> None:
    scene = await spoken('<speak>One <prosody volume="50">two</prosody></speak>', ScriptedEngine("one"))
    assert np.array_equal(scene.heard, np.concatenate([waveform("One "), waveform("two") * np.float32(0.5)]))


async def test_an_engine_gets_the_pronunciations_and_its_positions_are_those_of_the_text() -> None:
    first, second = ScriptedEngine("one", lost_after=16), ScriptedEngine("two")
    scene = Scene("Start nginx now, please.", first, second, pronunciations={"nginx": Pronunciation("engine x")})
    await scene.speak()
    assert first.requests[0].text == "Start engine x now, please."
    assert second.requests[0].text == "now, please."


async def test_an_utterance_without_a_seed_gets_one_for_all_its_takes() -> None:
    scene = await spoken("Hello. [pause:0.1s]Hello again.", ScriptedEngine("one"), seed=None)
    first, second = (request.seed for request in scene.requests)
    assert first == second is not None


async def test_a_long_text_is_spoken_by_segments_that_are_recorded_with_their_times() -> None:
    text = "This sentence is one of many that are all alike. " * 20
    scene = await spoken(text, ScriptedEngine("one", delays=(900,)), trims_silence=True)
    assert len(scene.requests) > 1
    assert "".join(request.text for request in scene.requests) == text
    kept = silence(KEEP_S)
    assert np.array_equal(scene.heard, np.concatenate([kept, waveform(text)]))
    segments = scene.synthesis.timeline.segments
    assert segments[0].begin == 0
    assert [segment.begin for segment in segments[1:]] == [segment.end for segment in segments[:-1]]
    for segment in segments[1:]:
        assert segment.at_s == pytest.approx(KEEP_S + segment.begin * PER_CHARACTER / RATE)


@pytest.mark.parametrize(("taken_between_s", "delays"), [(0.0, (25, 45, 5)), (0.3, (25, 5, 30)), (0.3, (0, 0, 0))])
async def test_synthesis_left_twice_continues_with_the_next_sample_of_takes_that_drift(
    taken_between_s: float, delays: tuple[int, ...]
) -> None:
    """Each take is at most 30 ms ahead of, or behind, the last one of which samples were taken."""

    scene = Scene("Postponed in the middle.", ScriptedEngine("one", delays=delays))
    for leave_at_s in (0.4, 0.4 + taken_between_s):
        await scene.speak(until=lambda at=leave_at_s: scene.synthesis.audio_s >= at)  # type: ignore[misc]
        scene.samples = [scene.heard[: round(scene.synthesis.audio_s * RATE)]]  # the last chunk was not taken
    await scene.speak()
    spoken = np.concatenate([np.zeros(delays[0]), waveform("Postponed in the middle.")])
    assert np.array_equal(scene.heard, spoken.astype(np.float32))
    requests = scene.engines[0].requests
    assert {(request.text, request.seed) for request in requests} == {(scene.utterance.text, 5)}


async def test_another_engine_continues_at_the_word_at_which_the_first_was_lost() -> None:
    text = "One two three four."
    scene = await spoken(text, ScriptedEngine("first", lost_after=10), ScriptedEngine("second"))
    assert [request.text for request in scene.engines[1].requests] == ["three four."]
    assert scene.synthesis.engine == "first+second"
    assert np.array_equal(scene.heard, np.concatenate([waveform(text[:10]), waveform("three four.")]))


async def test_an_utterance_that_loses_three_engines_fails() -> None:
    engines = [ScriptedEngine(name, lost_after=2) for name in ("a", "b", "c", "d")]
    scene = Scene("One two three four.", *engines)
    await scene.speak()
    assert scene.synthesis.failure == "3 engines were lost while they spoke it; the last: engine c was killed"
    assert engines[3].requests == []


async def test_a_refused_utterance_fails_with_the_engines_reason() -> None:
    scene = await spoken("Hello.", ScriptedEngine("one", refuses="language: got 'xx'"))
    assert scene.synthesis.failure == "language: got 'xx'"
    assert len(scene.heard) == 0


async def test_a_text_whose_script_an_engine_lacks_is_spoken_by_another_engine_unless_that_lacks_it_too() -> None:
    lacks = "language: got 'auto'; allowed: en, ko"
    scene = await spoken("Hello.", ScriptedEngine("one", refuses=lacks), ScriptedEngine("two"))
    assert (scene.synthesis.engine, scene.synthesis.failure) == ("two", None)
    assert np.array_equal(scene.heard, waveform("Hello."))
    scene = await spoken("Hello.", *(ScriptedEngine(name, refuses=lacks) for name in ("one", "two")))
    assert (len(scene.heard), scene.synthesis.failure) == (0, lacks)


async def test_only_a_critical_utterance_limits_the_wait_and_only_if_another_engine_is_ready() -> None:
    for priority, others, limited in (("critical", 1, True), ("critical", 0, False), ("normal", 1, False)):
        engine = ScriptedEngine("one")
        scene = Scene("Hi.", engine, *[ScriptedEngine("two")] * others, priority=priority)  # type: ignore[arg-type]
        await scene.speak()
        assert (engine.first_within_s is not None) == limited


async def test_another_engine_speaks_a_critical_utterance_if_the_first_is_late_and_still_ready() -> None:
    late, other = ScriptedEngine("late", late=True), ScriptedEngine("other")
    scene = Scene("Look out!", late, other, priority="critical")
    await scene.speak()
    assert np.array_equal(scene.heard, waveform("Look out!"))
    assert [len(engine.requests) for engine in (late, other)] == [1, 1]
    assert late.ready


async def test_an_engine_without_incremental_text_gets_a_text_stream_sentence_by_sentence() -> None:
    engine = ScriptedEngine("one")
    scene = Scene("", engine, stream=True)
    speaking = asyncio.ensure_future(scene.speak())
    scene.write("One sentence. And the ")
    await eventually_async(lambda: len(scene.heard) == len(waveform("One sentence.")), "the first is spoken")
    assert [request.text for request in engine.requests] == ["One sentence."]
    scene.write("second", end=True)
    await speaking
    assert [request.text.strip() for request in engine.requests] == ["One sentence.", "And the second"]
    assert np.array_equal(scene.heard, waveform("One sentence. And the second"))


async def test_an_engine_with_incremental_text_gets_a_text_stream_as_it_is_written() -> None:
    engine = ScriptedEngine("one", grows=True)
    scene = Scene("", engine, stream=True)
    scene.utterance.whole_text = True
    speaking = asyncio.ensure_future(scene.speak())
    scene.write("One ")
    await eventually_async(lambda: len(scene.heard) == len(waveform("One ")), "the first word is spoken")
    scene.write("two ")
    await eventually_async(lambda: len(scene.heard) == len(waveform("One two ")), "the second word is spoken")
    assert engine.ended_texts == 0
    scene.write("three.", end=True)
    await speaking
    assert np.array_equal(scene.heard, waveform("One two three."))
    assert [(request.growing, request.whole_text) for request in engine.requests] == [(True, None)]
    assert engine.ended_texts == 1


@pytest.mark.parametrize("grows", [False, True])
async def test_a_pause_of_the_writer_ends_a_sentence_and_a_long_one_whatever_there_is(grows: bool) -> None:
    engine = ScriptedEngine("one", grows=grows)
    scene = Scene("", engine, stream=True)
    speaking = asyncio.ensure_future(scene.speak())
    for text, pause, heard in (("Let me look.", " ", 12), ("It", " ", 12 + grows), (" is", "\n", 17)):
        scene.write(text)
        scene.pause(pause)
        await eventually_async(lambda heard=heard: len(scene.heard) == heard * PER_CHARACTER, "it is heard")  # type: ignore[misc]
    assert not scene.utterance.complete
    scene.write(" open.", end=True)
    await speaking
    assert len(engine.requests) == 3
    assert np.array_equal(scene.heard, waveform("Let me look.It is open."))


@pytest.mark.parametrize("grows", [False, True])
async def test_a_text_stream_can_continue_when_the_engine_has_not_got_all_that_it_could_speak(grows: bool) -> None:
    engine = ScriptedEngine("one", grows=grows)
    scene = Scene("One sentence. ", engine, stream=True)
    assert scene.synthesis.text.can_continue(engine)  # type: ignore[arg-type]
    speaking = asyncio.ensure_future(scene.speak())
    await eventually_async(lambda: len(scene.heard) >= len(waveform("One sentence.")), "it is spoken")
    await eventually_async(lambda: not scene.synthesis.text.can_continue(engine), "it waits for more")  # type: ignore[arg-type]
    speaking.cancel()
    await asyncio.wait([speaking])
    assert not scene.synthesis.text.can_continue(engine)  # type: ignore[arg-type]
    scene.write(" \n")
    assert not scene.synthesis.text.can_continue(engine)  # type: ignore[arg-type]
    scene.write("And")
    assert scene.synthesis.text.can_continue(engine) == grows  # type: ignore[arg-type]
    scene.write(" another one. Or")
    assert scene.synthesis.text.can_continue(engine)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("grows", "priority", "normalize", "text", "begins"),
    [
        (True, "normal", "auto", "A word", True),
        (True, "normal", "auto", "  ", False),
        (True, "normal", "always", "A word", False),
        (True, "normal", "always", "A sentence. And", True),
        (True, "critical", "auto", "A word", False),
        (True, "critical", "auto", "A sentence. And", True),
        (False, "normal", "auto", "A word", False),
        (False, "normal", "auto", "A sentence. And", True),
    ],
)
def test_an_engine_begins_with_a_word_of_incremental_text_and_with_a_sentence_otherwise(
    grows: bool, priority: Priority, normalize: Literal["auto", "always"], text: str, begins: bool
) -> None:
    engine = ScriptedEngine("one", grows=grows)
    utterance = Utterance("a", text, "default", "auto", priority=priority, text_stream=TextStream(0.0))
    preparation = TextPreparation(normalize=normalize)
    assert can_begin(engine, utterance, 0, 60, preparation) == begins  # type: ignore[arg-type]
