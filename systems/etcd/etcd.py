"""etcd as a system under test: the flags that the run sets, and an observer that asks each member for its leader."""

import http.client
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nemeses.scheduling import for_each
from systems.etcd.gateway import Gateway, GatewayError
from systems.settings import is_whole
from systems.system import System
from systems.view import Member, View

ASK_S: Final = 0.7
# Flags in the description's command, because the run depends on them.
_OF_THE_RUN: Final = frozenset(
    {
        "name",
        "data-dir",
        "listen-client-urls",
        "advertise-client-urls",
        "listen-peer-urls",
        "initial-advertise-peer-urls",
        "initial-cluster",
        "initial-cluster-token",
        "initial-cluster-state",
        "logger",
        "log-outputs",
        "config-file",
    }
)
_IN_MS: Final = ("heartbeat-interval", "election-timeout")


class Etcd(System):
    """Every node is a member of one Raft group; settings are etcd's flags."""

    has_controller = True

    def check_setting(self, role: str, key: str, value: str | int) -> str | None:
        del role
        if key.startswith("-"):
            return f"{key}: write etcd's flag without the hyphens before it: {key.lstrip('-')!r}"
        if key in _OF_THE_RUN:
            return f"{key}: the run sets this flag itself; leave it out"
        if key in _IN_MS and not (is_whole(str(value)) and int(value) > 0):
            return f"{key}: {value!r} is not a whole number of milliseconds"
        return None

    def check_node(self, role: str, settings: Mapping[str, str], where: str) -> str | None:
        """etcd does not start when an election takes less than five heartbeats."""
        heartbeat_ms, election_ms = (int({**self.description.roles[role].defaults, **settings}[key]) for key in _IN_MS)
        if election_ms < 5 * heartbeat_ms:
            return f"{where}: election-timeout {election_ms} is less than five times heartbeat-interval {heartbeat_ms}"
        return None

    def observe(self, members: Sequence[Member], topic: str, time_scale: float = 1.0) -> "EtcdObserver":
        del topic
        return EtcdObserver(members, time_scale)


@dataclass(frozen=True)
class _Status:
    """What a member reports of itself. Member ids are etcd's; `leader` stays None without a known leader."""

    id: str
    leader: str | None
    term: int


class EtcdObserver:
    """Asks all members concurrently for their status, on separate connections and with a short deadline.

    The controller is the Raft leader of the newest term among the members that know a leader. A member is alive if it
    follows that leader: a member that answers but is cut off from the leader accepts no writes.
    """

    def __init__(self, members: Sequence[Member], time_scale: float = 1.0) -> None:
        self._members = tuple(members)
        self._patience_s = ASK_S * time_scale
        self._names: dict[str, str] = {}  # members' names by etcd's ids, for a leader that no longer answers

    def view(self) -> View:
        answers = dict(zip(self._members, for_each(self._members, self._status), strict=True))
        statuses = {member.name: answer for member, answer in answers.items() if isinstance(answer, _Status)}
        complaints = tuple(answer for answer in answers.values() if isinstance(answer, str))
        self._names |= {status.id: name for name, status in statuses.items()}
        newest = max((state for state in statuses.values() if state.leader), key=lambda state: state.term, default=None)
        if newest is None:
            return View(complaints=complaints)
        following = {
            name for name, state in statuses.items() if (state.leader, state.term) == (newest.leader, newest.term)
        }
        controller = self._names.get(newest.leader or "")
        return View(controller=controller, epoch=newest.term, unfenced=frozenset(following), complaints=complaints)

    def create_topic(self, assignment: Sequence[Sequence[int]], timeout_s: float) -> str | None:
        """etcd has no topics."""
        del assignment, timeout_s
        return None

    def close(self) -> None:
        """Nothing to close: each request has a connection of its own."""

    def _status(self, member: Member) -> _Status | str:
        """A member's status, or why it is not known."""
        try:
            gateway = Gateway(member.address, member.port, self._patience_s)
            try:
                answer = gateway.ask("/v3/maintenance/status", {}, self._patience_s)
            finally:
                gateway.close()
            leader = str(answer.get("leader", "0"))
            leader_id = None if leader == "0" else leader
            return _Status(str(answer["header"]["member_id"]), leader_id, int(answer.get("raftTerm", 0)))
        except (OSError, http.client.HTTPException, GatewayError, ValueError, KeyError, TypeError) as error:
            return f"{member.name} does not answer ({error})"
