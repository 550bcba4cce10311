"""Which cluster a store belongs to, and which of two copies of a broker's disk may delete in it.

Theory of operation. Two clusters that use one store delete each other's objects: by its own metadata each is right.
The cluster id is equal in a copy of the disks (a clone for a test, a restored backup), but only one of the two has
continued. So each broker has a chain of markers in the store, and keeps only the last one:

    owners/<cluster id>/<node id>/<number, 10 digits>     JSON: format, cluster_id, node_id, number, token

`token` is random. The broker writes number and token to the file `remote-store-owner` on its disk, then puts the
marker, then deletes the one before. It does so again every `RENEWAL_PASSES` passes. A marker that is newer than the
file says that another process with the same history has gone on: this one is refused (`StartupError`, exit code 64). So
is a store with a marker of another cluster id.

Deletions need a lease. Before its first marker a process watches the store for `WATCH_PASSES`; if another one is alive,
a newer marker appears meanwhile. And it deletes only within that time after its last marker. So of a cluster and a copy
of it that was taken while it ran, the running one continues and the copy is refused, whichever clock is ahead.

A broker with an empty disk lacks the file. It continues the chain in the store, unless another process does.
"""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.errors import StartupError
from broker.ports import Disk
from broker.tiered.object_store import ObjectMissingError, ObjectStore, StoreError, chunks_of

OWNERS: Final = "owners/"
OWNER_FILE: Final = "remote-store-owner"
FORMAT: Final = 1
RENEWAL_PASSES, WATCH_PASSES = 2, 5
"""In `remote.log.manager.task.interval.ms`: between two markers; without a foreign marker, before the first one."""
_MARKER_BYTES: Final = 4_096


class Marker(NamedTuple):
    """A marker of this broker, and its content in the store."""

    number: int
    content: bytes


class StoreOwner:
    """The claim of one broker on its store. `source`, `url`: the configuration file and the store, for messages."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        disk: Disk,
        cluster_id: Callable[[], str | None],
        node_id: int,
        interval_s: float,
        rng: random.Random,
        source: str,
        url: str,
    ) -> None:
        self._store = store
        self._disk = disk
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._interval_s = interval_s
        self._rng = rng
        self._source = source
        self._url = url
        self._last: Marker | None = None
        self._numbers: list[int] = []
        """This broker's markers in the last listing."""
        self._watched_from: float | None = None
        self._renewed_at = float("-inf")

    @property
    def may_delete(self) -> bool:
        """Whether no other process can own the store now."""
        return _now() - self._renewed_at < WATCH_PASSES * self._interval_s

    async def run(self) -> None:
        """Check and renew, as long as the broker runs. Raises `StartupError`, and `OSError` of the disk."""
        while True:
            try:
                await self.step()
            except StoreError:
                self._watched_from = self._watched_from if self._renewed_at > float("-inf") else None
            await asyncio.sleep(self._interval_s * (RENEWAL_PASSES if self.may_delete else 1))

    async def step(self) -> None:
        """One check; a marker, if the store was watched long enough. Raises as `check`."""
        if not await self.check():
            return
        self._watched_from = _now() if self._watched_from is None else self._watched_from
        if _now() - self._watched_from >= WATCH_PASSES * self._interval_s:
            await self._renew()

    async def check(self) -> bool:
        """Whether the store is this broker's; false while the cluster's id is unknown.

        Raises `StartupError` for a store of another cluster or of another copy of this one, `StoreError`, `OSError`.
        """
        cluster_id = self._cluster_id()
        if cluster_id is None:
            return False
        names = [stored.name.split("/") for stored in await self._store.list(OWNERS)]
        clusters = sorted({parts[1] for parts in names if len(parts) == 4} - {cluster_id})
        if clusters:
            raise self._refusal(f"cluster {clusters[0]}, and this is cluster {cluster_id}")
        mine = [int(parts[3]) for parts in names if parts[1:3] == [cluster_id, str(self._node_id)]]
        self._numbers = mine
        last = self._last = self._last or self._stored() or await self._found(max(mine, default=0))
        newer = max([*mine, last.number]) > last.number or await self._content(last.number + 1) is not None
        content = await self._content(last.number)
        if newer or not last.content.startswith(content or b""):
            raise self._refusal(f"another copy of this broker's data (node {self._node_id} of cluster {cluster_id})")
        return True

    async def _renew(self) -> None:
        assert self._last is not None
        lease, number, watched = self._last, self._last.number + 1, _now()
        fields = {"format": FORMAT, "cluster_id": self._cluster_id(), "node_id": self._node_id, "number": number}
        content = json.dumps({**fields, "token": self._rng.randbytes(16).hex()}).encode()
        # The file first: a marker that this disk does not know would be another copy's.
        await self._disk.replace_file(OWNER_FILE, content)
        self._last = Marker(number, content)
        await self._store.put(self._name(number), chunks_of([content]))
        self._renewed_at = watched
        for number in sorted({*self._numbers, lease.number}):
            await self._store.delete(self._name(number))

    def _stored(self) -> Marker | None:
        """The marker in this broker's file; None without a file. Raises `StartupError` for a damaged one."""
        if not self._disk.exists(OWNER_FILE):
            return None
        file = self._disk.open(OWNER_FILE)
        try:
            content = file.read(0, file.size())
        finally:
            file.close()
        try:
            return Marker(int(json.loads(content)["number"]), content)
        except (ValueError, KeyError, TypeError) as error:
            raise StartupError(
                f"{OWNER_FILE} in log.dir is damaged; remove it if no copy of this broker's data is in use"
            ) from error

    async def _found(self, number: int) -> Marker:
        """The last marker in the store, for a broker with an empty disk. A listing may lack the last ones."""
        content = await self._content(number)
        while (following := await self._content(number + 1)) is not None:
            number, content = number + 1, following
        return Marker(number, content or b"")

    async def _content(self, number: int) -> bytes | None:
        try:
            return await self._store.get(self._name(number), 0, _MARKER_BYTES)
        except ObjectMissingError:
            return None

    def _name(self, number: int) -> str:
        return f"{OWNERS}{self._cluster_id()}/{self._node_id}/{number:010d}"

    def _refusal(self, owner: str) -> StartupError:
        return StartupError(
            f"{self._source}: rsm.config.url: the store {self._url} belongs to {owner}. Two owners would delete each "
            f"other's objects: give this cluster a store, or a prefix in the bucket, of its own. Only if the other "
            f"owner will never start again, delete {OWNERS} in the store and {OWNER_FILE} in the log.dir of each broker"
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
