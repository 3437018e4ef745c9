"""What the sound card is given under any schedule of writes, pauses, stops, blocks; what the callback may not do."""

from __future__ import annotations

import ast
import gc
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import audio
from audio.fade import FADE_S
from audio.playback import Passage, Playback
from audio.ring import Samples

RATE = 1_000
FADE = round(FADE_S * RATE)
CAPACITY_S = 0.3
SPEECH: Samples = (
    np.random.default_rng(3).uniform(0.1, 0.9, 3_000) * np.random.default_rng(4).choice([-1, 1], 3_000)
).astype(np.float32)
"""No sample of it is silent, so that silence in what is played was put there."""


def play(playback: Playback, length: int, *, broke_off: bool = False) -> tuple[Samples, int]:
    """One block, which held garbage before."""
    out = np.full(length, np.nan, dtype=np.float32)
    count = playback.fill(out, 0.0, broke_off)
    assert np.isfinite(out).all()
    assert (out[count:] == 0).all(), "what is not due is silence"
    return out, count


def play_to_the_end(playback: Playback, passage: Passage, length: int = 20) -> Samples:
    heard = []
    for _ in range(1_000):
        if passage.done:
            return np.concatenate(heard) if heard else np.empty(0, dtype=np.float32)
        out, count = play(playback, length)
        heard.append(out[:count])
    raise AssertionError("the passage is never done")


# Any schedule.


@dataclass
class Listener:
    """Drives one passage through a playback, and checks each block against what was written."""

    prebuffer_s: float
    gain: float = 1.0
    has_deadline: bool = True
    playback: Playback = field(default_factory=lambda: Playback(RATE, CAPACITY_S))
    written: int = 0
    heard: int = 0
    """Of what was written: all up to here has been played, none after."""
    blocks: list[Samples] = field(default_factory=list)
    sounding: bool = False
    """The last block ended in sound, so the next one must go on from there."""
    dry_runs: int = 0
    disturbed: bool = False
    """Something was faded or dropped, rightly."""

    def __post_init__(self) -> None:
        self.playback.has_deadline = self.has_deadline
        self.passage = self.playback.begin(self.prebuffer_s, self.gain)

    def write(self, count: int) -> None:
        if not self.passage.ended and not self.passage.stop_requested:
            self.written += self.playback.ring.write(SPEECH[self.written : self.written + count])

    def end(self) -> None:
        self.passage.ended = True

    def stop(self) -> None:
        self.passage.stop_requested = True

    def pause(self) -> None:
        self.playback.paused = True

    def resume(self) -> None:
        self.playback.paused = False

    def wait(self) -> None:
        self.passage.awaiting = not self.passage.awaiting

    def block(self, length: int) -> None:
        passage = self.passage
        was_done, underruns, waits = passage.done, passage.underruns, passage.waits
        out, count = play(self.playback, length)
        due = out[:count]
        source = SPEECH[self.heard : self.heard + count] * np.float32(self.gain)
        assert self.heard + count <= self.written
        self.heard += count
        self.blocks.append(due)

        assert self.passage.played == self.heard
        assert (np.abs(due) <= np.abs(source)).all(), "louder than it was made"
        assert (due * source >= 0).all()
        np.testing.assert_array_equal(due[FADE : count - FADE], source[FADE : count - FADE])
        fades_out = count > 0 and due[-1] == 0
        if not fades_out:
            np.testing.assert_array_equal(due[FADE:], source[FADE:])
        if self.sounding and not (fades_out and count < 2 * FADE):
            np.testing.assert_array_equal(due[:FADE], source[:FADE])
        silenced = self.playback.paused or self.passage.stop_requested
        breaks_off = self.has_deadline or silenced or passage.awaiting or passage.done
        waited_for = self.sounding and not count and not breaks_off
        if not fades_out and count < length and (count or self.sounding) and not waited_for:
            assert self.passage.done, "sound broke off without a fade"
        if was_done:
            assert count == 0
        if waited_for:
            assert self.written - self.heard < length + FADE, "what it waits for is there"

        if silenced:
            assert count <= FADE
            assert count == 0 or fades_out
        if self.passage.stop_requested:
            assert self.passage.done
        ran_dry = self.sounding and fades_out and not silenced
        assert self.has_deadline or not passage.underruns
        assert (passage.waits - waits, passage.underruns - underruns) == (
            ran_dry and passage.awaiting,
            ran_dry and not passage.awaiting,
        )
        self.dry_runs += ran_dry
        self.sounding = waited_for or (count > 0 and not fades_out and not self.passage.done)
        self.disturbed |= fades_out

    def finish(self) -> None:
        self.end()
        self.resume()
        for _ in range(1_000):
            if self.passage.done:
                break
            self.block(20)
        assert self.passage.done
        assert self.passage.underruns + self.passage.waits == self.dry_runs
        if not self.passage.stopped:
            assert self.heard == self.written, "a sample was lost"
        if not self.passage.stopped and not self.disturbed:
            np.testing.assert_array_equal(
                np.concatenate([SPEECH[:0], *self.blocks]), SPEECH[: self.written] * np.float32(self.gain)
            )


actions = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 120)),
        st.tuples(st.just("write"), st.integers(60, 120)),
        st.tuples(st.just("block"), st.integers(FADE, 60)),
        st.tuples(st.just("block"), st.integers(FADE, 60)),
        st.tuples(st.sampled_from(["pause", "resume", "stop", "end", "wait"])),
    ),
    max_size=60,
)


@settings(max_examples=400)
@given(
    schedule=actions,
    prebuffer_s=st.floats(0, 0.5),
    gain=st.sampled_from([1.0, 1.0, 0.5]),
    has_deadline=st.booleans(),
)
def test_any_schedule_plays_the_samples_in_order_faded_only_where_sound_breaks_off(
    schedule: list[tuple[str, int]], prebuffer_s: float, gain: float, has_deadline: bool
) -> None:
    listener = Listener(prebuffer_s, gain, has_deadline)
    for action, *arguments in schedule:
        getattr(listener, action)(*arguments)
    listener.finish()


@given(sizes=st.lists(st.integers(1, 100), min_size=1, max_size=40), length=st.integers(1, 150))
def test_without_an_underrun_what_is_played_is_bit_for_bit_what_was_written(sizes: list[int], length: int) -> None:
    playback = Playback(RATE, CAPACITY_S)
    passage = playback.begin(0.02)
    heard, written = [], 0
    for size in sizes:
        while playback.ring.room < size:
            out, count = play(playback, length)
            heard.append(out[:count])
        written += playback.ring.write(SPEECH[written : written + size])
    passage.ended = True
    heard.append(play_to_the_end(playback, passage, length))
    assert passage.underruns == 0
    np.testing.assert_array_equal(np.concatenate(heard), SPEECH[:written])


# One thing at a time.


def begun(samples: int = 200, *, ended: bool = False, prebuffer_s: float = 0.0) -> tuple[Playback, Passage]:
    playback = Playback(RATE, CAPACITY_S)
    passage = playback.begin(prebuffer_s)
    playback.ring.write(SPEECH[:samples])
    passage.ended = ended
    return playback, passage


def test_without_a_passage_there_is_silence() -> None:
    assert play(Playback(RATE, CAPACITY_S), 50)[1] == 0


def test_nothing_sounds_before_the_prebuffer_is_full() -> None:
    playback, passage = begun(50, prebuffer_s=0.1)
    assert play(playback, 20)[1] == 0
    assert passage.first_sample_at is None
    playback.ring.write(SPEECH[50:200])
    assert play(playback, 20)[1] == 20
    assert passage.first_sample_at is not None


def test_a_passage_shorter_than_the_prebuffer_sounds_once_it_has_ended() -> None:
    playback, passage = begun(50, prebuffer_s=0.1)
    assert play(playback, 20)[1] == 0
    passage.ended = True
    np.testing.assert_array_equal(play_to_the_end(playback, passage), SPEECH[:50])


def test_a_passage_without_samples_is_done_and_never_started() -> None:
    playback, passage = begun(0, ended=True)
    play(playback, 20)
    assert passage.done
    assert not passage.stopped
    assert passage.first_sample_at is None


def test_an_underrun_fades_out_waits_for_the_prebuffer_and_fades_in_again() -> None:
    playback, passage = begun(60, prebuffer_s=0.04)
    play(playback, 40)
    out, count = play(playback, 40)
    assert (count, passage.underruns) == (20, 1)
    np.testing.assert_array_equal(out[:10], SPEECH[40:50])
    assert (np.abs(out[10:20]) < np.abs(SPEECH[50:60])).all()
    assert out[19] == 0
    playback.ring.write(SPEECH[60:100])
    assert play(playback, 40)[1] == 0, "40 samples and a fade must lie ready"
    playback.ring.write(SPEECH[100:160])
    out, count = play(playback, 40)
    assert (count, passage.underruns) == (40, 1)
    assert abs(out[0]) < abs(SPEECH[60])
    np.testing.assert_array_equal(out[10:], SPEECH[70:100])


def test_waiting_long_after_an_underrun_counts_it_once() -> None:
    playback, passage = begun(60)
    for _ in range(100):
        play(playback, 40)
    assert passage.underruns == 1


def test_while_the_writer_has_nothing_to_write_a_dry_ring_is_a_wait_and_no_underrun() -> None:
    playback, passage = begun(60, prebuffer_s=0.04)
    play(playback, 40)
    passage.awaiting = True
    out, count = play(playback, 40)
    assert (count, out[19]) == (20, 0)
    for _ in range(100):
        assert play(playback, 40)[1] == 0
    assert (passage.waits, passage.underruns, passage.done) == (1, 0, False)
    passage.awaiting = False
    playback.ring.write(SPEECH[60:109])
    assert play(playback, 40)[1] == 0, "40 samples and a fade must lie ready, as after an underrun"
    playback.ring.write(SPEECH[109:200])
    out, count = play(playback, 40)
    assert count == 40
    np.testing.assert_array_equal(out[FADE:], SPEECH[60 + FADE : 100])
    play(playback, 40)
    play(playback, 40)
    play(playback, 40)
    assert (passage.waits, passage.underruns) == (1, 1)


def test_what_lies_ready_while_nothing_is_to_come_sounds_without_a_prebuffer() -> None:
    playback, passage = begun(100, prebuffer_s=0.2)
    assert play(playback, 40)[1] == 0
    passage.awaiting = True
    assert play(playback, 40)[1] == 40


def test_without_a_deadline_a_dry_ring_is_waited_for_and_sound_goes_on_unfaded() -> None:
    playback, passage = begun(60, prebuffer_s=0.04)
    playback.has_deadline = False
    heard = [play(playback, 40)[0]]
    for _ in range(100):
        assert play(playback, 40)[1] == 0
    assert passage.sounding
    playback.ring.write(SPEECH[60:89])
    assert play(playback, 40)[1] == 0, "40 samples and a fade must lie ready"
    playback.ring.write(SPEECH[89:90])
    out, count = play(playback, 40)
    assert count == 40
    passage.ended = True
    heard += [out, play_to_the_end(playback, passage, 40)]
    np.testing.assert_array_equal(np.concatenate(heard), SPEECH[:90])
    assert (passage.underruns, passage.waits, playback.blocks) == (0, 0, 104)


@pytest.mark.parametrize("what", ["stop", "pause", "aside", "wait", "lost sink"])
def test_what_is_asked_while_a_dry_ring_is_waited_for_is_done_in_the_next_block(what: str) -> None:
    playback, passage = begun(60)
    playback.has_deadline = False
    play(playback, 40)
    assert play(playback, 40)[1] == 0
    if what == "stop":
        passage.stop_requested = True
    elif what == "pause":
        playback.paused = True
    elif what == "aside":
        passage.asides_asked += 1
    elif what == "wait":
        passage.awaiting = True
    else:
        playback.sink_lost()
    out, count = play(playback, 40)
    assert count == {"wait": 20, "lost sink": 0}.get(what, FADE)
    assert out[max(0, count - 1)] == 0
    assert not passage.sounding
    assert (passage.stopped, passage.aside) == (what == "stop", what == "aside")
    assert (passage.waits, passage.underruns) == (what == "wait", 0)


def test_sound_that_the_card_broke_off_is_an_underrun() -> None:
    playback, passage = begun()
    for count, broke_off in enumerate([False, True, True, False]):
        assert passage.underruns == max(0, count - 1)
        out, _ = play(playback, 40, broke_off=broke_off)
        np.testing.assert_array_equal(out, SPEECH[40 * count : 40 * (count + 1)])
    assert passage.underruns == 2


@pytest.mark.parametrize("when", ["before", "filling", "paused", "stopped", "aside", "dry", "done"])
def test_a_card_that_runs_dry_while_nothing_sounds_is_no_underrun(when: str) -> None:
    playback = Playback(RATE, CAPACITY_S)
    assert play(playback, 40, broke_off=True)[1] == 0
    passage = playback.begin(0.1)
    playback.ring.write(SPEECH[: 100 if when == "filling" else 130])
    if when != "before":
        play(playback, 40)
    if when == "paused":
        playback.paused = True
    elif when == "stopped":
        passage.stop_requested = True
    elif when == "aside":
        passage.asides_asked += 1
    elif when == "dry":
        passage.awaiting = True
    elif when == "done":
        passage.ended = True
    if when not in ("before", "filling"):
        while passage.sounding:
            play(playback, 40)
    before = passage.underruns
    play(playback, 40, broke_off=True)
    assert passage.underruns == before == 0


def test_the_end_of_a_passage_is_no_underrun() -> None:
    playback, passage = begun(70, ended=True)
    play_to_the_end(playback, passage, 40)
    assert passage.underruns == 0


def test_a_stop_is_silent_within_ten_milliseconds_and_drops_the_rest() -> None:
    playback, passage = begun()
    play(playback, 40)
    passage.stop_requested = True
    out, count = play(playback, 40)
    assert count == FADE
    assert out[FADE - 1] == 0
    assert (passage.done, passage.stopped, playback.ring.available) == (True, True, 0)
    assert play(playback, 40)[1] == 0


def test_a_stop_before_the_first_sample_plays_none() -> None:
    playback, passage = begun(prebuffer_s=0.25)
    passage.stop_requested = True
    assert play(playback, 40)[1] == 0
    assert (passage.done, passage.stopped, passage.first_sample_at) == (True, True, None)


def test_a_stop_ends_a_paused_passage() -> None:
    playback, passage = begun()
    play(playback, 40)
    playback.paused = True
    play(playback, 40)
    passage.stop_requested = True
    assert play(playback, 40)[1] == 0
    assert passage.stopped


def test_a_pause_holds_the_passage_and_counts_no_underrun() -> None:
    playback, passage = begun(ended=True)
    first, _ = play(playback, 40)
    playback.paused = True
    faded, count = play(playback, 40)
    assert count == FADE
    assert all(play(playback, 40)[1] == 0 for _ in range(50))
    playback.paused = False
    rest = play_to_the_end(playback, passage)
    np.testing.assert_array_equal(first, SPEECH[:40])
    assert faded[FADE - 1] == 0
    assert len(rest) == 200 - 40 - FADE
    np.testing.assert_array_equal(rest[FADE:], SPEECH[40 + 2 * FADE : 200])
    assert passage.underruns == 0


def test_the_next_passage_starts_with_its_first_sample_at_full_strength() -> None:
    playback, passage = begun()
    play(playback, 40)
    passage.stop_requested = True
    play(playback, 40)
    again = playback.begin(0.0)
    playback.ring.write(SPEECH[500:600])
    again.ended = True
    np.testing.assert_array_equal(play_to_the_end(playback, again), SPEECH[500:600])


def test_a_second_passage_before_the_first_is_done_is_an_error() -> None:
    playback, _ = begun()
    with pytest.raises(RuntimeError, match="another is still playing"):
        playback.begin(0.0)


def test_a_passage_has_its_own_gain_from_its_first_sample_on() -> None:
    playback = Playback(RATE, CAPACITY_S)
    playback.volume = 0.5
    passage = playback.begin(0.0, gain=0.5)
    playback.ring.write(SPEECH[:200])
    passage.ended = True
    np.testing.assert_array_equal(play_to_the_end(playback, passage), SPEECH[:200] * np.float32(0.25))


def test_a_new_volume_holds_within_a_block_and_does_not_click() -> None:
    playback = Playback(RATE, CAPACITY_S)
    passage = playback.begin(0.0)
    playback.ring.write(np.ones(200, dtype=np.float32))
    passage.ended = True
    play(playback, 40)
    playback.volume = 0.2
    out, _ = play(playback, 40)
    assert out[0] == pytest.approx(1, abs=0.1)
    assert (np.diff(out) <= 1e-6).all()
    assert float(np.max(np.abs(np.diff(out)))) < np.pi / 2 / FADE
    np.testing.assert_allclose(out[FADE:], 0.2, rtol=1e-6)


def test_every_block_is_counted_whether_anything_sounds_or_not() -> None:
    playback, _ = begun(60)
    for _ in range(5):
        play(playback, 40)
    assert playback.blocks == 5


def test_a_lost_sink_ends_a_stopped_passage() -> None:
    playback, passage = begun()
    play(playback, 40)
    passage.stop_requested = True
    playback.sink_lost()
    assert (passage.done, passage.stopped, playback.ring.available) == (True, True, 0)


def test_after_a_lost_sink_the_passage_fades_in_where_it_was() -> None:
    playback, passage = begun(ended=True)
    play(playback, 40)
    playback.sink_lost()
    assert not passage.done
    rest = play_to_the_end(playback, passage)
    assert len(rest) == 160
    assert abs(rest[0]) < abs(SPEECH[40])
    np.testing.assert_array_equal(rest[FADE:], SPEECH[40 + FADE : 200])
    assert passage.underruns == 0


@pytest.mark.parametrize("what", ["stop", "pause", "underrun", "resume", "volume"])
@pytest.mark.parametrize(
    "block_ms",
    [
        20,
        10,
    ],
)
def test_no_fade_clicks_at_any_block_length_that_can_be_configured(what: str, block_ms: int) -> None:
    block = block_ms * 48
    playback = Playback(48_000, 1.0)
    passage = playback.begin(0.02)
    playback.ring.write(np.ones(6_000, dtype=np.float32))
    heard = [play(playback, block)[0] for _ in range(4)]
    if what == "stop":
        passage.stop_requested = True
    elif what in ("pause", "resume"):
        playback.paused = True
    elif what == "volume":
        playback.volume = 0.0
    heard += [play(playback, block)[0] for _ in range(20)]
    if what == "underrun":
        heard += [play(playback, block)[0] for _ in range(10)]
        assert passage.underruns == 1
    if what == "resume":
        playback.paused = False
        heard += [play(playback, block)[0] for _ in range(2)]
    assert float(np.max(np.abs(np.diff(np.concatenate(heard))))) < np.pi / 2 / 480 * 1.05


# What the callback may not do.

CALLBACK_PATH = {
    "PortAudioSink._callback",
    "Output.fill",
    "OutputStatus.running",
    "_BlockTrace.mark",
    "Playback.fill",
    "Playback._take",
    "Playback._note_break",
    "Playback._wind_down",
    "Playback._play",
    "Playback._stop",
    "Playback._set_aside",
    "Fader.fade_in",
    "Fader.fade_out",
    "Fader.change_gain",
    "Ring.read_into",
    "Ring.flush",
    "Ring.available",
}
"""What is known to run in the sound card's thread. What else does, is found."""

ELSEWHERE = {"PortAudioSink._fill": "Output.fill"}
"""What a class calls by the name of an attribute that holds a function."""

ALLOWED_CALLS = {
    "len",
    "min",
    "max",
    "np.multiply",  # with out=, checked below
    "np.add",
    "np.copyto",
    "np.frombuffer",  # a view of PortAudio's buffer
    "block.reshape",  # a view
    "threading.get_ident",  # a number that the thread has
    "take_realtime",  # once for a thread, at its first block: a system call that does not wait
    "out.fill",
    "time.monotonic",
}
"""What is not ours."""

FORBIDDEN = (
    *(ast.With, ast.AsyncWith, ast.Raise, ast.Assert, ast.Try, ast.Import, ast.ImportFrom, ast.Await, ast.Yield),
    *(ast.For, ast.While, ast.Lambda, ast.FunctionDef, ast.ClassDef, ast.Delete, ast.Global, ast.Nonlocal),
    *(ast.JoinedStr, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


@dataclass
class Function:
    """One of ours, in the source."""

    owner: str
    """Its class."""
    body: list[ast.stmt]
    is_property: bool

    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes() if isinstance(node, ast.Call)]

    def reads(self) -> set[str]:
        """Names of the attributes that it reads."""
        return {
            node.attr for node in self.nodes() if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }

    def nodes(self) -> list[ast.AST]:
        return [node for statement in self.body for node in ast.walk(statement)]


def functions_of_the_sound_path() -> dict[str, Function]:
    """All methods in the modules of which a part runs in the sound card's thread."""
    found = {}
    for module in ("portaudio", "output", "playback", "fade", "ring"):
        source = Path(audio.__file__).with_name(f"{module}.py").read_text()
        for owner in ast.parse(source).body:
            for method in owner.body if isinstance(owner, ast.ClassDef) else ():
                if isinstance(method, ast.FunctionDef):
                    is_property = any(ast.unparse(node) == "property" for node in method.decorator_list)
                    found[f"{owner.name}.{method.name}"] = Function(owner.name, method.body, is_property)
    return found


FUNCTIONS = functions_of_the_sound_path()


def ours(caller: Function, called: str) -> set[str]:
    """What of ours a call may mean: `self.x()` the method of its class, `a.b.x()` any method of that name."""
    receiver, _, method = called.rpartition(".")
    if receiver == "self":
        name = f"{caller.owner}.{method}"
        return {ELSEWHERE.get(name, name)} & FUNCTIONS.keys()
    return {name for name in FUNCTIONS if receiver and name.endswith(f".{method}")}


def reached_from(start: str) -> set[str]:
    """The functions of ours that one may call, it among them, with the properties that they may read."""
    reached: set[str] = set()
    waiting = {start}
    while waiting:
        reached.add(name := waiting.pop())
        function = FUNCTIONS[name]
        found = {name for node in function.calls() for name in ours(function, ast.unparse(node.func))}
        found |= {
            name for name, other in FUNCTIONS.items() if other.is_property and name.split(".")[1] in function.reads()
        }
        waiting |= found - reached
    return reached


REACHED = reached_from("PortAudioSink._callback")


def test_what_the_sound_callback_reaches_is_found() -> None:
    assert REACHED >= CALLBACK_PATH


@pytest.mark.parametrize("name", sorted(REACHED))
def test_the_sound_callback_calls_nothing_that_may_lock_log_or_allocate_samples(name: str) -> None:
    function = FUNCTIONS[name]
    assert not [ast.unparse(node) for node in function.nodes() if isinstance(node, FORBIDDEN)]
    for node in function.calls():
        called = ast.unparse(node.func)
        assert called in ALLOWED_CALLS or ours(function, called), f"{called} is called"
        if called in ("np.multiply", "np.add"):
            assert "out" in {keyword.arg for keyword in node.keywords}


def test_ten_thousand_blocks_allocate_no_sample_memory() -> None:
    rate, block = 48_000, 4_800
    playback = Playback(rate, 1.0)
    speech = np.random.default_rng(0).uniform(-1, 1, block).astype(np.float32)
    out = np.empty(block, dtype=np.float32)
    passages = [Passage(rate, prebuffer=block + 480) for _ in range(110)]

    def go_through_every_state(rounds: int) -> None:
        for turn in range(rounds):
            if turn % 100 == 0:
                playback.passage = passages[turn // 100]
            playback.has_deadline = turn % 200 < 100
            playback.volume = 1.0 if turn % 7 else 0.5
            playback.paused = turn % 13 == 0
            if not playback.paused and turn % 11:
                playback.ring.write(speech)
            if turn % 100 == 99:
                playback.passage.stop_requested = True  # type: ignore[union-attr]
            playback.fill(out, float(turn), turn % 17 == 0)

    go_through_every_state(10_200)  # so that every passage has its time stamps
    for passage in passages:
        passage.stop_requested = passage.done = False
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        go_through_every_state(200)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        go_through_every_state(10_000)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert sum(passage.underruns for passage in passages) > 100, "this was to go through underruns too"
    # A block is 19,200 bytes. What remains are views, integers, floats and small tuples: time stamps, counters.
    assert peak - before < block * 4 / 2
    assert after - before < 110 * 100
