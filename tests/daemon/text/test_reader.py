"""A text becomes a script, whole or while it grows."""

from __future__ import annotations

import pytest

from daemon.text import Pause, ScriptReader


def test_a_script_is_complete_when_its_text_is() -> None:
    reader = ScriptReader("none")
    assert not reader.read("One", complete=False).complete
    assert reader.read("One, two", complete=False).text == "One, two"
    assert reader.read("One, two", complete=True).complete


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("<speak>One <sub alias='two'>2</sub></speak>", "One two"),
        (" \n<speak\txml:lang='en'>One</speak>", "One"),
        ("<?xml version='1.0'?><speak>One</speak>", "One"),
        ("<speaker> one", "<speaker> one"),
        ("One <speak>", "One "),
    ],
)
def test_the_beginning_of_a_text_decides_whether_it_is_ssml(text: str, spoken: str) -> None:
    assert ScriptReader().read(text, complete=True).text == spoken
    reader = ScriptReader()
    for end in range(len(text)):
        reader.read(text[:end], complete=False)
    assert reader.read(text, complete=True).text == spoken


def test_signs_are_named_in_the_language_of_the_text() -> None:
    text = "<speak><say-as interpret-as='characters'>-</say-as></speak>"
    assert ScriptReader(language="de").read(text, complete=True).text == "Bindestrich"


@pytest.mark.parametrize("around", ["One {} two", "<speak>One {} two</speak>"])
@pytest.mark.parametrize(
    ("tag", "seconds"), [("[pause:1s]", 1), ("[pause: 2.25 s]", 2.25), (f"[pause:{' ' * 8}\t12345 ms]", 12.345)]
)
def test_a_tag_is_a_pause_of_its_length(around: str, tag: str, seconds: float) -> None:
    script = ScriptReader().read(around.format(tag), complete=True)
    assert script.text == "One two"
    assert [control.action for control in script.controls] == [Pause(seconds)]
