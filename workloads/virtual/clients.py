"""Which clients there are in virtual time, and how one lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from history.writer import OperationWriter
from workloads.control import Close, Command, Ready
from workloads.kinds import log_bursts
from workloads.pacing import steady
from workloads.settings import ClientSettings
from workloads.virtual.group import GroupReader, VirtualMember
from workloads.virtual.log import Consumer, FinalReader, VirtualProducer
from workloads.virtual.pipe import ClockNs, VirtualControl

FLUSH_EVERY_NS: Final = 1 << 62  # nobody but the run itself could be interrupted: rows are written when there are many


class Serving(Protocol):
    """A client in one of its roles."""

    async def obey(self, command: Command) -> None: ...

    async def close(self) -> None: ...


Role = Callable[[ClientSettings, VirtualControl, OperationWriter, ClockNs], Serving]
"""Makes one, in its own host's context."""

_PRODUCER: Final = partial(VirtualProducer, pacing=steady)
KINDS: Final[Mapping[str, Mapping[str, Role]]] = {
    "log": {"producer": _PRODUCER, "consumer": Consumer, "reader": FinalReader},
    "log-bursts": {
        "producer": partial(VirtualProducer, pacing=log_bursts.pacing),
        "consumer": Consumer,
        "reader": FinalReader,
    },
    "group": {"producer": _PRODUCER, "member": VirtualMember, "reader": GroupReader},
}
"""The kinds of workload whose clients there are, in each of their roles."""


async def serve(kind: str, role: str, settings: ClientSettings, control: VirtualControl, clock: ClockNs) -> None:
    """A client, from its first word to its last. `clock`: nanoseconds of the run's time."""
    with OperationWriter(
        settings.directory,
        client=settings.client,
        session=settings.session,
        process=settings.process,
        producer=settings.producer if settings.producer >= 0 else None,
        clock=clock,
        flush_every_ns=FLUSH_EVERY_NS,
    ) as writer:
        client = KINDS[kind][role](settings, control, writer, clock)
        control.tell(Ready())
        while not isinstance(command := await control.next(), Close):
            await client.obey(command)
        await client.close()
