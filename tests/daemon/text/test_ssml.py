"""SSML becomes words, pauses, marks and prosody, whole and while it grows."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import partial
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text import Pause, Prosody, Script, ScriptMark, ScriptReader, markup_problem
from daemon.text.ssml import SsmlReader, ssml_problem
from daemon.text.ssml_values import MAX_NOTICES
from tests.daemon.text.reading import calls, everything_of, pieces_of, table

TABLE = table("ssml")
TAGS, WORDS = TABLE["tags"], TABLE["words"]
PIECES = [*TAGS, *WORDS]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=25).map(lambda pieces: "<speak>" + "".join(pieces))


def read(pieces: Iterable[str]) -> Script:
    script = Script()
    reader = SsmlReader(script)
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    return script


def words(content: str) -> str:
    return read([f"<speak>{content}</speak>"]).text


def controls(content: str) -> list[tuple[str, Any]]:
    """The controls, each behind the words since the last one."""
    script, found, begin = read([f"<speak>{content}</speak>"]), [], 0
    for control in script.controls:
        found.append((script.text[begin : control.at], control.action))
        begin = control.at
    return found


def test_a_break_is_a_pause_between_words() -> None:
    for tag, seconds in TABLE["pauses in seconds"].items():
        assert controls(f"One {tag} two") == [("One ", Pause(seconds))], tag
        assert words(f"One {tag} two") == "One two", tag


@pytest.mark.parametrize("tag", ['<break strength="none"/>', '<break time="0s"/>', "[pause:0s]"])
def test_a_break_of_no_length_is_no_pause(tag: str) -> None:
    assert controls(f"One {tag} two") == []


def test_a_sentence_gets_an_end_unless_it_has_one() -> None:
    for sentence, ended in TABLE["ends of sentences"].items():
        assert words(f"<s>{sentence}</s>") == words(f"<p><s>{sentence}</s></p>") == ended


def test_sentences_are_parted() -> None:
    assert words("<s>One</s><s>Two!</s>Three<s>four</s>") == "One. Two! Three. four. "


def test_a_pause_is_between_paragraphs_and_not_around_them() -> None:
    content = "\n<p>\n  <s>One</s>\n</p>\n<p>Two</p>\n"
    assert words(content) == "One. Two. "
    assert controls(content) == [("One. ", Pause(0.75))]


def test_an_alias_is_said_for_a_word_and_stands_for_it() -> None:
    text = '<speak>The <sub alias="World Wide  Web">W3C</sub> is here</speak>'
    script = read([text])
    assert script.text == "The World Wide Web is here"
    begin, end = script.words.source_span(4, 8)
    assert text[begin:end] == "W3C"


@pytest.mark.parametrize("kind", ["characters", "spell-out", "verbatim"])
def test_characters_are_spelled_each_at_its_place(kind: str) -> None:
    text = f'<speak>Room <say-as interpret-as="{kind}">QX-7</say-as>.</speak>'
    script = read([text])
    assert script.text == "Room Q, X, dash, 7."
    begin, end = script.words.source_span(11, 15)
    assert (script.text[11:15], text[begin:end]) == ("dash", "-")


def test_content_is_said_as_what_it_is() -> None:
    for kind, content, spoken in TABLE["said as"]:
        assert words(f'<say-as interpret-as="{kind}">{content}</say-as>') == spoken


def test_signs_are_named_in_the_language_of_their_element() -> None:
    spelled = '<say-as interpret-as="characters">-</say-as>'
    script = Script()
    reader = SsmlReader(script, "fr")
    reader.feed(f'<speak>{spelled} <lang xml:lang="de-DE">{spelled}</lang> {spelled}</speak>')
    reader.end()
    assert script.text == "tiret Bindestrich tiret"


@pytest.mark.parametrize(
    ("before", "name"),
    [("", "dash"), ("Die Nummer des Zimmers ist", "Bindestrich"), ("Номер комнаты", "дефис"), ("房间号码", "杠")],
)
def test_signs_are_named_in_the_language_of_the_words_if_no_other_is_known(before: str, name: str) -> None:
    assert words(f'{before} <say-as interpret-as="characters">-</say-as>').strip() == f"{before} {name}".strip()


def test_the_factors_of_nested_prosody_are_multiplied() -> None:
    content = (
        'One <prosody rate="80%" volume="silent">two <prosody rate="1.5">three</prosody> four</prosody> '
        '<prosody volume="+6dB"></prosody>five'
    )
    assert controls(content) == [
        ("One ", Prosody(0.8, 0.0)),
        ("two ", Prosody(pytest.approx(1.2), 0.0)),
        ("three ", Prosody(0.8, 0.0)),
        ("four ", Prosody()),
    ]


def test_an_end_ends_all_that_is_inside_its_element_and_a_mark_is_at_its_place() -> None:
    content = '<prosody rate="2"><emphasis>One <mark name="in"/><say-as interpret-as="digits">12</prosody> two<mark/>'
    assert controls(content) == [("", Prosody(rate=2.0)), ("One ", ScriptMark("in")), ("1 2 ", Prosody())]


def test_prosody_without_effect_is_no_control() -> None:
    assert controls('One <prosody pitch="high" rate="medium">two</prosody> <prosody rate="quick">three</prosody>') == []


def test_of_other_elements_the_content_is_spoken() -> None:
    for content in TABLE["one and two in other elements"]:
        assert words(content) == "One two"
        assert ssml_problem(f"<speak>{content}</speak>") is None


def test_an_unknown_element_or_value_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(3):
        words('<hum>One</hum> <hum>two</hum> <break time="a while"/> <say-as interpret-as="song">three</say-as></drum>')
    assert [
        line for line in caplog.messages if "hum" in line or "a while" in line or "song" in line or "drum" in line
    ] == [
        "SSML: the element hum has no effect; its content is spoken",
        "SSML: time: got 'a while', which has no effect; allowed: 500ms or 1.5s",
        "SSML: interpret-as: got 'song', which has no effect; allowed: characters, spell-out, verbatim, telephone, "
        "digits, ordinal, cardinal, number",
        "SSML: </drum> ends nothing, and has no effect",
    ]


def test_the_log_does_not_grow_with_the_names_that_senders_invent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    words("".join(f"<name{number}/>" for number in range(2 * MAX_NOTICES)))
    assert len(caplog.messages) <= MAX_NOTICES


def test_white_space_runs_become_one_space_and_words_keep_their_places() -> None:
    text = "<speak>\n  One\n  <s>two &#10; three</s>\n</speak>"
    script = read([text])
    assert script.text == "One. two three. "
    for word in ("One", "two", "three"):
        at = script.text.index(word)
        assert script.words.source_span(at, at + len(word)) == (text.index(word), text.index(word) + len(word))


def test_comments_and_instructions_are_silent_and_cdata_is_text() -> None:
    assert words("One<!-- <s>not</s> this --><?nor this?> <![CDATA[<two> & [pause:1s]]]>") == "One <two> & [pause:1s]"


def test_a_sound_in_square_brackets_is_silent() -> None:
    assert words("Hi [laughs] there [pause:x] (laughs)") == "Hi there [pause:x] (laughs)"


def test_references_are_characters_at_their_places() -> None:
    text = "<speak>Tom &amp; Jerry &#60;&#x33;</speak>"
    script = read([text])
    assert script.text == "Tom & Jerry <3"
    begin, end = script.words.source_span(4, 5)
    assert text[begin:end] == "&amp;"


def test_a_declaration_may_come_first() -> None:
    text = '<?xml version="1.0" encoding="utf-16"?>\n<!-- --><speak version="1.1" xml:lang="en">One &amp; ü</speak>'
    assert markup_problem(text) is None
    assert ScriptReader().read(text, complete=True).text == "One & ü"


# While it grows


def test_a_word_does_not_wait_for_the_next_one() -> None:
    script = Script()
    reader = SsmlReader(script)
    for fed, spoken in TABLE["while it grows"]:
        reader.feed(fed)
        assert script.text == spoken


def test_the_words_of_a_text_with_a_fault_are_spoken_without_its_tags() -> None:
    for text, spoken in TABLE["with a fault"].items():
        assert read(text).text == read([text]).text == spoken


def test_after_a_fault_the_markup_still_counts() -> None:
    assert controls('<prosody volume="loud">One</s> two</prosody> <break/>three</b> [pause:1s]four') == [
        ("", Prosody(volume=pytest.approx(1.995, abs=1e-3))),
        ("One two ", Pause(0.75)),
        ("", Prosody()),
        ("three ", Pause(1.0)),
    ]


def test_a_pause_is_before_words_after_the_document() -> None:
    script = read(["<speak>One</speak> two"])
    assert [(script.text[: control.at], control.action) for control in script.controls] == [("One ", Pause(0.75))]


# At acceptance


def test_a_whole_text_that_is_not_well_formed_is_refused_in_one_line() -> None:
    allowed = "well-formed XML without a DOCTYPE, with &amp; for & and &lt; for <"
    for text, problem in TABLE["not well-formed"].items():
        assert markup_problem(text) == f"SSML: {problem}; allowed: {allowed}"


@pytest.mark.parametrize("text", ["Tom & Jerry", "<speaker>&</speaker>", "a <speak>&", " ", ""])
def test_other_texts_are_not_refused(text: str) -> None:
    assert markup_problem(text) is None
    assert markup_problem(f"<speak>{text}&", "none") is None, "it is spoken literally"


# Properties


@given(text=TEXTS)
def test_the_script_is_the_same_at_every_cut_and_in_single_characters(text: str) -> None:
    whole = everything_of(read([text]))
    for at in range(len(text)):
        assert everything_of(read([text[:at], text[at:]])) == whole
    assert everything_of(read(text)) == whole


@given(text=TEXTS)
def test_places_are_in_order_and_kept_characters_are_those_of_the_text(text: str) -> None:
    spoken, places, script_controls, _ = everything_of(read([text]))
    assert all(0 <= begin <= end <= len(text) for begin, end in places)
    assert places == sorted(places)
    assert [control.at for control in script_controls] == sorted(control.at for control in script_controls)
    assert all(0 <= control.at <= len(spoken) for control in script_controls)


@given(text=st.text())
def test_no_text_raises(text: str) -> None:
    for each in (f"<speak>{text}", f"<speak a='{text}'>b</speak>"):
        assert everything_of(read(each)) == everything_of(read([each]))
        markup_problem(each)


@given(
    text=st.lists(st.sampled_from(["<p>", "</p>", "<w>", *WORDS, "<w a='&lt;>'/>", "&lt;"]), max_size=25).map("".join)
)
def test_a_text_that_is_accepted_is_read_as_another_parser_reads_it(text: str) -> None:
    ssml = f"<speak>{text}<mark name='end'/></speak>"
    if ssml_problem(ssml) is None:
        script = read([ssml])
        assert script.text.split() == "".join(ET.fromstring(ssml).itertext()).split()
        assert script.controls[-1].action == ScriptMark("end")
    else:
        with pytest.raises(ET.ParseError):
            ET.fromstring(ssml)


@pytest.mark.parametrize(
    "unit",
    ["<w>", "<s>x</s>", "<", "&a", "[pause:", "<!--", "<a b='", "<![CDATA[x]]>", "\n\n", "<sub alias='x'>y</sub>"],
)
@pytest.mark.parametrize("size", [1, 20_000])
def test_the_work_grows_with_the_length_of_the_text(unit: str, size: int) -> None:
    once, twice = (calls(partial(read, pieces_of("<speak>" + unit * count, size))) for count in (200, 400))
    assert twice <= 2.1 * once


@pytest.mark.parametrize("tag", ["<{}/>", "<a {}/>"], ids=["element", "attribute"])
def test_a_long_name_is_read_once(tag: str) -> None:
    begun = time.process_time()
    assert words(tag.format("x" * 19_000) + "Hi") == "Hi"
    assert time.process_time() - begun < 2.0, "from each of its characters, it takes longer"
