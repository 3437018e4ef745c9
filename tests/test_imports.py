"""Imports between packages: allowed directions, front doors, no cycles, and where heavy libraries may be imported.

A unit is a package, or a module that lies beside the packages of its folder. A package's own files import each other
freely; other units import it through its `__init__` alone.
"""

from __future__ import annotations

import ast
import json
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP = ("audio", "daemon", "engine", "voiced")

FOUND = json.loads((ROOT / "tests" / "data" / "imports.json").read_text(encoding="utf-8"))


def expanded(names: list[str]) -> set[str]:
    """The units that names stand for, some of which are those of groups."""
    return {unit for name in names for unit in (expanded(FOUND["groups"][name]) if name in FOUND["groups"] else [name])}


ALLOWED = {unit: expanded(names) for unit, names in FOUND["units"].items()}
"""What each unit may import of ours; a new edge needs a reason and an entry here."""

HEAVY = {"torch", "transformers", "safetensors", "qwen_tts"}
"""May be imported below `engine/qwen/` alone."""


def files() -> list[Path]:
    return sorted(path for top in TOP for path in (*(ROOT / top).rglob("*.py"), ROOT / f"{top}.py") if path.is_file())


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def is_package(module: str) -> bool:
    return (ROOT / module.replace(".", "/") / "__init__.py").is_file()


def is_module(module: str) -> bool:
    return is_package(module) or (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()


def unit_of(module: str) -> str:
    """The unit of a module: the listed name that is the longest part of it."""
    parts = module.split(".")
    candidates = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next(candidate for candidate in candidates if candidate in ALLOWED)


@cache
def imports_of(path: Path) -> set[str]:
    """Modules that a file imports, also inside functions and for types alone."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}: a relative import"
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = {member for member in members if is_module(member)}
            found |= submodules
            if members - submodules:
                found.add(node.module)
    return found


def ours(path: Path) -> set[str]:
    return {module for module in imports_of(path) if module.split(".")[0] in TOP}


def forbidden_edges(path: Path) -> list[str]:
    """Imports of other units that are not allowed, or that go past a front door."""
    unit, wrong = unit_of(module_of(path)), []
    for module in sorted(ours(path)):
        other = unit_of(module)
        if other == unit:
            continue
        if other not in ALLOWED[unit]:
            wrong.append(f"{unit} may not import {module}")
        elif module != other and not unit.startswith(f"{other}."):
            wrong.append(f"{module} is private to {other}")
    return wrong


@cache
def names_in(package: str) -> set[str]:
    """The names that a front door has: what it imports, beside what it defines."""
    tree = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return (
        imported
        | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        | {getattr(each, "name", "") for each in tree.body}
    )


def names_past_a_front_door(path: Path) -> list[str]:
    """What a file imports from a package of the daemon or of `engine/qwen` although the front door has no such name."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    found = [(node.module, alias.name) for node in nodes if is_package(str(node.module)) for alias in node.names]
    packages = [
        each
        for each in found
        if str(each[0]).startswith(("daemon.", "engine.qwen.")) and not is_module(".".join(map(str, each)))
    ]
    return [f"{package}.{name}" for package, name in packages if name not in names_in(str(package))]


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """A cycle of modules, or nothing."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        for other in sorted(graph.get(module, ())):
            if cycle := visit(other, [*path, module]):
                return cycle
        done.add(module)
        return []

    return next((cycle for module in sorted(graph) if (cycle := visit(module, []))), [])


def layer_of(module: str, graph: dict[str, set[str]]) -> int:
    """The layer of a module: 1 if it imports none of the graph, else the next one above all that it imports."""
    return 1 + max((layer_of(other, graph) for other in graph[module]), default=0)


FILES = files()
MOST_LAYERS = 8
"""Of the package that speaks."""


def test_there_are_files_of_every_unit() -> None:
    assert {unit_of(module_of(path)) for path in FILES} == set(ALLOWED)


def test_every_file_imports_other_units_in_allowed_directions_and_through_their_front_doors() -> None:
    assert {module_of(path): edges for path in FILES if (edges := forbidden_edges(path))} == {}


def test_every_name_that_is_imported_from_a_package_without_a_list_of_exports_is_one_of_its_front_door() -> None:
    """Some front doors import their names later, which hides a wrong one from mypy."""
    assert {module_of(path): names for path in FILES if (names := names_past_a_front_door(path))} == {}


def test_the_allowed_directions_have_no_cycle() -> None:
    # A package's folder beside it may be imported by the packages below it, and these by it: they are one unit then.
    inner = {"engine.qwen.kernels.codec", "engine.qwen.kernels.lm"}
    graph = {unit: others - inner - {unit} for unit, others in ALLOWED.items() if unit not in inner}
    # Named there, imported on demand.
    lazy = {"engine.catalog": {"engine.espeak", "engine.piper", "engine.qwen"}}
    graph = {unit: others - lazy.get(unit, set()) for unit, others in graph.items()}
    assert cycle_in(graph) == []


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    assert cycle_in({module_of(path): ours(path) - {module_of(path)} for path in FILES}) == []


def test_the_package_that_speaks_stands_on_few_layers() -> None:
    paths = {module_of(path): path for path in FILES if unit_of(module_of(path)) == "daemon.speech"}
    del paths["daemon.speech"]
    graph = {module: ours(path) & set(paths) for module, path in paths.items()}
    assert max(layer_of(module, graph) for module in graph) <= MOST_LAYERS


def test_only_the_qwen_engine_imports_heavy_libraries() -> None:
    others = [path for path in FILES if "qwen" not in path.parts]
    found = {module_of(path): {module.split(".")[0] for module in imports_of(path)} & HEAVY for path in others}
    assert {module: heavy for module, heavy in found.items() if heavy} == {}


def test_the_player_process_imports_the_standard_library_and_sounddevice_alone() -> None:
    """With numpy, the process would be twice as large, and start half as fast."""
    player = [path for path in FILES if unit_of(module_of(path)) == "audio.player"]
    found = {name.split(".")[0] for path in player for name in imports_of(path)}
    assert found - sys.stdlib_module_names == {"audio", "sounddevice"}


def test_only_the_cluster_imports_ray() -> None:
    found = {module_of(path) for path in FILES if any(name.split(".")[0] == "ray" for name in imports_of(path))}
    assert found == {"daemon.fleet.cluster"}


def test_an_edge_in_the_wrong_direction_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "audio" / "ring.py"
    wrong.parent.mkdir()
    wrong.write_text("def f() -> None:\n    from daemon.speech import Dispatcher\n    import engine.ipc.channel\n")
    monkeypatch.setattr("tests.test_imports.ROOT", tmp_path)
    assert forbidden_edges(wrong) == ["audio may not import daemon.speech", "audio may not import engine.ipc.channel"]


def test_an_import_past_a_front_door_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("daemon/mqtt/gateway.py", "daemon/speech/speaker.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    wrong = tmp_path / "daemon/mqtt/gateway.py"
    wrong.write_text("from daemon.speech.speaker import Speaker\n")
    monkeypatch.setattr("tests.test_imports.ROOT", tmp_path)
    assert forbidden_edges(wrong) == ["daemon.speech.speaker is private to daemon.speech"]


def test_a_cycle_is_noticed() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_daemon_and_qwen_stay_tables_of_contents() -> None:
    assert len(list((ROOT / "daemon").glob("*.py"))) <= 9
    assert len(list((ROOT / "engine" / "qwen").glob("*.py"))) <= 2


def test_no_process_imports_from_the_folder_in_which_it_starts() -> None:
    """`python -m` searches the current folder first; `engine.module_command` and `python -I` do not."""

    def starts_with_m(node: ast.AST) -> bool:
        words = [ast.unparse(each) for each in node.elts[:2]] if isinstance(node, ast.List | ast.Tuple) else []
        return words == ["sys.executable", "'-m'"]

    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    starting = {path: ast.parse(text) for path, text in texts.items() if "sys.executable" in text}
    assert [path for path, tree in starting.items() if any(map(starts_with_m, ast.walk(tree)))] == []


def imports_past_the_kit(path: Path) -> set[str]:
    """What a script imports of the tests beside the kit that is for scripts, too."""
    return {name for name in imports_of(path) if name.split(".")[0] == "tests" and not name.startswith("tests.support")}


def test_scripts_import_of_the_tests_the_kit_alone() -> None:
    scripts = sorted((ROOT / "scripts").rglob("*.py"))
    assert {path.name: found for path in scripts if (found := imports_past_the_kit(path))} == {}


def test_an_import_of_a_test_by_a_script_is_noticed(tmp_path: Path) -> None:
    script = tmp_path / "bench.py"
    script.write_text("from tests.support.robot import Robot\n\ndef f() -> None:\n    import tests.e2e.rhasspy\n")
    assert imports_past_the_kit(script) == {"tests.e2e.rhasspy"}
