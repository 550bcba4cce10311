"""Reads a simulated run's recorded messages for the space-time plots."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from analysis.core.anomaly import Anomaly
from analysis.evidence.run_directory import moment, node_events, node_names
from analysis.plots.spacetime import Arrow, Mark, Spacetime, Stretch
from analysis.plots.view import PlotData
from history import strict_json
from history.regular_files import open_regular
from history.schemas import INF

FILE_NAME: Final = "messages.jsonl"
_NS: Final = 1e9
_SHARES: Final = {
    "Fetch": "replication",
    "OffsetForLeaderEpoch": "replication",
    "Produce": "clients",
    "ListOffsets": "clients",
    "Vote": "election",
    "BeginQuorumEpoch": "election",
    "EndQuorumEpoch": "election",
}
"""The family of each kind of message; all others are the controller's."""
_CLIENTS: Final = "clients"
_DOWN: Final = {"kill": "killed", "stop": "stopped", "power-loss": "no power", "power-loss-all": "no power"}
_STILL: Final = {"pause": "paused", "stall": "stalled", "clock-freeze": "frozen"}


def spacetime_of(run_dir: Path, view: PlotData, anomalies: tuple[Anomaly, ...]) -> Spacetime | None:
    """The nodes' roles for one partition (the first anomaly's, if it has one), with all messages; None if the run did
    not record messages. Raises `OSError`, `ValueError`."""
    if not (run_dir / FILE_NAME).exists():
        return None
    nodes = tuple(node_names(run_dir))
    events = {node: list(node_events(run_dir, node)) for node in nodes}
    topic, partition = _partition(anomalies, events)
    stretches: list[Stretch] = []
    marks: list[Mark] = []
    for node in nodes:
        stretches += _stretches(node, events[node], view, topic, partition)
        marks += _marks(node, events[node], view, topic, partition)
    return Spacetime(
        nodes=nodes,
        where=f"{topic}-{partition}" if topic else "",
        stretches=tuple(stretches),
        marks=tuple(sorted(marks, key=lambda mark: mark.at_s)),
        arrows=tuple(_arrows(run_dir, nodes)),
        bands=view.bands,
        end_s=view.end,
        guilty_s=_guilty(anomalies, view),
    )


def _partition(anomalies: tuple[Anomaly, ...], events: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[str, int]:
    """The partition whose leaders are shown: the first anomaly's, or the one whose leader changed most often."""
    for anomaly in anomalies:
        if anomaly.topic and anomaly.partition >= 0:
            return anomaly.topic, anomaly.partition
    led: dict[tuple[str, int], int] = {}
    for event in (each for of_node in events.values() for each in of_node):
        if event["event"] == "partition_role" and event["role"] == "leader":
            key = event["topic"], event["partition"]
            led[key] = led.get(key, 0) + 1
    return max(sorted(led), key=lambda key: led[key], default=("", 0))


def _guilty(anomalies: tuple[Anomaly, ...], view: PlotData) -> float | None:
    """The invocation of the first operation that contradicts others."""
    moments = [row["inv"] for anomaly in anomalies[:1] for row in anomaly.witness if 0 <= row.get("inv", -1) < INF]
    return (min(moments) - view.origin) / _NS if moments else None


def _is_of(event: Mapping[str, Any], topic: str, partition: int) -> bool:
    return event.get("topic") == topic and event.get("partition") == partition


def _seconds(event: Mapping[str, Any], view: PlotData) -> float:
    return (moment(event) - view.wall_ns) / _NS


def _stretches(
    node: str, events: Sequence[Mapping[str, Any]], view: PlotData, topic: str, partition: int
) -> Iterator[Stretch]:
    """A node's role for the partition, from event to event, overlaid with the times without a process."""
    roles = [
        (_seconds(event, view), event)
        for event in events
        if event["event"] == "broker_started"
        or (event["event"] == "partition_role" and _is_of(event, topic, partition))
    ]
    for number, (begins, event) in enumerate(roles):
        ends = roles[number + 1][0] if number + 1 < len(roles) else view.end
        yield Stretch(node, begins, ends, str(event.get("role", "up")), int(event.get("leader_epoch", -1)))
    for band in view.bands:
        how = _DOWN.get(band.kind) or _STILL.get(band.kind)
        if how and node in band.targets:
            yield Stretch(node, band.start, band.end, how, -1)


def _marks(
    node: str, events: Sequence[Mapping[str, Any]], view: PlotData, topic: str, partition: int
) -> Iterator[Mark]:
    for event in events:
        at_s, name = _seconds(event, view), event["event"]
        if name == "controller_active":
            yield Mark(node, at_s, f"controller, epoch {event['epoch']}", "controller")
        elif name == "partition_role" and _is_of(event, topic, partition) and event["role"] == "leader":
            yield Mark(node, at_s, f"leads, epoch {event['leader_epoch']}", "leader")
        elif name == "isr_changed" and _is_of(event, topic, partition):
            yield Mark(node, at_s, f"ISR {', '.join(f'n{member}' for member in event['isr'])}", "isr")
        elif name == "truncated" and _is_of(event, topic, partition) and event["from_offset"] != event["to_offset"]:
            yield Mark(node, at_s, f"truncates {event['from_offset']} to {event['to_offset']}", "truncated")
        elif name == "log_shortened" and _is_of(event, topic, partition):
            yield Mark(node, at_s, f"log ends at {event['log_end_offset']}", "truncated")


def _arrows(run_dir: Path, nodes: tuple[str, ...]) -> Iterator[Arrow]:
    with io.BufferedReader(open_regular(run_dir / FILE_NAME)) as file:
        for said in map(strict_json.decode, file):
            source, target = (_lane(said[end], nodes) for end in ("source", "target"))
            if source == target:
                continue
            lost = said.get("arrived_s") is None
            if said.get("routine") and not lost:
                continue
            family = _CLIENTS if _CLIENTS in (source, target) else _SHARES.get(said["what"], "controller")
            text = f"{said['what']} {said.get('text', '')}".strip()
            yield Arrow(source, target, said["sent_s"], said.get("arrived_s"), family, said["answer"], text)


def _lane(host: str, nodes: tuple[str, ...]) -> str:
    return host if host in nodes else _CLIENTS
