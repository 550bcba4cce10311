"""Pacing of requests to other members: which voter to ask next, and when. Sends no requests itself.

Every request ends with an answer or a failure, because the connector drops a connection after the request timeout
(K595-2). So this module needs no timeout for requests in flight.
"""

import random
from collections.abc import Sequence

from broker.quorum.messages import FetchRequest, SnapshotRequest
from broker.quorum.settings import QuorumSettings


class Outreach:
    """Sends one request to each of several voters and repeats it, with growing delays, until each has answered."""

    def __init__(self, voters: Sequence[int], settings: QuorumSettings) -> None:
        self._settings = settings
        self._due: dict[int, float] = dict.fromkeys(voters, 0.0)
        self._failures: dict[int, int] = dict.fromkeys(voters, 0)

    def take_due(self, now: float) -> list[int]:
        """The voters to ask now; each counts as in flight until `answered` or `failed` is called."""
        ready = [voter for voter, at in self._due.items() if at <= now]
        for voter in ready:
            del self._due[voter]
        return ready

    def answered(self, voter: int) -> None:
        """The voter has answered; it is not asked again."""
        self._failures.pop(voter, None)
        self._due.pop(voter, None)

    def failed(self, voter: int, now: float) -> None:
        """Ask this voter again later, unless it has answered in the meantime."""
        if voter in self._failures:
            self._failures[voter] += 1
            self._due[voter] = now + self._settings.retry_delay(self._failures[voter])

    def pending(self, voter: int) -> bool:
        """Whether this voter has not answered yet."""
        return voter in self._failures

    @property
    def complete(self) -> bool:
        return not self._failures

    def deadline(self) -> float | None:
        """The time at which the next voter is due."""
        return min(self._due.values(), default=None)


class FetchLoop:
    """One fetch at a time: from the leader, or from any voter while no leader is known or it does not answer (K595-42).

    Voters are asked in random order, each once before any voter is asked again.
    """

    def __init__(self, leader_id: int | None, settings: QuorumSettings, rng: random.Random) -> None:
        self._leader_id = leader_id
        self._settings = settings
        self._rng = rng
        self._round: list[int] = []
        self._ask_around = leader_id is None
        self._failures = 0
        self.inflight: FetchRequest | SnapshotRequest | None = None
        self.not_before = 0.0

    def next_voter(self) -> int | None:
        """The voter to fetch from now; None without other voters."""
        if not self._ask_around:
            return self._leader_id
        if not self._round:
            self._round = [voter for voter in self._settings.other_voters if voter != self._leader_id]
            self._rng.shuffle(self._round)
        return self._round.pop() if self._round else self._leader_id

    def succeeded(self) -> None:
        """The leader answered."""
        self.inflight = None
        self._failures = 0
        self._ask_around = False

    def failed(self, now: float) -> None:
        """No useful answer: pause, then switch from the leader to another voter, which may know a newer one, or
        back."""
        self.inflight = None
        self._failures += 1
        self._ask_around = self._leader_id is None or not self._ask_around
        self.not_before = now + self._settings.retry_delay(self._failures)
