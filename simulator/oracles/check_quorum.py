"""The oracle of check quorum: a leader of the quorum without a majority of the voters resigns in time.

Such a leader commits nothing, and becomes a follower once it learns of its successor, so no event shows that it led too
long. Whether it would do so depends only on its timer, and on what postpones it: whose fetches count, and how many. (A
timer that fires and is ignored needs no oracle: it fires again at once, for ever.)
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass

from broker.quorum.leading import Leading
from broker.quorum.roles import Leader, ReplicaProgress
from simulator.oracles.findings import LEADS_ON
from simulator.oracles.log_rules import LogRules
from simulator.oracles.machine_view import MachineView
from simulator.oracles.settings import FETCH_TIMEOUT

FETCH_TIMEOUTS = 1.5
ROUNDING_S = 0.001


@dataclass
class FetchTimer:
    """A leader's timer at the last check."""

    role: Leader
    rings_at: float | None


class CheckQuorumRules:
    """Checks the leaders of one metadata log; `rules`: that log's."""

    def __init__(self, rules: LogRules) -> None:
        self._rules = rules
        self._seen: dict[str, FetchTimer] = {}

    def look(self, machine: MachineView, role: Leader, leading: Leading, voters: int) -> None:
        """Check a leader whose code has run. `voters`: the number of voters."""
        seen, rings_at = self._seen.get(machine.name), role.check_quorum_at
        if seen is not None and seen.role is role and seen.rings_at == rings_at:
            return
        self._seen[machine.name] = FetchTimer(role, rings_at)
        if voters > 1 and (seen is None or seen.role is not role):
            self._began(machine, role, leading, voters)
        if rings_at is not None and machine.node is not None:
            longest = FETCH_TIMEOUTS * machine.settings.seconds(FETCH_TIMEOUT)
            remaining_s = rings_at - machine.own_time
            if remaining_s > longest + ROUNDING_S:
                self._report(machine, role, f"for {remaining_s:.3f} s without a fetch, and may for {longest:.3f} s")
            rings_first = role.deadline()
            if rings_first is None or rings_first > rings_at:
                self._report(machine, role, f"when its time is up: it looks at the clock at {rings_first}")

    def _began(self, machine: MachineView, role: Leader, leading: Leading, voters: int) -> None:
        """Let a copy of the leader receive repeated fetches, from too few voters and from many non-voters."""
        self._rules.checked(LEADS_ON)
        majority, others = voters // 2 + 1, list(role.voters)
        if role.check_quorum_at is None:
            self._report(machine, role, "for ever without a fetch")
            return
        few, twin = others[: majority - 2], deepcopy(role)
        twin.heard_from.clear()
        # Some have a voter's id, like a voter whose disk was replaced.
        strangers = [twin.observer(replica) for replica in (*others, *range(-voters, 0))]
        asked = (
            (f"for the fetches of {few} alone, of {voters} voters", [twin.voters[voter] for voter in few]),
            (f"for the fetches of {few} and of others, which are not voters", [*strangers, ReplicaProgress()]),
        )
        for how, heard in asked:
            for replica in (*heard, *heard):
                leading.heard_from(math.inf, twin, replica)
            if twin.check_quorum_at == math.inf:
                self._report(machine, role, how)
                return

    def _report(self, machine: MachineView, role: Leader, how: str) -> None:
        sentence = f"{machine.name} leads epoch {role.epoch}, and would lead on {how}"
        self._rules.report(LEADS_ON, sentence, {"node": machine.name, "epoch": role.epoch})
