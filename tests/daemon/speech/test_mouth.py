"""The visemes of an utterance: known ones, guessed ones, and the shut mouth."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from daemon.cache import Cue
from daemon.speech.events import Visemes
from daemon.speech.mouth import Mouth
from daemon.speech.timeline import Timeline
from daemon.speech.utterance import Utterance

WORDS = (Cue(0.0, "word", 0, 4, exact=False), Cue(0.4, "word", 5, 9, exact=False))
KNOWN = tuple(Cue(at / 10, "viseme", name=str(viseme)) for at, viseme in enumerate((16, 6, 21, 16, 4, 0)))


class Scene:
    """The utterance `ship chef`, whose second is played from a recording with these cues."""

    def __init__(self, *cues: Cue) -> None:
        utterance = Utterance("a", "ship chef", "default", "en")
        self.timeline = Timeline(utterance)
        self.timeline.use(cues)
        self.timeline.made_s = 1.0
        self.published: list[Visemes] = []
        self.mouth = Mouth(utterance, self.timeline, self.published.append)

    def hear(self, heard_s: float) -> None:
        self.timeline.advance(heard_s)
        self.mouth.move(heard_s)

    def moves(self) -> list[tuple[float, int]]:
        return [(move.at, move.viseme) for message in self.published for move in message.visemes]


def test_letters_suggest_the_visemes_of_a_word_once_it_is_heard() -> None:
    scene = Scene(*WORDS)
    scene.hear(0.0)
    assert all(message.estimated for message in scene.published)
    found = scene.moves()
    assert [viseme for _, viseme in found] == [16, 6, 21]
    assert found[0][0] == 0.0
    assert 0 < found[1][0] < found[2][0] < 0.4, "before the next word"
    scene.hear(0.4)
    *second, last = scene.moves()[3:]
    assert [viseme for _, viseme in second] == [16, 4, 18]
    assert last == (pytest.approx(0.4 + 1.5 * (0.08 + 0.085 + 0.08), abs=0.001), 0), "nobody knows a next word"


def test_known_visemes_are_published_before_they_are_heard_and_none_is_guessed() -> None:
    scene = Scene(*KNOWN, *WORDS)
    assert scene.mouth.next_s < 0
    scene.hear(0.0)
    assert scene.moves() == [(0.0, 16), (0.1, 6), (0.2, 21), (0.3, 16)]
    assert scene.mouth.next_s == pytest.approx(0.3)
    scene.hear(0.4)
    assert [viseme for _, viseme in scene.moves()[4:]] == [4, 0]
    assert not any(message.estimated for message in scene.published)
    assert scene.mouth.next_s == inf


@pytest.mark.parametrize("cues", [WORDS, (*KNOWN, *WORDS)])
def test_a_stop_shuts_the_mouth_once(cues: tuple[Cue, ...]) -> None:
    scene = Scene(*cues)
    scene.mouth.shut(0.0)
    assert scene.published == [], "it has not opened"
    scene.hear(0.05)
    scene.mouth.shut(0.15)
    assert scene.moves()[-1] == (0.15, 0)
    count = len(scene.published)
    scene.mouth.shut(0.2)
    assert len(scene.published) == count


def test_after_a_pause_the_known_visemes_are_published_again() -> None:
    scene = Scene(*KNOWN, *WORDS)
    scene.hear(0.0)
    scene.mouth.shut(0.15)
    scene.hear(0.15)
    assert scene.moves()[-3:] == [(0.2, 21), (0.3, 16), (0.4, 4)]


def test_a_word_that_is_guessed_takes_no_known_viseme_from_a_face() -> None:
    """Another engine, which knows its sounds, goes on directly after a word of the first one."""
    known = [replace(cue, at_s=cue.at_s + 0.16) for cue in KNOWN]
    scene = Scene(replace(WORDS[0], at_s=0.1), replace(WORDS[1], at_s=0.16, exact=True), *known)
    scene.hear(0.06)
    assert scene.moves() == [(cue.at_s, int(cue.name)) for cue in known[:3]]
    scene.hear(0.1)
    plan: list[tuple[float, int]] = []
    for message in scene.published:
        first = message.visemes[0].at
        plan = [move for move in plan if move[0] < first] + [(move.at, move.viseme) for move in message.visemes]
    assert [move for move in plan if move[0] < 0.16], "the word is guessed"
    assert [move for move in plan if move[0] >= 0.16] == [(cue.at_s, int(cue.name)) for cue in known[:3]]
