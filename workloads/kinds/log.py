"""Appends to the partitions of a topic, reads them and queries their ends, through librdkafka."""

from collections.abc import Mapping
from typing import Any, Final

from workloads import settings
from workloads.control import Control
from workloads.kind import MAX_CLIENTS, ClientRole, Load, Mix, PlannedClient, WorkloadKind, WorkloadParameter
from workloads.pacing import CONSUMER_SHARE, END_QUERIES_SHARE
from workloads.settings import ClientSettings

# A record with its batch's header must fit into one message, as brokers and clients limit it (1 MiB).
MAX_RECORD_BYTES: Final = 1_000_000


# Loading the library takes as long as the rest of a client's start, and the run loop, which imports this file, does not
# need it.
def _producer(settings: ClientSettings, control: Control) -> None:
    from workloads.producer import main

    main(settings, control)


def _consumer(settings: ClientSettings, control: Control) -> None:
    from workloads.consumer import main

    main(settings, control)


def _reader(settings: ClientSettings, control: Control) -> None:
    from workloads.consumer import main_reader

    main_reader(settings, control)


def _administrator(settings: ClientSettings, control: Control) -> None:
    raise NotImplementedError("administrators exist in the simulation only")  # `require_faults` says it to users


def administrators(load: Load) -> tuple[PlannedClient, ...]:
    """The administrator, if the load has one."""
    every_s = load.parameters.get(ADMINISTERS_EVERY.key)
    return (PlannedClient(ADMINISTRATOR, f"{ADMINISTRATOR}-1", 1 / every_s, first=False),) if every_s else ()


def clients(load: Load) -> tuple[PlannedClient, ...]:
    """The producers, which start first, and the consumers; if there are only producers or consumers, they get all."""
    producers, consumers = load.parameters["producers"], load.parameters["consumers"]
    share = CONSUMER_SHARE if producers else 1.0
    appends = load.rate * (1 - CONSUMER_SHARE if consumers else 1.0)
    return (
        *(PlannedClient("producer", f"producer-{n + 1}", appends / producers, first=True) for n in range(producers)),
        *(
            PlannedClient("consumer", f"consumer-{n + 1}", load.rate * share / consumers, first=False)
            for n in range(consumers)
        ),
        *administrators(load),
    )


def mix(load: Load) -> Mix:
    """Producers append; of the consumers' operations, end queries bound the log."""
    planned = clients(load)
    appends = sum(client.rate for client in planned if client.role == "producer")
    return Mix(appends, END_QUERIES_SHARE * sum(client.rate for client in planned if client.role == "consumer"))


def problem(parameters: Mapping[str, Any]) -> str | None:
    """Reject a probe without acknowledgement, which proves nothing."""
    return "probe_acks: no replica acknowledges with 0; give -1 or 1" if parameters.get("probe_acks") == 0 else None


def partitions(load: Load) -> tuple[str, ...]:
    """Each partition is probed and read."""
    return tuple(f"partition {number}" for number in range(load.partitions))


PRODUCERS: Final = WorkloadParameter("producers", 2, "processes that append", maximum=MAX_CLIENTS)
PROBE_ACKS: Final = WorkloadParameter(
    "probe_acks",
    -1,
    "which replicas acknowledge the probe: all in-sync replicas (-1), or the leader alone (1)",
    minimum=-1,
    maximum=1,
)
COMPRESSION: Final = WorkloadParameter(
    "compression",
    "none",
    "how producers compress their batches",
    choices=("none", "gzip", "snappy", "lz4", "zstd"),
)
BATCH_RECORDS: Final = WorkloadParameter(
    "batch_records",
    settings.BATCH_RECORDS,
    "records that a producer sends in one batch at most; if few, an idempotent producer has several batches in flight",
    minimum=1,
    maximum=1_000_000,
)
DELETES_EVERY: Final = WorkloadParameter(
    "deletes_every_s",
    0.0,
    "mean time between two DeleteRecords of a producer, each up to an offset that it drew below its last acknowledged "
    "record; 0: it deletes nothing",
    unit="s",
    maximum=3600.0,
)
ADMINISTRATOR: Final = "administrator"
ADMINISTERS_EVERY: Final = WorkloadParameter(
    "administers_every_s",
    0.0,
    "mean time between two operations of an administrator, which creates, enlarges, configures and deletes topics of "
    "its own and gives the partitions of this one other replicas; in the simulation only; 0: without one",
    unit="s",
    maximum=3600.0,
)
CONSUMERS: Final = WorkloadParameter("consumers", 2, "processes that read and query ends", maximum=MAX_CLIENTS)

KIND: Final = WorkloadKind(
    name="log",
    description="Producers append to a topic, consumers read it and query its ends, through librdkafka.",
    judge="log",
    partitioned=True,
    parameters=(
        PRODUCERS,
        CONSUMERS,
        WorkloadParameter(
            "record_bytes", 128, "size of a record's value", unit="bytes", minimum=8, maximum=MAX_RECORD_BYTES
        ),
        PROBE_ACKS,
        WorkloadParameter(
            "idempotent",
            False,
            "producers number their batches, retry them until they are acknowledged, and have several appends in "
            "flight; brokers store each batch once, in order",
        ),
        COMPRESSION,
        BATCH_RECORDS,
        DELETES_EVERY,
        ADMINISTERS_EVERY,
    ),
    roles={
        "producer": ClientRole(_producer, changes=True),
        "consumer": ClientRole(_consumer, changes=False),
        "reader": ClientRole(_reader, changes=False),
        ADMINISTRATOR: ClientRole(_administrator, changes=False),
    },
    clients=clients,
    mix=mix,
    places=partitions,
    probe="producer",
    probe_means="an append to each partition is acknowledged",
    reader="reader",
    read_means="each partition is read from its first record to the end that its leader states",
    steps=frozenset({"produce", "consume", "delete-records"}),
    problem=problem,
)
