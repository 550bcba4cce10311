"""Follows what a node reports: its trace events, its output, and the files on its disk."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemeses.ports import Host, HostError

CHECKPOINT = "replication-offset-checkpoint"


class EventTail:
    """One node's trace events, read as they are written. The file is not on the data disk, so power cuts spare it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._since_mark: list[Mapping[str, Any]] = []
        self._progress: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._metadata = -1

    def mark(self) -> None:
        """Ignore the events until now in later calls of `since_mark`."""
        self._read()
        self._since_mark.clear()

    def since_mark(self) -> list[Mapping[str, Any]]:
        """The events since the last mark."""
        self._read()
        return list(self._since_mark)

    def progress(self, topic: str, partition: int) -> Mapping[str, Any] | None:
        """A partition's last reported `log_end_offset` and `high_watermark`; None before the first report."""
        self._read()
        return self._progress.get((topic, partition))

    @property
    def metadata(self) -> int:
        """The last reported offset up to which the cluster's metadata is committed; -1 before the first report."""
        self._read()
        return self._metadata

    def _read(self) -> None:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return
        lines = data[: data.rfind(b"\n") + 1]
        self._position += len(lines)
        for line in lines.split(b"\n")[:-1]:
            try:
                event = json.loads(line)
            except ValueError:  # truncated by a kill; the next process appended after it
                continue
            if isinstance(event, dict):
                self._since_mark.append(event)
                if event.get("event") == "replica_progress":
                    self._progress[event["topic"], event["partition"]] = event
                elif event.get("event") == "quorum_high_watermark":
                    self._metadata = event["offset"]


class LogTail:
    """The output of one node's service, read as it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def mark(self) -> None:
        """Ignore the output until now in later calls of `since_mark`."""
        with contextlib.suppress(FileNotFoundError):
            self._position = self._path.stat().st_size

    def since_mark(self) -> list[str]:
        """The complete lines since the last mark."""
        return self._complete().decode(errors="replace").splitlines()

    def next_lines(self) -> list[str]:
        """The same, and marks their end."""
        data = self._complete()
        self._position += len(data)
        return data.decode(errors="replace").splitlines()

    def _complete(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return b""
        return data[: data.rfind(b"\n") + 1]


def matches(event: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Whether an event has all these fields with these values."""
    return all(event.get(key) == value for key, value in fields.items())


def checkpointed_high_watermark(host: Host, log_dir: str, topic: str, partition: int) -> int | None:
    """The high watermark in a node's checkpoint file; None if the file or the partition is missing (yet)."""
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
