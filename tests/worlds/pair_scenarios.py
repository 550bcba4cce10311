"""Pairs of faults on the nodes of the namespace world, inside the sandbox of a test."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from analysis.checkers.faults import fault_doubts
from history.journal.writer import Journal
from nemeses import Evidence, Nemesis
from orchestrator.running.faults import FaultLog
from orchestrator.running.progress import Progress
from orchestrator.worlds.namespaces.lab import NamespaceWorld
from systems.service import Place
from tests.orchestrator.unwatched import Unwatched
from tests.worlds.fault_rows import Row
from tests.worlds.support import specification, stand_in_properties

OBJECTS: Final = 3


def configure(node: Place) -> str:
    return f"{stand_in_properties(node)}# {node.shared_dir}\n"


def pairs_of(run_dir: str, one: str, *others: str) -> Any:
    """A fault with others on the same node. Each of these is a row and, after a colon, which fault is healed first; by
    these texts, whether the second fault was prevented, and what is wrong."""
    made = NamespaceWorld(specification(Path(run_dir), configure=configure))
    made.up()
    try:
        made.start_services()
        for number in range(OBJECTS):
            path = Path(run_dir, "shared", "log-0", f"{number:020d}-id.log")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(bytes([number]) * 10_000)
            path.with_suffix(".index").write_bytes(bytes([number]))  # the cluster has not deleted the segment
        row = Row(*one.split())
        return {each: _play(made, Path(run_dir, each), row, *_order(each)) for each in others}
    finally:
        made.down()


def _order(text: str) -> tuple[Row, str]:
    row, _, order = text.partition(":")
    return Row(*row.split()), order


def _play(made: NamespaceWorld, directory: Path, one: Row, other: Row, order: str) -> dict[str, Any]:
    nemesis, names = Nemesis(made.site), tuple(made.hosts)
    armed = nemesis.arm()
    faults = one.drawn(0.3, names), other.drawn(0.8, names)
    healed, left = faults if order == "first" else faults[::-1]
    with Journal(directory) as journal:
        log = FaultLog(nemesis, journal, Progress(quiet=True), Unwatched())  # type: ignore[arg-type]
        first, second = (log.inject(fault) for fault in faults)
        log.heal(lambda fault: fault is healed)
        log.heal(lambda fault: fault is left)
        log.heal_all()
    lines = [json.loads(line) for line in (directory / "history" / "journal.jsonl").read_text().splitlines()]
    wrong = [*fault_doubts(lines, finished=True), *_unconfirmed(armed, first)]
    return {"prevented": _prevented(second), "wrong": wrong, "lines": lines if wrong else []}


def _prevented(seen: Evidence) -> bool:
    return seen.status == "prevented" or "prevented_by" in seen.detail.get("n1", {})


def _unconfirmed(*evidence: Evidence) -> Iterator[str]:
    return (str(each) for each in evidence if not each.confirmed)


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
