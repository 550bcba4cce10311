"""The deletions of records that clients asked for (DeleteRecords), from the journal.

A request is in the journal before it is sent. So a record below the highest requested offset of its partition may be
missing lawfully, whatever became of the requests, and one at this offset or above may not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from analysis.core.offset_ranges import Key
from history.journal.writer import DELETION_SENT, RECORDS_DELETED
from history.record.schemas import INF


class Deletion(NamedTuple):
    """A request to delete the records of a partition below an offset. `answered`: the time of a successful answer, ns,
    INF without one; `low_watermark`: what it stated."""

    client: str
    number: int
    partition: int
    offset: int
    answered: int = INF
    low_watermark: int = -1

    @property
    def is_answered(self) -> bool:
        return self.answered < INF


@dataclass(frozen=True)
class Deletions:
    """All requests of a run, in the order of their answers. `defects`: what the journal says of deletions and cannot
    be, as sentences."""

    topic: str
    requests: tuple[Deletion, ...] = ()
    defects: tuple[str, ...] = ()

    @property
    def requested(self) -> Mapping[Key, int]:
        """By partition, the highest offset below which records may have been deleted."""
        return self._highest((request.partition, request.offset) for request in self.requests)

    @property
    def answered(self) -> Mapping[Key, int]:
        """By partition, the highest offset below which all records are deleted for good."""
        return self._highest(
            (request.partition, request.low_watermark) for request in self.requests if request.is_answered
        )

    def _highest(self, offsets: Iterable[tuple[int, int]]) -> Mapping[Key, int]:
        highest: dict[Key, int] = {}
        for partition, offset in offsets:
            key = self.topic, partition
            highest[key] = max(highest.get(key, 0), offset)
        return highest


def deletions_of(topic: str, journal: Iterable[Mapping[str, Any]]) -> Deletions:
    """The deletions in a journal."""
    by_request: dict[tuple[str, int], Deletion] = {}
    defects = []
    for line in journal:
        if line["event"] not in (DELETION_SENT, RECORDS_DELETED):
            continue
        key = line["client"], line["number"]
        request, name = by_request.get(key), f"request {line['number']} of {line['client']} to delete records"
        if line["event"] == DELETION_SENT:
            if request is not None:
                defects.append(f"the journal has {name} twice")
            by_request[key] = Deletion(*key, line["partition"], line["offset"])
        elif request is None or request.is_answered:
            defects.append(f"the journal has {'no' if request is None else 'two answers to'} {name}")
        elif (line["low_watermark"] < 0) != bool(line["error"]):
            defects.append(f"the journal has a contradictory answer to {name}")
        elif not line["error"]:
            by_request[key] = request._replace(answered=line["t"], low_watermark=line["low_watermark"])
    requests = sorted(by_request.values(), key=lambda deletion: (deletion.answered, deletion.client, deletion.number))
    return Deletions(topic, tuple(requests), tuple(defects))
