"""Producers append to a topic, a consumer group shares its partitions, and the members commit what they were given."""

from dataclasses import replace
from typing import Final

from workloads.control import Control
from workloads.kind import MAX_CLIENTS, ClientRole, Load, Mix, PlannedClient, WorkloadParameter
from workloads.kinds import log
from workloads.settings import ClientSettings

COMMITS_SHARE: Final = 0.1  # of the load's operations
_SHARED: Final = tuple(entry for entry in log.KIND.parameters if entry not in (log.CONSUMERS, log.DELETES_EVERY))


def _member(settings: ClientSettings, control: Control) -> None:
    from workloads.member import main

    main(settings, control)


def _reader(settings: ClientSettings, control: Control) -> None:
    from workloads.member import main_reader

    main_reader(settings, control)


def _clients(load: Load) -> tuple[PlannedClient, ...]:
    """The producers, which start first, and the members, with their rate of commits."""
    producers, members = load.parameters["producers"], load.parameters["members"]
    appends, commits = load.rate * (1 - COMMITS_SHARE), load.rate * COMMITS_SHARE
    return (
        *(PlannedClient("producer", f"producer-{n + 1}", appends / producers, first=True) for n in range(producers)),
        *(PlannedClient("member", f"member-{n + 1}", commits / members, first=False) for n in range(members)),
        *log.administrators(load),
    )


def _mix(load: Load) -> Mix:
    """Acknowledged appends must persist; only the final reads query ends."""
    return Mix(sum(client.rate for client in _clients(load) if client.role == "producer"), 0.0)


KIND: Final = replace(
    log.KIND,
    name="group",
    description="Producers append to a topic, the members of a consumer group share it and commit, through librdkafka.",
    parameters=(
        *_SHARED,
        WorkloadParameter("members", 3, "processes that are members of the group", minimum=1, maximum=MAX_CLIENTS),
        WorkloadParameter(
            "session_timeout_s", 6.0, "silence after which a member is gone", unit="s", minimum=0.5, maximum=60
        ),
    ),
    roles={
        "producer": log.KIND.roles["producer"],
        "member": ClientRole(_member, changes=False),
        "reader": ClientRole(_reader, changes=False),
        log.ADMINISTRATOR: log.KIND.roles[log.ADMINISTRATOR],
    },
    clients=_clients,
    mix=_mix,
    read_means="each partition is read to the end that its leader states, and the group has committed that end",
    steps=frozenset({"produce", "consume"}),
)
