"""Consumer groups: commits are kept, and no record is skipped. `analysis/core/groups.py` states the rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome, apart_from_forgotten, first_of
from analysis.core.anomaly import AnomalyKind, Promise
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN

if TYPE_CHECKING:
    from history.groups import GroupRecords

COMMIT_STAYS: Final = Promise("GC", "a group's offset commit that was acknowledged or shown persists")
AT_LEAST_ONCE: Final = Promise("ALO", "a group receives every record at least once")

GROUP: Final = "group"
"""The kind of workload whose plan has a group."""
MEMBER: Final = "member"
RECORDED: Final = (MEMBER, "reader")
"""The roles of clients that write a record of the group: the reader fetches its offsets at the end."""
SKIPPED: Final = AnomalyKind(
    "skipped-record", AT_LEAST_ONCE, "A group committed an offset past a record that no member received."
)
ANOMALIES: Final = (
    AnomalyKind(
        "lost-acknowledged-commit",
        COMMIT_STAYS,
        "A fetch of a group's offset returned an older commit, or none, after a newer one had been "
        "acknowledged or shown.",
    ),
    AnomalyKind(
        "phantom-commit", COMMIT_STAYS, "A fetch of a group's offset returned an offset that no client committed."
    ),
    SKIPPED,
)

UNDECIDED: Final = Reason("group-record-not-whole", "The record of a group's members is incomplete.")


def check(run: CheckedRun) -> Outcome:
    """Check the group of a run; runs without members have none."""
    from analysis.core.groups import judge
    from analysis.evidence.group_history import contradictions
    from history.groups import read_groups
    from history.journal import CLIENT

    roles = {line["client"]: line["role"] for line in run.history.journal if line["event"] == CLIENT}
    groups = read_groups(run.directory)
    if run.description.kind != GROUP and MEMBER not in roles.values() and not groups.members:
        return Outcome(NOT_APPLICABLE, "no consumer group took part")
    planned = {client for client, role in roles.items() if role in RECORDED}
    judged = judge(run.description.topic, groups.commits, groups.fetches, groups.deliveries)
    found, forgotten = apart_from_forgotten(judged, SKIPPED.name, run.forgetting)
    incomplete = _incomplete(groups, planned)
    doubts = (
        *incomplete,
        *forgotten,
        *_out_of_life(run, groups),
        *_unseen(run, groups),
        *contradictions(
            groups,
            run.history,
            run.description.topic,
            frozenset(client for client, role in roles.items() if role == MEMBER),
            all_kept=not run.forgetting,
        ),
    )
    acknowledged = sum(commit.acknowledged for commit in groups.commits)
    size = (
        f"{acknowledged:,} acknowledged commits, {len(groups.fetches):,} fetches of offsets, "
        f"{sum(each.last - each.first + 1 for each in groups.deliveries):,} records delivered, "
        f"{groups.assignments} assignments to {len(groups.members)} clients"
    )
    if found and incomplete:
        return Outcome(UNKNOWN, f"{len(found)} anomalies that missing records may explain; {size}", (), doubts)
    if found:
        return Outcome(FAIL, f"{len(found)} promises to the group were broken; {size}", found, doubts)
    if forgotten:
        return Outcome(UNKNOWN, f"no commit lost, but skipped records that may have been removed; {size}", (), doubts)
    return Outcome(PASS, f"no commit lost, no record skipped: {size}", doubts=doubts)


def _incomplete(groups: GroupRecords, planned: set[str]) -> tuple[str, ...]:
    """Members' records that are missing or cannot be believed."""
    doubts = list(groups.defects)
    if missing := sorted(planned - set(groups.members)):
        doubts.append(f"the record of members is missing: {first_of(missing, ', ')}")
    if strange := sorted(set(groups.members) - planned):
        doubts.append(f"there is a record of members that were not started: {first_of(strange, ', ')}")
    return tuple(doubts)


def _out_of_life(run: CheckedRun, groups: GroupRecords) -> Iterator[str]:
    """Lines whose times are outside of their client's lifetime: nothing shows that they are of this run."""
    from analysis.evidence.journal_order import lives_of
    from history.schemas import INF

    lives = lives_of(run.history.journal)
    spans = [
        *((commit.member, commit.inv, commit.ret if commit.acknowledged else commit.inv) for commit in groups.commits),
        *((fetch.member, fetch.inv, fetch.ret) for fetch in groups.fetches),
        *((delivery.member, delivery.at, delivery.at) for delivery in groups.deliveries),
    ]
    for member in groups.members:
        began, ended = lives.get(member, (0, INF))
        if count := sum(who == member and not began <= inv <= ret <= ended for who, inv, ret in spans):
            yield f"the record of {member} has {count} times before it started or after it had ended"


def _unseen(run: CheckedRun, groups: GroupRecords) -> Iterator[str]:
    """Partitions that were never checked, or that do not exist."""
    from analysis.evidence.journal_order import began_at

    if beyond := sorted(str(each) for each in groups.partitions if each >= run.description.partitions):
        yield f"members name partitions that do not exist: {first_of(beyond, ', ')}"
    for what, partitions in (
        ("no commit was acknowledged", {commit.partition for commit in groups.commits if commit.acknowledged}),
        ("no committed offset was fetched", {fetch.partition for fetch in groups.fetches}),
    ):
        if empty := [str(each) for each in range(run.description.partitions) if each not in partitions]:
            yield f"{what} of partitions {first_of(empty, ', ')}"
    final = began_at(run.history.journal, "final")
    in_the_end = {fetch.partition for fetch in groups.fetches if final is not None and fetch.inv >= final}
    if final is not None and (unread := sorted({each.partition for each in groups.commits} - in_the_end)):
        names = first_of(list(map(str, unread)), ", ")
        yield f"no committed offset was fetched after healing of partitions {names}"


CHECKER: Final = Checker(
    "consumer groups",
    "Do a consumer group's commits persist, and was every record below them delivered to a member?",
    20,
    ANOMALIES,
    check,
    (UNDECIDED,),
    may_rest=lambda description: description.kind != GROUP,
    reads="|".join((PLAN, JOURNAL, OPERATIONS, "history/groups(/.*)?")),
)
