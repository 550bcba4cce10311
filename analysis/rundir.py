"""A run's directory as the analysis reads it: what was planned, what the nodes left behind."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.verdict import Expectation


class RunDirectoryError(Exception):
    """A directory that is no run, or whose description cannot be read; the message names the file and the remedy."""


@dataclass(frozen=True)
class Requirements:
    """What must have happened for a pass to mean something.

    `upper_bound`: how strictly queries bound the log's length from above (`strict`, `session`, `lower-bound-only`).
    `min_ok`: acknowledged appends, or writes of registers. `required_faults`: kinds that must have been confirmed at
    least once.
    """

    upper_bound: str = "strict"
    min_ok: int = 1
    required_faults: tuple[str, ...] = ()
    final_reads: bool = True
    replicas: bool = True


@dataclass(frozen=True)
class RunDescription:
    """What `run.toml` says of one cell of the matrix.

    `judge`: what the clients' operations are on, and so which checker judges them. `replica_format`: of the nodes'
    files, a name in `replicafiles.formats` or `none`. Both have the values that runs had before they were written down.
    """

    run: str
    campaign: str
    cell: str
    seed: int
    world: str
    nodes: int
    mutants: tuple[str, ...]
    expected: Expectation
    requirements: Requirements
    limits: tuple[str, ...]
    replay: str
    versions: dict[str, str]
    judge: str = "log"
    replica_format: str = "kafka"


def describe(run_dir: Path) -> RunDescription:
    """Read `run.toml`. Raises `RunDirectoryError` when there is none or it cannot be understood."""
    path = run_dir / "run.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunDirectoryError(
            f"{run_dir} is not a run: it has no run.toml; runs lie in store/<campaign>/<run>"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise RunDirectoryError(f"{path}: {error}") from error
    checks, expect = content.get("checks", {}), content.get("expect", {})
    workload = content.get("workload", {})
    judge = str(workload.get("judge", workload.get("kind", RunDescription.judge)))
    return RunDescription(
        run=run_dir.name,
        campaign=str(content.get("campaign", run_dir.parent.name)),
        cell=str(content.get("cell", "")),
        seed=int(content.get("seed", 0)),
        world=str(content.get("world", "unknown")),
        nodes=int(content.get("topology", {}).get("nodes", 0)),
        mutants=tuple(content.get("mutants", ())),
        expected=Expectation(verdict=expect.get("verdict", "pass"), anomaly=expect.get("anomaly") or None),
        requirements=Requirements(
            upper_bound=checks.get("upper_bound", "strict"),
            min_ok=int(checks.get("min_ok", 1)),
            required_faults=tuple(checks.get("required_faults", ())),
            final_reads=bool(checks.get("final_reads", True)),
            replicas=bool(checks.get("replicas", True)),
        ),
        limits=tuple(content.get("limits", ())),
        replay=str(content.get("replay", "")),
        versions={str(key): str(value) for key, value in content.get("versions", {}).items()},
        judge=judge,
        replica_format=str(content.get("replicas", {}).get("format", "kafka" if judge == "log" else "none")),
    )


def node_names(run_dir: Path) -> list[str]:
    """The nodes whose files were collected, sorted."""
    root = run_dir / "nodes"
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def moment(event: Mapping[str, Any]) -> int:
    """When an event was, in nanoseconds: by the clock of who saw it come, where that was noted, for a node's own clock
    may have been set wrong on purpose."""
    return int(event.get("seen", event["wall"]))


def node_events(run_dir: Path, node: str) -> list[dict[str, Any]]:
    """A node's protocol events in order; a torn last line (the node was killed while writing it) is left out."""
    path = run_dir / "nodes" / node / "events.jsonl"
    if not path.exists():
        return []
    events = []
    for line in path.read_bytes().split(b"\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event and "wall" in event:
            events.append(event | {"on": node})
    return events
