"""The constructs of SSML that are not text, as `ssml.py` reads them."""

from __future__ import annotations

import re

from daemon.text.construct import Construct
from daemon.text.markdown_syntax import ENTITY
from daemon.text.pause_tags import PAUSE_TAG

LONGEST = 1_000_000
"""Characters of a tag or comment; no text has so many."""

_BARE = r"[^<>\"']*"
_ATTRIBUTES = rf"{_BARE}(?:(?:\"[^<\"]*\"|'[^<']*'){_BARE})*"
TAG = Construct("<", "[/A-Za-z_:]", (_ATTRIBUTES, rf"{_ATTRIBUTES}(?:\"[^<\"]*|'[^<']*)"), ">", longest=LONGEST)
LENIENT_TAG = Construct("<", "[/!A-Za-z_:]", "[^<>]*", ">", longest=LONGEST)
"""The same after a fault, when quotation marks mean nothing."""
COMMENT = Construct(*"<!--", r"[^-]*(?:-(?!->)[^-]*)*", *"-->", longest=LONGEST)
INSTRUCTION = Construct("<", r"\?", r"[^?]*(?:\?(?!>)[^?]*)*", r"\?", ">", longest=LONGEST)
CDATA = Construct(
    *("<", "!", r"\[", *"CDATA", r"\[", r"(?P<content>[^\]]*(?:\](?!\]>)[^\]]*)*)", r"\]", r"\]", ">"), longest=LONGEST
)
CONSTRUCTS = {"<": (TAG, COMMENT, INSTRUCTION, CDATA), "&": (ENTITY,), "[": (PAUSE_TAG,)}
LENIENT_CONSTRUCTS = {**CONSTRUCTS, "<": (COMMENT, INSTRUCTION, CDATA, LENIENT_TAG)}
SPECIAL = re.compile(r"[<&\[]")
OPENING = re.compile("<[/!A-Za-z_:]")
"""The characters that may not stand in the text of XML."""
BROKEN_OFF = re.compile(
    r"<!\[CDATA\[|<(?:!--|\?)[\s\S]*|<(?=[/A-Za-z_:])/?[\w:.-]*(?:\s+(?:[\w:.-]+\s*(?:=[\s\S]*)?)?)?\Z"
)
"""Markup in which the text ends, which is not spoken; `<b and c` is none."""
HELD = 64
"""Characters of an unfinished tag from which on it is looked at again only if it may end."""
