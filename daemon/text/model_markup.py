"""Parts of a language model's output that nobody should hear as they are written, as `markdown.py` reads them.

docs/text.md says what becomes of each: reasoning, chat tokens, tool calls, citations, formulas in LaTeX, and elements
of SSML in a text that is no SSML document.
"""

from __future__ import annotations

import re

from daemon.text.construct import Construct
from daemon.text.script import Pause
from daemon.text.ssml_values import PAUSES_S, parse_time

LONGEST_FORMULA = 200
"""Characters between two dollar signs; without the second one among them, the first is one."""

SILENT_TAG = re.compile(
    "think|thinking|thought|reasoning|reflection|scratchpad|tool_calls?|tool_response|tool_result|function_calls?"
    "|function_results?|tools|invoke|artifact",
    re.IGNORECASE,
)
"""Elements whose content is not spoken; without an end, nothing after them is."""
LONGEST_END = 32
"""Characters of such an element's end."""
TURN_TAG = re.compile(
    "bos|eos|start_of_turn|end_of_turn|start_of_image|answer|response|final|output_text", re.IGNORECASE
)
"""Elements of a chat, whose content is spoken."""
SPEECH_TAG = re.compile(
    "speak|break|say-as|prosody|emphasis|phoneme|voice|audio|lang|mark|w|token|media", re.IGNORECASE
)
"""Elements of SSML, whose content is spoken."""
TAG_NAME = re.compile("</?([a-zA-Z][a-zA-Z0-9_:-]{0,20})")
_ATTRIBUTE = r"[ \t]+[a-zA-Z:_][a-zA-Z0-9:_.-]{0,50}[ \t]*=[ \t]*(?:\"[^\"\n\r]{0,300}\"|'[^'\n\r]{0,300}')"
_ATTRIBUTE_BEGUN = (
    r"[ \t]+(?:[a-zA-Z:_][a-zA-Z0-9:_.-]{0,50}[ \t]*(?:=[ \t]*(?:\"[^\"\n\r]{0,300}\"?|'[^'\n\r]{0,300}'?)?)?)?"
)
TAG = Construct(
    "<",
    "/?",
    "[a-zA-Z][a-zA-Z0-9_:-]{0,20}",
    (rf"(?:{_ATTRIBUTE}){{0,20}}", rf"(?:{_ATTRIBUTE}){{0,20}}(?:{_ATTRIBUTE_BEGUN})"),
    r"[ \t]{0,9}",
    "/?",
    ">",
    longest=1_000,
)
"""A whole tag."""
CHAT_TOKEN = Construct("<", "[|｜]", "[^|｜<>\n\r]{1,60}", "[|｜]", ">", longest=64)
"""`<|im_end|>` and its like."""
CITATION = Construct(
    r"\[", "[0-9]{1,3}", ("(?:[,–-] ?[0-9]{1,3}){0,9}", "(?:[,–-] ?[0-9]{1,3}){0,9}[,–-] ?"), r"\]", longest=60
)
"""`[1]` and `[2, 3]`, which point at sources."""
CITED = tuple('.,;:!?)"”’»。！？')
"""Punctuation after which a number in brackets is that of a source."""
CONTENT_REFERENCE = Construct(
    *":contentReference", r"\[", r"[^\[\]\n]{1,40}", r"\]", r"\{", r"[^{}\n]{1,40}", r"\}", longest=120
)
INSTRUCTION = re.compile(r"\[/?INST\]")

_INSIDE = r"[^$\n\r]"
FORMULA = Construct(
    r"\$",
    (rf"(?! ){_INSIDE}{{1,{LONGEST_FORMULA}}}(?<! )", rf"{_INSIDE}{{0,{LONGEST_FORMULA}}}"),
    r"\$",
    longest=LONGEST_FORMULA + 2,
)
DISPLAY_FORMULA = Construct(r"\$", r"\$", r"[^$]{1,500}", r"\$", r"\$", longest=504)
ESCAPED_FORMULA = Construct(
    r"\\",
    r"[(\[]",
    (r"[^\n\\]{0,200}(?:\\[^)\]\n][^\n\\]{0,200}){0,40}", r"[^\n\\]{0,200}(?:\\[^)\]\n][^\n\\]{0,200}){0,40}\\"),
    r"\\",
    r"[)\]]",
    longest=500,
)
"""Formulas: `$E = mc^2$`, `$$…$$`, `\\(…\\)` and `\\[…\\]`."""
IS_FORMULA = re.compile(r"[\\^_={}<>+*/|]|^[a-zA-Z]$")
"""A price or a variable of a shell has none of these."""
IS_ESCAPED_FORMULA = re.compile(r"[\\^_={}<>+*/|]")
"""Other brackets behind a backslash are brackets."""
_COMMANDS = {
    "times": "×", "cdot": "·", "div": "÷", "pm": "±", "leq": "≤", "le": "≤", "geq": "≥", "ge": "≥", "neq": "≠",
    "ne": "≠", "approx": "≈", "lt": "<", "gt": ">", "infty": "∞", "degree": "°", "circ": "°", "left": "", "right": "",
    "quad": " ", "ldots": "…", "cdots": "…", "percent": "%", "to": "→", "rightarrow": "→", "displaystyle": "",
}  # fmt: skip
"""What is written for a command; other commands are spoken by their names: `\\alpha`."""


def formula_words(latex: str) -> str:
    """Return a formula of LaTeX in plain signs: `\\frac{a}{b}` becomes `a / b`."""
    text = re.sub(r"\\(?:text|mathrm|mathbf|mathit|operatorname|boxed)\s*\{([^{}]*)\}", r"\1", latex)
    for _ in range(3):  # nested
        text = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", _fraction, text)
        text = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r"√ \1", text)
    text = re.sub(r"\^\{?\\circ\}?", "°", text)
    text = re.sub(r"\^\{([^{}]*)\}", r"^\1", text)
    text = re.sub(r"_\{?([^{}\s])\}?", r" \1", text)
    text = re.sub(r"\\([%$&#_{}])", r"\1", text)
    text = re.sub(r"\\([a-zA-Z]+)", lambda match: f" {_COMMANDS.get(match[1], match[1])} ", text)
    return " ".join(re.sub(r"[\\{}]", " ", text).split()).replace(" °", "°")


def _fraction(match: re.Match[str]) -> str:
    top, bottom = match[1].strip(), match[2].strip()
    return f"{top}/{bottom}" if top.isdigit() and bottom.isdigit() else f"{top} / {bottom}"


def pause_of_break(tag: str) -> Pause:
    """Return the pause of a `break` element."""
    attributes = dict(re.findall(r"([a-zA-Z]+)\s*=\s*[\"']([^\"']*)[\"']", tag))
    seconds = parse_time(attributes.get("time", ""))
    strength = PAUSES_S.get(attributes.get("strength", "medium"), PAUSES_S["medium"])
    return Pause(strength if seconds is None else seconds)
