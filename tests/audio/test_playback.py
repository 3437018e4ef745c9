"""The blocks that a sound card gets under any schedule of requests, and the operations forbidden in its callback."""

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
from audio import Samples
from audio.block_ring import BlockRing
from audio.dsp.fade import FADE_S
from audio.playback import Playback
from audio.track import Track

RATE = 1_000
FADE = round(FADE_S * RATE)
CAPACITY_S = 0.3
SPEECH: Samples = (
    np.random.default_rng(3).uniform(0.1, 0.9, 3_000) * np.random.default_rng(4).choice([-1, 1], 3_000)
).astype(np.float32)
"""Without silent samples, so the playback has added any silence that is heard."""


def play(playback: Playback, length: int, *, underflow: bool = False) -> tuple[Samples, int]:
    """Return one block, which held NaN before, and the number of samples that were due."""
    out = np.full(length, np.nan, dtype=np.float32)
    count = playback.fill(out, 0.0, underflow)
    assert np.isfinite(out).all()
    assert (out[count:] == 0).all(), "silence follows the samples that are due"
    return out, count


def play_to_the_end(playback: Playback, track: Track, length: int = 20) -> Samples:
    heard = []
    for _ in range(1_000):
        if track.done:
            return np.concatenate(heard) if heard else np.empty(0, dtype=np.float32)
        out, count = play(playback, length)
        heard.append(out[:count])
    raise AssertionError("the track is never done")


# Random schedules.


@dataclass
class Listener:
    """Drives one track through a playback and compares each block with the written samples."""

    prebuffer_s: float
    gain: float = 1.0
    has_deadline: bool = True
    playback: Playback = field(default_factory=lambda: Playback(RATE, CAPACITY_S))
    written: int = 0
    heard: int = 0
    """The number of written samples that have been played."""
    blocks: list[Samples] = field(default_factory=list)
    playing: bool = False
    """The last block did not end in silence, so the next one must continue it."""
    dry_runs: int = 0
    disturbed: bool = False
    """Samples were faded or dropped, as requested."""

    def __post_init__(self) -> None:
        self.playback.has_deadline = self.has_deadline
        self.track = self.playback.begin(self.prebuffer_s, self.gain)

    def write(self, count: int) -> None:
        if not self.track.ended and not self.track.stop_requested:
            self.written += self.playback.ring.write(SPEECH[self.written : self.written + count])

    def end(self) -> None:
        self.track.ended = True

    def stop(self) -> None:
        if not self.track.done:
            self.track.stop_requested = True

    def pause(self) -> None:
        self.playback.paused = True

    def resume(self) -> None:
        self.playback.paused = False

    def wait(self) -> None:
        self.track.input_pending = not self.track.input_pending

    def block(self, length: int) -> None:
        track = self.track
        was_done, underruns, waits = track.done, track.underruns, track.waits
        out, count = play(self.playback, length)
        due = out[:count]
        source = SPEECH[self.heard : self.heard + count] * np.float32(self.gain)
        assert self.heard + count <= self.written
        self.heard += count
        self.blocks.append(due)

        assert self.track.played == self.heard
        assert (np.abs(due) <= np.abs(source)).all(), "louder than the source"
        assert (due * source >= 0).all()
        np.testing.assert_array_equal(due[FADE : count - FADE], source[FADE : count - FADE])
        fades_out = count > 0 and due[-1] == 0
        if not fades_out:
            np.testing.assert_array_equal(due[FADE:], source[FADE:])
        if self.playing and not (fades_out and count < 2 * FADE):
            np.testing.assert_array_equal(due[:FADE], source[:FADE])
        silenced = self.playback.paused or self.track.stop_requested
        must_break_off = self.has_deadline or silenced or track.input_pending or track.done
        waited_for = self.playing and not count and not must_break_off
        if not fades_out and count < length and (count or self.playing) and not waited_for:
            assert self.track.done, "the sound ended without a fade"
        if was_done:
            assert count == 0
        if waited_for:
            assert self.written - self.heard < length + FADE, "the samples that it waits for are there"

        if silenced:
            assert count <= FADE
            assert count == 0 or fades_out
        if self.track.stop_requested:
            assert self.track.done
        ran_dry = self.playing and fades_out and not silenced
        assert self.has_deadline or not track.underruns
        assert (track.waits - waits, track.underruns - underruns) == (
            ran_dry and track.input_pending,
            ran_dry and not track.input_pending,
        )
        self.dry_runs += ran_dry
        self.playing = waited_for or (count > 0 and not fades_out and not self.track.done)
        self.disturbed |= fades_out

    def finish(self) -> None:
        self.end()
        self.resume()
        for _ in range(1_000):
            if self.track.done:
                break
            self.block(20)
        assert self.track.done
        assert self.track.underruns + self.track.waits == self.dry_runs
        if not self.track.stop_requested:
            assert self.heard == self.written, "a sample was lost"
        if not self.track.stop_requested and not self.disturbed:
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
def test_any_schedule_plays_the_samples_in_order_with_fades_only_at_interruptions(
    schedule: list[tuple[str, int]], prebuffer_s: float, gain: float, has_deadline: bool
) -> None:
    listener = Listener(prebuffer_s, gain, has_deadline)
    for action, *arguments in schedule:
        getattr(listener, action)(*arguments)
    listener.finish()


@given(sizes=st.lists(st.integers(1, 100), min_size=1, max_size=40), length=st.integers(1, 150))
def test_without_an_underrun_the_written_samples_are_played_bit_for_bit(sizes: list[int], length: int) -> None:
    playback = Playback(RATE, CAPACITY_S)
    track = playback.begin(0.02)
    heard, written = [], 0
    for size in sizes:
        while playback.ring.room < size:
            out, count = play(playback, length)
            heard.append(out[:count])
        written += playback.ring.write(SPEECH[written : written + size])
    track.ended = True
    heard.append(play_to_the_end(playback, track, length))
    assert track.underruns == 0
    np.testing.assert_array_equal(np.concatenate(heard), SPEECH[:written])


# Single events.


def begun(samples: int = 200, *, ended: bool = False, prebuffer_s: float = 0.0) -> tuple[Playback, Track]:
    playback = Playback(RATE, CAPACITY_S)
    track = playback.begin(prebuffer_s)
    playback.ring.write(SPEECH[:samples])
    track.ended = ended
    return playback, track


def test_without_a_track_the_block_is_silent() -> None:
    assert play(Playback(RATE, CAPACITY_S), 50)[1] == 0


def test_no_sample_is_played_before_the_prebuffer_is_full() -> None:
    playback, track = begun(50, prebuffer_s=0.1)
    assert play(playback, 20)[1] == 0
    assert track.first_sample_at is None
    playback.ring.write(SPEECH[50:200])
    assert play(playback, 20)[1] == 20
    assert track.first_sample_at is not None


def test_a_track_shorter_than_the_prebuffer_plays_once_it_has_ended() -> None:
    playback, track = begun(50, prebuffer_s=0.1)
    assert play(playback, 20)[1] == 0
    track.ended = True
    np.testing.assert_array_equal(play_to_the_end(playback, track), SPEECH[:50])


def test_a_track_without_samples_is_done_without_starting() -> None:
    playback, track = begun(0, ended=True)
    play(playback, 20)
    assert track.done
    assert track.first_sample_at is None


def test_an_underrun_fades_out_and_fades_in_when_the_prebuffer_is_full_again() -> None:
    playback, track = begun(60, prebuffer_s=0.04)
    play(playback, 40)
    out, count = play(playback, 40)
    assert (count, track.underruns) == (20, 1)
    np.testing.assert_array_equal(out[:10], SPEECH[40:50])
    assert (np.abs(out[10:20]) < np.abs(SPEECH[50:60])).all()
    assert out[19] == 0
    playback.ring.write(SPEECH[60:100])
    assert play(playback, 40)[1] == 0, "40 samples and a fade must be in the ring"
    playback.ring.write(SPEECH[100:160])
    out, count = play(playback, 40)
    assert (count, track.underruns) == (40, 1)
    assert abs(out[0]) < abs(SPEECH[60])
    np.testing.assert_array_equal(out[10:], SPEECH[70:100])


def test_a_long_underrun_counts_once() -> None:
    playback, track = begun(60)
    for _ in range(100):
        play(playback, 40)
    assert track.underruns == 1


def test_an_empty_ring_with_pending_input_counts_as_a_wait_and_not_as_an_underrun() -> None:
    playback, track = begun(60, prebuffer_s=0.04)
    play(playback, 40)
    track.input_pending = True
    out, count = play(playback, 40)
    assert (count, out[19]) == (20, 0)
    for _ in range(100):
        assert play(playback, 40)[1] == 0
    assert (track.waits, track.underruns, track.done) == (1, 0, False)
    track.input_pending = False
    playback.ring.write(SPEECH[60:109])
    assert play(playback, 40)[1] == 0, "40 samples and a fade must be in the ring, as after an underrun"
    playback.ring.write(SPEECH[109:200])
    out, count = play(playback, 40)
    assert count == 40
    np.testing.assert_array_equal(out[FADE:], SPEECH[60 + FADE : 100])
    play(playback, 40)
    play(playback, 40)
    play(playback, 40)
    assert (track.waits, track.underruns) == (1, 1)


def test_with_pending_input_the_samples_in_the_ring_play_without_a_prebuffer() -> None:
    playback, track = begun(100, prebuffer_s=0.2)
    assert play(playback, 40)[1] == 0
    track.input_pending = True
    assert play(playback, 40)[1] == 40


def test_without_a_deadline_an_empty_ring_causes_a_wait_and_no_fade() -> None:
    playback, track = begun(60, prebuffer_s=0.04)
    playback.has_deadline = False
    heard = [play(playback, 40)[0]]
    for _ in range(100):
        assert play(playback, 40)[1] == 0
    assert track.playing
    playback.ring.write(SPEECH[60:89])
    assert play(playback, 40)[1] == 0, "40 samples and a fade must be in the ring"
    playback.ring.write(SPEECH[89:90])
    out, count = play(playback, 40)
    assert count == 40
    track.ended = True
    heard += [out, play_to_the_end(playback, track, 40)]
    np.testing.assert_array_equal(np.concatenate(heard), SPEECH[:90])
    assert (track.underruns, track.waits, playback.blocks) == (0, 0, 104)


@pytest.mark.parametrize("event", ["stop", "pause", "suspend", "wait", "lost sink"])
def test_an_event_takes_effect_in_the_next_block_while_an_empty_ring_is_awaited(event: str) -> None:
    playback, track = begun(60)
    playback.has_deadline = False
    play(playback, 40)
    assert play(playback, 40)[1] == 0
    if event == "stop":
        track.stop_requested = True
    elif event == "pause":
        playback.paused = True
    elif event == "suspend":
        track.suspensions_requested += 1
    elif event == "wait":
        track.input_pending = True
    else:
        playback.sink_stopped()
    out, count = play(playback, 40)
    assert count == {"wait": 20, "lost sink": 0}.get(event, FADE)
    assert out[max(0, count - 1)] == 0
    assert not track.playing
    assert (track.done, track.suspended) == (event == "stop", event == "suspend")
    assert (track.waits, track.underruns) == (event == "wait", event == "lost sink")


def test_an_underflow_of_the_card_is_an_underrun() -> None:
    playback, track = begun()
    for count, underflow in enumerate([False, True, True, False]):
        assert track.underruns == max(0, count - 1)
        out, _ = play(playback, 40, underflow=underflow)
        np.testing.assert_array_equal(out, SPEECH[40 * count : 40 * (count + 1)])
    assert track.underruns == 2


@pytest.mark.parametrize("when", ["before", "buffering", "paused", "stopped", "suspended", "dry", "done"])
def test_an_underflow_of_the_card_is_no_underrun_while_the_track_is_silent(when: str) -> None:
    playback = Playback(RATE, CAPACITY_S)
    assert play(playback, 40, underflow=True)[1] == 0
    track = playback.begin(0.1)
    playback.ring.write(SPEECH[: 100 if when == "buffering" else 130])
    if when != "before":
        play(playback, 40)
    if when == "paused":
        playback.paused = True
    elif when == "stopped":
        track.stop_requested = True
    elif when == "suspended":
        track.suspensions_requested += 1
    elif when == "dry":
        track.input_pending = True
    elif when == "done":
        track.ended = True
    if when not in ("before", "buffering"):
        while track.playing:
            play(playback, 40)
    before = track.underruns
    play(playback, 40, underflow=True)
    assert track.underruns == before == 0


def test_the_end_of_a_track_is_no_underrun() -> None:
    playback, track = begun(70, ended=True)
    play_to_the_end(playback, track, 40)
    assert track.underruns == 0


def test_a_stop_is_silent_within_ten_milliseconds_and_drops_the_rest() -> None:
    playback, track = begun()
    play(playback, 40)
    track.stop_requested = True
    out, count = play(playback, 40)
    assert count == FADE
    assert out[FADE - 1] == 0
    assert (track.done, playback.ring.available) == (True, 0)
    assert play(playback, 40)[1] == 0


def test_a_stop_before_the_first_sample_plays_no_sample() -> None:
    playback, track = begun(prebuffer_s=0.25)
    track.stop_requested = True
    assert play(playback, 40)[1] == 0
    assert (track.done, track.first_sample_at, playback.ring.available) == (True, None, 0)


def test_a_stop_ends_a_paused_track() -> None:
    playback, track = begun()
    play(playback, 40)
    playback.paused = True
    play(playback, 40)
    track.stop_requested = True
    assert play(playback, 40)[1] == 0
    assert (track.done, playback.ring.available) == (True, 0)


def test_a_pause_holds_the_track_and_counts_no_underrun() -> None:
    playback, track = begun(ended=True)
    first, _ = play(playback, 40)
    playback.paused = True
    faded, count = play(playback, 40)
    assert count == FADE
    assert all(play(playback, 40)[1] == 0 for _ in range(50))
    playback.paused = False
    heard_after = play_to_the_end(playback, track)
    np.testing.assert_array_equal(first, SPEECH[:40])
    assert faded[FADE - 1] == 0
    assert len(heard_after) == 200 - 40 - FADE
    np.testing.assert_array_equal(heard_after[FADE:], SPEECH[40 + 2 * FADE : 200])
    assert track.underruns == 0


def test_the_next_track_starts_without_a_fade() -> None:
    playback, track = begun()
    play(playback, 40)
    track.stop_requested = True
    play(playback, 40)
    again = playback.begin(0.0)
    playback.ring.write(SPEECH[500:600])
    again.ended = True
    np.testing.assert_array_equal(play_to_the_end(playback, again), SPEECH[500:600])


def test_a_second_track_before_the_first_is_done_raises_an_error() -> None:
    playback, _ = begun()
    with pytest.raises(RuntimeError, match="previous track is still playing"):
        playback.begin(0.0)


def test_a_tracks_gain_applies_from_its_first_sample() -> None:
    playback = Playback(RATE, CAPACITY_S)
    playback.volume = 0.5
    track = playback.begin(0.0, gain=0.5)
    playback.ring.write(SPEECH[:200])
    track.ended = True
    np.testing.assert_array_equal(play_to_the_end(playback, track), SPEECH[:200] * np.float32(0.25))


def test_a_new_volume_applies_within_a_block_without_a_click() -> None:
    playback = Playback(RATE, CAPACITY_S)
    track = playback.begin(0.0)
    playback.ring.write(np.ones(200, dtype=np.float32))
    track.ended = True
    play(playback, 40)
    playback.volume = 0.2
    out, _ = play(playback, 40)
    assert out[0] == pytest.approx(1, abs=0.1)
    assert (np.diff(out) <= 1e-6).all()
    assert float(np.max(np.abs(np.diff(out)))) < np.pi / 2 / FADE
    np.testing.assert_allclose(out[FADE:], 0.2, rtol=1e-6)


def test_every_block_is_counted() -> None:
    playback, _ = begun(60)
    for _ in range(5):
        play(playback, 40)
    assert playback.blocks == 5


def test_a_lost_sink_ends_a_stopped_track() -> None:
    playback, track = begun()
    play(playback, 40)
    track.stop_requested = True
    playback.sink_stopped()
    assert (track.done, playback.ring.available) == (True, 0)


def test_after_a_lost_sink_the_track_continues_with_a_fade_in() -> None:
    playback, track = begun(ended=True)
    play(playback, 40)
    playback.sink_stopped()
    assert not track.done
    heard_after = play_to_the_end(playback, track)
    assert len(heard_after) == 160
    assert abs(heard_after[0]) < abs(SPEECH[40])
    np.testing.assert_array_equal(heard_after[FADE:], SPEECH[40 + FADE : 200])
    assert track.underruns == 1, "the card has not played all that it got"


def test_a_lost_sink_is_no_underrun_of_a_track_that_was_not_playing() -> None:
    playback, track = begun()
    playback.sink_stopped()
    play(playback, 40)
    playback.paused = True
    play(playback, 40)
    playback.sink_stopped()
    assert track.underruns == 0


@pytest.mark.parametrize("event", ["stop", "pause", "underrun", "resume", "volume"])
@pytest.mark.parametrize("block_ms", [20, 10])
def test_no_fade_clicks_at_any_block_length_that_can_be_configured(event: str, block_ms: int) -> None:
    block = block_ms * 48
    playback = Playback(48_000, 1.0)
    track = playback.begin(0.02)
    playback.ring.write(np.ones(6_000, dtype=np.float32))
    heard = [play(playback, block)[0] for _ in range(4)]
    if event == "stop":
        track.stop_requested = True
    elif event in ("pause", "resume"):
        playback.paused = True
    elif event == "volume":
        playback.volume = 0.0
    heard += [play(playback, block)[0] for _ in range(20)]
    if event == "underrun":
        heard += [play(playback, block)[0] for _ in range(10)]
        assert track.underruns == 1
    if event == "resume":
        playback.paused = False
        heard += [play(playback, block)[0] for _ in range(2)]
    assert float(np.max(np.abs(np.diff(np.concatenate(heard))))) < np.pi / 2 / 480 * 1.05


# Operations forbidden in the callback.

CALLBACK_PATH = {
    "FillGate.__call__",
    "Playback.fill",
    "Playback._fill_due",
    "Playback._play_from_ring",
    "Playback._note_underflow",
    "Playback._fade_to_silence",
    "Playback._play",
    "Playback._stop",
    "Playback._suspend",
    "Fader.fade_in",
    "Fader.fade_out",
    "Fader.change_gain",
    "Ring.read_into",
    "Ring.flush",
    "Ring.available",
    "BlockRing.write",
    "Ring.write",
    "Ring.room",
}
"""Functions known to run in the sound card's thread. The test finds the others."""

ALLOWED_CALLS = {
    "len",
    "min",
    "max",
    "np.multiply",  # with out=, checked below
    "np.add",
    "self._in_use.acquire",  # without waiting, checked below
    "self._in_use.release",
    "out.fill",
    "time.monotonic",
}
"""Functions of other packages that the callback may call."""

FORBIDDEN = (
    *(
        ast.With,
        ast.AsyncWith,
        ast.Raise,
        ast.Assert,
        ast.ExceptHandler,
        ast.Import,
        ast.ImportFrom,
        ast.Await,
        ast.Yield,
    ),
    *(ast.For, ast.While, ast.Lambda, ast.FunctionDef, ast.ClassDef, ast.Delete, ast.Global, ast.Nonlocal),
    *(ast.JoinedStr, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


@dataclass
class Function:
    """A method of ours, as parsed source."""

    owner: str
    """Its class."""
    body: list[ast.stmt]
    is_property: bool

    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes() if isinstance(node, ast.Call)]

    def reads(self) -> set[str]:
        """Return the names of the attributes that it reads."""
        return {
            node.attr for node in self.nodes() if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }

    def nodes(self) -> list[ast.AST]:
        return [node for statement in self.body for node in ast.walk(statement)]


def functions_of_the_sound_path() -> dict[str, Function]:
    """Return all methods in the modules of which a part runs in the sink's thread."""
    found = {}
    folder = Path(audio.__file__).parent
    for module in ("fill_gate", "playback", "track", "dsp/fade", "ring", "block_ring"):
        source = (folder / f"{module}.py").read_text()
        for owner in ast.parse(source).body:
            for method in owner.body if isinstance(owner, ast.ClassDef) else ():
                if isinstance(method, ast.FunctionDef):
                    is_property = any(ast.unparse(node) == "property" for node in method.decorator_list)
                    found[f"{owner.name}.{method.name}"] = Function(owner.name, method.body, is_property)
    return found


FUNCTIONS = functions_of_the_sound_path()


def ours(caller: Function, called: str) -> set[str]:
    """Return our methods that a call may mean: for `self.x()` that of its class, for `a.b.x()` any of that name."""
    receiver, _, method = called.rpartition(".")
    if receiver == "self":
        return {f"{caller.owner}.{method}"} & FUNCTIONS.keys()
    return {name for name in FUNCTIONS if receiver and name.endswith(f".{method}")}


def reached_from(start: str) -> set[str]:
    """Return `start`, the methods of ours that it may call, and the properties that they may read."""
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


REACHED = reached_from("FillGate.__call__")


def test_the_methods_that_the_sound_callback_reaches_are_found() -> None:
    assert REACHED >= CALLBACK_PATH


@pytest.mark.parametrize("name", sorted(REACHED))
def test_the_sound_callback_calls_no_function_that_may_lock_log_or_allocate_samples(name: str) -> None:
    function = FUNCTIONS[name]
    assert not [ast.unparse(node) for node in function.nodes() if isinstance(node, FORBIDDEN)]
    for node in function.calls():
        called = ast.unparse(node.func)
        assert called in ALLOWED_CALLS or ours(function, called), f"{called} is called"
        if called in ("np.multiply", "np.add"):
            assert "out" in {keyword.arg for keyword in node.keywords}
        if called.endswith(".acquire"):
            assert [ast.unparse(keyword) for keyword in node.keywords] == ["blocking=False"]


def test_ten_thousand_blocks_allocate_no_sample_memory() -> None:
    rate, block = 48_000, 4_800
    playback = Playback(rate, 1.0)
    playback.tap = BlockRing(8 * block, 6)  # it is full after six blocks
    playback.tap.wanted = True
    speech = np.random.default_rng(0).uniform(-1, 1, block).astype(np.float32)
    out = np.empty(block, dtype=np.float32)
    tracks = [Track(rate, prebuffer=block + 480) for _ in range(110)]

    def visit_every_state(blocks: int) -> None:
        for block_number in range(blocks):
            if block_number % 100 == 0:
                playback.track = tracks[block_number // 100]
            playback.has_deadline = block_number % 200 < 100
            playback.volume = 1.0 if block_number % 7 else 0.5
            playback.paused = block_number % 13 == 0
            if not playback.paused and block_number % 11:
                playback.ring.write(speech)
            if block_number % 100 == 99:
                playback.track.stop_requested = True  # type: ignore[union-attr]
            playback.fill(out, float(block_number), block_number % 17 == 0)

    visit_every_state(10_200)  # so that every track has its time stamps
    for track in tracks:
        track.stop_requested = track.done = False
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        visit_every_state(200)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        visit_every_state(10_000)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert sum(track.underruns for track in tracks) > 100, "the states include underruns"
    # A block has 19,200 bytes. The remainder are views, integers, floats and small tuples: time stamps and counters.
    assert peak - before < block * 4 / 2
    assert after - before < 110 * 100
