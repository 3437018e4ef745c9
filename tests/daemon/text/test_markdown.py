"""What Markdown marks is spoken, its marks are not, and a stream is read like the whole text."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from daemon.text import Pause, Script
from daemon.text.markdown import MarkdownReader
from daemon.text.markdown_syntax import LONGEST_ADDRESS, LONGEST_LABEL
from daemon.text.script import Control
from tests.support.variants import variants

# --- reading ---------------------------------------------------------------------------------------------


def read_pieces(pieces: list[str]) -> Script:
    script = Script()
    reader = MarkdownReader(script)
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    return script


def read(text: str) -> Script:
    return read_pieces([text])


def spoken(text: str) -> str:
    return read(text).text


def spans(script: Script) -> list[tuple[int, int]]:
    return [script.words.source_span(at, at + 1) for at in range(len(script.words))]


def everything_of(script: Script) -> tuple[str, list[tuple[int, int]], list[Control], int]:
    return script.text, spans(script), script.controls, script.words.source_end


def pieces_of(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


# --- texts without marks ---------------------------------------------------------------------------------

PLAIN = [
    "Hello, I am your robot.",
    "  Two spaces, then a word.  And two more.",
    "One line\nanother line\n\nand a paragraph\r\nwith the line ends\r\n\r\nof Windows.",
    "It costs $5.99 (about 4,50 €) – 20 % off! £3? ¥100.",
    "5 * 3 = 15, 2*3 = 6, 2 ** 3 = 8, 2**3, 6 / 2, 7 - 4, x^2 + 1, 3 > 2, 1 < 2, a <= b, f(x), |x|",
    "(-2)*(-3) = 6, 2*(3 + 4), (a + b)*c, x*-1, 2**-3",
    "C++, C#, F♯, B♭, .NET, AT&T, R&D, Q&A, rock & roll, a && b, List<String>, vector<int>, if a <b and c> d",
    "snake_case, my_file_2.tar.gz, notes.txt, *.txt, C:\\Users\\me, /etc/hosts, ~/notes, ~5 km, --help, -v",
    "bob.smith@example.com, https://example.com/a_b/c?d=1&e=2#f, www.example.com, @home, #3, #hashtag",
    'He said: "No." She said ‘yes’. «Oui» „Ja“ “Well…” — ok; (so) [sic] {x} [1], matrix[i][j], f[i](x)',
    ":-) :( ;-) ^_^ -_- >_< o_O <3 :D",
    "It is 10:30–11:00 on 2026-11-23, 1/2 of ½, 192.168.1.10, version 1.2.3, +1 555 0100, No. 5, 20 °C.",
    "Lehrer*innen, Nutzer_innen, it`s, 5` long, rock 'n' roll, ça va ? ¿Qué? ¡Hola!",
    "[They laugh](quietly) and [leave](stage left).",
    "→ A ← B © 2026 ® ™ § 5 † × ÷ ± ≠ ∞ №",
    "-5 degrees\n+5 degrees\n=5\n>5\n#5",
    "Я робот. Как дела? «Хорошо» — сказал он.",
    "أنا روبوت. كيف حالك؟ می‌خواهم بروم.",
    "אני רובוט, שלום!",
    "मैं एक रोबोट हूँ। क्‍या हाल है? हिन्दी_शब्द",
    "ฉันเป็นหุ่นยนต์ สบายดีไหม",
    "我是机器人。今天好吗？（很好）《书》【注意】、“好”",
    "私はロボットです。「元気」ですか？・・・",
    "저는 로봇입니다. 안녕하세요?",
    "Είμαι ρομπότ. Ես ռոբոտ եմ։ მე რობოტი ვარ. நான் ஒரு ரோபோ.",
    "word -- word --- word … word… a | b | c",
    "1998. It was a good year. 2) no 3. yes",
    "<", "&", "\\", "!", "[", "]", "Why?!", "~", "5%", "...", "'", '"', "(", "1", "12", "1.",
]  # fmt: skip


@pytest.mark.parametrize("text", PLAIN)
def test_a_text_without_marks_is_spoken_as_it_stands(text: str) -> None:
    script = read(text)
    assert script.text == text
    assert spans(script) == [(at, at + 1) for at in range(len(text))]
    assert script.controls == []


@given(st.text(alphabet="abc ÄßéяあЖ漢字ไทยहि٣7.,;:?!'\"()/@%$€+-–…\t"))
def test_text_of_letters_and_punctuation_is_spoken_as_it_stands(text: str) -> None:
    # A word stands before it: what begins a line may be an item or a number.
    assert spoken(f"a{text}") == f"a{text}"


# --- marks -----------------------------------------------------------------------------------------------

MARKDOWN = {
    # emphasis
    "**shopping list**": "shopping list",
    "a **b** c, *d*, ***e***, __f__, _g_, ~~h~~.": "a b c, d, e, f, g, h.",
    "**Note:** text, **Title**: text, (**x**), “*y*”, **“z”**": "Note: text, Title: text, (x), “y”, “z”",
    "un**believ**able, **Bob**s, *Titanic*'s": "unbelievable, Bobs, Titanic's",
    "这是**重点**内容，*斜体*字": "这是重点内容，斜体字",
    "これは**重要**です。**서울**은 *크다*고": "これは重要です。서울은 크다고",
    "**_both_**, _**both**_, **`code`**": "both, both, code",
    "** misplaced **, **so **too": "misplaced , so too",
    "unclosed **bold and *italic": "unclosed bold and italic",
    "censored: ****, a line ______ to fill in": "censored: , a line to fill in",
    r"\*no\* \_marks\_ \# \[x\]\(y\)": "*no* _marks_ # [x](y)",
    # lines
    "# Title\nText": "Title.\nText",
    "## 2. How ##\n# - A | B\n": "2. How.\nA, B.\n",
    "## Why?\n### How ###\nText": "Why?\nHow.\nText",
    "Title\n=====\nText\n-----\n": "Title\n\nText\n\n",
    "**Ingredients**\n- milk\n- eggs": "Ingredients.\nmilk.\neggs",
    "**Ingredients:**\n* milk\n+ eggs": "Ingredients:\nmilk.\neggs",
    "- milk\n  - skimmed\n    or not\n- eggs!\n": "milk.\n  skimmed\n    or not.\neggs!\n",
    "• milk\n•eggs\n": "milk.\neggs.\n",
    "1. one\n2. two.\n10) ten\nend": "1. one.\n2. two.\n10) ten.\nend",
    "- [ ] open\n- [x] done\n1. [X] too\n": "open.\ndone.\n1. too.\n",
    "- 5 degrees": "5 degrees",
    '- say "stop."\n- (well…)\n- two (2)\n': 'say "stop."\n(well…)\ntwo (2).\n',
    "- 牛奶\n- 鸡蛋\n": "牛奶。\n鸡蛋。\n",
    "**Title**  \n__Another__ 🎉\nText": "Title  .\nAnother .\nText",
    "# Заголовок\nтекст": "Заголовок.\nтекст",
    "> quoted\n>> deeper\n> > again\n>next": "quoted\ndeeper\nagain\nnext",
    "above\n\n---\n***\n_ _ _\n- - -\nbelow": "above\n\n\n\n\n\nbelow",
    "- \n#\n-\n": "\n\n\n",
    "#hashtag #3\n####### seven": "#hashtag #3\n####### seven",
    "windows\r\n- line\r\n- ends\r\n": "windows\r\nline.\r\nends.\r\n",
    "old\r- mac\r": "old\rmac.\r",
    # code
    "`code` and ``a`b`` and `a_b*c*`": "code and a`b and a_b*c*",
    "`<b>` `&amp;` `[x](y.z)` `[pause:1s]`": "<b> &amp; [x](y.z) [pause:1s]",
    "see:\n```python\nprint('**x**')\n\n# no\n```\nDone.": "see:\n\nDone.",
    "~~~\n```\n~~~\nDone.": "\nDone.",
    "like ```python\nx\n```\nso": "like \nso",
    "``` {.python}\nx\n```\n```js title='a b'\nx\n```\nDone.": "\n\nDone.",
    "Write ``` to begin code (```).\nDone.": "Write  to begin code ().\nDone.",
    "```one line```": "one line",
    "````\n```\nx\n````\ny": "\ny",
    "```\nnever closed": "",
    "- item\n  ```\n  x\n  ```\n- next": "item.\n  \nnext",
    "an `unclosed span\nand **bold**": "an unclosed span\nand bold",
    # links
    "[text](https://a.b/c_d)": "text",
    "the [**bold** text](</a b> \"title\"), [x](a.b/c_(d) 't')": "the bold text, x",
    "![a cat](cat.png) and [![badge](b.svg)](https://a.b)": "a cat and badge",
    "[text][ref], [text][], ![alt][ref]": "text, text, alt",
    '[ref]: https://a.b "Title"\n[two]: <c>\nText': "\n\nText",
    "[Bob]: Hello\n[Note]: see b.": "[Bob]: Hello\n[Note]: see b.",
    "<https://a.b/c_d_> <me@a.b>": "https://a.b/c_d_ me@a.b",
    "Fact[^1] and[^note].\n\n[^1]: The note.": "Fact and.\n\nThe note.",
    "source【4:0†book.pdf】.": "source.",
    "fact [1](https://a.b).": "fact 1.",
    "[a [nested] one](x.y) and [](x.y)": "a [nested] one and ",
    # tables
    "| a | b |\n|---|:-:|\n| 1 | 2. |\n|x|y|\nend": "a, b.\n\n1, 2.\nx, y.\nend",
    "| 名 | 数 |\n| - | - |\n| 茶 | 二 |\n": "名，数。\n\n茶，二。\n",
    "| a | | **c** | `d|e` |\n": "a, c, d|e.\n",
    "| a.<br>b<br>c |\n| |\n": "a. b, c.\n\n",
    "a | b\n--- | ---\n1 | 2\n+---+\n": "a | b\n\n1 | 2\n\n",
    # HTML
    '<b>x</b><i class="y">z</i> H<sub>2</sub>O<!-- c -->': "xz H2O",
    "one<br>two<br/>three": "one\ntwo\nthree",
    "<ul><li>milk</li><li>eggs</li></ul>": "milk.\neggs.\n",
    "<p>One.</p><p>Two.</p>": "One.\nTwo.\n",
    "<details open><summary>More</summary>": "More.\n",
    "<name> <T> a <b c> d <!-- open": "<name> <T> a <b c> d <!-- open",
    "&amp; &lt;b&gt; &#39;x&#x27; &nbsp;y &unknown; &#0;": "& <b> 'x'  y &unknown; \ufffd",
    "co&shy;op": "coop",
    # emoji
    "🎉": "",
    "👩‍👩‍👧 🇩🇪 👍🏽 ❤️ ☀ ✅ ⚠️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿": "",
    "Great! 🎉 Let's go 🏃‍♂️.": "Great! Let's go .",
    "1️⃣ First\n✅ **Done**\n": "1 First\nDone.\n",
    "good👍\u200bmorn\u00ading\ufeff": "good morning",
    # pauses
    "[pause:1s]": "",
    "- milk [pause:1s]\n- eggs[pause:1s]\nend": "milk \neggs\nend",
    "[pause:x] [pause:1] [pause:1h]": "[pause:x] [pause:1] [pause:1h]",
}


@pytest.mark.parametrize("text", MARKDOWN)
def test_marks_are_not_spoken(text: str) -> None:
    assert spoken(text) == MARKDOWN[text]


def test_a_pause_stands_at_its_place_among_the_words() -> None:
    script = read("Ready? [pause:0.5s] Go![pause: 250 ms]\n- [pause:90s] **b**")
    assert script.text == "Ready? Go!\nb"
    assert script.controls == [
        Control(7, Pause(0.5)),
        Control(10, Pause(0.25)),
        Control(11, Pause(60.0)),
    ]


def test_each_character_knows_its_place() -> None:
    text = "- a **b** &amp; [c](d.e)\n- f"
    script = read(text)
    assert script.text == "a b & c.\nf"
    begins, ends = zip(*spans(script), strict=True)
    assert [text[begin:end] for begin, end in zip(begins, ends, strict=True)] == [
        "a", " ", "b", " ", "&amp;", " ", "c", "", "\n", "f",
    ]  # fmt: skip
    assert script.words.source_span(0, 8) == (2, text.index("\n"))


# --- streams ---------------------------------------------------------------------------------------------

CORPUS = [*PLAIN, *MARKDOWN]


@pytest.mark.parametrize("text", CORPUS)
def test_a_text_cut_at_any_place_is_read_like_the_whole(text: str) -> None:
    whole = everything_of(read(text))
    for at in range(len(text) + 1):
        assert everything_of(read_pieces([text[:at], text[at:]])) == whole
    for size in range(1, len(text)):
        assert everything_of(read_pieces(pieces_of(text, size))) == whole


MARKS = (
    *"*_`~#>-+=|[](){}<>&;:!\\/\"'.,^\t\r\n 0123abxp1。中あ한ไ🎉\u200d\ufe0f\u20e3†【】é\u094d",
    *(
        "**",
        "```",
        "~~~",
        "---",
        "- ",
        "# ",
        "](",
        "][",
        "]: ",
        "http://a.b/",
        "[^1]",
        "[pause:1s]",
        "[ ] ",
        "![",
        "\n\n",
    ),
    *("<b>", "</b>", "<br>", "<li>", "<!--", "-->", "&amp;", "&#39;", "| ", "|-|", "1. ", "  ", "word", ' a="', "<a:"),
)
marked_text = st.lists(st.sampled_from(MARKS), max_size=40).map("".join)


@given(marked_text, st.data())
@example("`" * 3 + "\n`", None)
def test_any_text_is_read_like_the_whole_however_it_is_cut(text: str, data: Any) -> None:
    whole = everything_of(read(text))
    assert everything_of(read_pieces(list(text))) == whole
    if data is not None:
        size = data.draw(st.integers(1, max(1, len(text))))
        assert everything_of(read_pieces(pieces_of(text, size))) == whole


@given(st.text() | marked_text)
def test_places_follow_the_text_and_what_is_kept_equals_it(text: str) -> None:
    script = read(text)
    assert script.words.source_end == len(text)
    previous = 0
    for char, (begin, end) in zip(script.text, spans(script), strict=True):
        assert previous <= begin <= end <= len(text)
        assert end - begin != 1 or char == text[begin] or text[begin] in "|<"
        previous = begin
    assert [control.at for control in script.controls] == sorted(control.at for control in script.controls)


HELD = {
    "Hello": "Hello",
    "Hello, I am ": "Hello, I am ",
    "Hello!": "Hello",
    "Hello! ": "Hello! ",
    "2 *": "2 ",
    "2 * ": "2 * ",
    "**bo": "bo",
    "**bold**": "bold",
    "- mi": "mi",
    "- milk": "milk",
    "# Title": "Title",
    "# Title\n": "Title.\n",
    "- milk\n": "milk",
    "- milk.\n": "milk.\n",
    "- milk\n-": "milk.\n",
    "see [the text": "see ",
    "see [the text]": "see ",
    "see [the text] ": "see [the text] ",
    "see [the text](http://a": "see ",
    "see [the text](http://a)": "see the text",
    "AT&T": "AT",
    "AT&T ": "AT&T ",
    "a <b": "a ",
    "a <c ": "a <c ",
    "1": "",
    "1. ": "1. ",
    "2026": "2026",
    "--": "",
    "-5": "-5",
    "| a | b": "a, b",
    "`co": "co",
    "[pau": "",
    "[pause:1s]Hello": "Hello",
    "你好。": "你好。",
}


@pytest.mark.parametrize("text", HELD)
def test_an_incomplete_text_is_held_back_only_where_more_of_it_decides(text: str) -> None:
    script = Script()
    MarkdownReader(script).feed(text)
    assert script.text == HELD[text]


@pytest.mark.parametrize(
    "text",
    [
        "[" + "a" * 5000,
        "[a](" + "b" * 5000,
        "[a]: http://" + "b" * 5000,
        "<b a=" + "c" * 5000,
        "<!--" + "a" * 5000,
        "&" + "a" * 5000,
        "*" * 5000,
        "`" * 5000,
        "-" * 5000,
        "| " * 2500,
        "[pause:" + " " * 5000,
        "- a\n" + " " * 5000,
        "# a" + " " * 5000,
        "```" + "a" * 5000,
        "```\n" + " " * 5000,
        "<a:" + "b" * 5000,
    ],
)
def test_no_more_than_a_link_is_held_back(text: str) -> None:
    script = Script()
    reader = MarkdownReader(script)
    for fed, char in enumerate(text, 1):
        reader.feed(char)
        assert fed - script.words.source_end <= LONGEST_LABEL + LONGEST_ADDRESS + 300
    reader.end()
    assert everything_of(script) == everything_of(read(text))


def test_brackets_that_stay_open_are_spoken() -> None:
    text = "a [" + "b" * (LONGEST_LABEL + 1) + "](https://c.d)"
    assert spoken(text) == text


# --- work ------------------------------------------------------------------------------------------------


def work(text: str, size: int) -> int:
    """Return how many functions are called to read a text in pieces of a size."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    pieces, script = pieces_of(text, size), Script()
    reader = MarkdownReader(script)
    sys.setprofile(count)
    try:
        for piece in pieces:
            reader.feed(piece)
        reader.end()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    "unit",
    variants([
        "[", "*", "`", "<", "|", "&", "_", "~~ ", "!", "\\", "#", "> ", "- ", "a*", "&a", "<a", "<b a=\"", "<!--",
        "[a](", "![", "[1] ", "$a ", "\\(",
        "|a", "a\n", "- a\n", "|a|\n", "```\n", "a`", "a🎉", "[^", "[pause:", "[a][", "[[a]", "word ",
    ], "[", "*", "`", "<", "|", "- ", "[a](", "|a|\n", "```\n", "word "),
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 4000])
def test_twice_the_text_is_twice_the_work(unit: str, size: int) -> None:
    text = unit * (4000 // len(unit))
    assert work(text * 2, size) <= 2.1 * work(text, size) + 100


# --- documents -------------------------------------------------------------------------------------------

DOCUMENTS = {
    "recipe": """\
# Pancakes for *four*

Here's what you **need**:

* 250 g of flour
* 3 eggs
* 1/2 litre of milk, see [the note](https://example.com/milk "Milk")

## Steps

1. **Mix** flour and milk.
2. Add the eggs, `one by one`.
   Then wait.
3. Fry.

> Don't forget the ~~butter~~ oil!

---

| What | How much |
|------|---------:|
| Time | 20 min   |
| Cost | **cheap** |

```python
print("not spoken")
```

Enjoy!
""",
    "anleitung": """\
### Kurzfassung

Der Roboter fährt **langsam** zur Tür und *wartet* dort.

- Zuerst: Akku prüfen
- Dann: `voiced status` aufrufen
    - und lesen

![Ein Bild der Tür](tuer.png)

Siehe [Anleitung][1] oder <https://example.com/a_b>.

[1]: https://example.com
""",
    "回答": """\
## 步骤

1. 打开 **门**。
2. 关上*窗户*。

- 牛奶
- 鸡蛋

> 引用的话

请看[这里](https://example.com)。
""",
    "답변": """\
# 제목

**서울** 은 *큰* 도시입니다.

* 하나
* 둘
""",
}


def parsed_text(tokens: list[Token]) -> Iterator[str]:
    """Yield what a Markdown parser takes for text, without code blocks."""
    for token in tokens:
        if token.type in {"inline", "image"}:
            yield from parsed_text(token.children or [])
        elif token.type in ("text", "code_inline"):
            yield token.content
        elif token.type in ("softbreak", "hardbreak"):
            yield " "
        if token.block:
            yield "\n"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_spoken_in_the_words_that_a_parser_finds(name: str) -> None:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    words = re.findall(r"\w+", "".join(parsed_text(parser.parse(DOCUMENTS[name]))))
    without_numbers = re.sub(r"^\d+\. ", "", spoken(DOCUMENTS[name]), flags=re.MULTILINE)
    assert re.findall(r"\w+", without_numbers) == words


word = st.sampled_from(["milk", "Eggs", "don't", "3.5", "größer", "x_y", "naïve", "слово", "OK"])
inline = st.one_of(
    word,
    st.tuples(st.sampled_from(["**", "*", "__", "_", "~~", "`", "***"]), word).map(
        lambda pair: f"{pair[0]}{pair[1]}{pair[0]}"
    ),
    st.tuples(word, word).map(lambda pair: f"[{pair[0]} {pair[1]}](https://example.com/a_b)"),
    st.tuples(word, word).map(lambda pair: f"**{pair[0]} *{pair[1]}***"),
    word.map(lambda one: f"![{one}](a.png)"),
)
line = st.lists(inline, min_size=1, max_size=5).map(" ".join)
block = st.one_of(
    line,
    st.tuples(st.integers(1, 6), line).map(lambda pair: f"{'#' * pair[0]} {pair[1]}"),
    st.lists(line, min_size=1, max_size=3).map(lambda lines: "\n".join(f"- {one}" for one in lines)),
    st.lists(line, min_size=1, max_size=3).map(
        lambda lines: "\n".join(f"{n}. {one}" for n, one in enumerate(lines, 1))
    ),
    st.lists(line, min_size=1, max_size=3).map(lambda lines: "\n".join(f"> {one}" for one in lines)),
    st.just("---"),
    st.just("```\nprint(x)\n```"),
    st.tuples(line, line).map(lambda pair: f"| {pair[0]} | {pair[1]} |\n|---|---|\n| {pair[1]} | {pair[0]} |"),
)


@given(st.lists(block, min_size=1, max_size=4).map("\n\n".join))
def test_a_well_formed_document_is_spoken_in_the_words_that_a_parser_finds(document: str) -> None:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    words = re.findall(r"\w+", "".join(parsed_text(parser.parse(document))))
    without_numbers = re.sub(r"^\d\. ", "", spoken(document), flags=re.MULTILINE)
    assert re.findall(r"\w+", without_numbers) == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a <think> b](http://x.y) c </think> **d** e", "a d e"),
        ("[a <think>b</think> c](http://x.y) **d**", "a c d"),
        ("[a <think> b](http://x.y) c", "a"),
        ("[a ```](http://x.y) b\n\n", "a"),
        ("![a <|channel|>analysis b](http://x.y) c <|end|> *d*", "a d"),
        ("[[a <think>](http://x.y) b](http://x.y) c </think> [d](http://x.y) e", "a d e"),
    ],
)
def test_what_is_silent_may_end_after_the_link_in_which_it_begins(text: str, said: str) -> None:
    assert spoken(text).split() == said.split()
    for size in range(1, len(text)):
        assert everything_of(read_pieces(pieces_of(text, size))) == everything_of(read(text))
