"""Writes the certificate of a log check that passed: a part for each range of offsets, by the engine's workers.

The parts are files of the certificate's directory; `certificate.json` has the claim, the history that it is about
and the digest of each part.

The certificate is the linearization of the history: for each offset of a partition its value and its time. `at` is the
theorem's t_g = max r[j], j <= g. Queries need no entry: the verifier confirms from the appends alone that each query
has a valid time. The entries of a range of offsets follow from its evidence, the values placed in it, and the latest
release to its left.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.core.decide import Placement
from analysis.core.evidence import NONE, OffsetEvidence
from analysis.core.offset_ranges import RangeTask
from analysis.core.range_evidence import evidence_of
from analysis.core.scans import NEVER
from analysis.core.summary import Summary
from analysis.engines.log import CheckedRanges, LogPlan
from analysis.engines.row_groups import read_row_groups
from analysis.engines.task_map import TaskMap
from history.record.operation_digest import digest_of_streams, digest_of_tables
from history.record.shapes import LOG
from history.regular_files import remove, sha256_of

LINEARIZATION: Final = pa.schema([("offset", pa.int64()), ("value", pa.int64()), ("at", pa.int64())])


def linearize(pieces: Iterable[OffsetEvidence], placed: Placement, start: int, stop: int, before: int) -> pa.Table:
    """The entries of the offsets start .. stop - 1 from the evidence of this range; `before`: the latest release to its
    left."""
    value = np.full(stop - start, NONE, np.int64)
    release = np.full(stop - start, NEVER, np.int64)
    for piece in pieces:
        first = piece.start - start
        size = max(0, min(len(piece.value), stop - piece.start))
        value[first : first + size] = piece.value[:size]
        release[first : first + size] = np.maximum(piece.append_release[:size], piece.query_release[:size])
    at = placed.offset - start
    value[at] = placed.value
    release[at] = np.maximum(release[at], placed.release)
    release[:1] = np.maximum(release[:1], before)
    moment = np.maximum.accumulate(release)
    return pa.Table.from_arrays(
        [pa.array(column) for column in (np.arange(start, stop), value, moment)], schema=LINEARIZATION
    )


def placed_within(placed: Placement, start: int, stop: int) -> Placement:
    """What is placed at the offsets start .. stop - 1."""
    a, z = np.searchsorted(placed.offset, (start, stop)).tolist()
    return Placement(placed.offset[a:z], placed.value[a:z], placed.release[a:z], placed.deadline[a:z])


def releases_before(starts: Sequence[int], summaries: Sequence[Summary], placed: Placement) -> list[int]:
    """The latest release to the left of each of the ascending `starts` of ranges with these summaries."""
    releases = []
    pieces = sorted(summaries, key=lambda piece: piece.start)
    latest_release, number = NEVER, 0
    for start in starts:
        while number < len(pieces) and pieces[number].start < start:
            latest_release = max(latest_release, *(peak.t for peak in pieces[number].realtime.release))
            number += 1
        count = int(np.searchsorted(placed.offset, start))
        releases.append(max(latest_release, int(placed.release[:count].max(initial=NEVER))))
    return releases


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
