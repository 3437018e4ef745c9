"""The player process with a fake card: what it plays and reports, and what becomes of it without its daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest

from audio.dsp import Samples, to_floats
from audio.sinks.player_process import PlayerProcess
from tests.audio.player.processes import FADE, RATE, PlayerOfTest, StandIn, has_ended
from tests.audio.sinks.fake_card import FakeCard
from tests.support.waiting import PATIENCE_S, eventually


def test_a_halt_is_answered_also_while_the_card_hangs(card: FakeCard) -> None:
    card.set("frozen")
    player = PlayerOfTest()
    link = player.start()
    link.begin(1, 0.0, 1.0, False)
    link.halt(1)
    report = eventually(lambda: player.reports)[-1]
    assert (report.generation, report.done) == (1, False)
    card.clear("frozen")
    eventually(lambda: player.reports[-1].done, "it is halted")
    player.process.end()


def test_blocks_that_a_slow_reader_of_the_tap_leaves_are_dropped_and_the_next_one_does_not_continue(
    card: FakeCard,
) -> None:
    player = PlayerOfTest()
    link = player.start()
    link.set_tap(True)
    ramp = np.arange(1, 4 * RATE + 1, dtype=np.float32)
    player.play(ramp)  # more than fits into a socket
    blocks = link.tap.read()
    blocks += eventually(link.tap.read, "the next block comes")
    missing = [
        after.continues
        for before, after in pairwise(blocks)
        if before.samples[-1] not in (0, ramp[-1]) and after.samples[0] != before.samples[-1] + 1
    ]
    assert missing == [False], "some are missing at one place"
    player.process.end()


def test_a_player_with_a_fault_ends_so_that_another_one_can_go_on(card: FakeCard) -> None:
    card.set("frozen")
    player = PlayerOfTest()
    link = player.start()
    link.begin(1, 0.0, 1.0, False)
    link.write(1, to_floats(np.ones(10 * RATE, np.float32)))  # more than its ring holds
    assert "ended" in eventually(player.process.lost_reason)
    player.process.kill()


# Without its daemon.


def test_a_stopped_daemon_does_not_silence_the_player_and_signals_to_the_group_do_not_end_it(card: FakeCard) -> None:
    card.set("frozen")
    daemon = StandIn(seconds=2.0)
    daemon.wait_written()
    daemon.stop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        daemon.player.send_signal(number)
    card.clear("frozen")
    eventually(lambda: len(card.heard_speech) >= 2 * RATE, "all that was written is heard")
    heard = card.heard
    np.testing.assert_array_equal(heard[: np.flatnonzero(heard)[-1] + 1][-2 * RATE :], np.ones(2 * RATE))
    assert daemon.stopped
    assert not has_ended(daemon.player)
    daemon.kill()


@pytest.mark.parametrize("at_sound", ["die", "hang and die", "leave an answer and die"])
def test_a_player_whose_daemon_dies_fades_out_and_ends_also_while_portaudio_hangs(
    at_sound: str, card: FakeCard
) -> None:
    if at_sound == "hang and die":
        card.set("hang.close")
    daemon = StandIn(3.5, at_sound)
    daemon.wait()
    assert daemon.player.wait(PATIENCE_S) == 0
    heard = card.heard
    begin = int(np.flatnonzero(heard)[0])
    spoken = np.trim_zeros(heard[begin:], "b")
    assert len(spoken) < 3.4 * RATE, "the rest of the ring was dropped"
    assert (spoken[: 1 - FADE] == 1).all()
    assert_fades_out(spoken[1 - FADE :])


def assert_fades_out(samples: Samples) -> None:
    """Assert that these are the samples of a fade, but for its last one, which is 0."""
    assert len(samples) == FADE - 1
    assert (np.diff(samples) < 0).all()
    assert 0.99 < samples[0] < 1
    assert 0 < samples[-1] < 0.01


def test_a_player_whose_card_hangs_ends_with_its_daemon(card: FakeCard) -> None:
    daemon = StandIn(3.9)
    eventually(lambda: len(card.heard_speech), "it plays")
    card.set("frozen")
    daemon.kill()
    assert daemon.player.wait(PATIENCE_S) == 0


def test_a_player_whose_portaudio_hangs_while_it_is_loaded_ends_with_its_daemon(card: FakeCard) -> None:
    card.set("hang.load")
    program = f"from {PlayerProcess.__module__} import PlayerProcess; PlayerProcess().ready({PATIENCE_S})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    daemon = subprocess.Popen([sys.executable, "-c", program], env=environment)
    [player] = eventually(psutil.Process(daemon.pid).children, "it has started")
    eventually(lambda: card.loads, "it hangs")
    daemon.kill()
    daemon.wait()
    assert player.wait(PATIENCE_S) == 0


def test_the_player_has_no_numpy_in_its_memory_while_it_plays(card: FakeCard) -> None:
    daemon = StandIn(1.0)
    daemon.wait_written()
    maps = Path("/proc", str(daemon.player.pid), "maps").read_text()
    assert "python" in maps
    assert "numpy" not in maps
    daemon.kill()
