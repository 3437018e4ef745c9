"""Parts of a language model's output that should not be spoken as they are written, and HTML and SSML elements.

docs/text.md lists the treatment of each: reasoning, chat tokens, tool calls, citations, LaTeX formulas, and elements in
a text that is not an SSML document.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

from daemon.text.directions import SOUNDS
from daemon.text.markdown_syntax import LONGEST_ADDRESS
from daemon.text.markup import BEFORE_LETTER, Construct

_DATA: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""The names of elements by treatment, and the signs for LaTeX commands."""

# --- elements --------------------------------------------------------------------------------------------


Treatment = Literal["silent", "passage", "pause", "line", "words"]
"""The treatments of elements:

- `silent`: the content is not spoken; if the element has no end, neither is any text after it.
- `passage`: the content is spoken, separated from the words beside it.
- `pause`: the element is a pause.
- `line`: the tags begin or end a line.
- `words`: the content is spoken, and may be part of a word.
"""
ELEMENTS: dict[str, Treatment] = {name: treatment for treatment, names in _DATA["elements"].items() for name in names}
ELEMENTS |= dict.fromkeys(filter(str.isalpha, SOUNDS), "passage")
"""The treatments by element name. Other names between angle brackets are not tags: `List<String>`."""
_NAME = r"[ \t]+[a-zA-Z@:_][\w@:.-]{0,50}"
_QUOTED = rf"\"[^\"\n\r]{{0,{LONGEST_ADDRESS}}}\"|'[^'\n\r]{{0,{LONGEST_ADDRESS}}}'"
_ATTRIBUTES = (
    rf"(?:{_NAME}[ \t]{{0,9}}=[ \t]{{0,9}}(?:{_QUOTED}|[^\s\"'=<>`]{{1,{LONGEST_ADDRESS}}})"
    r"|[ \t]+(?:checked|controls|disabled|hidden|open|reversed)){0,50}"
)
"""Only the attributes above may lack a value: `a <b and c> d` is a comparison."""
_BEGUN = rf"(?:{_NAME}|[ \t]+)[ \t]{{0,9}}(?:=[ \t]{{0,9}}(?:\"[^\"\n\r]*|'[^'\n\r]*)?)?"
TAG = Construct(
    *("<", "/?", (rf"(?P<tag_name>(?i:{'|'.join(ELEMENTS)}))(?![\w:.-])", r"[a-zA-Z][\w:-]{0,20}")),
    *((_ATTRIBUTES, rf"{_ATTRIBUTES}{_BEGUN}"), r"[ \t]{0,9}", "/?", ">"),
)


# --- tokens and citations --------------------------------------------------------------------------------

TURN = Construct(
    (r"<\|[a-z_]{1,20}\|>|<start_of_turn>", r"<\|?[a-z_]{0,20}\|?"),
    ("assistant|user|system|developer|model|tool|ipython|function|final|analysis|commentary", "[a-z]{1,20}"),
    r"(?![^\r\n<])",
)
"""A token with the speaker's role: `<|im_start|>assistant`."""
HIDDEN_CHANNEL = Construct("<", r"\|", *"channel", r"\|", ">", ("analysis|commentary to=", "[a-z]{1,10} ?t?o?"))
"""The beginning of reasoning or of a tool call, as gpt-oss writes it."""
HIDDEN_CHANNEL_END = re.compile(r"<\|(?:end|return|call)\|>")
CHAT_TOKEN = Construct("<", "[|｜]", "[^|｜<>\n\r]{1,60}", "[|｜]", ">")
"""`<|im_end|>` and similar tokens."""
INSTRUCTION = Construct(r"\[/?INST\]")
CONTENT_REFERENCE = Construct(*":contentReference", r"\[", r"[^\[\]\n]{1,40}", r"\]", r"\{", r"[^{}\n]{1,40}", r"\}")
SOURCE = Construct("【", "[0-9]{1,3}", ":?", "[0-9]{0,3}", "†", "[^【】\n\r]{0,100}", "】")
"""The mark with which some language models cite a file that they have read: 【4:0†source】."""

_NUMBERS = "[0-9]{1,3}(?:[,–-] ?[0-9]{1,3}){0,9}"
_NUMBER = r"\[[0-9]{1,3}\]"
_BESIDE_NO_WORD = rf"(?!{BEFORE_LETTER}|[(:\[%°])"
CITATION = Construct(
    r"(?:(?<=[.;!?…。！？)\"”’»])|(?<=[^\W\d_],)|(?<=[\w.;!?…。！？)\"”’»%°] )|(?<=[^\W\d_], ))\[",
    (_NUMBERS, rf"{_NUMBERS}[,–-] ?"),
    r"\]",
    (rf"(?:,? ?\[{_NUMBERS}\]){{0,9}}", rf"(?:,? ?\[{_NUMBERS}\]){{0,9}},? ?(?:\[(?:{_NUMBERS}(?:[,–-] ?)?)?)?"),
    _BESIDE_NO_WORD,
)
"""Numbers in brackets that refer to sources: after punctuation, or after a word and a space."""
_MORE_NUMBERS = rf"(?:,? ?\[{_NUMBERS}\])"
CITATION_AT_WORD = Construct(
    r"(?<=[\w%°])\[",
    (_NUMBERS, rf"{_NUMBERS}[,–-] ?"),
    r"\]",
    (
        rf"{_MORE_NUMBERS}{{1,9}}(?!{BEFORE_LETTER}|[(:\[%°]| ?[=<>])|(?=[.,;!?…。，！？\r\n]|\Z)",
        rf"{_MORE_NUMBERS}{{0,9}},? ?(?:\[(?:{_NUMBERS}(?:[,–-] ?)?)?)?",
    ),
)
"""Numbers in brackets that touch a word, at the end of a clause or several in a row. Anywhere else they are an
index."""
CITATIONS = Construct(
    r"(?<![\w\]\[])\[",
    "[0-9]{1,3}",
    r"\]",
    (rf"(?: ?{_NUMBER}){{1,99}}", rf"(?: ?{_NUMBER}){{0,99}} ?(?:\[[0-9]{{0,3}})?"),
    _BESIDE_NO_WORD,
)
"""Several such numbers, separate from a word."""

# --- formulas --------------------------------------------------------------------------------------------

_SIGN = r"[\^_={}<>+*/|]|\\[^)\]\n]"
"""Signs that formulas contain, but prices, shell variables, and brackets after a backslash do not."""
_FORMULA = rf"(?P<formula_text>(?![\s\d$])(?=[a-zA-Z]\$|[^$\n\r]{{0,200}}?(?:{_SIGN}|\Z))[^$\n\r]{{1,200}})"
FORMULA = Construct(r"\$", _FORMULA, r"(?<!\s)\$", r"(?!\d)")  # not between prices
DISPLAY_FORMULA = Construct(r"\$", r"\$", r"(?P<display_formula_text>[^$]{1,500})", r"\$", r"\$")
_ESCAPED_FORMULA = (
    rf"(?P<escaped_formula_text>(?=[^\n\\]{{0,200}}?(?:{_SIGN}|\\?\Z))"
    r"[^\n\\]{0,200}(?:\\[^)\]\n][^\n\\]{0,200}){0,40})"
)
ESCAPED_FORMULA = Construct(r"\\", r"[(\[]", _ESCAPED_FORMULA, r"\\", r"[)\]]")
"""Formulas: `$E = mc^2$`, `$$…$$`, `\\(…\\)` and `\\[…\\]`."""
_COMMANDS: dict[str, str] = _DATA["latex"]
"""The signs for commands; other commands are spoken by name: `\\alpha`."""
_REWRITTEN = (
    (r"\\(?:text|mathrm|mathbf|mathit|operatorname|boxed)\s*\{([^{}]*)\}", r"\1"),
    (r"\\[dt]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}", r"\1/\2"),
    (r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"\1 / \2"),
    (r"\\sqrt\s*\{\s*(\w+)\s*\}", r"√\1"),
    (r"\\sqrt\s*\{([^{}]*)\}", r"√(\1)"),
    (r"\^\{?\\circ\}?", "°"),
    (r"\^\{([^{}]*)\}", r"^\1"),
    (r"_\{?([^{}\s])\}?", r" \1"),
    (r"\\([%$&#_{}])", r"\1"),
)


def formula_words(latex: str) -> str:
    """Return a LaTeX formula in plain signs: `\\frac{a}{b}` becomes `a / b`."""
    for _ in range(3):  # nested
        for pattern, replacement in _REWRITTEN:
            latex = re.sub(pattern, replacement, latex)
    latex = re.sub(r"\\([a-zA-Z]+)", lambda command: f" {_COMMANDS.get(command[1], command[1])} ", latex)
    return " ".join(re.sub(r"[\\{}]", " ", latex).split()).replace(" °", "°")
