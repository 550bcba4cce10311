"""The register check over a run's Parquet files: in process, or with a task for each file on Spark's workers.

A file holds whole keys, and keys are independent. So only reports are transferred, and both ways give the same report.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from analysis.core.registers import RegisterReport, check
from analysis.engines.task_map import TaskMap, in_sequence
from history.registers import with_endpoints
from history.regular_files import require_regular


def register_files(tables: Path) -> list[Path]:
    """The compacted register files below `tables/`, in order."""
    return sorted((tables / "registers").glob("part-*.parquet"))


def check_registers(files: Sequence[Path], spread: TaskMap = in_sequence) -> RegisterReport:
    """Check all keys."""
    paths = [str(path.resolve()) for path in files]
    reports = spread(_judge, paths)
    merged = RegisterReport()
    for report in sorted(reports, key=lambda each: sorted(each.keys)):
        merged = merged.merge(report)
    return merged


def _judge(path: str) -> RegisterReport:
    return check(with_endpoints(pq.ParquetFile(require_regular(path)).read()))
