"""Files that state one thing twice: JSON with a repeated key, properties that name two nodes.

The last statement is the run's own, so that a reader that takes it sees no change; a reader that takes the first sees
another run. All checksums are right.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Final

from tests.mutations.mutation import Catalog, unknown
from tests.mutations.stored import Stored

_CHECKED: Final = re.compile(rb'(?P<text>\{.*), "crc": [0-9]+\}')


def _summed(line: bytes, key: bytes) -> bytes:
    """A checked line with another value of a key in front of its own."""
    found = _CHECKED.fullmatch(line)
    assert found is not None
    text = b'{"' + key + b'": 0, ' + found["text"][1:]
    assert text.count(b'"' + key + b'": ') > 1, "the line has no such key"
    return text + b', "crc": %d}' % zlib.crc32(text)


def _in_checked_lines(name: str, key: bytes, line: int = 0) -> Callable[[Stored], None]:
    def change(run: Stored) -> None:
        def twice(data: bytes) -> bytes:
            lines = data.split(b"\n")
            lines[line] = _summed(lines[line], key)
            return b"\n".join(lines)

        run.edit(name, twice)

    return change


def _in_text(name: str, pattern: bytes, replacement: bytes) -> Callable[[Stored], None]:
    def change(run: Stored) -> None:
        run.edit(name, lambda data: re.sub(pattern, replacement, data, count=1))

    return change


def _catalog(base: str, **changes: tuple[Callable[[Stored], None], str]) -> Catalog:
    catalog = Catalog(f"repeated keys in the {base} run", base=base)
    for name, (change, reason) in changes.items():
        catalog.add(name, change, unknown(reason))
    return catalog


LOG: Final = _catalog(
    "log",
    in_the_journal=(_in_checked_lines("history/journal.jsonl", b"t"), "journal.*line 1"),
    a_phase=(_in_checked_lines("history/journal.jsonl", b"event", -2), "journal"),
    in_announcements=(_in_checked_lines("history/operations/producer-1-1.reserved", b"count", 1), "producer-1"),
    whose_announcements=(_in_checked_lines("history/operations/probe-1.reserved", b"client"), "probe"),
    in_a_trace=(_in_text("nodes/n2/events.jsonl", rb"^\{", b'{"node": 1, '), "n2"),
    in_the_elections_state=(
        _in_text("nodes/n1/data/__cluster_metadata-0/quorum-state", rb"^\{", b'{"leaderEpoch": 0, '),
        "quorum-state file of n1",
    ),
    the_node=(_in_text("nodes/n3/data/meta.properties", rb"(?m)^node.id=", b"node.id=1\nnode.id="), "n3"),
    the_cluster=(
        _in_text("nodes/n3/data/meta.properties", rb"(?m)^cluster.id=", b"cluster.id=another\ncluster.id="),
        "n3.*twice",
    ),
    the_topics_id=(
        _in_text("nodes/n2/data/log-1/partition.metadata", rb"(?m)^topic_id:", b"topic_id: A\ntopic_id:"),
        "log-1.*twice|twice.*log-1|n2.*twice",
    ),
)
GROUP: Final = _catalog(
    "group",
    in_a_members_record=(_in_checked_lines("history/groups/member-1.jsonl", b"t", 1), "member-1"),
    whose_record=(_in_checked_lines("history/groups/reader-1.jsonl", b"member"), "reader-1"),
)
REGISTER: Final = _catalog(
    "register",
    in_the_journal=(_in_checked_lines("history/journal.jsonl", b"wall", 3), "journal"),
)
SIMULATED: Final = _catalog(
    "simulated",
    in_the_oracles_record=(_in_text("history/oracles.json", rb"^\{", b'{"findings": [], '), "oracles.json.*twice"),
    in_a_count_of_the_oracles=(
        _in_text("history/oracles.json", rb'"checks": ?\{', b'"checks": {"vote-before-disk": 1, '),
        "oracles.json.*twice",
    ),
    which_simulation=(_in_text("simulation.json", rb"^\{", b'{"seed": 2, '), "simulation.json.*twice"),
    no_number=(_in_text("simulation.json", rb"^\{", b'{"more": NaN, '), "simulation.json.*NaN"),
)
CATALOGS: Final[tuple[Catalog, ...]] = (LOG, GROUP, REGISTER, SIMULATED)
