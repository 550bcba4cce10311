"""No part of the pipeline reads the operations of a run whole: it reads the tables, part by part. The comparison of
replicas reads those of one partition in one task (`analysis.engines.row_groups.read`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = ("analysis", "orchestrator", "history")
WHOLE: Final = frozenset({"read_operations"})
"""Functions that read all operations of tables."""


def whole_reads(path: Path) -> Iterator[str]:
    """The expressions that hold all operations of a run: those above, `operations` of a history, and `read_run`
    without tables."""
    text = path.read_text(encoding="utf-8")
    if not any(name in text for name in (*WHOLE, "read_run", "history.operations")):
        return
    for each in ast.walk(ast.parse(text)):
        if isinstance(each, ast.Attribute) and ast.unparse(each).endswith("history.operations"):
            yield ast.unparse(each)
        if isinstance(each, ast.Call):
            called = ast.unparse(each.func).rpartition(".")[2]
            if called in WHOLE or (called == "read_run" and "tables" not in {named.arg for named in each.keywords}):
                yield ast.unparse(each)


def modules() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def test_the_pipeline_reads_operations_part_by_part() -> None:
    found = {(path.relative_to(ROOT).as_posix(), text) for path in modules() for text in whole_reads(path)}
    assert found == {("history/reader.py", "read_operations(self.recorded)")}


def test_each_way_to_read_a_whole_history_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("read_run(run)\nreader.read_run(run, each=map)\nrun.history.operations\nread_operations(tables)\n")
    assert len([*whole_reads(path)]) == 4
    path.write_text("read_run(run, tables=tables)\nhistory.parts('f')\nview.operations\n")
    assert [*whole_reads(path)] == []
