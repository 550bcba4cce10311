"""One member of the metadata quorum: its files and its trace events, and how witnesses show both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analysis.core.anomaly import Anomaly
from analysis.evidence.traces import Event, Trace
from analysis.replicafiles.kraft import PARTITION, TOPIC, LeaderChange, MetadataReplica, QuorumStateFile

Row = dict[str, Any]

STATE_FILE: Final = "quorum-state file"


@dataclass(frozen=True)
class QuorumMember:
    """`at_rest`: its process had stopped cleanly before its files were read, so they are its final state.
    `disks_replaced`: how many faults have replaced the node's disk, according to the journal."""

    node: str
    replica: MetadataReplica
    trace: Trace
    at_rest: bool
    disks_replaced: int = 0

    def events_named(self, *names: str) -> Iterator[Event]:
        """Its trace's events of these names, in order."""
        for process in self.trace.processes:
            yield from (event for event in process if event["event"] in names)

    def elections(self) -> Iterator[tuple[LeaderChange, Row]]:
        """The control records that opened epochs, with their votes: those in its log, and those that it reported as
        committed. A log no longer has them once a snapshot has replaced them."""
        yield from ((change, self.change_row(change)) for change in self.replica.leader_changes)
        for event in self.events_named("quorum_leader_change"):
            if "voters" in event and "granting" in event:
                votes = tuple(event["voters"]), tuple(event["granting"])
                yield LeaderChange(event["offset"], event["epoch"], event["leader"], *votes), self.event_row(event)

    def event_row(self, event: Event) -> Row:
        fields = {key: value for key, value in event.items() if key not in ("event", "node", "seq")}
        return {"op": event["event"], "node": self.node, "topic": TOPIC, "partition": PARTITION, **fields}

    def state_row(self, state: QuorumStateFile) -> Row:
        content = {"epoch": state.epoch, "leader": state.leader, "voted": state.voted}
        return {"op": STATE_FILE, "node": self.node, "topic": TOPIC, "partition": PARTITION, **content}

    def change_row(self, change: LeaderChange) -> Row:
        content = {"offset": change.offset, "epoch": change.epoch, "leader": change.leader}
        votes = {"voters": list(change.voters), "granting": list(change.granting)}
        return {"op": "leader change", "node": self.node, "topic": TOPIC, "partition": PARTITION, **content, **votes}

    def end_row(self) -> Row:
        end = -1 if self.replica.log is None else self.replica.log.end
        return {"op": "log end", "node": self.node, "topic": TOPIC, "partition": PARTITION, "offset": end}


def voters_of(members: Sequence[QuorumMember]) -> frozenset[int]:
    """The node ids of the voters, as the logs and the quorum-state files name them."""
    changes = {voter for member in members for change, _ in member.elections() for voter in change.voters}
    states = (member.replica.state for member in members)
    return frozenset(changes | {voter for state in states if state is not None for voter in state.voters})


def anomaly(name: str, sentence: str, witness: Sequence[Row], count: int = 1) -> Anomaly:
    """A finding about the metadata log."""
    return Anomaly(name, TOPIC, PARTITION, sentence, tuple(witness), count)
