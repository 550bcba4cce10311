"""The settings of a client process, and library configurations that make outcomes reliable."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from workloads.attempts import DEBUG_CONTEXT

ALL = -1
MESSAGE_TIMEOUT_S = 4.0
# An idempotent producer retries without limit. A record that it gives up loses its place in the producer's order, so it
# must not give one up before the longest outage is over.
IDEMPOTENT_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 3.0
BATCH_RECORDS = 10_000
"""The most records in one batch, as in librdkafka by default."""
QUERY_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class OwnClient:
    """A user-defined client: a class, `"module:Class"` or `"/path/file.py:Class"`, or a command.

    `command_directory`: the working directory of a command; empty: that of its client process. `timeout_s`: the
    longest time of one operation. `options` are passed to it unchanged.
    """

    client_class: str = ""
    client_command: tuple[str, ...] = ()
    command_directory: str = ""
    timeout_s: float = QUERY_TIMEOUT_S
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_given(self) -> bool:
        """Whether there is a user-defined client; otherwise the clients are Brownout's own."""
        return bool(self.client_class or self.client_command)

    @property
    def patience_s(self) -> float:
        """The time after which an operation is given up, for a client that does not keep its timeout."""
        return 2 * self.timeout_s + 1.0

    @property
    def outcome_s(self) -> float:
        """The time after which an operation has its outcome, including the construction of the client's object."""
        return 2 * self.patience_s


@dataclass(frozen=True)
class WorkloadFile:
    """The file of a user's workload. `use`: its class, as the campaign names it; `path`: absolute."""

    use: str = ""
    path: str = ""
    sha256: str = ""

    @staticmethod
    def digest(text: str) -> str:
        """What `sha256` is for a file with this text."""
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class ClientSettings:
    """One client process. `process` is unique in the run, as is `producer` (-1 for a client that changes nothing).

    `rate`: operations per second, for about `duration_s`. `directory`: for the recorded operations. `time_scale`:
    multiplies the timeouts of answers. `parameters`: all of the workload kind's own parameters. `polls_show_ends`: the
    system promises that a fetch without records has found the log's end; if such a fetch may show an older end, as
    after a failover, only end queries bound the log. Passed as JSON on the command line.
    """

    client: str
    process: int
    producer: int
    session: int
    seed: int
    bootstrap: str
    topic: str
    partitions: int
    directory: str
    rate: float = 1.0
    duration_s: float = 60.0
    message_timeout_s: float = MESSAGE_TIMEOUT_S
    time_scale: float = 1.0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    polls_show_ends: bool = False
    own: OwnClient = field(default_factory=OwnClient)
    workload: WorkloadFile = field(default_factory=WorkloadFile)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """`host:port` of every node that serves clients."""
        return tuple(self.bootstrap.split(","))

    def endpoints_from(self, attempt: int) -> tuple[str, ...]:
        """All endpoints, in the order of this client's connection number `attempt`, which counts from 0.

        The order rotates by one for each client and for each attempt: clients start at different nodes, and one that
        is connected to a dead node starts at the next node when it reconnects."""
        turn = (self.process + attempt) % len(self.endpoints)
        return self.endpoints[turn:] + self.endpoints[:turn]

    @property
    def idempotent(self) -> bool:
        """Whether producers retry what was not acknowledged, and brokers store each record once."""
        return is_idempotent(self.parameters)

    @property
    def append_timeout_s(self) -> float:
        """The time after which an append under load has its outcome."""
        return (IDEMPOTENT_TIMEOUT_S if self.idempotent else self.message_timeout_s) * self.time_scale

    @property
    def query_timeout_s(self) -> float:
        """The timeout of a query."""
        return QUERY_TIMEOUT_S * self.time_scale

    @property
    def own_timeout_s(self) -> float:
        """The longest time of one operation of a user-defined client."""
        return self.own.timeout_s * self.time_scale

    @property
    def own_patience_s(self) -> float:
        """The time after which an operation of a user-defined client is given up."""
        return self.own.patience_s * self.time_scale

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        own = fields.pop("own")
        own["client_command"] = tuple(own["client_command"])
        workload = WorkloadFile(**fields.pop("workload"))
        return cls(**fields, own=OwnClient(**own), workload=workload)


def is_idempotent(parameters: Mapping[str, Any]) -> bool:
    """Whether a workload with these parameters has idempotent producers."""
    return bool(parameters.get("idempotent", False))


def outcome_timeout_s(parameters: Mapping[str, Any]) -> float:
    """The unscaled time after which an operation of such a workload has its outcome. An administrator, too, repeats
    some until they are answered."""
    repeats = is_idempotent(parameters) or parameters.get("administers_every_s")
    return IDEMPOTENT_TIMEOUT_S if repeats else MESSAGE_TIMEOUT_S


def _common(settings: ClientSettings) -> dict[str, Any]:
    """Find a new leader quickly, and give up on a silent broker soon."""
    # It imports Arrow: clients use it, but the start of a run should not wait for it.
    from history.record.offset_record import ATTEMPT_S

    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": settings.client,
        "broker.address.family": "v6" if "[" in settings.bootstrap else "v4",
        "socket.timeout.ms": int(ATTEMPT_S * 1_000 * settings.time_scale),
        "socket.connection.setup.timeout.ms": int(2_000 * settings.time_scale),
        "socket.nagle.disable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 400,
        "retry.backoff.ms": 50,
        "retry.backoff.max.ms": 200,
        "topic.metadata.refresh.interval.ms": 1_000,
        "topic.metadata.refresh.fast.interval.ms": 50,
        "allow.auto.create.topics": False,
        "enable.metrics.push": False,
        **({"debug": _debug()} if is_debugged() else {}),
    }


def is_debugged() -> bool:
    """Whether the library's debug log was asked for."""
    return bool(_debug())


def _debug() -> str:
    return os.environ.get("BROWNOUT_CLIENT_DEBUG", "")


def producer_config(settings: ClientSettings, acks: int, *, timeout_s: float | None = None) -> dict[str, Any]:
    """No retries, because a retry of a stored record would write it twice. The library sends some records again
    nevertheless (`workloads.attempts`). An idempotent producer retries without limit, which is the library's
    default."""
    timeout_s = settings.append_timeout_s if timeout_s is None else timeout_s
    retrying = retries(settings, acks)
    return {
        **_common(settings),
        "acks": acks,
        "enable.idempotence": retrying,
        **({} if retrying else {"retries": 0, "debug": ",".join(filter(None, (_debug(), DEBUG_CONTEXT)))}),
        "message.timeout.ms": int(timeout_s * 1000),
        "request.timeout.ms": int(min(REQUEST_TIMEOUT_S * settings.time_scale, timeout_s) * 1000),
        "linger.ms": 1,
        "message.max.bytes": max(1_000_000, 2 * settings.parameters.get("record_bytes", 0)),
        "compression.type": settings.parameters.get("compression", "none"),
        "batch.num.messages": settings.parameters.get("batch_records", BATCH_RECORDS),
    }


def admin_config(settings: ClientSettings) -> dict[str, Any]:
    """An administrator's client."""
    return _common(settings)


def retries(settings: ClientSettings, acks: int) -> bool:
    """Whether a producer retries without an answer: an idempotent producer does, and that needs acks=all."""
    return settings.idempotent and acks == ALL


def consumer_config(settings: ClientSettings, *, sees_ends: bool = False) -> dict[str, Any]:
    """Partitions are assigned by hand; an offset out of range is reported as an error."""
    return {
        **_common(settings),
        "group.id": f"unused-{settings.client}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": sees_ends,
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 50,
        "fetch.queue.backoff.ms": 50,
        "queued.max.messages.kbytes": 16_384,
    }
