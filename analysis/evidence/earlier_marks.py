"""Holds the high watermarks in earlier dumps against the nodes' traces.

D7 compares a dump below the high watermarks in its checkpoint, so an absent or older checkpoint would hide a changed
prefix. A node with a trace reports each high watermark after the write to its disk. Invariant: the checkpoint in a dump
has at least the last value that its node had reported before the dump, unless the node reports a lower value later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from analysis.evidence.earlier_dumps import Demanded
from analysis.evidence.run_directory import NodeEvents, moment
from analysis.replicafiles.checkpoints import HIGH_WATERMARKS, read_high_watermarks
from analysis.replicafiles.log import ReplicaFileError

WRITTEN: Final = "high_watermark_checkpointed"

Event = Mapping[str, Any]
Key = tuple[str, int]


def lowered(
    events: NodeEvents, dumps: Demanded, journal: Sequence[Event], places: Mapping[str, Path], keys: frozenset[Key]
) -> Iterator[str]:
    """Sentences: high watermarks in dumps that are below the reported ones. `places`: the directories of the dumps;
    `keys`: the partitions to compare. If a fault changed a clock, the order of reports and dump is not known."""
    heal_start = next((line["wall"] for line in journal if _is_heal(line)), None)
    if heal_start is None or any(str(line.get("kind", "")).startswith("clock-") for line in journal):
        return
    for node in dumps.nodes:
        if node not in places or node in dumps.lost:
            continue
        try:
            marks = read_high_watermarks(places[node] / HIGH_WATERMARKS) or {}
        except ReplicaFileError:
            continue  # each replica of the node reports it
        for key, mark in sorted(_written(events.get(node, ()), heal_start * 1e9).items()):
            if key in keys and marks.get(key, 0) < mark:
                yield (
                    f"the earlier dump of {node} has the high watermark {marks.get(key, 0)} of {key[0]}-{key[1]}, "
                    f"but the node had reported that {mark} was on its disk"
                )


def _is_heal(line: Event) -> bool:
    return line.get("event") == "phase" and line.get("name") == "heal"


def _written(events: Sequence[Event], heal_start: float) -> dict[Key, int]:
    """By partition, the least high watermark that the disk may have had since `heal_start`, wall clock in ns."""
    marks: dict[Key, int] = {}
    for event in events:
        topic, partition, mark = (event.get(name) for name in ("topic", "partition", "high_watermark"))
        if event.get("event") != WRITTEN or type(partition) is not int or type(mark) is not int:
            continue
        key = str(topic), partition
        if moment(event) < heal_start:
            marks[key] = mark
        elif key in marks:
            marks[key] = min(marks[key], mark)
    return marks
