"""Identifies a Kafka data directory: the node, cluster and topics that its properties name."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from analysis.replicafiles.checkpoints import HIGH_WATERMARKS, read_high_watermarks, read_properties
from analysis.replicafiles.kafka import all_partitions, is_internal, partitions, segments_of
from analysis.replicafiles.log import ReplicaFileError

_VERSIONS = ("0", "1")
"""Of meta.properties: 1 since brokers work without ZooKeeper."""
_SET_ASIDE = re.compile(r"(.+-[0-9]+)\.[^.]+-(delete|stray|future)")


def survey(nodes: Mapping[str, Path]) -> list[str]:
    """Defects of the nodes' data directories as a whole, as sentences. `nodes`: the directories by the nodes' names, in
    the order of their numbers, which start at 1. A directory without partitions is not a broker's and is skipped.
    """
    brokers = {node: data for node, data in nodes.items() if partitions(data)}
    numbers = {node: number for number, node in enumerate(nodes, 1)}
    defects: list[str] = []
    clusters: dict[str, str] = {}
    topics: dict[str, dict[str, str]] = {}
    for node, data in brokers.items():
        try:
            defects += _identity(node, numbers[node], data, clusters)
            defects += _unheld(node, data)
            for topic, partition in all_partitions(data):
                topic_id = (read_properties(data / f"{topic}-{partition}" / "partition.metadata", ":") or {}).get(
                    "topic_id"
                )
                # Most partitions of an internal topic may have never been written.
                if topic_id or not is_internal(topic):
                    topics.setdefault(topic, {})[f"{topic}-{partition} on {node}"] = topic_id or ""
        except ReplicaFileError as error:
            defects.append(f"the files of {node} have a damaged {error}")
        defects += [
            f"{node} has set a replica aside: {path.name}"
            for path in sorted(data.glob("*-*.*-*"))
            if _is_aside(path.name)
        ]
    defects += _differing("the nodes are of different clusters", clusters)
    for topic, ids in sorted(topics.items()):
        if any(ids.values()):
            defects += _differing(f"the replicas of {topic} are of different topics of that name", ids)
    return defects


def survey_earlier(earlier: Mapping[str, Path], later: Mapping[str, Path], *, moved: Collection[int] = ()) -> list[str]:
    """Defects of earlier dumps of these nodes' data directories: they must be of the same node, cluster and topics as
    the directories that were collected `later`. `moved`: the partitions that may have left a node since or joined it,
    as may those of internal topics."""
    defects: list[str] = []
    for node, data in earlier.items():
        try:
            defects += _other_owner(node, data, later[node])
            defects += (f"{doubt}, in its earlier dump" for doubt in _unheld(node, data))
            for topic, partition in all_partitions(data):
                may_move = is_internal(topic) or partition in moved
                defects += _other_topic(node, f"{topic}-{partition}", data, later[node], may_move=may_move)
        except ReplicaFileError as error:
            defects.append(f"the earlier dump of {node} has a damaged {error}")
    return defects


def missing_identities(node: str, data: Path) -> Iterator[str]:
    """Identities that a broker with a metadata log always writes, and that this data directory lacks: the id of its
    cluster, and of the topic of each replica with records."""
    keys = all_partitions(data)
    if keys and not _property(data / "meta.properties", "=", "cluster.id"):
        yield f"meta.properties of {node} has no cluster.id"
    for topic, partition in keys:
        has_records = any(segment.stat().st_size for segment in segments_of((topic, partition), data))
        if has_records and not _property(data / f"{topic}-{partition}" / "partition.metadata", ":", "topic_id"):
            yield f"{topic}-{partition} on {node} has records, but its partition.metadata has no topic_id"


def directory_id(data: Path) -> str:
    """The id of the disk of a data directory; empty without one."""
    return _property(data / "meta.properties", "=", "directory.id")


def _property(path: Path, separator: str, key: str) -> str:
    """Empty if the file does not have it; `survey` reports a damaged file."""
    try:
        return (read_properties(path, separator) or {}).get(key, "")
    except ReplicaFileError:
        return ""


def _other_owner(node: str, earlier: Path, later: Path) -> Iterator[str]:
    before, after = (read_properties(data / "meta.properties", "=") for data in (earlier, later))
    if before is None and after is not None:
        yield f"the earlier dump of {node} does not identify its node: meta.properties is missing"
        return
    for key in ("node.id", "broker.id", "cluster.id", "directory.id"):
        was, became = ((properties or {}).get(key, "none") for properties in (before, after))
        if was != became:
            yield f"the earlier dump of {node} is another's: its {key} is {was}, and in the end it was {became}"


def _other_topic(node: str, name: str, earlier: Path, later: Path, *, may_move: bool) -> Iterator[str]:
    before, after = (read_properties(data / name / "partition.metadata", ":") for data in (earlier, later))
    was, became = ((properties or {}).get("topic_id", "none") for properties in (before, after))
    if was != became and not (may_move and (before is None or after is None)):
        yield f"the earlier dump of {name} on {node} is of the topic {was}, and in the end it was {became}"


def _identity(node: str, number: int, data: Path, clusters: dict[str, str]) -> Iterator[str]:
    """Checks that a data directory belongs to its node; adds the cluster that it names."""
    properties = read_properties(data / "meta.properties", "=")
    if properties is None:
        yield f"the files of {node} do not identify their node: meta.properties is missing"
        return
    if properties.get("version") not in _VERSIONS:
        yield f"the files of {node} have a meta.properties of the unknown version {properties.get('version', 'none')}"
    its_own = properties.get("node.id", properties.get("broker.id", "?"))
    if its_own != str(number):
        yield f"the files of {node} are those of another node: meta.properties names {its_own}, not {number}"
    clusters[node] = properties.get("cluster.id", "")


def _unheld(node: str, data: Path) -> Iterator[str]:
    """High watermarks of partitions that the node holds no replica of. A damaged file is reported by each replica of
    the node."""
    try:
        marks = read_high_watermarks(data / HIGH_WATERMARKS) or {}
    except ReplicaFileError:
        return
    for topic, partition in sorted(marks):
        if not (data / f"{topic}-{partition}").is_dir():
            yield f"{node} has a high watermark of {topic}-{partition}, but no replica of it"


def _is_aside(name: str) -> bool:
    return _SET_ASIDE.fullmatch(name) is not None and not name.startswith("__")


def _differing(sentence: str, ids: Mapping[str, str]) -> list[str]:
    """The sentence with two witnesses, if these are not all equal."""
    if len(set(ids.values())) < 2:
        return []
    first, *other_owners = ids
    other = next(owner for owner in other_owners if ids[owner] != ids[first])
    return [f"{sentence}: {ids[first] or 'none'} ({first}), {ids[other] or 'none'} ({other})"]
