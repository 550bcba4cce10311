"""Apache Kafka with ZooKeeper, 0.10 to 3.9: runs jars on the nodes' Java; the observer reads ZooKeeper's znodes."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from systems.errors import InputError
from systems.java_system import JavaSystem
from systems.service import Place, in_url
from systems.view import Member, PartitionState, View

# ---- Reads, creates and deletes ZooKeeper's znodes, each within a deadline, on a session that renews itself.

SESSION_S = 4.0
ANSWER_S = 0.7
RECONNECT_S = 0.2


class UnansweredError(Exception):
    """ZooKeeper did not answer in time, or answered with an error; the message says which."""


class ZooKeeperClient:
    """Znodes of a running ZooKeeper. The client may be made before ZooKeeper runs: it connects as soon as it can, and
    reconnects after each lost connection. Every call raises `UnansweredError`; at once while it is not connected."""

    def __init__(self, hosts: Sequence[str], time_scale: float = 1.0) -> None:
        """`hosts`: a list of `address:port`."""
        self._answer_s = ANSWER_S * time_scale
        logger = logging.getLogger("brownout.zookeeper")
        logger.setLevel(logging.CRITICAL)  # a view's complaints report a lost connection
        retry = {"max_tries": -1, "delay": RECONNECT_S, "backoff": 1, "max_delay": RECONNECT_S}
        self._client = KazooClient(
            ",".join(hosts), timeout=SESSION_S * time_scale, connection_retry=retry, logger=logger
        )
        self._client.start_async()

    def read(self, path: str) -> bytes | None:
        """The content; None if the znode does not exist."""
        try:
            content: bytes = self._ask(self._client.get_async, path)[0]
        except NoNodeError:
            return None
        return content

    def children(self, path: str) -> list[str] | None:
        """The names below a znode; None if the znode does not exist."""
        try:
            names: list[str] = self._ask(self._client.get_children_async, path)
        except NoNodeError:
            return None
        return names

    def create(self, path: str, content: bytes) -> bool:
        """Whether it was created; False when it exists already, or when its parent does not exist."""
        try:
            self._ask(self._client.create_async, path, content)
        except (NodeExistsError, NoNodeError):
            return False
        return True

    def delete(self, path: str) -> None:
        """Delete it if it exists."""
        try:
            self._ask(self._client.delete_async, path)
        except NoNodeError:
            return

    def close(self) -> None:
        """End the session, whether ZooKeeper still runs or not."""
        self._client.stop()
        self._client.close()

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """Raises `UnansweredError`, and kazoo's errors for existing or missing znodes."""
        if not self._client.connected:
            raise UnansweredError("not connected")
        try:
            return question(*arguments).get(timeout=self._answer_s)
        except (NoNodeError, NodeExistsError):
            raise
        except (KazooException, self._client.handler.timeout_exception) as error:
            raise UnansweredError(str(error) or type(error).__name__) from error


# ---- Observes a Kafka cluster through its ZooKeeper, which stores controller, leaders and in-sync replicas.

BROKERS = "/brokers/ids"
CONTROLLER, CONTROLLER_EPOCH = "/controller", "/controller_epoch"
TOPICS, TOPIC_CONFIGS = "/brokers/topics", "/config/topics"
REASSIGNMENT, ELECTION = "/admin/reassign_partitions", "/admin/preferred_replica_election"
REPORT_S = 2.0


@dataclass(frozen=True)
class BrokerReport:
    """What a broker reports to clients, by node id: the controller (-1: the broker knows none) and each partition's
    leader. The broker learns it from the controller, so it lags behind ZooKeeper."""

    controller: int = -1
    leaders: Mapping[int, int] = field(default_factory=dict)


Ask = Callable[[Member, str, float], BrokerReport]
"""What a broker reports of a topic within a number of seconds; an empty report when it does not answer."""


class ZooKeeperObserver:
    """Observes one topic. `members`: all nodes; those that are not brokers are ZooKeepers, alive when one answers."""

    def __init__(
        self,
        members: Sequence[Member],
        topic: str,
        znodes: ZooKeeperClient,
        time_scale: float = 1.0,
        ask: Ask | None = None,
    ) -> None:
        self._znodes = znodes
        self._topic = topic
        self._brokers = {member.id: member for member in members if member.role == "broker"}
        self._others = frozenset(member.name for member in members if member.role != "broker")
        self._report_s = REPORT_S * time_scale
        self._ask = ask or report_of

    def close(self) -> None:
        self._znodes.close()

    def view(self) -> View:
        try:
            alive = self._names(int(name) for name in self._znodes.children(BROKERS) or ())
            return View(self._controller(), self._controller_epoch(), self._others | set(alive), self._partitions())
        except UnansweredError as error:
            return View(complaints=(f"ZooKeeper does not answer ({error})",))
        except (ValueError, KeyError, TypeError) as error:
            return View(
                complaints=(f"ZooKeeper has content that Kafka does not write ({type(error).__name__}: {error})",)
            )

    def create_topic(self, assignment: Sequence[Sequence[int]], timeout_s: float) -> str | None:
        """As Kafka's tool did before KIP-4: write the topic's znode; the controller creates the topic."""
        del timeout_s
        replicas = {str(number): list(ids) for number, ids in enumerate(assignment)}
        try:
            self._create(f"{TOPIC_CONFIGS}/{self._topic}", {"version": 1, "config": {}})
            path = f"{TOPICS}/{self._topic}"
            if self._create(path, {"version": 1, "partitions": replicas}) or self._znodes.read(path) is not None:
                return None
        except UnansweredError as error:
            return f"ZooKeeper does not answer ({error})"
        return "no broker has created its znodes yet"

    def elect(self, node: str, partition: int | None) -> str | None:
        """Take the next step of the election; Kafka has no election that names its winner.

        A controller ends its term when its znode is removed; then the brokers compete for the next term. On
        request, the controller elects the first of a partition's replicas; a reassignment puts a replica first."""
        try:
            return self._elect_controller(node) if partition is None else self._elect_leader(node, partition)
        except UnansweredError as error:
            return f"ZooKeeper does not answer ({error})"
        except (ValueError, KeyError, TypeError) as error:
            return f"ZooKeeper has content that Kafka does not write ({type(error).__name__}: {error})"

    def _elect_controller(self, node: str) -> str | None:
        if node in self._others:
            return f"{node} is not a broker"
        controller = self._controller()
        member = next((broker for broker in self._brokers.values() if broker.name == controller), None)
        if member is None:
            return "there is no controller"
        # A controller that loses its znode while it takes over fails, and then removes its successor's znode.
        if self._ask(member, self._topic, self._report_s).controller != member.id:
            return f"{controller} was elected controller, but does not yet report it to clients"
        if controller == node:
            return None
        self._znodes.delete(CONTROLLER)
        return f"the term of the controller {controller} was ended"

    def _elect_leader(self, node: str, partition: int) -> str | None:
        broker_id = next((broker.id for broker in self._brokers.values() if broker.name == node), None)
        state = self._partitions().get(partition)
        if broker_id is None or state is None or node not in state.replicas:
            return f"{node} has no replica of partition {partition}"
        for path in (REASSIGNMENT, ELECTION):
            if self._znodes.read(path) is not None:
                return f"the controller is still busy with {path}"
        content: dict[str, Any] = {"topic": self._topic, "partition": partition}
        if state.replicas[0] != node:
            other_ids = [number for number in self._replicas()[partition] if number != broker_id]
            self._create(REASSIGNMENT, {"version": 1, "partitions": [{**content, "replicas": [broker_id, *other_ids]}]})
            return f"{state.replicas[0]} is preferred; the controller was asked to prefer {node}"
        if state.leader != node:
            self._create(ELECTION, {"version": 1, "partitions": [content]})
            return f"the leader is {state.leader or 'unknown'}; the controller was asked to elect {node}"
        # The broker may not know of its election yet; until then it rejects clients.
        leader = self._ask(self._brokers[broker_id], self._topic, self._report_s).leaders.get(partition, -1)
        return None if leader == broker_id else f"{node} was elected, but does not yet report it to clients"

    def _controller(self) -> str | None:
        content = self._znodes.read(CONTROLLER)
        return None if content is None else self._name(int(json.loads(content)["brokerid"]))

    def _controller_epoch(self) -> int:
        return int(self._znodes.read(CONTROLLER_EPOCH) or -1)

    def _replicas(self) -> dict[int, list[int]]:
        content = self._znodes.read(f"{TOPICS}/{self._topic}")
        if content is None:
            return {}
        return {int(number): [int(text) for text in ids] for number, ids in json.loads(content)["partitions"].items()}

    def _partitions(self) -> dict[int, PartitionState]:
        states = {}
        for number, replicas in sorted(self._replicas().items()):
            content = self._znodes.read(f"{TOPICS}/{self._topic}/partitions/{number}/state")
            # The controller writes this znode when it has chosen the first leader.
            state: dict[str, Any] = json.loads(content) if content else {"leader": -1, "leader_epoch": -1, "isr": []}
            leader = None if state["leader"] < 0 else self._name(state["leader"])
            isr, names = self._names(state["isr"]), self._names(replicas)
            states[number] = PartitionState(leader, int(state["leader_epoch"]), isr, names)
        return states

    def _name(self, number: int) -> str:
        return self._brokers[number].name if number in self._brokers else str(number)

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._name(number) for number in numbers)

    def _create(self, path: str, content: dict[str, Any]) -> bool:
        return self._znodes.create(path, json.dumps(content).encode())


def report_of(member: Member, topic: str, timeout_s: float) -> BrokerReport:
    """See `Ask`."""
    bootstrap = f"{in_url(member.address)}:{member.port}"
    family = "v6" if ":" in member.address else "v4"
    client = AdminClient({"bootstrap.servers": bootstrap, "broker.address.family": family, "log_level": 0})
    try:
        answer = client.list_topics(topic, timeout=timeout_s)
    except KafkaException:
        return BrokerReport()
    partitions = answer.topics[topic].partitions if topic in answer.topics else {}
    return BrokerReport(answer.controller_id, {number: state.leader for number, state in partitions.items()})


_BROKER, _ZOOKEEPER = "broker", "zookeeper"

# Keys that make a node part of this run's cluster; a second value in the file would override the run's.
_GIVEN = {
    _BROKER: frozenset({"broker.id", "listeners", "advertised.listeners", "log.dir", "log.dirs", "zookeeper.connect"}),
    _ZOOKEEPER: frozenset({"dataDir", "dataLogDir", "clientPort", "clientPortAddress", "tickTime"}),
}


class ZooKeeperKafka(JavaSystem):
    """One node is ZooKeeper, the others are brokers.

    It makes no class archive: a single broker without ZooKeeper does not start far enough."""

    least_java = 11
    has_controller = True
    has_partitions = True
    elects = frozenset({"partition", "cluster"})

    def check_setting(self, role: str, key: str, value: str | int) -> str | None:
        """Kafka and ZooKeeper check their keys themselves, and ignore keys that they do not know."""
        if key in _GIVEN[role]:
            return f"{key}: the run gives it to each node; leave it out (roles are assigned by [system.roles])"
        if "\n" in str(value):
            return f"{key}: the value must be a single line"
        return None

    def assign_roles(self, count: int, asked: Mapping[str, str]) -> tuple[str, ...]:
        roles = super().assign_roles(count, asked)
        if roles.count(_ZOOKEEPER) != 1:
            raise InputError(f"roles: {roles.count(_ZOOKEEPER)} nodes have the role {_ZOOKEEPER}; it must be one")
        if _BROKER not in roles:
            raise InputError(f"roles: no node has the role {_BROKER}; give [topology] more nodes")
        return roles

    def variables(self, node: Place, cluster_id: str) -> dict[str, Any]:
        """Adds `has_admin`: whether this ZooKeeper would open another port, for administrators."""
        return {**super().variables(node, cluster_id), "has_admin": int(self.version.split(".")[0]) >= 3}

    def observe(self, members: Sequence[Member], topic: str, time_scale: float = 1.0) -> ZooKeeperObserver:
        zookeepers = [f"{in_url(member.address)}:{member.port}" for member in members if member.role == _ZOOKEEPER]
        return ZooKeeperObserver(members, topic, ZooKeeperClient(zookeepers, time_scale), time_scale)
