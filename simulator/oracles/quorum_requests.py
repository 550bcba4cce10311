"""The oracle of hypothetical requests to a member of the quorum: its answers in the states that a run reaches.

A request that one rule makes impossible is never sent, so no run shows whether its receiver would refuse it. A member
of the quorum is a state machine without I/O: a copy of it answers the requests here. The copy shows what the member
would have written, and whether its state changed. It shares the log with the original, and writes nothing.

The references are the quorum-state file of the machine, the records of its log, and the rules (KIP-595, KIP-996).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from broker.errors import ErrorCode
from broker.protocol.schema import NO_ID
from broker.quorum.effects import Persist, Reply
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
from broker.quorum.roles import Leader, Role
from broker.quorum.wire import METADATA_TOPIC, PARTITION
from simulator.oracles.findings import LEADS_ON, WOULD_OBEY, OracleFindings, first_flaw
from simulator.oracles.log_copy import CopiedLog
from simulator.oracles.machine_view import MachineView
from simulator.oracles.quorum_events import (
    FAR,
    OTHER_DISK,
    MemberState,
    election_flaws,
    event_flaws,
    observer_flaws,
    restart_flaws,
    restarted,
    unheard_flaws,
)

TICKET: Final = -1
FOREIGN: Final = "another-cluster"


class Supposed(NamedTuple):
    """A possible request, and what must follow. `rule`: why."""

    request: Request
    rule: str
    follows: Literal["nothing", "refusal", "consent", "again"] = "nothing"
    """`nothing`: the member refuses, and its state stays. `refusal`: its epoch may rise. `consent`: it takes the
    request, and writes its new state to the disk before it answers. `again`: it consents, and has done so before."""
    error: ErrorCode = ErrorCode.NONE
    """The code of the answer."""


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
        earlier_state = self._asked_states.get(machine.name, ())
        if machine.node is None or earlier_state == state or not copy.batches:
            return
        self._asked_states[machine.name] = state
        own_disk = voters.directory_of(machine.node_id)
        other_voters = [voter for voter in voters.others(machine.node_id) if voter in machine.settings.voters]
        log, now = machine.node.metadata_log, machine.own_time
        directory = machine.node.lifecycle.directory_id
        self._findings.compared(WOULD_OBEY, METADATA_TOPIC)
        if not other_voters or not voters.has(machine.node_id, directory):
            self._report(machine, role, first_flaw(observer_flaws(member, now, log, now + machine.settings.patience_s)))
            return
        observed = MemberState(machine, member, log, copy, other_voters, directory, now)
        rested = observed.twin()
        if earlier_state[:3] != state[:3]:
            self._report(machine, role, first_flaw(election_flaws(observed, rested)))
            self._report(machine, role, first_flaw(event_flaws(observed, rested)))
            if isinstance(role, Leader):
                self._findings.compared(LEADS_ON, METADATA_TOPIC)
                self._report(machine, role, first_flaw(unheard_flaws(observed)), LEADS_ON)
        self._ask(observed, rested.node, own_disk, "")
        if (other_process := restarted(observed)) is not None:
            self._report(machine, role, first_flaw(restart_flaws(observed, other_process)))
            self._ask(observed, other_process.node, own_disk, "after a restart ")

    def _ask(self, state: MemberState, member: RaftNode, own_disk: bytes, condition: str) -> None:
        """Send each request to a copy of a member that has done what was due. `condition`: of the sentence."""
        twin, machine = member, state.machine
        for supposed in self._of(machine, member, state.log_end, [*state.other_voters], own_disk):
            if supposed.follows != "nothing":
                twin = member.twin()
            self._findings.compared(WOULD_OBEY, METADATA_TOPIC)
            if problem := _problem(twin, state.now, supposed):
                sentence = (
                    f"{condition}{problem} {_text(supposed.request)} in epoch {member.role.epoch}: {supposed.rule}"
                )
                self._report(machine, member.role, sentence)
                return

    def _report(self, machine: MachineView, role: Role, problem: str, oracle: str = WOULD_OBEY) -> None:
        """`problem`: the end of a sentence about the member; empty without a problem."""
        if problem:
            sentence = f"{machine.name}, {role.name} in epoch {role.epoch}, {problem}"
            witness = {"node": machine.name, "epoch": role.epoch, "role": role.name}
            self._findings.report(oracle, METADATA_TOPIC, PARTITION, sentence, witness)

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
            replace(fine, candidate_id=stranger, log_end=longer),
            "the candidate is not a voter (K595-17, H30)",
            error=ErrorCode.INCONSISTENT_VOTER_SET,
        )
        yield Supposed(
            replace(begin, leader_id=stranger),
            "the leader is not a voter (K595-25)",
            error=ErrorCode.INCONSISTENT_VOTER_SET,
        )
        for request in (fine, begin):
            yield Supposed(
                replace(request, epoch=NO_EPOCH_FOLLOWS), "no epoch could follow (H30)", error=ErrorCode.INVALID_REQUEST
            )
            if own_disk != NO_ID:
                yield Supposed(
                    replace(request, voter_directory=OTHER_DISK),
                    "its disk is another one (H22)",
                    error=ErrorCode.INVALID_VOTER_KEY,
                )
            if epoch:
                yield Supposed(
                    replace(request, epoch=epoch - 1),
                    "its epoch is newer (K595-5)",
                    error=ErrorCode.FENCED_LEADER_EPOCH,
                )
        if machine.image.cluster_id is not None:
            fetch = FetchRequest(FOREIGN, candidate, epoch, log_end, 0.5, 1, own_disk)
            for foreign in (replace(fine, cluster_id=FOREIGN), fetch):
                rule = "it is of another cluster (K595-16, K595-34, K595-47)"
                yield Supposed(foreign, rule, error=ErrorCode.INCONSISTENT_CLUSTER_ID)
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
            other_leader = replace(begin, leader_id=voter, epoch=epoch)
            for request in (other_leader, EndRequest(None, voter, epoch, (machine.node_id,))):
                yield Supposed(request, f"{promise} (K595-25, K595-30)", error=ErrorCode.INVALID_REQUEST)
        if voter == vote.leader and member.election_state.leader_id == voter:
            if epoch:
                older = EndRequest(None, voter, epoch - 1, (machine.node_id,))
                yield Supposed(older, f"{promise} (K595-30)", error=ErrorCode.FENCED_LEADER_EPOCH)
            yield Supposed(replace(begin, leader_id=voter, epoch=epoch), f"{promise} (K595-24)", "again")
        if voter == vote.voted and vote.leader < 0 and member.election_state.leader_id is None:
            yield Supposed(replace(fine, candidate_id=voter, epoch=epoch), f"{promise} (K595-16)", "again")


def _fetches(member: RaftNode, log_end: OffsetAndEpoch, voter: int) -> Iterator[Supposed]:
    """Fetches that must not count for a voter (K595-34, K595-35, K595-38, H22)."""
    role, disk = member.role, member.voters.current.directory_of(voter)
    fine = FetchRequest(None, voter, role.epoch, log_end, 0.5, 1, disk)
    if not isinstance(role, Leader):
        yield Supposed(fine, "it does not lead (K595-38)", error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return
    fine = replace(fine, directory=role.voters[voter].directory)
    rule = "it leads in another epoch (K595-11, K595-34)"
    yield Supposed(replace(fine, epoch=role.epoch - 1), rule, error=ErrorCode.FENCED_LEADER_EPOCH)
    yield Supposed(replace(fine, epoch=role.epoch + 1), rule, error=ErrorCode.UNKNOWN_LEADER_EPOCH)
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
    # Before it, a leader that is deposed may answer an earlier fetch that waits.
    answers = [effect.response for effect in effects if isinstance(effect, Reply) and effect.ticket == TICKET][-1:]
    is_taken = any(_is_taken(supposed.request, answer, before.epoch) for answer in answers)
    is_changed = twin.election_state != before or _progress(twin) != progress
    for answer in answers:
        if answer.error is not supposed.error and (is_taken or supposed.error is not ErrorCode.NONE):
            return f"would answer {answer.error.name}, not {supposed.error.name},"
        if (answer.leader_id, answer.epoch) != (twin.role.leader_id, twin.role.epoch):
            return f"would name leader {answer.leader_id} of epoch {answer.epoch} in its answer"
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
