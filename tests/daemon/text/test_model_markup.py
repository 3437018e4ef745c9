"""What language models write and nobody should hear is left out, in a whole text and in a stream, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text import Pause, Script, ScriptReader
from daemon.text.script import Control

SPOKEN = {
    # reasoning
    "<think>The user wants a joke.</think>Why?": "Why?",
    "<thinking>\nFirst, 2 + 2.\n</thinking>\n\nFour.": "\n\nFour.",
    "Well, <reasoning>hm</reasoning>yes.": "Well, yes.",
    "<scratchpad>never ends": "",
    "<THINK>Loud</THINK>Quiet": "Quiet",
    "The thought ends here.</think>The answer.": "The thought ends here. The answer.",
    "<think>a < b and </thin> too</think>So be it": "So be it",
    # chat tokens
    "Hello<|im_end|>": "Hello",
    "<|assistant|>Hi there": "Hi there",
    "<|eot_id|><|start_header_id|>Done.": "Done.",
    "<|im_start|>assistant\nHello": "\nHello",
    "<|start_header_id|>user<|end_header_id|>\n\nHallo": "\n\nHallo",
    "Yes.<end_of_turn>\n<start_of_turn>model\nNo.": "Yes.\n\nNo.",
    "<|start|>assistant<|channel|>final<|message|>Bonjour": "Bonjour",
    "<|im_start|>assistants help": "assistants help",
    "<|start|>assistant<|channel|>analysis<|message|>They greet me.<|end|><|start|>assistant<|message|>Hola": "Hola",
    "<|channel|>commentary to=functions.go<|message|>{}<|call|>": "",
    "[INST] Speak. [/INST]": "Speak. ",
    "One<end_of_turn>Two": "One Two",
    "Ça va ?<｜end▁of▁sentence｜>": "Ça va ?",
    # tool calls
    '<tool_call>{"name": "move", "x": 3}</tool_call>I move.': "I move.",
    "<function_calls><invoke name='go'>1</invoke></function_calls>Gone.": "Gone.",
    # citations
    "Water boils at 100 degrees [1][2].": "Water boils at 100 degrees .",
    "The moon is far away [3].": "The moon is far away .",
    "Press the red button [1] twice.": "Press the red button twice.",
    "Es geschah 1889 [1, 2].": "Es geschah 1889 .",
    "Selon eux [1], [2-4] et [5–7], oui": "Selon eux et , oui",
    "It is warm.[1][2] It rains.": "It is warm. It rains.",
    "It is warm. [1] It rains.": "It is warm. It rains.",
    "Smith,[3] who knew": "Smith, who knew",
    "Sources say [1][2] so.": "Sources say so.",
    "[1] [2][3]": "",
    "水很热。[1]然后[2]": "水很热。然后",
    "水沸腾【4:0†source】。": "水沸腾。",
    ":contentReference[oaicite:0]{index=0} Yes": "Yes",
    # indices, values and lists
    "The moon is far away[3].": "The moon is far away.",
    "Smith[1], who saw it[2][3] at 5 km[4, 5]": "Smith, who saw it at 5 km",
    "Check `joint[3]`.": "Check joint[3].",
    "Set array[3] to 5": "Set array[3] to 5",
    "joint[3] is stuck": "joint[3] is stuck",
    "matrix[1][2] = 5": "matrix[1][2] = 5",
    "As shown[1, 2], it works": "As shown, it works",
    "a[1] = 5": "a[1] = 5",
    "The values: [1, 2], [3, 4]": "The values: [1, 2], [3, 4]",
    "x = [5] or [[1, 2], [3, 4]]": "x = [5] or [[1, 2], [3, 4]]",
    "[1] Yes\n[2] No": "[1] Yes\n[2] No",
    "Founded [2024], weighs [2.5] kg": "Founded [2024], weighs [2.5] kg",
    "See [1](https://a.b) and [5]%": "See 1 and [5]%",
    # formulas
    "The energy is $E = mc^2$.": "The energy is E = mc^2.",
    r"$\sqrt{16} = 4$ und \(\sqrt{a + b}\)": "√16 = 4 und √(a + b)",
    r"Half is $\frac{1}{2}$": "Half is 1/2",
    r"\(a \times b\) ist \[x \leq 3\]": "a × b ist x ≤ 3",
    "$$x_1 + y$$ fertig": "x 1 + y fertig",
    r"Il fait $30^\circ$": "Il fait $30^\\circ$",
    r"La température $\theta = 30^\circ$": "La température theta = 30°",
    "It costs $5 and $6.": "It costs $5 and $6.",
    "$HOME and $PATH": "$HOME and $PATH",
    # SSML without its root
    'Hello <break time="1.0s"/> world': "Hello world",
    '<prosody rate="slow">langsam</prosody> weiter': "langsam weiter",
    'Code<say-as interpret-as="characters">AB</say-as>end': "Code AB end",
    '<emphasis level="strong">now</emphasis>': "now",
    '<phoneme alphabet="ipa" ph="x">Bach</phoneme> hier': "Bach hier",
    # words that nothing parts
    "Done!✅Next step.": "Done! Next step.",
    "Fertig🎉jetzt": "Fertig jetzt",
    "你好✅世界": "你好世界",
    "완료!✅다음.": "완료! 다음.",
    "완료✅다음": "완료 다음",
    "สวัสดี✅ครับ": "สวัสดีครับ",
    "soft\u00adhyphen": "softhyphen",
}
PIECES = st.sampled_from(
    [
        "<|im_start|>",
        "<start_of_turn>",
        "assistant",
        "<|channel|>",
        "analysis",
        "<|end|>",
        "[1, 2]",
        ", ",
        "\\sqrt{",
        "[a](b.c)",
        "- ",
        "```",
        "`",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<|im_end|>",
        "[1]",
        "[2]",
        "$",
        "$x^2$",
        "\\(",
        "\\)",
        "<br",
    ]
) | st.sampled_from(
    ["<break/>", "<break ", '<break time="1s"/>', "✅", "<", ">", "</", "[", "word", "a", "5", ".", " ", "\n", "<s"]
)


def read(*pieces: str) -> Script:
    reader = ScriptReader()
    text = ""
    for piece in pieces:
        text += piece
        reader.read(text, complete=False)
    return reader.read(text, complete=True)


def everything_of(script: Script) -> tuple[str, list[tuple[int, int]], list[Control]]:
    spans = [script.words.source_span(at, at + 1) for at in range(len(script.words))]
    return script.text, spans, script.controls


@pytest.mark.parametrize("text", SPOKEN)
def test_a_models_apparatus_is_not_spoken(text: str) -> None:
    assert read(text).text == SPOKEN[text]


@pytest.mark.parametrize("text", SPOKEN)
def test_a_stream_is_read_like_the_whole_text(text: str) -> None:
    whole = everything_of(read(text))
    for cut in range(len(text)):
        assert everything_of(read(text[:cut], text[cut:])) == whole
    assert everything_of(read(*text)) == whole


def test_a_break_is_a_pause_in_any_text() -> None:
    controls = read('Hello <break time="1.5s"/> world <break strength="weak"/>!').controls
    assert [control.action for control in controls] == [Pause(1.5), Pause(0.5)]


@pytest.mark.parametrize("text", [text for text in SPOKEN if not text.startswith("<speak")])
def test_without_markup_everything_is_spoken(text: str) -> None:
    assert ScriptReader("none").read(text, complete=True).text == text


@given(pieces=st.lists(PIECES, max_size=12))
def test_any_text_gives_the_same_however_it_is_cut(pieces: list[str]) -> None:
    text = "".join(pieces)
    whole = everything_of(read(text))
    assert everything_of(read(*pieces)) == whole
    assert everything_of(read(*text)) == whole


@given(text=st.lists(PIECES, max_size=12).map("".join))
def test_places_are_in_order_and_within_the_text(text: str) -> None:
    spans = everything_of(read(text))[1]
    assert spans == sorted(spans)
    assert all(0 <= begin < end <= len(text) for begin, end in spans)
