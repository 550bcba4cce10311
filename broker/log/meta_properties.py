"""Identity of a data directory: `meta.properties`, the directory's lock, and the mark of a clean shutdown."""

import json
import random
from dataclasses import dataclass, replace

from broker.errors import StartupError
from broker.log.checkpoint import AtomicFile, CorruptCheckpointError
from broker.ports import Disk
from broker.properties import parse_properties
from broker.protocol.uuids import id_text, parse_id, random_id

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
UNKNOWN_EPOCH = -1
_EPOCH_KEY = "brokerEpoch"


@dataclass(frozen=True)
class MetaProperties:
    """`cluster_id` is None until the metadata quorum has committed it (K595-46)."""

    node_id: int
    directory_id: bytes
    cluster_id: str | None = None

    def text(self) -> str:
        lines = ["version=1", f"node.id={self.node_id}", f"directory.id={id_text(self.directory_id)}"]
        if self.cluster_id is not None:
            lines.append(f"cluster.id={self.cluster_id}")
        return "\n".join(lines) + "\n"


def lock_directory(disk: Disk, name: str) -> None:
    """Lock the data directory `name` against other processes. Raises `StartupError` if another process holds the
    lock."""
    try:
        disk.lock(LOCK)
    except BlockingIOError:
        raise StartupError(
            f"{name}/{LOCK}: another process uses this data directory; stop it or give this broker another log.dir"
        ) from None


async def claim_directory(disk: Disk, name: str, node_id: int, rng: random.Random) -> MetaProperties:
    """Claim an empty data directory for this broker, or check that it belongs to it.

    Raises `StartupError` if it belongs to another broker (K595-8) or the file is invalid.
    """
    file = AtomicFile(disk, META_PROPERTIES)
    text = file.read()
    if text is None:
        meta = MetaProperties(node_id, random_id(rng))
        await file.write(meta.text())
        return meta
    place = f"{name}/{META_PROPERTIES}"
    properties = parse_properties(text, place)
    if properties.get("version") != "1":
        raise StartupError(
            f"{place}: version={properties.get('version')} is unknown, only 1 is supported; use a release that fits"
        )
    if properties.get("node.id") != str(node_id):
        raise StartupError(
            f"{place}: the directory belongs to broker {properties.get('node.id')}, this is broker {node_id}; "
            "correct node.id or log.dir"
        )
    try:
        directory_id = parse_id(properties.get("directory.id", ""))
    except ValueError as error:
        raise StartupError(f"{place}: directory.id: {error}; restore the file from a backup") from None
    return MetaProperties(node_id, directory_id, properties.get("cluster.id"))


async def renew_directory_id(disk: Disk, meta: MetaProperties, rng: random.Random) -> MetaProperties:
    """Give a directory that has lost promised data a new id, durably. With its old id it would be trusted (H22).

    Raises `OSError` of the disk.
    """
    renewed = replace(meta, directory_id=random_id(rng))
    await AtomicFile(disk, META_PROPERTIES).write(renewed.text())
    return renewed


async def store_cluster_id(disk: Disk, meta: MetaProperties, cluster_id: str) -> MetaProperties:
    """Store the committed cluster id, durably. Raises `StartupError` if the directory belongs to another cluster."""
    if meta.cluster_id == cluster_id:
        return meta
    if meta.cluster_id is not None:
        raise StartupError(
            f"{META_PROPERTIES}: the directory belongs to cluster {meta.cluster_id}, the quorum's is {cluster_id}; "
            "correct quorum.voters or log.dir"
        )
    stored = replace(meta, cluster_id=cluster_id)
    await AtomicFile(disk, META_PROPERTIES).write(stored.text())
    return stored


async def take_clean_shutdown(disk: Disk) -> int | None:
    """The broker epoch of the last clean stop, -1 if the mark does not contain it; None after an unclean stop.

    The mark is removed, durably, before this process writes anything that it would cover.
    """
    if not disk.exists(CLEAN_SHUTDOWN):
        return None
    try:
        content = json.loads(AtomicFile(disk, CLEAN_SHUTDOWN).read() or "{}")
        epoch = content.get(_EPOCH_KEY, UNKNOWN_EPOCH) if isinstance(content, dict) else UNKNOWN_EPOCH
    except (ValueError, CorruptCheckpointError):
        epoch = UNKNOWN_EPOCH  # the directory was closed cleanly, but the registration is unknown
    disk.unlink(CLEAN_SHUTDOWN)
    await disk.sync_directory("")
    return epoch if isinstance(epoch, int) else UNKNOWN_EPOCH


async def mark_clean_shutdown(disk: Disk, broker_epoch: int) -> None:
    """All logs are closed: the next start may trust their indexes, and the controller may assume that nothing is lost.

    The format is Apache Kafka's: a JSON object with the epoch of this broker's registration (KIP-966).
    """
    file = disk.open(CLEAN_SHUTDOWN, create=True)
    file.append([json.dumps({"version": 0, _EPOCH_KEY: broker_epoch}, separators=(",", ":")).encode()])
    await file.sync()
    file.close()
    await disk.sync_directory("")
