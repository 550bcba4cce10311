"""Apache Kafka with ZooKeeper, 0.10 to 3.9: jars and a Java on the nodes, ZooKeeper's own record to look at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from installation.files import cache_directory
from systems.apache_kafka_zk.observer import ZooKeeperObserver
from systems.apache_kafka_zk.znodes import ZooKeeperClient
from systems.catalog import lock_path
from systems.description import Description
from systems.files import FileCache
from systems.java import find_java
from systems.lock_file import Lock
from systems.service import Place
from systems.system import System
from systems.view import Member

OLDEST_JAVA = 11
ZOOKEEPER = "zookeeper"


class ZooKeeperKafka(System):
    """Nodes are brokers or ZooKeepers, none is both."""

    has_controller = True
    has_partitions = True
    has_elections = True

    def __init__(self, description: Description, version: str | None = None) -> None:
        super().__init__(description, version)
        self._cache = FileCache(cache_directory() / "systems")

    @cached_property
    def _lock(self) -> Lock:
        return Lock.read(lock_path(self.description.directory, self.version), self.name, self.version)

    @property
    def files_dir(self) -> str:
        return str(self._cache.directory(self._lock))

    def prepare(self, on_progress: Callable[[str], None] | None = None) -> None:
        """Raises `InputError` when a file of the version, or a Java, is missing."""
        del on_progress
        self._cache.use(self._lock)
        find_java(OLDEST_JAVA)

    @cached_property
    def _java(self) -> Path:
        """This machine's Java, where it really lies. Raises `InputError`."""
        return find_java(OLDEST_JAVA).program.resolve()

    def variables(self, node: Place, cluster_id: str = "") -> dict[str, Any]:
        """`java`, and for nodes that see this machine's files `java_home` and `java_settings`, the directory outside of
        it that its configuration lies in (empty: none). `has_admin`: whether this ZooKeeper would open a port more."""
        del cluster_id
        has_admin = int(self.version.split(".")[0]) >= 3
        if not node.is_local:
            return {"java": "java", "java_home": "", "java_settings": "", "has_admin": has_admin}
        home = self._java.parents[1]
        # Debian keeps a Java's configuration under /etc, and links to its files one by one.
        settings = (home / "conf" / "net.properties").resolve().parent
        return {
            "java": str(self._java),
            "java_home": str(home),
            "java_settings": "" if settings.is_relative_to(home) else str(settings),
            "has_admin": has_admin,
        }

    def observe(self, members: Sequence[Member], topic: str, time_scale: float = 1.0) -> ZooKeeperObserver:
        zookeepers = [member for member in members if member.role == ZOOKEEPER]
        client = ZooKeeperClient([f"{each.address}:{each.port}" for each in zookeepers], time_scale)
        return ZooKeeperObserver(members, topic, client, time_scale)
