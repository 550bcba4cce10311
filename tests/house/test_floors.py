"""The house rules of the code: the allowed imports between rooms, and the sizes of modules."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A room imports only from the rooms listed for it (docs/architecture.md, "Floors").
MAY_IMPORT: dict[str, set[str]] = {
    "broker": set(),
    "installation": set(),
    "history": {"installation"},
    "simulator": {"broker", "history"},
    "workloads": {"history", "installation"},
    "nemeses": {"history", "installation"},
    "analysis": {"history", "installation"},
    "nodeimage": {"installation"},
    "systems": {"history", "broker", "simulator", "installation", "workloads", "nemeses"},
}
MAY_IMPORT["orchestrator"] = set(MAY_IMPORT) - {"broker"}
MAY_IMPORT["brownout_api"] = {"analysis", "nemeses", "workloads", "systems", "orchestrator"}
BASE = {"errors", "cleanup", "world_kind", "world_kinds"}
# The same within the orchestrator: campaigns do not import worlds, code that worlds share is in `machine`, and kept
# nodes use the modules of a run.
ORCHESTRATOR_MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "cleanup": set(),
    "exit": set(),
    "printing": set(),
    "world_kind": set(),
    "world_kinds": {"world_kind"},
    "machine": {"errors", "cleanup"},
    "worlds": BASE | {"machine"},
    "campaign": BASE,
    "store": BASE | {"campaign"},
    "gate": BASE | {"campaign", "store"},
    "running": BASE | {"printing", "machine", "worlds", "campaign", "store"},
    "nodes": BASE | {"machine", "worlds", "campaign", "store", "running"},
    "search": BASE | {"machine", "worlds", "campaign", "store", "running"},
    "serving": BASE | {"store"},
    "command": BASE
    | {"printing", "machine", "worlds", "campaign", "store", "gate", "running", "nodes", "search", "serving"},
    "__main__": {"exit", "command"},
    "__init__": set(),
}
VIRTUAL_CLIENTS = "workloads.virtual"
"""Clients of the simulated world: they may import the simulator and the broker's messages, and no other client them."""
ENTRY = "installation.entry"
"""The packages at the top of an installed package. They start the command line, so they are above every room."""
SKELETON = "orchestrator.command.skeleton"
"""The files that `brownout init` writes. They are a user's, so they are above every room and import `brownout_api`."""
MAX_LINES = 900


def modules(room: str) -> Iterator[Path]:
    yield from sorted((ROOT / room).rglob("*.py"))


@functools.cache
def imports(path: Path) -> list[tuple[int, str]]:
    """Every module that a file imports, with the line: at its top, in a function, and for type checking alike."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [each for node in nodes for each in imported_by(node)]


def imported_by(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the name of each module that a statement imports; of `from a import b` both `a` and `a.b`."""
    if isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: {ast.unparse(node)}: imports are absolute"
        assert node.module
        yield node.lineno, node.module
        yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_from_the_floors_below_it(room: str) -> None:
    allowed = MAY_IMPORT[room] | {room}
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in modules(room)
        for line, name in imports(path)
        if name.split(".")[0] in MAY_IMPORT
        and name.split(".")[0] not in allowed
        and not is_virtual_client(path)
        and not module_name(path).startswith((ENTRY, SKELETON))
    ]
    assert wrong == []


def is_virtual_client(path: Path) -> bool:
    return module_name(path).startswith(VIRTUAL_CLIENTS)


def test_simulated_clients_import_no_real_clients() -> None:
    virtual = [path for path in modules("workloads") if is_virtual_client(path)]
    below = {"workloads", "history", "installation", "broker", "simulator"}
    used = {name.split(".")[0] for path in virtual for _, name in imports(path)}
    assert used & MAY_IMPORT.keys() <= below
    others = [path for path in modules("workloads") if not is_virtual_client(path)]
    assert [path for path in others if any(name.startswith(VIRTUAL_CLIENTS) for _, name in imports(path))] == []


def test_the_orchestrator_is_in_order_too() -> None:
    wrong = []
    for path in modules("orchestrator"):
        own = module_name(path).split(".")[1] if path.parent != ROOT / "orchestrator" else path.stem
        allowed = ORCHESTRATOR_MAY_IMPORT[own] | {own}
        wrong += [
            f"{path.relative_to(ROOT)}:{line}: {name}"
            for line, name in imports(path)
            if name.startswith("orchestrator.") and name.split(".")[1] not in allowed
        ]
    assert wrong == []


def test_every_floor_rests_on_those_listed_above_it() -> None:
    for table in (MAY_IMPORT, ORCHESTRATOR_MAY_IMPORT):
        seen: set[str] = set()
        for room, below in table.items():
            assert below <= seen, room
            seen.add(room)


def test_the_rule_can_fail(tmp_path: Path) -> None:
    offender = tmp_path / "offender.py"
    offender.write_text("def f() -> None:\n    from orchestrator.running.run import main\n")
    assert "orchestrator.running.run" in [name for _, name in imports(offender)]
    assert "orchestrator" not in MAY_IMPORT["broker"]


def test_no_module_is_in_an_import_cycle() -> None:
    """Imports in functions and for type checking count: two modules that need each other are one subject."""
    names = {module_name(path): path for room in MAY_IMPORT for path in modules(room)}
    graph = {name: {target for _, target in imports(path)} & names.keys() - {name} for name, path in names.items()}
    assert cycle(graph) is None


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MAY_LOAD_LATE = {
    "aiokafka", "ansible_runner", "confluent_kafka", "fabric", "invoke", "jinja2", "kafka", "kazoo",
    "matplotlib", "numpy", "obstore", "pandas", "paramiko", "pyarrow", "pyspark", "rich", "uvloop",
}  # fmt: skip
"""Third-party packages that a function may import: they take long to load, and not every command needs them."""


def test_only_heavy_packages_load_late() -> None:
    late = {
        (str(path.relative_to(ROOT)), line, name.split(".")[0])
        for room in MAY_IMPORT
        for path in modules(room)
        for line, name in imports_in_functions(path)
    }
    known = sys.stdlib_module_names | MAY_IMPORT.keys() | MAY_LOAD_LATE
    assert sorted(entry for entry in late if entry[2] not in known) == []


def imports_in_functions(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                yield from imported_by(inner)


def test_imports_in_functions_and_for_type_checking_count(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.b import c\ndef f():\n    import d\n"
    )
    assert {name for _, name in imports(module)} == {"typing", "typing.TYPE_CHECKING", "a.b", "a.b.c", "d"}
    assert {name for _, name in imports_in_functions(module)} == {"d"}


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


def test_the_analysis_has_few_files_beside_its_parts() -> None:
    assert len(list((ROOT / "analysis").glob("*.py"))) <= 15


def test_a_module_name_is_unique_in_the_broker() -> None:
    stems = [path.stem for path in modules("broker") if not path.stem.startswith("__")]
    assert sorted({stem for stem in stems if stems.count(stem) > 1}) == []


def test_no_room_is_called_utils() -> None:
    names = {"utils", "util", "helpers", "misc", "common"}
    assert [
        path for room in MAY_IMPORT for path in modules(room) if path.stem in names or path.parent.name in names
    ] == []
