"""No part of the pipeline reads the operations of a run whole: it reads the tables, part by part. The comparison of
replicas reads those of one partition in one task (`analysis.engines.row_groups.read`)."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = ("analysis", "orchestrator", "history")
OPERATIONS: Final = ("logs", "registers")
"""The names of a shape's operations, whose `rows` are all of them."""


def whole_reads(path: Path) -> Iterator[str]:
    """The expressions that hold all operations of a run: the `rows` of a shape, and `read_run` without tables."""
    text = path.read_text(encoding="utf-8")
    if not any(name in text for name in (".rows", "read_run")):
        return
    for each in ast.walk(ast.parse(text)):
        if isinstance(each, ast.Attribute) and each.attr == "rows" and _is_of_shape(each.value):
            yield ast.unparse(each)
        if isinstance(each, ast.Call):
            called = ast.unparse(each.func).rpartition(".")[2]
            if called == "read_run" and "tables" not in {named.arg for named in each.keywords}:
                yield ast.unparse(each)


def _is_of_shape(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] in ("Operations", "of") and bool(value.args)
    return ast.unparse(value).rpartition(".")[2] in OPERATIONS


def modules() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def test_the_pipeline_reads_operations_part_by_part() -> None:
    found = {(path.relative_to(ROOT).as_posix(), text) for path in modules() for text in whole_reads(path)}
    assert found == set()


def test_each_way_to_read_a_whole_history_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    reads = ("read_run(run)", "reader.read_run(run, each=map)", "run.history.logs.rows", "Operations(LOG, path).rows")
    path.write_text("\n".join((*reads, "history.of(LOG).rows", "")))
    assert len([*whole_reads(path)]) == 5
    path.write_text("read_run(run, tables=tables)\nhistory.logs.parts('f')\ngroup.rows\n")
    assert [*whole_reads(path)] == []
