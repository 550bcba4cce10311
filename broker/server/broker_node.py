"""A whole broker: its parts, its start, its clean stop and its failure.

A broker that fails stops at once: a defect in one of the essential tasks, or a disk error, ends the node without any
further message, because a half-working node is not safe. What it acknowledged is in its logs or on other brokers.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from broker.config import BrokerConfig
from broker.controller.active import ActiveController
from broker.controller.image import Changes, MetadataImage
from broker.controller.image_records import records_of
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.environment import BrokerEnvironment
from broker.errors import StartupError, is_out_of_descriptors
from broker.listeners import ListenerEndpoint
from broker.log.meta_properties import UNKNOWN_EPOCH
from broker.mutants import Mutants, altered
from broker.ports import Disk
from broker.protocol.messages.metadata_records import encode_record
from broker.quorum.roles import Leader
from broker.quorum.runner import QuorumRunner, StateMachine
from broker.quorum.settings import METADATA_BATCH_BYTES
from broker.replica.manager import ReplicaManager
from broker.replica.tiered_start import few_local_records
from broker.server.client import Address, PeerConnector
from broker.server.config_warnings import Overruled, overruled
from broker.server.dispatch import Dispatcher, LocalCalls
from broker.server.failure_detector import DeathWatch
from broker.server.forwarding import ControllerForwarding
from broker.server.handlers.producer_ids_handler import ProducerIdsHandler
from broker.server.lease import Lease
from broker.server.lifecycle import BrokerLifecycle
from broker.server.listener import Listener, SharedBudget
from broker.server.metrics import MetricsPage, metrics_of, render
from broker.server.node_directory import NodeDirectory
from broker.server.routes import Parts, add_broker_routes, add_controller_routes
from broker.server.security import Security
from broker.server.work_budget import Turns
from broker.tiered.auxiliary_state import AuxiliaryState
from broker.tiered.metadata_log import MetadataLog
from broker.tiered.object_store import ObjectStore, store_of
from broker.tiered.reporting_store import ReportingStore
from broker.tiered.tiered_storage import TieredStorage
from broker.trace import Tracer

# ---- The listeners of a node, each with its dispatcher.


class Door(NamedTuple):
    """A listener and its dispatcher."""

    endpoint: ListenerEndpoint
    dispatcher: Dispatcher
    listener: Listener


class Doors:
    """All listeners of a node. They share the work budget of a turn and the memory budget; each has its own limits.

    The controller listener has its own memory budget: clients' requests must not keep out a vote or a heartbeat.
    """

    def __init__(
        self,
        config: BrokerConfig,
        tracer: Tracer,
        on_disk_failure: Callable[[OSError], None],
        *,
        security: Security,
        descriptors: int | None = None,
    ) -> None:
        """`descriptors`: how many this process may have open; None: unlimited."""
        self._config = config
        self._tracer = tracer
        self._on_disk_failure = on_disk_failure
        self._descriptors = descriptors
        self._security = security
        budget = SharedBudget.for_requests_of(config.socket_request_max_bytes)
        self.turns = Turns()
        self.local = LocalCalls()
        self.for_brokers = [self._door(endpoint, budget) for endpoint in config.broker_listeners]
        endpoint, budget = config.controller_listener, SharedBudget.for_requests_of(config.socket_request_max_bytes, 0)
        self.for_controllers = None if endpoint is None else self._door(endpoint, budget)
        self._behind_no_door = self._dispatcher()

    @property
    def of_controllers(self) -> Dispatcher:
        """The dispatcher of the controller APIs; without a controller listener only this node uses it, locally."""
        return self._behind_no_door if self.for_controllers is None else self.for_controllers.dispatcher

    @property
    def connections(self) -> int:
        """The number of connected peers, at all listeners."""
        return sum(door.listener.connections for door in self._all)

    @property
    def _all(self) -> list[Door]:
        return self.for_brokers + ([] if self.for_controllers is None else [self.for_controllers])

    async def open(self) -> None:
        """Start listening. Raises `StartupError` when an address cannot be used."""
        for door in self._all:
            await door.listener.start(*door.endpoint.address)

    async def close(self) -> None:
        """Stop accepting, and close every connection after its queued data has been sent."""
        for door in self._all:
            await door.listener.stop()

    def abort(self) -> None:
        """Stop accepting, and drop every connection with its queued data."""
        for door in self._all:
            door.listener.abort()

    def rules_changed(self) -> None:
        """Drop cached authorization: the next request of every connection is checked again."""
        for door in self._all:
            door.listener.forget_shortcuts()

    def abandon_requests(self) -> None:
        """Cancel the requests that are still under way."""
        for door in self._all:
            door.dispatcher.stop()

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self._tracer, self._on_disk_failure, turns=self.turns, local=self.local, guard=self._security.guard
        )

    def _door(self, endpoint: ListenerEndpoint, budget: SharedBudget) -> Door:
        config, dispatcher = self._config, self._dispatcher()
        listener = Listener(
            dispatcher,
            self._tracer,
            request_max_bytes=config.socket_request_max_bytes,
            max_connections=config.max_connections,
            max_queued=config.queued_max_requests,
            max_connections_per_ip=config.max_connections_per_ip,
            max_connections_per_ip_overrides=config.connections_by_ip,
            max_idle=config.max_idle_s,
            descriptors=self._descriptors,
            budget=budget,
            tls=self._security.server_tls if endpoint.protocol.encrypts else None,
            entrance=self._security.entrance(endpoint),
        )
        return Door(endpoint, dispatcher, listener)


LEAVE_TIMEOUT_S = 2.0  # seconds that a clean stop gives the controller to move leaders away


class NodeFailure(Exception):  # noqa: N818 - the end of a node, whatever the cause
    """A node failed. The message says why."""


def _discard(_: str) -> None:
    """The log of a node without a process of its own."""


class BrokerNode:
    """One broker that has recovered its disk: `open` makes it. Call `start` once. It runs until `stop`, or until
    `failed` gets the reason of its failure."""

    @classmethod
    async def open(
        cls,
        config: BrokerConfig,
        *,
        disk: Disk,
        rng: random.Random,
        tracer: Tracer,
        mutants: Mutants | None = None,
        clock: Callable[[], int] | None = None,
        descriptors: int | None = None,
        object_store: ObjectStore | None = None,
        say: Callable[[str], None] = _discard,
    ) -> "BrokerNode":
        """Recover the state on the disk.

        `clock` returns the wall clock in nanoseconds, for the timestamps of metadata records; None: no timestamps.

        `object_store`: for tiered storage; None: the one that `config` names.

        `descriptors`: how many file descriptors this process may have open; None: unlimited.

        `say`: takes lines for the process's log. A node in a simulation has no log: its trace has the same events.

        Raises `StartupError` for invalid security settings, or when this broker must not run in this directory;
        `OSError` of the disk.
        """
        mutants = mutants or Mutants()
        config, image = altered(config, mutants), MetadataImage()
        environment = BrokerEnvironment(config, disk, rng, tracer, mutants, clock)
        security = Security(config, rng, lambda: image)
        directory = await NodeDirectory.open(disk, config, rng)
        store = (object_store or store_of(config)) if config.remote_log_storage_system_enable else None
        node = cls(environment, directory, security, image, descriptors, store, say)
        await node.replicas.start(clean_shutdown=directory.closed_in_epoch is not None)
        return node

    def __init__(
        self,
        environment: BrokerEnvironment,
        directory: NodeDirectory,
        security: Security,
        image: MetadataImage,
        descriptors: int | None,
        object_store: ObjectStore | None,
        say: Callable[[str], None],
    ) -> None:
        config, rng = environment.config, environment.rng
        tracer, mutants = environment.tracer, environment.mutants
        self.config = config
        self.image = image
        self.metadata_log = directory.metadata_log
        self.lease = Lease()
        self._directory = directory
        self._security = security
        self._tracer = tracer
        self._environment = environment
        self._say = say
        self._incarnation_id = rng.randbytes(16)
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed: set[tuple[str, int]] = set()
        self._published = -1  # the metadata offset that the replicas have applied
        self._applied = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._caught_up = asyncio.Event()
        self._stopping = False
        tracer.emit(
            "broker_started",
            incarnation=self._incarnation_id.hex(),
            clean_shutdown=directory.closed_in_epoch is not None,
        )
        self.connector = self._connector()
        self.doors = Doors(config, tracer, self._disk_failed, security=security, descriptors=descriptors)
        self.connector.serve_locally(self.doors.local.call)
        self.metrics_page = MetricsPage(self._metrics)
        self.quorum = self._quorum()
        self.controller = ActiveController(
            config=config,
            image=image,
            quorum=self.quorum,
            peers=self.connector,
            rng=rng,
            tracer=tracer,
            mutants=mutants,
        )
        self.watch = DeathWatch(node_id=config.node_id, image=lambda: image, controller=self.controller, tracer=tracer)
        self.replicas = self._replicas()
        self.producer_ids = ProducerIdsHandler(
            node_id=config.node_id,
            peers=self.connector,
            controller_id=self._controller_id,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            first_unused=lambda: self.image.next_producer_id,
            timeout_s=config.quorum_request_timeout_ms / 1000,
        )
        self.groups = GroupCoordinator(
            config=config,
            replicas=self.replicas,
            peers=self.connector,
            controller_id=self._controller_id,
            lease_valid=self.lease.valid,
            wall_ms=environment.wall_ms,
            rng=rng,
            tracer=tracer,
            mutants=mutants,
            on_defect=self.fail,
        )
        self.tiered = None if object_store is None else self._tiered_storage(object_store)
        if self.tiered is not None:
            self.replicas.remote_state = AuxiliaryState(
                self.tiered.store,
                self.tiered.metadata,
                lambda: self.cluster_id,
                compares=not mutants.active("digest_unchecked"),
            )
        self.lifecycle = BrokerLifecycle(
            config=config,
            connector=self.connector,
            tracer=tracer,
            lease=self.lease,
            incarnation_id=self._incarnation_id,
            directory_id=directory.id,
            previous_broker_epoch=self._vouched_epoch,
            controller_id=self._controller_id,
            metadata_offset=lambda: self._published,
            tiered_starts=lambda: few_local_records(self.replicas.partitions.values()),
            mutants=mutants,
            cluster_id=lambda: self.cluster_id,
        )
        self._add_routes()

    # --- the parts; each uses only those before it

    def _connector(self) -> PeerConnector:
        config = self.config
        return PeerConnector(
            config.node_id,
            {},
            controllers={voter.id: (voter.host, voter.port) for voter in config.voters},
            response_max_bytes=max(config.socket_request_max_bytes, 2 * METADATA_BATCH_BYTES),
            to_brokers=self._security.approach(config.inter_broker_listener.protocol),
            to_controllers=self._security.approach(config.controller_protocol),
            before_heartbeats_end=self.lease.give_up,
        )

    def _quorum(self) -> QuorumRunner:
        machine = StateMachine(
            on_commit=self._committed,
            on_leadership=self._leadership_changed,
            records=lambda: [encode_record(record) for record in records_of(self.image)],
            on_snapshot=self._restored,
            on_failure=self._quorum_failed,
        )
        return QuorumRunner(
            self._environment,
            machine,
            log=self.metadata_log,
            connector=self.connector,
            cluster_id=self.cluster_id,
            directory_id=self._directory.id,
        )

    def _replicas(self) -> ReplicaManager:
        return ReplicaManager(
            self._environment,
            recovery_points=self._directory.recovery_points,
            connector=self.connector,
            incarnation_id=self._incarnation_id,
            controller_id=self._controller_id,
            lease_valid=self.lease.valid,
            on_disk_failure=self._disk_failed,
            on_defect=self.fail,
        )

    def _tiered_storage(self, object_store: ObjectStore) -> TieredStorage:
        node_id = self.config.node_id
        timeout_s = self.config.replica_socket_timeout_ms / 1000
        return TieredStorage(
            self._environment,
            store=ReportingStore(object_store, self._tracer, self.config.rsm_config_timeout_ms / 1000, self._say),
            replicas=self.replicas,
            log=MetadataLog(node_id=node_id, replicas=self.replicas, peers=self.connector, timeout_s=timeout_s),
            controller_id=self._controller_id,
            cluster_id=lambda: self.cluster_id,
            say=self._say,
            on_disk_failure=self._disk_failed,
            on_refusal=lambda error: self.fail(str(error), error),
            on_defect=self.fail,
        )

    def _add_routes(self) -> None:
        node_id, timeout_s = self.config.node_id, self.config.quorum_request_timeout_ms / 1000
        parts = Parts(
            config=self.config,
            image=lambda: self.image,
            settled=self._settled,
            caught_up=self._caught_up,
            quorum=self.quorum,
            controller=self.controller,
            replicas=self.replicas,
            groups=self.groups,
            watch=self.watch,
            forwarding=ControllerForwarding(
                node_id=node_id,
                controller_id=self._controller_id,
                peers=self.connector,
                request_timeout_s=timeout_s,
                guard=self._security.guard,
            ),
            producer_ids=self.producer_ids,
        )
        add_controller_routes(self.doors.of_controllers, parts)
        for door in self.doors.for_brokers:
            add_broker_routes(door.dispatcher, door.endpoint.name, parts)

    # --- used by the parts

    @property
    def cluster_id(self) -> str | None:
        """The cluster id: configured, stored in the directory, or committed to the metadata log; None before that."""
        return self.config.cluster_id or self._directory.cluster_id or self.image.cluster_id

    def _controller_id(self) -> int | None:
        return self.quorum.leader_id

    def _vouched_epoch(self) -> int:
        """The broker epoch for whose registration the logs are complete. A damaged log counts as lost, however the
        broker was stopped (KIP-966)."""
        closed_in_epoch = self._directory.closed_in_epoch
        return UNKNOWN_EPOCH if closed_in_epoch is None or self.replicas.damaged else closed_in_epoch

    # --- life

    async def start(self) -> None:
        """Open the listeners and join the cluster in the background; see `ready`. Raises `StartupError`, `OSError`."""
        if self.tiered is not None:
            await self.tiered.check_owner()
        await self.doors.open()
        if self.config.metrics_port:
            await self.metrics_page.start(self.config.inter_broker_listener.host, self.config.metrics_port)
        await self.quorum.start()
        if self.tiered is not None:
            self.tiered.start()
        self._run(self._publish(), "metadata publisher")
        self._run(self.lifecycle.run(), "broker lifecycle")
        for voter in self.quorum.voters:
            if voter.id != self.config.node_id:
                self._run(self.lifecycle.stay_watched_by(voter.id), f"connection watched by voter {voter.id}")

    async def ready(self) -> None:
        """Return once the controller has unfenced this broker. Raises `NodeFailure` when it fails before."""
        unfenced = asyncio.ensure_future(self.lifecycle.unfenced.wait())
        waited_for: list[asyncio.Future[Any]] = [unfenced, self.failed]
        await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        if self.failed.done():
            unfenced.cancel()
            self.failed.result()

    @property
    def failed(self) -> asyncio.Future[None]:
        """Gets a `NodeFailure` when this node fails; cancelled when it is stopped."""
        return self._failed

    async def stop(self) -> None:
        """Leave the cluster, make everything durable, and mark the directory as cleanly closed."""
        self._stopping = True
        if self.failed.done():
            return
        await self._end_tasks()  # a later heartbeat would revoke the shutdown that `leave` requests
        await self.lifecycle.leave(LEAVE_TIMEOUT_S)
        self.groups.stop()
        if self.tiered is not None:
            await self.tiered.stop()
        await self.replicas.stop()
        self.watch.stop()
        await self.controller.stop()
        await self.quorum.stop()
        await self.doors.close()
        self.metrics_page.stop()
        self.doors.abandon_requests()
        self.connector.close()
        await self._directory.close()
        if self.failed.done():
            return  # the disk failed during the stop: its contents must not be marked as complete
        await self._directory.mark_closed(self.lifecycle.epoch_of_logs)
        self._tracer.emit("broker_stopped")
        self.failed.cancel()

    def fail(self, reason: str, cause: BaseException | None = None) -> None:
        """Fail: no further byte leaves this node."""
        if self._failed.done():
            return
        self._tracer.emit("broker_failed", reason=reason)
        failure = NodeFailure(reason)
        failure.__cause__ = cause
        self._failed.set_exception(failure)
        self.doors.abort()
        self.metrics_page.stop()
        self.connector.close()
        self.doors.abandon_requests()
        self.replicas.abort()
        if self.tiered is not None:
            self.tiered.abort()
        self.groups.stop()
        for task in self._tasks:
            task.cancel()

    # --- callbacks of the parts

    def _disk_failed(self, error: OSError) -> None:
        cause = "too many files are open (ulimit -n)" if is_out_of_descriptors(error) else "the disk failed"
        self.fail(f"{cause}: {error}", error)

    def _quorum_failed(self, error: Exception) -> None:
        self.fail(f"the metadata quorum failed: {type(error).__name__}: {error}", error)

    def _committed(self, base_offset: int, epoch: int, records: list[bytes]) -> None:  # noqa: ARG002
        """Apply committed metadata to the image, in order, before any other part sees it."""
        self._applied_to_image(self.image.apply_committed(base_offset, records))

    def _restored(self, end_offset: int, records: list[bytes]) -> None:
        """A snapshot replaces everything that was committed below its end."""
        self._applied_to_image(self.image.restore(end_offset, records))

    def _applied_to_image(self, changes: Changes) -> None:
        self.quorum.learn_cluster_id(self.cluster_id)
        if changes.brokers:
            self.connector.learn(self._addresses())
        if changes.acls and self._security.authorizer is not None:
            self._security.authorizer.learn(self.image.acls.values())
            self.doors.rules_changed()
        self.controller.metadata_applied(changes)
        self._changed |= changes.partitions
        self._settled.clear()
        self._applied.set()

    def _addresses(self) -> dict[int, Address]:
        """The addresses at which brokers reach each other."""
        name = self.config.inter_broker_listener.name
        endpoints = {broker.id: broker.endpoint(name) for broker in self.image.brokers.values()}
        return {broker: endpoint.address for broker, endpoint in endpoints.items() if endpoint is not None}

    def _leadership_changed(self, epoch: int | None) -> None:
        if epoch is None:
            self.controller.leadership_changed(None)
            return
        role = self.quorum.role
        self.controller.leadership_changed(epoch, role.predecessor if isinstance(role, Leader) else None)
        self.watch.leads()

    async def _publish(self) -> None:
        """Bring the replicas up to the image. Metadata committed meanwhile is applied in the next iteration."""
        while True:
            await self._applied.wait()
            self._applied.clear()
            reached, changed, self._changed = self.image.offset, self._changed, set()
            roles = self.replicas.roles_taken
            if self.image.cluster_id is not None:
                await self._directory.remember_cluster(self.image.cluster_id)
            await self.replicas.apply(self.image, changed)
            self.groups.apply(self.image)
            if self.tiered is not None:
                self.tiered.apply(self.image)
            self._published = reached
            if self.replicas.roles_taken != roles:
                self.lifecycle.heartbeat_soon()
            if 0 <= self.lifecycle.broker_epoch <= reached and not self._caught_up.is_set():
                self._caught_up.set()
                for setting in self.overruled:
                    self._tracer.emit("setting_overruled", key=setting.key, own=setting.own, cluster=setting.cluster)
            if not self._applied.is_set():
                self._settled.set()

    # --- its own state, for metrics and tests

    @property
    def connections(self) -> int:
        return self.doors.connections

    @property
    def fenced(self) -> bool:
        return not self.lifecycle.unfenced.is_set()

    @property
    def overruled(self) -> list[Overruled]:
        """The settings of this broker's file that committed cluster settings override, as far as it has read them."""
        return overruled(self.config, self.image.defaults)

    def _metrics(self) -> str:
        return render(metrics_of(self, asyncio.get_running_loop().time()))

    # --- tasks

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start an essential task: when it fails, the node fails."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._stopping:
            return
        error = task.exception()
        if isinstance(error, StartupError):
            self.fail(str(error), error)
        elif error is not None:
            self.fail(f"{task.get_name()}: {type(error).__name__}: {error}", error)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
