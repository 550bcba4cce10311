"""What single nodes tell of themselves: their trace events, and the files on their disks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nemeses.ports import Host, HostError

CHECKPOINT = "replication-offset-checkpoint"


class EventTail:
    """The trace events of one node, from a mark on. The file outlives power cuts: it is not on the node's data disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark = 0

    def mark(self) -> None:
        """Only events written from now on are of interest."""
        self._mark = self._path.stat().st_size if self._path.exists() else 0

    def since_mark(self) -> Iterator[Mapping[str, Any]]:
        """The events since the mark, whole lines only."""
        yield from _events(self._path, self._mark)

    def progress(self, topic: str) -> dict[int, tuple[int, int]]:
        """(log end offset, high watermark) of each partition of a topic, as this node last told them."""
        return {
            event["partition"]: (event["log_end_offset"], event["high_watermark"])
            for event in _events(self._path, 0)
            if event.get("event") == "replica_progress" and event.get("topic") == topic
        }

    def latest(self, event: str, **fields: Any) -> Mapping[str, Any] | None:
        """The last event of this name and with these fields in the whole file."""
        found = None
        for candidate in _events(self._path, 0):
            if candidate.get("event") == event and matches(candidate, fields):
                found = candidate
        return found


def matches(event: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether an event has all these fields with these values."""
    return all(event.get(key) == value for key, value in where.items())


def _events(path: Path, start: int) -> Iterator[Mapping[str, Any]]:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return
    for line in data.split(b"\n")[:-1]:
        try:
            event = json.loads(line)
        except ValueError:  # cut short by a kill; the next broker wrote on behind it
            continue
        if isinstance(event, dict):
            yield event


def checkpointed_high_watermark(host: Host, log_dir: str, topic: str, partition: int) -> int | None:
    """The high watermark in a node's checkpoint file; None when the file or the partition is not there (yet)."""
    try:
        result = host.run(f"cat {log_dir}/{CHECKPOINT}", timeout_s=5.0)
    except HostError:
        return None
    if not result.ok:
        return None
    for line in result.stdout.splitlines()[2:]:
        fields = line.split()
        if len(fields) == 3 and fields[0] == topic and fields[1] == str(partition):
            return int(fields[2])
    return None
