"""Whose data a directory holds: `meta.properties`, the directory's lock, and the mark of a clean shutdown."""

from __future__ import annotations

import random
from dataclasses import dataclass
from uuid import UUID

from broker.config import parse_properties
from broker.errors import StartupError
from broker.log.checkpoint import AtomicFile
from broker.ports import Disk

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"


@dataclass(frozen=True)
class MetaProperties:
    """`cluster_id` is None until the metadata quorum has committed it (K595-46)."""

    node_id: int
    directory_id: str
    cluster_id: str | None = None

    def text(self) -> str:
        lines = ["version=1", f"node.id={self.node_id}", f"directory.id={self.directory_id}"]
        if self.cluster_id is not None:
            lines.append(f"cluster.id={self.cluster_id}")
        return "\n".join(lines) + "\n"


def lock_directory(disk: Disk, name: str) -> None:
    """Keep other processes out of the data directory `name`. Raises `StartupError` when one is in it."""
    try:
        disk.lock(LOCK)
    except BlockingIOError:
        raise StartupError(
            f"{name}/{LOCK}: another process uses this data directory; stop it or give this broker another log.dir"
        ) from None


async def claim_directory(disk: Disk, name: str, node_id: int, rng: random.Random) -> MetaProperties:
    """Make an empty data directory this broker's, or check that it already is.

    Raises `StartupError` when it belongs to another broker (K595-8) or the file cannot be understood.
    """
    file = AtomicFile(disk, META_PROPERTIES)
    text = file.read()
    if text is None:
        meta = MetaProperties(node_id, str(UUID(int=rng.getrandbits(128), version=4)))
        await file.write(meta.text())
        return meta
    where = f"{name}/{META_PROPERTIES}"
    properties = parse_properties(text, where)
    if properties.get("version") != "1":
        raise StartupError(
            f"{where}: version={properties.get('version')} is not known, only 1 is; use a fitting release"
        )
    if properties.get("node.id") != str(node_id):
        raise StartupError(
            f"{where}: the directory belongs to broker {properties.get('node.id')}, this is broker {node_id}; "
            "correct node.id or log.dir"
        )
    if not properties.get("directory.id"):
        raise StartupError(f"{where}: directory.id is missing; restore the file from a backup")
    return MetaProperties(node_id, properties["directory.id"], properties.get("cluster.id"))


async def store_cluster_id(disk: Disk, meta: MetaProperties, cluster_id: str) -> MetaProperties:
    """Remember the committed cluster id, durably. Raises `StartupError` when the directory is of another cluster."""
    if meta.cluster_id == cluster_id:
        return meta
    if meta.cluster_id is not None:
        raise StartupError(
            f"{META_PROPERTIES}: the directory belongs to cluster {meta.cluster_id}, the quorum's is {cluster_id}; "
            "correct quorum.voters or log.dir"
        )
    stored = MetaProperties(meta.node_id, meta.directory_id, cluster_id)
    await AtomicFile(disk, META_PROPERTIES).write(stored.text())
    return stored


async def take_clean_shutdown(disk: Disk) -> bool:
    """Whether the last stop was clean. The mark goes, durably, before anything is written that it would vouch for."""
    if not disk.exists(CLEAN_SHUTDOWN):
        return False
    disk.unlink(CLEAN_SHUTDOWN)
    await disk.sync_directory("")
    return True


async def mark_clean_shutdown(disk: Disk) -> None:
    """All logs are closed: the next start may trust their indexes."""
    file = disk.open(CLEAN_SHUTDOWN, create=True)
    await file.sync()
    file.close()
    await disk.sync_directory("")
