"""A broker's membership: it registers with the controller, sends heartbeats, and holds a lease while they succeed.

Theory of operation. The lease prevents stale reads (see `lease`). A broker that is cut off does not learn that it was
fenced and replaced. Its lease ends automatically: the duration in the controller's answer, counted from when the last
successful heartbeat *was sent*. The controller fences the broker later: `broker.session.timeout.ms` after it *received*
that heartbeat. Both times are the controller's, whose file may differ from this broker's. So a broker that holds a
lease has not been replaced. A broker that leaves gives its lease up before it sends the request: it may be replaced as
soon as the controller has read the request, and may never receive the answer.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from broker.config import BrokerConfig
from broker.errors import ErrorCode, StartupError
from broker.mutants import Mutants
from broker.peers import Peers
from broker.protocol.messages.broker_apis import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Listener,
    TieredStarts,
)
from broker.protocol.request import Request, Response
from broker.server.lease import Lease
from broker.trace import Tracer

RETRY_MIN = 0.02  # seconds between attempts without a controller; doubles up to the maximum
RETRY_MAX = 0.2
SESSIONS_OF_PATIENCE = 3  # session timeouts for which another process may seem alive under this node.id
_GONE = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class BrokerLifecycle:
    """Run `run` as a task while the broker lives. It renews `lease` and gives it up.

    `controller_id`: the quorum's leader, if known. `metadata_offset`: how far this broker has applied the metadata log.
    `tiered_starts`: the replicas that started after the last tiered offset.
    `cluster_id`: the cluster's id, once known. `previous_broker_epoch`: that of the process that closed this directory
    cleanly, -1 without one (KIP-966)."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        connector: Peers,
        tracer: Tracer,
        lease: Lease,
        incarnation_id: bytes,
        directory_id: bytes,
        previous_broker_epoch: Callable[[], int],
        controller_id: Callable[[], int | None],
        metadata_offset: Callable[[], int],
        tiered_starts: Callable[[], list[TieredStarts]] = list,
        mutants: Mutants,
        cluster_id: Callable[[], str | None],
    ) -> None:
        self.broker_epoch = -1
        self.unfenced = asyncio.Event()
        """Set while the controller counts this broker as alive, so that it may lead."""
        self._config = config
        self._connector = connector
        self._tracer = tracer
        self.incarnation_id = incarnation_id
        self.directory_id = directory_id
        self._previous_broker_epoch = previous_broker_epoch
        self._controller_id = controller_id
        self._metadata_offset = metadata_offset
        self._tiered_starts = tiered_starts
        self._cluster_id = cluster_id
        self._lease = lease
        self._leave_under_lease = mutants.active("leave_under_lease")
        self._retry = RETRY_MIN
        self._news = asyncio.Event()

    @property
    def epoch_of_logs(self) -> int:
        """The latest broker epoch since which this broker's logs have lost nothing; -1: unknown."""
        return self._previous_broker_epoch() if self.broker_epoch < 0 else self.broker_epoch

    async def run(self) -> None:
        """Register and keep the registration, forever. Raises `StartupError` when the cluster is another one, or when
        another process keeps using this node.id."""
        while True:
            await self._register()
            await self._keep_registration()

    async def stay_watched_by(self, voter: int) -> None:
        """Keep a connection of heartbeats to a voter that is not the controller, forever: if this process ends, the
        voter knows it before it becomes the controller (`failure_detector`)."""
        while True:
            if self.broker_epoch >= 0 and self._controller_id() != voter:
                with suppress(ConnectionError, TimeoutError):
                    timeout = self._config.quorum_request_timeout_ms / 1000
                    await self._connector.request(voter, self._heartbeat(), timeout)
            await asyncio.sleep(self._config.broker_session_timeout_ms / 1000)

    def heartbeat_soon(self) -> None:
        """This broker has applied metadata that gave it another role, and the controller waits for the notification
        (`activation`, `handovers`): send the next heartbeat at once."""
        self._news.set()

    async def leave(self, timeout: float) -> None:
        """Ask the controller to move leaders away and to fence this broker; takes at most `timeout` seconds."""
        if self.broker_epoch < 0:
            return
        if not self._leave_under_lease:
            self._show_fenced(True)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    response = await self._ask_controller(self._heartbeat(want_shut_down=True))
                    if response is not None and response.should_shut_down:
                        break
                    await asyncio.sleep(RETRY_MAX)
        except TimeoutError:
            self._tracer.emit("left_without_consent")
        self._show_fenced(True)

    async def _register(self) -> None:
        while (cluster_id := self._cluster_id()) is None:
            await self._pause()  # the metadata log will contain it (K595-49)
        request = BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(listener.name, listener.host, listener.port, listener.protocol)
                for listener in self._config.broker_listeners
            ],
            log_dirs=[self.directory_id],
            previous_broker_epoch=self.epoch_of_logs,
        )
        loop = asyncio.get_running_loop()
        # A dead process whose disk was lost may have left a session, which is over by then. The time counts from the
        # first refusal, and starts again after a time without a controller: a new controller starts all sessions again.
        patience_s = SESSIONS_OF_PATIENCE * self._config.broker_session_timeout_ms / 1000
        refused_at: float | None = None
        while True:
            response = await self._ask_controller(request)
            if response is None or response.error_code == ErrorCode.NOT_CONTROLLER:
                refused_at = None
            else:
                if response.error_code == ErrorCode.NONE:
                    self.broker_epoch = response.broker_epoch
                    self._retry = RETRY_MIN
                    self._tracer.emit("registered", broker_epoch=self.broker_epoch)
                    return
                if response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
                    raise StartupError(
                        f"cluster.id {cluster_id!r} is not that of the cluster at quorum.voters; "
                        "correct cluster.id, or point quorum.voters at the right cluster"
                    )
                if response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                    refused_at = loop.time() if refused_at is None else refused_at
                    if loop.time() - refused_at > patience_s:
                        raise StartupError(
                            f"node.id {self._config.node_id}: another process, on another data directory, is alive "
                            "with this node.id; give each broker its own node.id"
                        )
            await self._pause()

    async def _keep_registration(self) -> None:
        """Send heartbeats until the controller no longer knows this registration."""
        interval = self._config.broker_heartbeat_interval_ms / 1000
        loop = asyncio.get_running_loop()
        while True:
            sent_at, term = loop.time(), self._lease.term
            self._news.clear()
            response = await self._ask_controller(self._heartbeat())
            error = None if response is None else response.error_code
            if error in _GONE:
                self._show_fenced(True)
                return
            if response is None or error != ErrorCode.NONE:
                await self._pause()
                continue
            self._show_fenced(response.is_fenced)
            if response.is_fenced:
                await self._pause()  # not caught up yet: send the next heartbeat soon
                continue
            self._retry = RETRY_MIN
            self._lease.renew(sent_at + response.lease_ms / 1000, term)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(sent_at + interval):
                    await self._news.wait()

    def _heartbeat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_shut_down=want_shut_down,
            tiered_starts=self._tiered_starts(),
        )

    def _show_fenced(self, fenced: bool) -> None:
        if fenced:
            self._lease.give_up()
        if fenced == self.unfenced.is_set():
            self._tracer.emit("fenced" if fenced else "unfenced")
            if fenced:
                self.unfenced.clear()
            else:
                self.unfenced.set()

    async def _ask_controller(self, request: Request[Response]) -> Response | None:
        """The controller's answer; None when the controller is unknown or does not answer."""
        controller = self._controller_id()
        if controller is None:
            return None
        try:
            timeout = self._config.quorum_request_timeout_ms / 1000
            return await self._connector.request(controller, request, timeout)
        except (ConnectionError, TimeoutError):
            return None

    async def _pause(self) -> None:
        await asyncio.sleep(self._retry)
        self._retry = min(2 * self._retry, RETRY_MAX)
