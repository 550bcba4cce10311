"""The house rules of the code: who may import whom, and how large a room's furniture may grow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A room imports only from the rooms listed for it (docs/architecture.md, "Floors").
MAY_IMPORT: dict[str, set[str]] = {
    "history": set(),
    "broker": set(),
    "installation": set(),
    "simulator": {"broker", "history"},
    "workloads": {"history", "installation"},
    "nemeses": {"history"},
    "analysis": {"history", "installation"},
    "nodeimage": {"installation"},
    "systems": {"history", "broker", "installation", "workloads", "nemeses"},
}
MAY_IMPORT["orchestrator"] = set(MAY_IMPORT) - {"broker", "simulator"}
MAX_LINES = 600


def modules(room: str) -> Iterator[Path]:
    yield from sorted((ROOT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, with the line: at its top, in a function, and for type checking alike."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_from_the_floors_below_it(room: str) -> None:
    allowed = MAY_IMPORT[room] | {room}
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in modules(room)
        for line, name in imports(path)
        if name.split(".")[0] in MAY_IMPORT and name.split(".")[0] not in allowed
    ]
    assert wrong == []


def test_the_rule_can_fail(tmp_path: Path) -> None:
    offender = tmp_path / "offender.py"
    offender.write_text("def f() -> None:\n    from orchestrator.running.phases import main\n")
    assert "orchestrator.running.phases" in [name for _, name in imports(offender)]
    assert "orchestrator" not in MAY_IMPORT["broker"]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_no_module_imports_itself_in_a_circle(room: str) -> None:
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in modules(room)
    }
    graph = {
        name: {target for _, target in top_level_imports(path) if target in names and target != name}
        for name, path in names.items()
    }
    assert cycle(graph) is None


def top_level_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Imports that run when the module is loaded (those under TYPE_CHECKING and in functions do not)."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def cycle(graph: dict[str, set[str]]) -> list[str] | None:
    """A cycle in the graph, as the list of its nodes, or None."""
    done: set[str] = set()

    def visit(node: str, trail: list[str]) -> list[str] | None:
        if node in trail:
            return [*trail[trail.index(node) :], node]
        if node in done:
            return None
        for target in sorted(graph[node]):
            found = visit(target, [*trail, node])
            if found:
                return found
        done.add(node)
        return None

    for start in sorted(graph):
        found = visit(start, [])
        if found:
            return found
    return None


def test_a_circle_is_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle({"a": {"b"}, "b": {"c"}, "c": set()}) is None


def test_no_file_outgrows_its_subject() -> None:
    large = {
        str(path.relative_to(ROOT)): lines
        for room in MAY_IMPORT
        for path in modules(room)
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert large == {}


def test_no_room_is_called_utils() -> None:
    names = {"utils", "util", "helpers", "misc", "common"}
    assert [
        path for room in MAY_IMPORT for path in modules(room) if path.stem in names or path.parent.name in names
    ] == []
