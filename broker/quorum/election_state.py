"""The quorum-state file: the election state that a node keeps across restarts (K595-5)."""

import json
from dataclasses import dataclass
from typing import Any

from broker.errors import StartupError
from broker.log.checkpoint import AtomicFile
from broker.ports import Disk

QUORUM_STATE = "quorum-state"
"""The file's name, in the directory of the metadata log."""

DATA_VERSION = 0


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The newest epoch that this node knows, its leader, and the candidate that this node voted for in it.

    A vote never changes within an epoch, also after a restart (K595-14). So it is durable before it counts.
    """

    epoch: int = 0
    leader_id: int | None = None
    voted_id: int | None = None
    voters: tuple[int, ...] = ()

    def encode(self) -> str:
        """The file's content: Kafka's JSON. AppliedOffset stays 0, because a start reads the log from its start
        (K595-6)."""
        document = {
            "clusterId": "",
            "leaderId": -1 if self.leader_id is None else self.leader_id,
            "leaderEpoch": self.epoch,
            "votedId": -1 if self.voted_id is None else self.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in self.voters],
            "data_version": DATA_VERSION,
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def decode(cls, content: str, path: str) -> "ElectionState":
        """Read a file's content. Raises `StartupError` for anything that `encode` would not write.

        A broken file is never treated as an empty one: a node that forgot its vote could vote twice in one epoch.
        """
        try:
            document = json.loads(content)
            version = document["data_version"]
            epoch = _at_least(document["leaderEpoch"], 0)
            leader = _at_least(document["leaderId"], -1)
            voted = _at_least(document["votedId"], -1)
            voters = tuple(_at_least(voter["voterId"], 0) for voter in document["currentVoters"])
        except (ValueError, KeyError, TypeError) as error:
            raise StartupError(
                f"{path}: is not a quorum-state file ({error!r}); remove it if the other voters are well: this disk "
                "then counts as a new one and rejoins automatically; a voter that forgets its vote, for example by a "
                "restored backup, can elect two leaders"
            ) from error
        if version != DATA_VERSION:
            raise StartupError(f"{path}: data_version {version!r} is not {DATA_VERSION}; use the broker that wrote it")
        return cls(epoch, None if leader < 0 else leader, None if voted < 0 else voted, voters)


class ElectionFile:
    """The quorum-state file of one node."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._file = AtomicFile(disk, path)

    def read(self, voters: tuple[int, ...]) -> ElectionState:
        """The stored state; without a file the state of a new node.

        Raises `StartupError` for a broken file, and for a file of a quorum with other voters than the configured ones.
        """
        text = self._file.read()
        if text is None:
            return ElectionState(voters=voters)
        stored = ElectionState.decode(text, self._file.path)
        if stored.voters and stored.voters != voters:
            raise StartupError(
                f"{self._file.path}: the quorum has the voters {list(stored.voters)}, quorum.voters says "
                f"{list(voters)}; a quorum's voters cannot be changed: restore quorum.voters"
            )
        return stored

    async def write_durably(self, state: ElectionState) -> None:
        """Replace the state. After a power cut the file has the old or the new state; after the return, the new one."""
        await self._file.write(state.encode())


def _at_least(value: Any, minimum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{value!r} is not a whole number of at least {minimum}")
    return value
