"""The oracles' view of a machine: its permanent disk, and the broker that runs on it now."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from broker.controller.image import MetadataImage
from broker.server.broker_node import BrokerNode
from broker.server.node_directory import METADATA_DIRECTORY
from history.damage import Damage
from simulator.disk import SimulatedDisk
from simulator.host import HostContext
from simulator.oracles.excuses import LogBeforeDamage, excuses
from simulator.oracles.settings import OracleSettings

STATE_FILE = "quorum-state"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

T = TypeVar("T")


class Vote(NamedTuple):
    """The content of a quorum-state file; -1: no node."""

    epoch: int
    leader: int
    voted: int


class MachineView:
    """One machine. `directory`: where on its disk the broker's data is, empty for the root; `life` counts processes.

    `held`: what each log held before its disk was damaged, by its directory, until a process has registered since."""

    def __init__(
        self, name: str, node_id: int, disk: SimulatedDisk, directory: str, properties: Mapping[str, str]
    ) -> None:
        self.name = name
        self.node_id = node_id
        self.disk = disk
        self.life = 0
        self.node: BrokerNode | None = None
        self.host: HostContext | None = None
        self.held: dict[str, LogBeforeDamage] = {}
        self.was_clean = False
        """Whether the last process closed all logs and said so on the disk, before the one that runs now."""
        self.settings = OracleSettings(properties)
        self._directory = directory
        self._suffered: set[Damage] = set()
        self._stopped_at = 0.0
        self._set_for: dict[str, Mapping[str, str]] = {}
        self._set_at: tuple[BrokerNode | None, int] = (None, -1)

    @property
    def running(self) -> bool:
        """Whether a broker lives here, and has recovered what is on its disk."""
        return self.node is not None

    @property
    def image(self) -> MetadataImage:
        assert self.node is not None
        return self.node.image

    @property
    def acts_on_metadata(self) -> bool:
        """Whether the broker has given roles to its replicas; before that they are as they were recovered."""
        return self.node is not None and self.node.replicas.broker_epoch >= 0

    @property
    def registered_in(self) -> int:
        """The epoch of the broker's registration, -1 before it has one."""
        return self.node.lifecycle.broker_epoch if self.node is not None and self.running else -1

    @property
    def own_time(self) -> float:
        """The time as the broker here has it, in seconds: by the clock of its own machine."""
        return self.run(asyncio.get_running_loop().time)

    @property
    def holds_lease(self) -> bool:
        """Whether the broker answers reads as a leader, by the clock of its own machine."""
        if self.node is None or self.host is None or not self.running:
            return False
        return self.run(self.node.lease.valid)

    def set_for(self, topic: str) -> Mapping[str, str]:
        """What clients have set for a topic, else for all topics, by the configuration records that the broker here
        has applied; nothing without a broker."""
        if self.node is None:
            return {}
        if self._set_at != (self.node, self.image.offset):  # the settings can change only with the applied records
            self._set_at = (self.node, self.image.offset)
            self._set_for.clear()
        settings = self._set_for.get(topic)
        if settings is None:
            image = self.image.topics.get(topic)
            settings = self._set_for[topic] = {**self.image.defaults, **({} if image is None else image.configs)}
        return settings

    def damaged(self, damage: Damage) -> None:
        """A fault is about to do this damage to the machine."""
        self._suffered.add(damage)

    def registered(self) -> None:
        """The process that runs now has registered: what counts of this machine from here on is what it has."""
        self.held.clear()
        self._suffered &= {Damage.ELAPSED_TIME}

    def process_ended(self) -> None:
        """No process runs here now."""
        self.node = self.host = None
        self.look_for_mark()

    def look_for_mark(self) -> None:
        """The next process takes the mark of a clean shutdown that the disk has now."""
        self.was_clean = self.disk.exists(self.path_of(CLEAN_SHUTDOWN))

    def clocks_stop(self, own_time: float) -> None:
        """The machine's clocks are about to stand still, at this time since boot, with a lease that may be held."""
        self.damaged(Damage.ELAPSED_TIME)
        self._stopped_at = own_time

    def passed(self, lease_s: float) -> None:
        """By its own clock a lease that was asked for before the clock stood still has ended."""
        if self.own_time > self._stopped_at + lease_s:
            self._suffered.discard(Damage.ELAPSED_TIME)

    @property
    def suffered(self) -> frozenset[Damage]:
        """The damage that was done to the machine since the process that runs now has registered."""
        return frozenset(self._suffered)

    def excused(self, oracle: str, directory: str = "") -> bool:
        """Whether damage to this machine excuses what the oracle finds of it, or of the log in a directory."""
        rotted = directory and self.disk.has_rotted(directory)
        return excuses(oracle, self.suffered | {Damage.SYNCED} if rotted else self.suffered)

    def held_of(self, oracle: str, directory: str) -> LogBeforeDamage | None:
        """What a log held before its disk was damaged, where that excuses the oracle's finding."""
        return self.held.get(directory) if self.excused(oracle) else None

    def run(self, call: Callable[[], T]) -> T:
        """The result of a call in the context of this machine's process, with its clock."""
        assert self.host is not None
        return self.host.context.copy().run(call)

    def path_of(self, directory: str) -> str:
        """Of a broker's directory on the disk."""
        return f"{self._directory}/{directory}" if self._directory else directory

    @property
    def durable_state(self) -> bytes | None:
        """The quorum-state file after a power cut; None: it would not exist."""
        return self.disk.durable(self.path_of(f"{METADATA_DIRECTORY}/{STATE_FILE}"))

    def durable_vote(self) -> Vote | None:
        """What the quorum-state file says after a power cut; None where it would say nothing."""
        content = self.durable_state
        if content is None:
            return None
        try:
            document = json.loads(content)
            return Vote(document["leaderEpoch"], document["leaderId"], document["votedId"])
        except (ValueError, KeyError):
            return None
