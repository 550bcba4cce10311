"""The shape of a stored run: the names of its files, and the keys, columns and types inside them.

Two runs of one campaign have the same shape whenever they were made by the same code. Offsets in names of files are
replaced by a placeholder. What depends on the speed of the machine is not part of the shape: how often an event occurs,
and notes of the run loop. What an analysis writes is not part of it either.
"""

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from history.checksummed_lines import read_lines
from tests.mutations.base_runs import DERIVED

Shape = Mapping[str, frozenset[str]]
"""By file or kind of event: names of keys and columns, with their types."""


def shape(run: Path) -> Shape:
    """The shape of a run's evidence and description."""
    names = [path.relative_to(run) for path in run.rglob("*") if path.is_file()]
    files = {_general(name.as_posix()): _inside(run / name) for name in names if name.parts[0] not in DERIVED}
    return {**files, **_of_events(run)}


def _general(name: str) -> str:
    """A file's name without what differs between runs: offsets of segments and snapshots."""
    return re.sub(r"\d{20}(-\d{10})?", "OFFSET", name)


def _inside(path: Path) -> frozenset[str]:
    if path.suffix == ".arrows":
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            return frozenset(f"{field.name}: {field.type}" for field in stream.schema)
    if path.suffix == ".toml":
        return frozenset(_keys(tomllib.loads(path.read_text(encoding="utf-8"))))
    if path.suffix == ".json":
        return frozenset(_keys(json.loads(path.read_text(encoding="utf-8"))))
    if path.suffix == ".properties":
        lines = path.read_text(encoding="utf-8").splitlines()
        return frozenset(line.partition("=")[0] for line in lines if "=" in line)
    return frozenset()


def _keys(content: object, inside: str = "") -> Iterator[str]:
    """Dotted keys, with the types of their values; entries that are files stand for each other."""
    if not content and isinstance(content, dict | list):
        yield f"{inside}: empty"
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from _keys(value, f"{inside}.{'FILE' if '/' in key or '.' in key else key}")
    elif isinstance(content, list):
        for value in content:
            yield from _keys(value, f"{inside}[]")
    else:
        yield f"{inside}: {type(content).__name__}"


def _of_events(run: Path) -> Shape:
    """The keys of each kind of event in the journal."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for _, line in read_lines(run / "history" / "journal.jsonl").contents:
        if line["event"] != "note":
            kinds[f"event {line['event']}"] |= line.keys()
    return {kind: frozenset(keys) for kind, keys in kinds.items()}
