"""Writes the certificate of a log check that passed: a part for each range of offsets, by the engine's workers.

The parts are files of the certificate's directory; `certificate.json` has the claim, the history that it is about
and the digest of each part.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from analysis.core.certificate import linearize, placed_within, releases_before
from analysis.core.decide import Placement
from analysis.core.offset_ranges import RangeTask
from analysis.core.range_evidence import evidence_of
from analysis.engines.log import CheckedRanges, LogPlan
from analysis.engines.row_groups import read_row_groups
from analysis.engines.task_map import TaskMap
from history.record.operation_digest import digest_of_streams, digest_of_tables
from history.record.shapes import LOG
from history.regular_files import remove, sha256_of

FORMAT: Final = 3
CERTIFICATE_FILE: Final = "certificate.json"


@dataclass(frozen=True)
class LinearizationTask:
    """The entries of `task`'s offsets below `stop`, to be written to `path`."""

    task: RangeTask
    stop: int
    placed: Placement
    before: int
    path: str


@dataclass(frozen=True)
class LinearizationPart:
    """The file of a range's entries, as the certificate names it."""

    topic: str
    partition: int
    start: int
    length: int
    file: str
    sha256: str


def write_certificate(
    directory: Path, run: Path, plan: LogPlan, checked: CheckedRanges, spread: TaskMap, *, upper_bound: str
) -> Path:
    """Write the certificate of a run's log check without findings; returns the path of its claim."""
    remove(directory)  # an earlier certificate may have other parts
    directory.mkdir(parents=True)
    tasks = list(_tasks(directory.resolve(), plan, checked))
    write = functools.partial(_write_part, upper_bound=upper_bound)
    parts = spread(write, tasks, [task.task.rows for task in tasks])
    content: dict[str, Any] = {
        "format": FORMAT,
        "upper_bound": upper_bound,
        "operations": sum(group.rows for groups in plan.groups.values() for group in groups),
        "streams": digest_of_streams(run),
        "tables": digest_of_tables(LOG, run / "tables"),
        "lengths": {f"{key[0]}-{key[1]}": conclusion.length for key, conclusion in sorted(checked.conclusions.items())},
        "parts": [asdict(part) for part in parts],
    }
    path = directory / CERTIFICATE_FILE
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def _tasks(directory: Path, plan: LogPlan, checked: CheckedRanges) -> Iterator[LinearizationTask]:
    number = 0
    for key, conclusion in sorted(checked.conclusions.items()):
        ranges = sorted((task for task in plan.tasks if task.key == key), key=lambda task: task.start)
        befores = releases_before([task.start for task in ranges], checked.summaries[key], conclusion.placed)
        for task, earlier_release in zip(ranges, befores, strict=True):
            stop = min(task.stop, conclusion.length)
            if stop > task.start:
                placed = placed_within(conclusion.placed, task.start, stop)
                yield LinearizationTask(
                    task, stop, placed, earlier_release, str(directory / f"part-{number:05d}.parquet")
                )
                number += 1


def _write_part(part: LinearizationTask, *, upper_bound: str) -> LinearizationPart:
    task = part.task
    pieces, _ = evidence_of(task, read_row_groups, upper_bound=upper_bound)
    rows = linearize(pieces, part.placed, task.start, part.stop, part.before)
    encodings = dict.fromkeys(rows.column_names, "DELTA_BINARY_PACKED")
    pq.write_table(rows, part.path, compression="zstd", use_dictionary=False, column_encoding=encodings)
    path = Path(part.path)
    return LinearizationPart(*task.key, task.start, rows.num_rows, path.name, sha256_of(path))
