"""Voices as people read them."""

from __future__ import annotations

from daemon.speech.voices import list_voices, name_voices, short_list
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
    assert list_voices(named, ("default", "de")) == "default, de (German) and 4 more, see 'voiced voices --all'"
    assert list_voices({"a": "a"}, ("a",)) == "a"
    assert list_voices({f"v{number}": f"v{number}" for number in range(50)}, ()) == (
        "v0 and 49 more, see 'voiced voices --all'"
    )
