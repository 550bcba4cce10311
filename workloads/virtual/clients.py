"""The clients that exist in virtual time, and the life of one."""

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
from workloads.virtual.tiered import VirtualTieredConsumer

FLUSH_EVERY_NS: Final = 1 << 62  # never: a simulated client is not killed apart from its run


class Serving(Protocol):
    """A client in one of its roles."""

    async def obey(self, command: Command) -> None: ...

    async def close(self) -> None: ...


Role = Callable[[ClientSettings, VirtualControl, OperationWriter, ClockNs], Serving]
"""Makes a client, in the context of its host."""

_PRODUCER: Final = partial(VirtualProducer, pacing=steady)
KINDS: Final[Mapping[str, Mapping[str, Role]]] = {
    "log": {"producer": _PRODUCER, "consumer": Consumer, "reader": FinalReader},
    "log-bursts": {
        "producer": partial(VirtualProducer, pacing=log_bursts.pacing),
        "consumer": Consumer,
        "reader": FinalReader,
    },
    "tiered": {
        "producer": _PRODUCER,
        "consumer": VirtualTieredConsumer,
        "reader": FinalReader,
    },
    "group": {"producer": _PRODUCER, "member": VirtualMember, "reader": GroupReader},
}
"""The workload kinds that have clients in virtual time, with each of their roles."""


async def serve(kind: str, role: str, settings: ClientSettings, control: VirtualControl, clock: ClockNs) -> None:
    """Run a client from its start to its end. `clock`: nanoseconds of the run's time."""
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
