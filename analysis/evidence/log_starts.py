"""Where the logs of replicas start in the end, by their nodes' files."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from analysis.core.deletion_rules import ReplicaStart
from analysis.core.offset_ranges import Key
from analysis.replicafiles.kafka import LOG_STARTS, log_start, read_remote, segments_of
from analysis.replicafiles.log import ReplicaFileError


def final_starts(
    places: Mapping[str, Path],
    replicas: Mapping[Key, Iterable[str]],
    answered: Mapping[Key, int],
    *,
    store: Path | None,
    at_s: float,
) -> tuple[list[ReplicaStart], list[str]]:
    """The starts, and the files that could not be read, as sentences. `places`: the nodes' data directories;
    `replicas`: the nodes of each partition; `answered`: the starts that deletions were answered with; `store`: the
    directory of remote objects, None without any; `at_s`: when the nodes stopped, in seconds of the run."""
    starts, doubts = list[ReplicaStart](), list[str]()
    for key, nodes in sorted(replicas.items()):
        remote = read_remote(places, store, key) if store is not None else None
        for node in nodes:
            place = places[node]
            segments = segments_of(key, place) if place.is_dir() else []
            if not segments:
                continue  # the checker of replicas reports that the replica is missing
            first = int(segments[0].stem)
            try:
                start = log_start(key, place, first, remote)
            except ReplicaFileError as error:
                doubts.append(f"{node} has a damaged {error}")
                continue
            if start < answered.get(key, 0) and not (place / LOG_STARTS).is_file():
                doubts.append(f"{node} has no {LOG_STARTS}, so the start of {key[0]}-{key[1]} is not known there")
                continue
            size = sum(segment.stat().st_size for segment in segments)
            for remote_segment in remote.finished if remote is not None else ():
                size += remote_segment.size if start <= remote_segment.start < first else 0
            starts.append(ReplicaStart(node, key, start, at_s, size))
    return starts, doubts
