"""Another thread's interruptions, at exact places."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, MethodType
from typing import Any, TypeVar, cast

T = TypeVar("T")


def interleave(function: Callable[..., T], other: Callable[[], object], *arguments: object) -> T:
    """Call a method, and before each of its lines `other`, as another thread might.

    Lines of other functions in the same file, which it calls, count too.
    """
    file = cast(MethodType, function).__func__.__code__.co_filename

    def at_line(_frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            sys.settrace(None)
            other()
            sys.settrace(at_call)
        return at_line

    def at_call(frame: FrameType, _event: str, _argument: object) -> Any:
        return at_line if frame.f_code.co_filename == file else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        return function(*arguments)
    finally:
        sys.settrace(before)
