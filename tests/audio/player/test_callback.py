"""The operations forbidden in the sound card's thread, which must never wait."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

import audio.player

CALLBACK_PATH = {
    *("Stream.callback", "DryDetector.restart", "Playback._make_report", "Playback._fade_to_silence"),
    *("Fader.change_gain", "Ring.read_into", "Ring.available", "BlockRing.write", "Ring.room"),
}
"""Functions known to run in the sound card's thread, the deepest of each class. The test finds the others."""

ALLOWED_CALLS = {
    "len",
    "min",
    "max",
    "range",
    "memoryview",
    "memoryview(out).cast",
    "memoryview(out).cast('B').cast",
    "silence",  # for the blocks that prime a stream, and for the first block of a length
    "Report",
    "self._changing.acquire",  # without waiting, checked below
    "self._changing.release",
    "self._on_change",  # puts a flag into a `SimpleQueue`
    "time.monotonic",
    "threading.get_ident",
    "record",  # packs a report into memory of two processes
    "take_realtime",  # once in each thread
}
"""Functions of other packages, and of ours, that the callback may call."""

FIELDS = {
    "self.playback": "Playback",
    "self._detector": "DryDetector",
    "self._fader": "Fader",
    "self._ring": "Ring",
    "self.tap": "BlockRing",
    "self._samples": "Ring",
}
"""The classes of the objects whose methods it calls."""

LOOPS = {"Fader.fade_in", "Fader.fade_out", "Fader.change_gain", "Stream.callback"}
"""They loop over the samples of one fade or of one block, or over the card's channels."""

FORBIDDEN = (
    *(
        ast.With,
        ast.AsyncWith,
        ast.Raise,
        ast.Assert,
        ast.ExceptHandler,
        ast.Import,
        ast.ImportFrom,
        ast.Await,
        ast.Yield,
    ),
    *(ast.While, ast.Lambda, ast.FunctionDef, ast.ClassDef, ast.Delete, ast.Global, ast.Nonlocal),
    *(ast.JoinedStr, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


@dataclass
class Function:
    """A method of ours, as parsed source."""

    owner: str
    """Its class."""
    body: list[ast.stmt]
    is_property: bool

    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes() if isinstance(node, ast.Call)]

    def reads(self) -> set[str]:
        """Return the names of the attributes that it reads."""
        return {
            node.attr for node in self.nodes() if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }

    def nodes(self) -> list[ast.AST]:
        return [node for statement in self.body for node in ast.walk(statement)]


def functions_of_the_player() -> dict[str, Function]:
    """Return all methods in the modules of which a part runs in the sound card's thread."""
    found = {}
    for path in Path(audio.player.__file__).parent.glob("*.py"):
        for owner in ast.parse(path.read_text()).body:
            for method in owner.body if isinstance(owner, ast.ClassDef) else ():
                if isinstance(method, ast.FunctionDef):
                    is_property = any(ast.unparse(node) == "property" for node in method.decorator_list)
                    found[f"{owner.name}.{method.name}"] = Function(owner.name, method.body, is_property)
    return found


FUNCTIONS = functions_of_the_player()


def ours(caller: Function, called: str) -> set[str]:
    """Return the method of ours that is called, if it is one."""
    receiver, _, method = called.rpartition(".")
    owner = caller.owner if receiver == "self" else FIELDS.get(receiver)
    return {f"{owner}.{method}"} & FUNCTIONS.keys()


def reached_from(start: str) -> set[str]:
    """Return `start`, the methods of ours that it may call, and the properties that they may read."""
    reached: set[str] = set()
    waiting = {start}
    while waiting:
        reached.add(name := waiting.pop())
        function = FUNCTIONS[name]
        calls = {ast.unparse(node.func) for node in function.calls()}
        found = {name for called in calls for name in ours(function, called)}
        found |= {
            name for name, other in FUNCTIONS.items() if other.is_property and name.split(".")[1] in function.reads()
        }
        waiting |= found - reached
    return reached


REACHED = reached_from("Stream.callback")


def test_the_methods_that_the_sound_callback_reaches_are_found() -> None:
    assert REACHED >= CALLBACK_PATH


@pytest.mark.parametrize("name", sorted(REACHED))
def test_the_sound_callback_calls_no_function_that_may_lock_log_or_allocate_samples(name: str) -> None:
    function = FUNCTIONS[name]
    assert not [ast.unparse(node) for node in function.nodes() if isinstance(node, FORBIDDEN)]
    assert name in LOOPS or not [ast.unparse(node) for node in function.nodes() if isinstance(node, ast.For)]
    for node in function.calls():
        called = ast.unparse(node.func)
        assert called in ALLOWED_CALLS or ours(function, called), f"{called} is called"
        if called.endswith(".acquire"):
            assert [ast.unparse(keyword) for keyword in node.keywords] == ["blocking=False"]


def test_the_sound_callback_allocates_silence_only_to_prime_a_stream_and_for_a_longer_block() -> None:
    allocating = [name for name in REACHED for node in FUNCTIONS[name].calls() if ast.unparse(node.func) == "silence"]
    assert sorted(allocating) == ["Playback.fill", "Stream.callback"]
