"""Reads the text files that Kafka keeps next to its logs: checkpoints, and properties that identify a directory."""

import re
from pathlib import Path
from typing import Final

from analysis.replicafiles.log import ReplicaFileError
from history.regular_files import read_text

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,18})")


def read_epochs(path: Path) -> tuple[tuple[int, int], ...] | None:
    """Entries (epoch, start offset) of a `leader-epoch-checkpoint` in the file's order; None without such a file.
    Raises ReplicaFileError."""
    entries = _checkpoint(path, 2)
    return None if entries is None else tuple((_natural(path, entry[0]), _natural(path, entry[1])) for entry in entries)


def read_high_watermarks(path: Path) -> dict[tuple[str, int], int] | None:
    """The high watermarks of a `replication-offset-checkpoint` by partition; None without such a file. Apache Kafka
    creates the file empty (`CheckpointFile`) and first writes it after an interval: then it has none. Raises
    ReplicaFileError."""
    if _text(path) == "":
        return {}
    entries = _checkpoint(path, 3)
    if entries is None:
        return None
    marks = {(topic, _natural(path, partition)): _natural(path, offset) for topic, partition, offset in entries}
    if len(marks) != len(entries):
        raise ReplicaFileError(f"{path.name}: not a checkpoint file: a partition is in it twice")
    return marks


def read_remote_start(path: Path) -> int | None:
    """The offset in a file `remote-log-start` of Brownout; None without such a file. Raises ReplicaFileError."""
    text = _text(path)
    if text is None:
        return None
    if not text.endswith("\n"):
        raise ReplicaFileError(f"{path.name}: not the start of a log: it ends in the middle of a line")
    return _natural(path, text[:-1], "not the start of a log")


def read_properties(path: Path, separator: str) -> dict[str, str] | None:
    """The lines `key <separator> value` of a file, without comments; None without such a file. Raises
    ReplicaFileError."""
    text = _text(path)
    if text is None:
        return None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    pairs = [line.partition(separator) for line in lines]
    if not pairs or any(not middle for _, middle, _ in pairs):
        raise ReplicaFileError(f"{path.name}: not lines of the form key{separator}value")
    properties = {key.strip(): value.strip() for key, _, value in pairs}
    if len(properties) != len(pairs):
        raise ReplicaFileError(f"{path.name}: a key is given twice")
    return properties


def _checkpoint(path: Path, columns: int) -> list[list[str]] | None:
    """A file with a version (0), the number of entries, and one entry per line. Each line ends in a newline; otherwise
    the file is torn."""
    text = _text(path)
    if text is None:
        return None
    *lines, torn = text.split("\n")
    if torn or len(lines) < 2:
        raise ReplicaFileError(f"{path.name}: not a checkpoint file: it ends in the middle of a line, or too early")
    version, announced, *entry_lines = lines
    if version != "0" or announced != str(len(entry_lines)):
        difference = f"version {version}, {announced} entries announced, {len(entry_lines)} found"
        raise ReplicaFileError(f"{path.name}: not a checkpoint file: {difference}")
    entries = [line.split(" ") for line in entry_lines]
    for number, entry in enumerate(entries, start=1):
        if len(entry) != columns:
            difference = f"entry {number} has {len(entry)} columns instead of {columns}"
            raise ReplicaFileError(f"{path.name}: not a checkpoint file: {difference}")
    return entries


def _natural(path: Path, text: str, kind: str = "not a checkpoint file") -> int:
    if _NUMBER.fullmatch(text) is None or int(text) < 0:
        raise ReplicaFileError(f"{path.name}: {kind}: {text!r} is neither an epoch nor an offset")
    return int(text)


def _text(path: Path) -> str | None:
    try:
        return read_text(path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ReplicaFileError(f"{path.name}: cannot be read: {error}") from error
