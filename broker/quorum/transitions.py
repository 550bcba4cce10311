"""The legal transitions between roles: one table, and the invariants that hold for every transition.

No other module decides whether a role may follow another; `Core.transition_durably` is the only caller.
"""

from __future__ import annotations

from broker.quorum.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached, Voted

WITHIN_AN_EPOCH: dict[type[Role], tuple[type[Role], ...]] = {
    Unattached: (Voted, Prospective, Follower),
    Voted: (Prospective, Follower),
    Prospective: (Unattached, Voted, Follower),
    Candidate: (Leader, Voted, Follower),
    Leader: (Resigned,),
    Follower: (Prospective,),
    Resigned: (),
}

TO_A_LATER_EPOCH: dict[type[Role], tuple[type[Role], ...]] = {
    Unattached: (Unattached, Voted, Follower),
    Voted: (Unattached, Voted, Follower),
    Prospective: (Unattached, Voted, Follower, Candidate),
    Candidate: (Unattached, Voted, Follower),
    Leader: (Unattached, Voted, Follower),
    Follower: (Unattached, Voted, Follower),
    Resigned: (Unattached, Voted, Follower),
}

OBSERVER_ROLES: tuple[type[Role], ...] = (Unattached, Voted, Follower)
"""From Voted, too: the newer log of a candidate may make this node a voter before its own log does (KIP-853)."""


class IllegalTransitionError(AssertionError):
    """A bug of this broker: the state machine asked for a transition that the protocol forbids."""


def check_transition(old: Role, new: Role, *, is_voter: bool) -> None:
    """Raise `IllegalTransitionError` unless `new` may follow `old`."""
    edge = f"{old.name} of epoch {old.epoch} -> {new.name} of epoch {new.epoch}"
    if new.epoch < old.epoch:
        raise IllegalTransitionError(f"{edge}: an epoch never goes back")
    table = WITHIN_AN_EPOCH if new.epoch == old.epoch else TO_A_LATER_EPOCH
    if type(new) not in table[type(old)]:
        raise IllegalTransitionError(f"{edge}: not in the table of transitions")
    if not is_voter and type(new) not in OBSERVER_ROLES:
        raise IllegalTransitionError(f"{edge}: this node is an observer")
    if isinstance(new, Candidate) and new.epoch != old.epoch + 1:
        raise IllegalTransitionError(f"{edge}: a candidate stands in the next epoch")
    if new.epoch > old.epoch:
        return
    if old.voted_id is not None and new.voted_id != old.voted_id:
        raise IllegalTransitionError(f"{edge}: the vote for {old.voted_id} would change to {new.voted_id}")
    if old.elected_id is not None and new.elected_id != old.elected_id:
        raise IllegalTransitionError(f"{edge}: the leader {old.elected_id} would change to {new.elected_id}")
