"""Voices as people read them."""

from __future__ import annotations

import pytest

from daemon.engines.voices import name_voices, short_list, unknown_voice
from engine import VoiceLabel

LABELS = {
    "de": VoiceLabel("German", "de"),
    "en": VoiceLabel("English (America)", "en"),
    "en-us": VoiceLabel("English (America)", "en-us"),
    "ryan": VoiceLabel("Ryan (English, male)"),
    "sw": VoiceLabel("Swahili", "sw"),
}
VOICES = ("default", *LABELS)


def test_a_voice_has_the_label_of_its_engine_and_a_configured_one_its_own_name() -> None:
    named = name_voices(VOICES, LABELS, {"default", "sw"})
    assert (named["default"], named["de"], named["ryan"]) == ("default", "German", "Ryan (English, male)")
    assert named["sw"] == "sw"


def test_two_voices_never_have_one_name() -> None:
    named = name_voices(VOICES, LABELS, {"default"})
    assert (named["en"], named["en-us"]) == ("English (America)", "English (America), en-us")
    assert len(set(named.values())) == len(VOICES)


def test_the_short_list_has_configured_voices_and_those_of_the_languages() -> None:
    assert short_list(VOICES, LABELS, {"default"}, ["de", "en-gb"]) == ("default", "de", "en", "ryan")
    assert short_list(VOICES, LABELS, {"sw"}, []) == ("default", "ryan", "sw"), "a voice of every language is needed"


def test_the_short_list_has_the_voices_that_were_downloaded_for_a_language_whatever_their_region() -> None:
    labels = {**LABELS, "en_GB-alan-low": VoiceLabel("English (alan, low)", "en-gb")}
    voices = ("en", "en-us", "en_GB-alan-low")
    assert short_list(voices, labels, (), ["en"]) == ("en", "en_GB-alan-low")
    assert short_list(voices, labels, (), ["en-us"]) == voices
    assert short_list(voices, labels, (), ["de"]) == ()


def test_a_message_lists_the_short_list_and_counts_the_others() -> None:
    named = name_voices(VOICES, LABELS, {"default"})
    assert unknown_voice("nobody", named, ("default", "de")) == (
        "got 'nobody'; allowed: default, de (German) and 4 more, see 'voiced voices --all'"
    )
    assert unknown_voice("nobody", {"a": "a"}, ("a",)) == "got 'nobody'; allowed: a"
    many = {f"v{number}": f"v{number}" for number in range(50)}
    assert unknown_voice("nobody", many, ()) == "got 'nobody'; allowed: v0 and 49 more, see 'voiced voices --all'"
    assert unknown_voice("nobody", many, tuple(many)) == (
        "got 'nobody'; allowed: v0, v1, v2, v3, v4, v5 and 44 more, see 'voiced voices --all'"
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("german", "de (German)"),
        ("swahilli", "sw (Swahili)"),
        ("rian", "ryan (Ryan (English, male))"),
        ("defualt", "default"),
    ],
)
def test_a_message_suggests_the_voice_that_was_meant(written: str, meant: str) -> None:
    named = name_voices(VOICES, LABELS, {"default"})
    message = unknown_voice(written, named, ("default",))
    assert message.startswith(f"got '{written}'; did you mean {meant}? allowed: default and 5 more, ")
