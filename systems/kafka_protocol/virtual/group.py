"""Clients of consumer groups in virtual time: what `workloads.member` has as processes.

A member commits what it was given, by itself and before its partitions go to others; it goes on when the load has
ended, so that the group comes to the end of every partition. It sends a commit once: without an answer nobody can tell
what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.errors import ErrorCode
from history import OperationWriter
from history.groups import NO_OFFSET, GroupWriter
from simulator.group_client import GroupClient, GroupError
from systems.kafka_protocol.virtual.control import ClockNs, VirtualControl
from systems.kafka_protocol.virtual.log import POLL_S, RETRY_S, FinalReader, Reading, addresses
from workloads.control import Command, Counts, ReadAll, ReadDone, Start, Stop, Stopped
from workloads.kinds.group import FETCH_EVERY_S, HEARTBEATS_PER_SESSION, group_of, session_ms
from workloads.settings import ClientSettings

_SETTLED: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS})
"""Why a generation ends that still takes its members' commits: others take over only when all have come again."""


class Member:
    """Reads what the group gives it and commits, from `start` until it is closed."""

    def __init__(
        self, settings: ClientSettings, control: VirtualControl, writer: OperationWriter, clock: ClockNs
    ) -> None:
        self._settings = settings
        self._control = control
        self._writer = writer
        self._clock = clock
        self._record = GroupWriter(settings.directory, settings.client, clock)
        self._group = GroupClient(group_of(settings), addresses(settings), session_ms=session_ms(settings))
        self._reading = Reading(settings, writer, clock, on_records=self._delivered)
        self._counts = Counts(control)
        self._committed: dict[int, int] = {}
        self._commits = 0
        self._commit_at = self._fetch_at = 0.0
        self._life: asyncio.Task[None] | None = None

    async def obey(self, command: Command) -> None:
        match command:
            case Start():
                self._life = asyncio.create_task(self._live())
            case Stop():  # the group reads on: it is to come to the end of what was written
                self._writer.flush()
                self._counts.report(asyncio.get_running_loop().time(), force=True)
                self._control.tell(Stopped(0))
            case _:
                self._control.decline("member", command)

    async def close(self) -> None:
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait([self._life])
        await self._group.leave()
        await self._reading.close()
        self._record.close()

    async def _live(self) -> None:
        while True:
            try:
                partitions = await self._group.join(self._settings.partitions)
                self._record.assigned(partitions)
                await self._generation(partitions)
            except (OSError, GroupError):
                await asyncio.sleep(RETRY_S)

    async def _generation(self, partitions: Sequence[int]) -> None:
        """Read these partitions and commit until the generation is over. Raises `GroupError` and `OSError`."""
        beating = asyncio.create_task(self._beat())
        settled = False
        try:
            self._begin_at(await self._fetch(partitions) if partitions else {})
            while not beating.done():
                await self._work(partitions)
            beating.result()
        except GroupError as error:
            settled = error.code in _SETTLED
            raise
        finally:
            beating.cancel()
            if settled:
                await self._hand_over(partitions)
            self._record.revoked(partitions, lost=not settled)

    async def _beat(self) -> None:
        """As the library does in the background; ends with what a heartbeat meets."""
        every_s = session_ms(self._settings) / 1000 / HEARTBEATS_PER_SESSION
        while True:
            await asyncio.sleep(every_s)
            await self._group.heartbeat(self._settings.query_timeout_s)

    def _begin_at(self, committed: dict[int, int]) -> None:
        self._committed = {partition: max(0, offset) for partition, offset in committed.items()}
        self._reading.next.update(self._committed)

    async def _work(self, partitions: Sequence[int]) -> None:
        loop = asyncio.get_running_loop()
        for partition in partitions:
            reads, failed = await self._reading.poll(partition, wait_s=0.0)
            self._counts.add("ok", reads)
            self._counts.add("fail", failed)
        if loop.time() >= self._commit_at:
            await self._commit(partitions)
            self._commit_at = loop.time() + 1.0 / self._settings.rate
        if loop.time() >= self._fetch_at:  # all, those of other members too
            await self._fetch(range(self._settings.partitions))
            self._fetch_at = loop.time() + FETCH_EVERY_S
        self._counts.report(loop.time())
        await asyncio.sleep(POLL_S)

    def _delivered(self, partition: int, first: int, last: int, at: int) -> None:
        self._record.delivered(partition, first, last, at)

    # --- offsets

    async def _hand_over(self, partitions: Sequence[int]) -> None:
        try:
            await self._commit(partitions)
        except (OSError, GroupError):
            self._counts.add("fail")  # whoever has them next is given again what was not committed

    async def _commit(self, partitions: Sequence[int]) -> None:
        """Commit what was read of these partitions since the last time. Raises `GroupError` and `OSError`."""
        read_to = self._reading.next
        offsets = {each: read_to[each] for each in partitions if self._committed.get(each, 0) != read_to[each]}
        if not offsets:
            return
        self._commits += 1
        number, codes = self._commits, dict[int, ErrorCode]()
        self._record.committing(number, offsets)
        try:
            codes = await self._group.commit(self._settings.topic, offsets)
        finally:
            done = [partition for partition, code in codes.items() if code is ErrorCode.NONE]
            self._record.committed(number, done)
            self._committed.update({partition: offsets[partition] for partition in done})
            self._counts.add("ok" if len(done) == len(offsets) else "info")
        refused = next((code for code in codes.values() if code is not ErrorCode.NONE), None)
        if refused is not None:
            raise GroupError(refused)

    async def _fetch(self, partitions: Sequence[int]) -> dict[int, int]:
        """What the group has committed, recorded. Raises `GroupError` and `OSError`."""
        return await fetch_committed(self._group, self._settings, partitions, self._record, self._clock)


async def fetch_committed(
    client: GroupClient, settings: ClientSettings, partitions: Sequence[int], record: GroupWriter, clock: ClockNs
) -> dict[int, int]:
    """What the group has committed, recorded. Raises `GroupError` and `OSError`."""
    inv = clock()
    offsets = await client.committed(settings.topic, list(partitions), settings.query_timeout_s)
    if offsets:
        record.fetched(offsets, inv=inv)
    return offsets


class GroupReader(FinalReader):
    """Reads whole partitions, and waits for the group to have come as far."""

    def __init__(
        self, settings: ClientSettings, control: VirtualControl, writer: OperationWriter, clock: ClockNs
    ) -> None:
        super().__init__(settings, control, writer, clock)
        self._settings = settings
        self._clock = clock
        self._record = GroupWriter(settings.directory, settings.client, clock)
        self._asking = GroupClient(group_of(settings), addresses(settings))

    async def close(self) -> None:
        await super().close()
        await self._asking.leave()
        self._record.close()

    async def _read(self, command: ReadAll) -> ReadDone:
        loop, place = asyncio.get_running_loop(), command.place
        give_up = loop.time() + command.timeout_s  # one time for both: no longer does who asked wait
        done = await super()._read(command)
        while done.complete and loop.time() < give_up:
            try:
                offsets = await fetch_committed(self._asking, self._settings, [place], self._record, self._clock)
            except (OSError, GroupError):
                offsets = {}
            if offsets.get(place, NO_OFFSET) >= done.end or not done.end:
                return done
            await asyncio.sleep(POLL_S)
        error = "the group did not come to the end" if done.complete else done.error
        return ReadDone(command.id, complete=False, end=done.end, read=done.read, error=error)
