"""The oracle of hypothetical requests to a member of the quorum: its answers in the states that a run reaches.

A request that one rule makes impossible is never sent, so no run shows whether its receiver would refuse it. A member
of the quorum is a state machine without I/O: a copy of it answers the requests here. The copy shows what the member
would have written, and whether its state changed. It shares the log with the original, and writes nothing.

The references are the quorum-state file of the machine, the records of its log, and the rules (KIP-595, KIP-996).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from broker.errors import ErrorCode
from broker.protocol.schema import NO_ID
from broker.quorum.effects import Effect, Persist, Reply, Send
from broker.quorum.messages import (
    NO_EPOCH_FOLLOWS,
    BeginRequest,
    EndRequest,
    FetchRequest,
    OffsetAndEpoch,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from broker.quorum.raft_node import RaftNode
from broker.quorum.roles import Leader
from broker.quorum.voters import VoterSet
from broker.quorum.wire import METADATA_TOPIC, PARTITION
from simulator.oracles.findings import WOULD_OBEY, OracleFindings
from simulator.oracles.log_copy import CopiedLog
from simulator.oracles.machine_view import MachineView

TICKET: Final = -1
OTHER_DISK: Final = bytes(15) + b"\xff"
"""The directory id of no disk."""
FOREIGN: Final = "another-cluster"
STANDING_ROUNDS: Final = 4
"""How long a member without a leader may wait before it stands, in times that the loss of a leader takes."""
MOST_STEPS: Final = 200
"""How often the clock of a copy is moved to its next deadline: a defect may set one that never passes."""
FAR: Final = 1_000
"""How much longer the log of a supposed candidate is."""


class Supposed(NamedTuple):
    """A possible request, and what must follow. `rule`: why."""

    request: Request
    rule: str
    follows: Literal["nothing", "refusal", "consent", "again"] = "nothing"
    """`nothing`: the member refuses, and its state stays. `refusal`: its epoch may rise. `consent`: it takes the
    request, and writes its new state to the disk before it answers. `again`: it consents, and has done so before."""


class QuorumRequests:
    """Asks the members of one quorum."""

    def __init__(self, findings: OracleFindings) -> None:
        self._findings = findings
        self._asked_states: dict[str, tuple[object, ...]] = {}

    def look(self, machine: MachineView, member: RaftNode, copy: CopiedLog) -> None:
        """Ask a member once for each role, voter set and state on its disk. `copy`: its log."""
        role, voters = member.role, member.voters.current
        has_committed = isinstance(role, Leader) and role.high_watermark is not None
        state = (role, voters, has_committed, machine.durable_state)
        if machine.node is None or self._asked_states.get(machine.name) == state or not copy.batches:
            return
        self._asked_states[machine.name] = state
        own_disk = voters.directory_of(machine.node_id)
        other_voters = [voter for voter in voters.others(machine.node_id) if voter in machine.settings.voters]
        if not other_voters or not voters.has(machine.node_id, machine.node.lifecycle.directory_id):
            return
        log, now = machine.node.metadata_log, machine.own_time
        rested = deepcopy(member, {id(log): log})
        rested.tick(now)  # what is due happens without any request
        # A leader has its epoch before it has a record of it.
        log_end = OffsetAndEpoch(max(copy.batches[-1].epoch, log.epochs.latest_epoch), copy.end)
        try:
            problem = _election(deepcopy(rested, {id(log): log}), now, machine, voters)
        except Exception as error:  # its process would end
            problem = f"would end with {type(error).__name__}"
        if problem:
            sentence = f"{machine.name}, {role.name} in epoch {role.epoch}, {problem}, if it hears no leader"
            witness = {"node": machine.name, "epoch": role.epoch, "role": role.name}
            self._findings.report(WOULD_OBEY, METADATA_TOPIC, PARTITION, sentence, witness)
        twin = rested
        for supposed in self._of(machine, rested, log_end, other_voters, own_disk):
            if supposed.follows != "nothing":
                twin = deepcopy(rested, {id(log): log})
            self._findings.compared(WOULD_OBEY, METADATA_TOPIC)
            if problem := _problem(twin, now, supposed):
                sentence = f"{machine.name} {problem} {_text(supposed.request)} in epoch {role.epoch}: {supposed.rule}"
                witness = {"node": machine.name, "epoch": role.epoch, "role": role.name}
                self._findings.report(WOULD_OBEY, METADATA_TOPIC, PARTITION, sentence, witness)
                return

    def _of(
        self, machine: MachineView, member: RaftNode, log_end: OffsetAndEpoch, other_voters: list[int], own_disk: bytes
    ) -> Iterator[Supposed]:
        """All requests, those that may change the member last."""
        epoch, candidate = member.role.epoch, other_voters[0]
        fine = VoteRequest(None, candidate, epoch + 1, log_end, voter_directory=own_disk)
        begin = BeginRequest(None, candidate, epoch + 1, own_disk)
        stranger = max(*machine.settings.voters, machine.node_id) + 1
        longer = replace(log_end, offset=log_end.offset + FAR)
        yield Supposed(
            replace(fine, candidate_id=stranger, log_end=longer), "the candidate is not a voter (K595-17, H30)"
        )
        yield Supposed(replace(begin, leader_id=stranger), "the leader is not a voter (K595-25)")
        for request in (fine, begin):
            yield Supposed(replace(request, epoch=NO_EPOCH_FOLLOWS), "no epoch could follow (H30)")
            if own_disk != NO_ID:
                yield Supposed(replace(request, voter_directory=OTHER_DISK), "its disk is another one (H22)")
            if epoch:
                yield Supposed(replace(request, epoch=epoch - 1), "its epoch is newer (K595-5)")
        if machine.image.cluster_id is not None:
            yield Supposed(replace(fine, cluster_id=FOREIGN), "it is of another cluster (K595-47)")
        shorter_logs = [replace(log_end, offset=log_end.offset - 1), replace(longer, epoch=log_end.epoch - 1)]
        for end in shorter_logs:
            request = replace(fine, epoch=epoch, pre_vote=True, log_end=end)
            yield Supposed(request, f"its log ends at {_end(log_end)} (K595-18)")
        yield from _of_this_epoch(machine, member, fine, begin, other_voters)
        yield from _fetches(member, log_end, candidate)
        for end in shorter_logs:  # the epoch of such a candidate is adopted, without a vote
            yield Supposed(replace(fine, log_end=end), f"its log ends at {_end(log_end)} (K595-18)", "refusal")
        yield Supposed(fine, "the candidate has the same log, in a newer epoch (K595-16, K595-19)", "consent")
        yield Supposed(begin, "a voter leads in a newer epoch (K595-24)", "consent")


def _election(twin: RaftNode, now: float, machine: MachineView, voters: VoterSet) -> str:
    """What is wrong with how a member stands, in a supposed time without a leader in which all others answer; empty if
    nothing is.

    It asks for pre-votes in its epoch first (KIP-996), and for votes in the next one only after a majority would give
    them and its own vote is on its disk (K595-12, K595-13, K595-21). A majority makes it the leader, not less.
    """
    other_voters = voters.others(machine.node_id)
    until = now + STANDING_ROUNDS * machine.settings.patience_s
    effects: list[Effect] = []
    for _ in range(MOST_STEPS):
        due = twin.deadline()
        if due is None:
            return ""  # it shuts down
        if due > until or _votes_asked(effects):
            break
        now = max(now, due)
        effects = twin.tick(now)
    if not _votes_asked(effects):
        return f"does not stand within {STANDING_ROUNDS} times {machine.settings.patience_s:.1f} s"
    epoch = twin.role.epoch
    for is_binding in (False, True):
        requests = _votes_asked(effects)
        if not requests or any(
            request.pre_vote is is_binding or request.epoch != epoch for request in requests.values()
        ):
            kind = "votes" if is_binding else "pre-votes"
            return f"must ask for {kind} in epoch {epoch}, and sends {list(requests.values())}"
        if is_binding and Persist not in [type(effect) for effect in effects[: _first_vote(effects)]]:
            return "asks for votes before its own vote is on its disk"
        for number, voter in enumerate(other_voters[: voters.majority - 1], 2):
            if isinstance(twin.role, Leader) or (twin.role.epoch > epoch):
                return f"wins epoch {epoch} with {number - 1} of {len(other_voters) + 1} votes"
            request = requests.get(voter) or next(iter(requests.values()))
            effects = twin.answered(now, voter, request, VoteResponse(ErrorCode.NONE, None, epoch, True))
        epoch += not is_binding
    if not isinstance(twin.role, Leader):
        return f"does not lead with {voters.majority} votes"
    return "" if _announces_again(twin, now, effects) else "announces its election only once (K595-23)"


def _announces_again(twin: RaftNode, now: float, effects: Sequence[Effect]) -> bool:
    """Whether a new leader repeats an announcement that was not answered, before it resigns."""
    lost: Send | None = None
    for _ in range(MOST_STEPS):
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.request, BeginRequest):
                if lost is not None and effect.to == lost.to:
                    return True
                lost = lost or effect
                twin.unanswered(now, effect.to, effect.request)
        due = twin.deadline()
        if due is None or not isinstance(twin.role, Leader):
            return False
        now = max(now, due)
        effects = twin.tick(now)
    return False


def _votes_asked(effects: Iterable[Effect]) -> dict[int, VoteRequest]:
    """The requests for votes among some effects, by the voter that they are sent to."""
    return {
        effect.to: effect.request
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.request, VoteRequest)
    }


def _first_vote(effects: Iterable[Effect]) -> int:
    """The place of the first request for a vote."""
    is_vote = [isinstance(effect, Send) and isinstance(effect.request, VoteRequest) for effect in effects]
    return is_vote.index(True)


def _of_this_epoch(
    machine: MachineView, member: RaftNode, fine: VoteRequest, begin: BeginRequest, other_voters: list[int]
) -> Iterator[Supposed]:
    """A vote is given once in an epoch, and none after its leader is known; the leader of an epoch stays (K595-14,
    K595-16, K595-25, K595-30). The machine's disk says what it has promised."""
    epoch, vote = member.role.epoch, machine.durable_vote()
    if isinstance(member.role, Leader):
        yield Supposed(replace(fine, epoch=epoch, pre_vote=True), "it leads (KIP-996)")
    if vote is None or vote.epoch != epoch:
        return
    promise = f"it has voted for {vote.voted}, and {vote.leader} leads"
    for voter in other_voters:
        if voter not in (vote.voted, vote.leader) and (vote.voted >= 0 or vote.leader >= 0):
            yield Supposed(replace(fine, candidate_id=voter, epoch=epoch), f"{promise} (K595-14)")
        if voter != vote.leader and vote.leader >= 0:
            yield Supposed(replace(begin, leader_id=voter, epoch=epoch), f"{promise} (K595-25)")
            yield Supposed(EndRequest(None, voter, epoch, (machine.node_id,)), f"{promise} (K595-30)")
        if voter == vote.leader and member.election_state.leader_id == voter:
            if epoch:
                yield Supposed(EndRequest(None, voter, epoch - 1, (machine.node_id,)), f"{promise} (K595-30)")
            yield Supposed(replace(begin, leader_id=voter, epoch=epoch), f"{promise} (K595-24)", "again")
        if voter == vote.voted and vote.leader < 0 and member.election_state.leader_id is None:
            yield Supposed(replace(fine, candidate_id=voter, epoch=epoch), f"{promise} (K595-16)", "again")


def _fetches(member: RaftNode, log_end: OffsetAndEpoch, voter: int) -> Iterator[Supposed]:
    """Fetches that must not count for a voter (K595-34, K595-35, K595-38, H22)."""
    role, disk = member.role, member.voters.current.directory_of(voter)
    fine = FetchRequest(None, voter, role.epoch, log_end, 0.5, 1, disk)
    if not isinstance(role, Leader):
        yield Supposed(fine, "it does not lead (K595-38)")
        return
    fine = replace(fine, directory=role.voters[voter].directory)
    for epoch in (role.epoch - 1, role.epoch + 1):
        yield Supposed(replace(fine, epoch=epoch), "it leads in another epoch (K595-34)")
    older = replace(log_end, epoch=log_end.epoch - 1)
    yield Supposed(
        replace(fine, fetch_from=older), f"its log ends at {_end(log_end)}: the replica's diverges (K595-35)"
    )
    if disk != NO_ID:
        yield Supposed(replace(fine, directory=OTHER_DISK), "the voter has another disk (H22)")


def _is_taken(request: Request, answer: Response, epoch: int) -> bool:
    """Whether an answer accepts the request. A leader also answers fetches of observers."""
    if answer.error is not ErrorCode.NONE:
        return False
    match request:
        case VoteRequest():
            return isinstance(answer, VoteResponse) and answer.granted
        case FetchRequest():
            return request.epoch != epoch or answer.leader_id is None
        case _:
            return True


def _problem(twin: RaftNode, now: float, supposed: Supposed) -> str:
    """What is wrong with a member's reaction; empty if nothing is."""
    before, progress, deadline = twin.election_state, _progress(twin), twin.role.deadline()
    try:
        effects = twin.receive(now, TICKET, supposed.request)
    except Exception as error:  # its process would end
        return f"would end with {type(error).__name__} by"
    kinds = [type(effect) for effect in effects]
    answers = [effect.response for effect in effects if isinstance(effect, Reply) and effect.ticket == TICKET]
    is_taken = any(_is_taken(supposed.request, answer, before.epoch) for answer in answers)
    is_changed = twin.election_state != before or _progress(twin) != progress
    match supposed.follows:
        case "nothing":
            ends = isinstance(supposed.request, EndRequest) and twin.role.deadline() != deadline
            return "would take" if is_taken or is_changed or ends else ""
        case "refusal":
            return "would take" if is_taken else ""
        case "again":
            return "" if is_taken else "would refuse"
        case "consent":
            if not (is_taken and is_changed):
                return "would refuse"
            return "" if Persist in kinds[: kinds.index(Reply)] else "would answer, before the disk has the new state,"


def _progress(member: RaftNode) -> Mapping[int, int | None]:
    """The ends of the other voters' logs that a leader counts."""
    role = member.role
    voters = role.voters if isinstance(role, Leader) else {}
    return {voter: progress.fetch_offset for voter, progress in voters.items()}


def _end(end: OffsetAndEpoch) -> str:
    return f"offset {end.offset} of epoch {end.epoch}"


def _text(request: Request) -> str:
    match request:
        case VoteRequest():
            kind, end = "a pre-vote" if request.pre_vote else "a vote", _end(request.log_end)
            return f"the request for {kind} of {request.candidate_id} in epoch {request.epoch} with a log up to {end}"
        case BeginRequest():
            return f"the announcement of leader {request.leader_id} in epoch {request.epoch}"
        case FetchRequest():
            return f"a fetch of voter {request.replica_id} in epoch {request.epoch} from {_end(request.fetch_from)}"
        case EndRequest():
            return f"the resignation of leader {request.leader_id} in epoch {request.epoch}"
        case _:
            return type(request).__name__
