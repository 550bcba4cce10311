"""The clients that exist in virtual time, and the life of one.

Clients of consumer groups in virtual time, the counterpart of `workloads.member`.

A member commits the records that it was given, periodically and before its partitions go to other members. It continues
after the end of the load, so that the group reaches the end of every partition. It sends a commit once: without an
answer its outcome is unknown. Half of the members are static. Under load a member restarts at times.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from broker.errors import ErrorCode
from broker.protocol.records import Record
from history.record.offset_record import ATTEMPT_S, GROUPS, LOOKUPS, NO_OFFSET, OffsetWriter
from simulator.client import LEFT, GroupClient, NoResultError, RefusedError
from workloads.client_record import open_record
from workloads.control import Close, Command, ReadAll, ReadDone, Ready, StartLoad, StopLoad
from workloads.group_settings import FETCH_EVERY_S, HEARTBEATS_PER_SESSION, group_behind, group_of, session_ms
from workloads.kinds import log_bursts
from workloads.kinds.log import ADMINISTRATOR
from workloads.known_times import KnownTimes
from workloads.pacing import steady
from workloads.settings import ClientSettings
from workloads.virtual.administrator import VirtualAdministrator
from workloads.virtual.log import POLL_S, RETRY_S, Consumer, FinalReader, VirtualProducer, VirtualRead, addresses
from workloads.virtual.pipe import ClientParts, ClockNs, VirtualClient, VirtualControl

# ---- The consumer of the workload `tiered` in virtual time. `workloads/kinds/tiered.py` has the theory of operation.


class VirtualTieredConsumer(Consumer):
    """A consumer that jumps before some of its polls, and then reads on in the same partition."""

    def __init__(self, parts: ClientParts) -> None:
        super().__init__(parts)
        self._lookups = OffsetWriter(parts.settings.directory, LOOKUPS, parts.settings.client, parts.clock)
        self._times = KnownTimes()
        self._reading.on_records = self._saw

    async def close(self) -> None:
        await super().close()
        self._lookups.close()

    def _saw(self, partition: int, run: Sequence[Record], _: int) -> None:
        self._times.record(self._lookups, partition, [(record.offset, record.timestamp) for record in run])

    async def _poll(self, partition: int) -> None:
        if self._rng.random() < self._settings.parameters["jumps_share"]:
            await self._jump(partition)
        await super()._poll(partition)

    async def _jump(self, partition: int) -> None:
        timestamp = self._times.draw(partition, self._rng)
        if timestamp is None:
            await self._reading.restart(partition)
            return
        inv = self._lookups.clock()
        offset = await self._reading.offset_of_time(partition, timestamp)
        if offset is None:
            self._counts.add("fail")
            return
        self._lookups.add("lookup", partition, inv=inv, timestamp=timestamp, offset=offset)
        self._counts.add("ok")
        if offset >= 0:
            self._reading.next[partition] = offset


STATIC_SHARE: Final = 0.5
"""The share of static members."""
RESTARTS_EVERY_S: Final = {True: 8.0, False: 60.0}
"""The mean time between two restarts of a member under load, by whether it is static. The sessions of others expire."""
_SETTLED: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS})
"""Errors that end a generation which still accepts its members' commits: others take over after all have rejoined."""


class VirtualMember(VirtualClient):
    """Reads the partitions that the group assigns and commits, from `start` until it is closed."""

    def __init__(self, parts: ClientParts) -> None:
        super().__init__(parts)
        settings = parts.settings
        self._record = OffsetWriter(settings.directory, GROUPS, settings.client, parts.clock)
        self._chance = Random(f"{settings.seed}/member")
        self._restarts_s = RESTARTS_EVERY_S[is_static := self._chance.random() < STATIC_SHARE]
        instance = settings.client if is_static else None
        self._group = GroupClient(
            group_of(settings), addresses(settings), session_ms=session_ms(settings), instance=instance
        )
        self._reading = VirtualRead(parts)
        self._reading.on_records = self._delivered
        self._committed: dict[int, int] = {}
        """The positions of this generation's partitions; empty until the committed offsets are known."""
        self._commit_at = self._fetch_at = self._heard_at = 0.0
        self._life: asyncio.Task[None] | None = None

    async def obey(self, command: Command) -> None:
        match command:
            case StartLoad():
                self._life = self._control.run(self._live())
            case StopLoad():  # the group keeps reading: it must reach the end of every partition
                self._restarts_s = math.inf
                self._report_stop()
            case _:
                self._control.decline("member", command)

    async def close(self) -> None:
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait([self._life])
        await self._group.leave()
        await self._reading.close()
        self._record.close()

    def _delivered(self, partition: int, run: Sequence[Record], at: int) -> None:
        self._record.add("deliver", partition, ret=at, first=run[0].offset, offset=run[-1].offset)

    async def _live(self) -> None:
        while True:
            try:
                partitions = await self._group.join(self._settings.partitions)
                self._record.event("assign", partitions)
                await self._generation(partitions)
            except NoResultError:
                await asyncio.sleep(RETRY_S)

    async def _generation(self, partitions: Sequence[int]) -> None:
        """Read these partitions and commit until the generation is over. Raises `NoResultError`."""
        over = list[NoResultError]()
        self._heard_at = asyncio.get_running_loop().time()
        self._committed = {}
        beating = self._control.run(self._beat(over))
        settled = False
        try:
            await self._begin(partitions, over)
            while not over:
                await self._work(partitions)
            raise over[0]
        except NoResultError as error:
            settled = error.code in _SETTLED
            raise
        finally:
            beating.cancel()
            if settled:
                await self._hand_over(partitions)
            self._record.event("revoke" if settled else "lose", partitions)

    async def _beat(self, over: list[NoResultError]) -> None:
        """Send heartbeats, as the library does in the background, until the generation is over: `over` has the reason.
        A lost coordinator has a successor that knows the generation; without one within a session, a member leaves."""
        loop, session_s = asyncio.get_running_loop(), session_ms(self._settings) / 1000
        while not over:
            await asyncio.sleep(session_s / HEARTBEATS_PER_SESSION)
            try:
                await self._group.heartbeat(self._settings.query_timeout_s)
                self._heard_at = loop.time()
            except NoResultError as error:
                if error.code in LEFT or loop.time() - self._heard_at > session_s:
                    over.append(error)

    async def _begin(self, partitions: Sequence[int], over: list[NoResultError]) -> None:
        """Continue at the group's committed offsets, as soon as a coordinator returns them."""
        committed: dict[int, int] = {}
        while not over and not committed.keys() >= set(partitions):
            try:
                committed = await self._fetch(partitions)
            except NoResultError as error:
                if error.code in LEFT:
                    raise
                await asyncio.sleep(RETRY_S)
        self._committed = {partition: max(0, offset) for partition, offset in committed.items()}
        self._reading.next.update(self._committed)

    async def _work(self, partitions: Sequence[int]) -> None:
        loop = asyncio.get_running_loop()
        for partition in partitions:
            reads, failed = await self._reading.poll(partition, wait_s=0.0)
            self._counts.add("ok", reads)
            self._counts.add("fail", failed)
        try:
            if loop.time() >= self._commit_at:
                self._commit_at = loop.time() + 1.0 / self._settings.rate
                await self._commit(partitions)
            if loop.time() >= self._fetch_at:  # of all partitions, including those of other members
                self._fetch_at = loop.time() + FETCH_EVERY_S
                await self._fetch(range(self._settings.partitions))
        except NoResultError as error:
            if error.code in LEFT:
                raise
            self._counts.add("fail")
        self._counts.report(loop.time())
        await asyncio.sleep(POLL_S)
        if self._chance.random() < POLL_S / self._restarts_s:
            self._group.restart()
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)

    # --- offsets

    async def _hand_over(self, partitions: Sequence[int]) -> None:
        try:
            await self._commit(partitions)
        except NoResultError:
            self._counts.add("fail")  # the partitions' next owners get the records again

    async def _commit(self, partitions: Sequence[int]) -> None:
        """Commit what was read of these partitions since the last commit. Raises `NoResultError`."""
        read_to, saved = self._reading.next, self._committed
        offsets = {index: read_to[index] for index in partitions if index in saved and saved[index] != read_to[index]}
        if not offsets:
            return
        codes = dict[int, ErrorCode]()
        acknowledged = self._record.commit(offsets, ATTEMPT_S * self._settings.time_scale)
        try:
            codes = await self._group.commit(self._settings.topic, offsets)
        finally:
            done = [partition for partition, code in codes.items() if code is ErrorCode.NONE]
            acknowledged(done)
            self._committed.update({partition: offsets[partition] for partition in done})
            self._counts.add("ok" if len(done) == len(offsets) else "info")
        refused = next((code for code in codes.values() if code is not ErrorCode.NONE), None)
        if refused is not None:
            raise RefusedError(refused)

    async def _fetch(self, partitions: Sequence[int]) -> dict[int, int]:
        """The group's committed offsets, recorded. Raises `NoResultError`."""
        return await fetch_committed(self._group, self._settings, partitions, self._record, self._clock)


async def fetch_committed(
    client: GroupClient, settings: ClientSettings, partitions: Sequence[int], record: OffsetWriter, clock: ClockNs
) -> dict[int, int]:
    """The group's committed offsets, recorded. Raises `NoResultError`."""
    inv = clock()
    offsets = await client.committed(settings.topic, list(partitions), settings.query_timeout_s)
    if offsets:
        record.fetched(offsets, inv)
    return offsets


class GroupReader(FinalReader):
    """Reads whole partitions, and waits until the group has committed their ends."""

    def __init__(self, parts: ClientParts) -> None:
        super().__init__(parts)
        settings = parts.settings
        self._record = OffsetWriter(settings.directory, GROUPS, settings.client, parts.clock)
        self._asking = GroupClient(group_of(settings), addresses(settings))

    async def close(self) -> None:
        await super().close()
        await self._asking.leave()
        self._record.close()

    async def _read(self, command: ReadAll) -> ReadDone:
        loop, place = asyncio.get_running_loop(), command.place
        give_up = loop.time() + command.timeout_s  # one limit for both steps: the caller waits no longer
        done = await super()._read(command)
        if not done.complete:
            return done
        committed, advanced_s = NO_OFFSET, loop.time()
        while loop.time() < give_up:
            try:
                offsets = await fetch_committed(self._asking, self._settings, [place], self._record, self._clock)
            except NoResultError:
                offsets = {}
            if offsets.get(place, NO_OFFSET) >= done.end or not done.end:
                return done
            if offsets.get(place, NO_OFFSET) > committed:
                committed, advanced_s = offsets[place], loop.time()
            await asyncio.sleep(POLL_S)
        return group_behind(done, loop.time() - advanced_s)


FLUSH_EVERY_NS: Final = 1 << 62  # never: a simulated client is not killed apart from its run


Role = Callable[[ClientParts], VirtualClient]
_LOG: Final[Mapping[str, Role]] = {
    "producer": partial(VirtualProducer, pacing=steady),
    "consumer": Consumer,
    "reader": FinalReader,
    ADMINISTRATOR: VirtualAdministrator,
}
KINDS: Final[Mapping[str, Mapping[str, Role]]] = {
    "log": _LOG,
    "log-bursts": {**_LOG, "producer": partial(VirtualProducer, pacing=log_bursts.pacing)},
    "tiered": {**_LOG, "consumer": VirtualTieredConsumer},
    "group": {
        "producer": _LOG["producer"],
        "member": VirtualMember,
        "reader": GroupReader,
        ADMINISTRATOR: VirtualAdministrator,
    },
}
"""The workload kinds that have clients in virtual time, with each of their roles."""


async def serve(kind: str, role: str, settings: ClientSettings, control: VirtualControl, clock: ClockNs) -> None:
    """Run a client from its start to its end. `clock`: nanoseconds of the run's time."""
    with open_record(settings, clock=clock, flush_every_ns=FLUSH_EVERY_NS) as writer:
        client = KINDS[kind][role](ClientParts(settings, control, writer, clock))
        control.tell(Ready())
        while not isinstance(command := await control.next(), Close):
            await client.obey(command)
        await client.close()
