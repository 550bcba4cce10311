"""A broker's data directory while its process uses it: locked, checked, and its metadata log recovered."""

import random
from dataclasses import dataclass
from functools import partial

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.log.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    claim_directory,
    lock_directory,
    mark_clean_shutdown,
    renew_directory_id,
    store_cluster_id,
    take_clean_shutdown,
)
from broker.log.recovery import base_offsets
from broker.log.recovery_points import RecoveryPoints
from broker.ports import Disk
from broker.quorum.election_state import QUORUM_STATE
from broker.quorum.wire import METADATA_TOPIC

METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"


@dataclass(eq=False)
class NodeDirectory:
    """The recovered content of the directory; `open` makes it. `closed_in_epoch`: the broker epoch in which the
    previous process closed it cleanly, None when it did not."""

    _disk: Disk
    _meta: MetaProperties
    closed_in_epoch: int | None
    metadata_log: PartitionLog
    recovery_points: RecoveryPoints

    @classmethod
    async def open(cls, disk: Disk, config: BrokerConfig, rng: random.Random) -> "NodeDirectory":
        """Lock and recover the directory.

        Raises `StartupError` when this broker must not run here, `DamagedLogError` for the metadata log (a node that
        continued without lost metadata would forget topics, vote for leaders that lack records, and finally delete
        data), `OSError` of the disk."""
        lock_directory(disk, config.log_dir)
        is_new = not disk.exists(META_PROPERTIES)
        meta = await claim_directory(disk, config.log_dir, config.node_id, rng)
        if config.cluster_id is not None and meta.cluster_id not in (None, config.cluster_id):
            raise StartupError(
                f"{config.log_dir}/{META_PROPERTIES}: the directory belongs to cluster {meta.cluster_id}, "
                f"cluster.id is {config.cluster_id}; correct cluster.id or log.dir"
            )
        closed_in_epoch = await take_clean_shutdown(disk)
        key, points = (METADATA_TOPIC, 0), RecoveryPoints(disk)
        if not is_new and _has_forgotten(disk, config):
            meta = await renew_directory_id(disk, meta, rng)
            if not base_offsets(disk, METADATA_DIRECTORY):
                await points.forget(key)  # the log of this entry was removed, too
        log = await PartitionLog.open(
            disk,
            METADATA_DIRECTORY,
            LogConfig.from_broker(config),
            clean_shutdown=closed_in_epoch is not None,
            recovery_point=points.of(key),
        )
        points.watch(key, log)
        log.before_cut = partial(points.lower, key)
        return cls(disk, meta, closed_in_epoch, log, points)

    @property
    def id(self) -> bytes:
        """`directory.id`, 16 bytes."""
        return self._meta.directory_id

    @property
    def cluster_id(self) -> str | None:
        """The cluster id stored in the directory."""
        return self._meta.cluster_id

    async def remember_cluster(self, cluster_id: str) -> None:
        """Store the cluster id, if it is new. Raises `StartupError`, `OSError`."""
        self._meta = await store_cluster_id(self._disk, self._meta, cluster_id)

    async def close(self) -> None:
        """Make the metadata log durable and close it."""
        await self.metadata_log.close()

    async def mark_closed(self, broker_epoch: int) -> None:
        """Record for the next process that everything is durable as of this broker epoch. Raises `OSError`."""
        await mark_clean_shutdown(self._disk, broker_epoch)


def _has_forgotten(disk: Disk, config: BrokerConfig) -> bool:
    """Whether the quorum's files existed here and are lost. Other nodes rely on the votes and records in them, so this
    disk is not the one with which the node voted (H22, KIP-853).

    A voter writes its quorum-state before it takes part. If its first start ended before that, no other node knows this
    disk yet. A single voter is excepted: no other node relies on it, and none could restore what is lost.
    """
    is_alone = all(voter.id == config.node_id for voter in config.voters)
    return not is_alone and not disk.exists(f"{METADATA_DIRECTORY}/{QUORUM_STATE}")
