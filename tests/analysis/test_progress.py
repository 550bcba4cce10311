"""Liveness during faults: demanded only if the evidence shows that the cluster had to make progress."""

import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from analysis.core.progress import Attempts, Gap, IsrReport, ObservedCluster, gaps, kept, touches_of
from history.damage import Damage
from history.record.schemas import INF

S = 1_000_000_000
P = ("log", 0)
NODES = ("n1", "n2", "n3")
ROLES = dict.fromkeys(NODES, "broker")
BOUND = 10 * S
END = 100 * S


class Attempt(NamedTuple):
    inv: int
    ret: int
    ok: bool


def parts(attempts: Mapping[tuple[str, int], Sequence[Attempt]], most: int) -> Iterator[Attempts]:
    """The attempts in parts of at most `most`."""
    for partition, tried in attempts.items():
        for start in range(0, len(tried), most):
            inv, ret, ok = zip(*tried[start : start + most], strict=True)
            yield Attempts(partition, np.array(inv, np.int64), np.array(ret, np.int64), np.array(ok, np.bool_))


def fault(
    node: str, begin: int, end: int | None, *damage: Damage, status: str = "confirmed", pairs: Any = None
) -> list[dict[str, Any]]:
    parameters = {} if pairs is None else {"pairs": pairs}
    of = {"id": f"{node}/{begin}", "t": begin * S}
    begun = of | {"event": "fault_invoked", "targets": [node], "parameters": parameters, "may_destroy": list(damage)}
    lines = [begun, of | {"event": "fault_injected", "status": status}]
    return lines + ([] if end is None else [of | {"event": "fault_healed", "t": end * S}])


def tries(begin: int, end: int, *, ok: bool) -> list[Attempt]:
    """An append each second, answered within half a second."""
    return [Attempt(at * S, at * S + S // 2, ok) for at in range(begin, end)]


def judged(journal: list[dict[str, Any]], attempts: list[Attempt], least: int = 2) -> list[bool]:
    """Of each acknowledgement that was due: whether it was missing."""
    cluster = ObservedCluster(ROLES, {P: NODES}, least, touches_of(journal, BOUND // 2))
    found = [[*gaps(cluster, lambda most=most: parts({P: attempts}, most), END, BOUND)] for most in (1, 7, 1000)]  # type: ignore[misc]
    assert found[0] == found[1] == found[2]
    return [gap is not None for gap in found[0]]


KILL = (Damage.PROGRESS, Damage.MEMORY)
WORKS = tries(0, 20, ok=True)


def test_writes_that_continue_during_a_fault_pass() -> None:
    attempts = [*WORKS, *tries(20, 24, ok=False), *tries(24, 90, ok=True)]
    assert judged(fault("n3", 20, 80, *KILL), attempts) == []


def test_a_stall_with_an_untouched_majority_is_found() -> None:
    assert judged(fault("n3", 20, 80, *KILL), [*WORKS, *tries(20, 90, ok=False)]) == [True]


def test_a_bound_longer_than_any_run_has_no_stall() -> None:
    cluster = ObservedCluster(ROLES, {P: NODES}, 2, [])
    stall = tries(0, 90, ok=False)
    assert [*gaps(cluster, lambda: parts({P: stall}, 1000), END, 10**25)] == []


def test_a_stall_without_any_fault_is_found() -> None:
    assert judged([], [*WORKS, *tries(20, 90, ok=False)]) == [True]


@pytest.mark.parametrize(
    ("journal", "attempts", "least"),
    [
        pytest.param([], WORKS, 2, id="no client asks"),
        pytest.param([], [*WORKS, Attempt(20 * S, INF, False)], 2, id="its client may be gone"),
        pytest.param([], [*WORKS, *tries(20, 25, ok=False), *tries(35, 90, ok=False)], 2, id="clients paused"),
        pytest.param([], tries(0, 90, ok=False), 2, id="no write was ever acknowledged"),
        pytest.param(
            [*fault("n2", 20, 80, *KILL), *fault("n3", 20, 80, *KILL)], [*WORKS, *tries(20, 90, ok=False)], 2,
            id="a majority is down",
        ),
        pytest.param(
            fault("n3", 20, 80, *KILL), [*WORKS, *tries(20, 90, ok=False)], 3, id="too few replicas are left"
        ),
        pytest.param(
            fault("n3", 20, 80, *KILL), [*WORKS, *tries(20, 90, ok=False)], 1,
            id="the in-sync set may have been the node that is down",
        ),
        pytest.param(
            [*fault("n3", 20, 80, *KILL), *fault("n2", 10, 18, *KILL)], [*WORKS, *tries(20, 90, ok=False)], 2,
            id="a node was healed just before",
        ),
        pytest.param(
            [*fault("n3", 20, 80, *KILL), *fault("n2", 1, 2, Damage.DISK)], [*WORKS, *tries(20, 90, ok=False)], 2,
            id="a node lost its disk",
        ),
        pytest.param(
            fault("n1", 20, 80, Damage.PACKETS, pairs=[["n1", "n2"]]), [*WORKS, *tries(20, 90, ok=False)], 2,
            id="two nodes are not connected",
        ),
        pytest.param(
            fault("n3", 20, 80, *KILL), [*WORKS, *tries(20, 29, ok=False), *tries(29, 90, ok=True)], 2, id="in time"
        ),
        pytest.param([], [*WORKS, *tries(92, 100, ok=False)], 2, id="the load ends before the bound"),
        pytest.param(
            [{"event": "service_exit", "node": "n2", "t": 5 * S}, *fault("n3", 20, 80, *KILL)],
            [*WORKS, *tries(20, 90, ok=False)], 2, id="a process had ended unexpectedly",
        ),
    ],
)  # fmt: skip
def test_progress_is_not_demanded_without_evidence(
    journal: list[dict[str, Any]], attempts: list[Attempt], least: int
) -> None:
    assert not any(judged(journal, attempts, least))


def due(cluster: ObservedCluster, attempts: Mapping[tuple[str, int], Sequence[Attempt]]) -> Iterator[Gap | None]:
    """P1 by its words, with all attempts in memory."""
    for partition, tried in sorted(attempts.items()):
        acks = sorted(each.ret for each in tried if each.ok)
        ordered = sorted(tried)
        for since, following in zip(acks, [*acks[1:], INF], strict=True):
            until = min(following, END)
            asked = asked_from(ordered, since)
            if until - since <= BOUND or asked is None or asked + BOUND > END or not goes_on(ordered, asked):
                continue
            untouched = cluster.untouched(since, asked + BOUND)
            if len(set(NODES) - untouched) < cluster.least <= len(untouched) and cluster.has_majority(untouched):
                late = until - asked > BOUND
                yield Gap(partition, since, asked, until, tuple(sorted(untouched))) if late else None


def asked_from(ordered: Sequence[Attempt], since: int) -> int | None:
    if any(each.inv <= since < each.ret < INF for each in ordered):
        return since
    at = bisect_right(ordered, since, key=lambda each: each.inv)
    return ordered[at].inv if at < len(ordered) else None


def goes_on(ordered: Sequence[Attempt], asked: int) -> bool:
    covered = asked
    for each in ordered:
        if each.inv > asked + BOUND:
            break
        if each.inv - covered > BOUND // 3:
            return False
        covered = max(covered, each.inv if each.ret == INF else each.ret)
    return asked + BOUND - covered <= BOUND // 3


@pytest.mark.parametrize("seed", range(40))
def test_parts_in_any_order_give_the_same_result_as_all_attempts(seed: int) -> None:
    rng = random.Random(seed)

    def attempt(at: int) -> Attempt:
        ret = INF if rng.random() < 0.2 else at * S + rng.randrange(rng.choice([1, 1, 3, 12]) * S)
        return Attempt(at * S, ret, ret < INF and not any(low <= at < high for low, high in silent))

    silent = [(begin, begin + rng.randrange(5, 40)) for begin in (rng.randrange(20), rng.randrange(40, 80))]
    every = rng.choice([1, 2, 3, 4])
    attempts = {("log", n): [attempt(at) for at in range(0, 95, every) if rng.random() < 0.9] for n in range(3)}
    journal = fault("n3", 20, 30, *KILL) if rng.random() < 0.5 else []
    cluster = ObservedCluster(ROLES, dict.fromkeys(attempts, NODES), 2, touches_of(journal, BOUND // 2))
    expected = list(due(cluster, attempts))
    for most in (1, 4, 1000):
        some = list(parts(attempts, most))
        rng.shuffle(some)
        assert list(gaps(cluster, lambda some=some: some, END, BOUND)) == expected  # type: ignore[misc]


IDS = {name: number for number, name in enumerate(NODES, 1)}


def stayed(journal: list[dict[str, Any]], *reports: IsrReport) -> list[bool]:
    cluster = ObservedCluster(ROLES, {P: NODES}, 2, touches_of(journal, BOUND // 2))
    return [each is not None for each in kept(cluster, IDS, {P: reports}, 2 * BOUND)]


BEFORE = IsrReport(5 * S, "n1", 1, (1, 2, 3), True)
SHRUNK = IsrReport(25 * S, "n1", 2, (1, 2), True)
BACK = IsrReport(85 * S, "n1", 3, (1, 2, 3), True)


def test_an_in_sync_set_that_shrinks_while_a_replica_is_down_passes() -> None:
    assert stayed(fault("n3", 20, 80, *KILL), BEFORE, SHRUNK, BACK) == [False]


def test_a_leader_that_keeps_a_stopped_replica_is_found() -> None:
    assert stayed(fault("n3", 20, 80, *KILL), BEFORE) == [True]


@pytest.mark.parametrize(
    ("journal", "reports"),
    [
        pytest.param(fault("n3", 20, 35, *KILL), [BEFORE], id="the fault was shorter than the bound"),
        pytest.param(fault("n3", 20, 80, *KILL, status="mismatch"), [BEFORE], id="the fault was not confirmed"),
        pytest.param(fault("n3", 20, 80, Damage.SPEED), [BEFORE], id="a slow replica may stay"),
        pytest.param(fault("n3", 20, 80, Damage.PACKETS), [BEFORE], id="packets may pass"),
        pytest.param(fault("n3", 20, 80, *KILL), [BEFORE._replace(leads=False)], id="no leader reported"),
        pytest.param(fault("n3", 20, 80, *KILL), [BEFORE._replace(node="n3")], id="the leader is down itself"),
        pytest.param([*fault("n3", 20, 80, *KILL), *fault("n2", 20, 80, *KILL)], [BEFORE], id="no majority"),
        pytest.param(fault("n3", 20, None, *KILL), [BEFORE], id="when it was healed is not known"),
    ],
)
def test_no_in_sync_set_has_to_shrink_without_evidence(journal: list[dict[str, Any]], reports: list[IsrReport]) -> None:
    assert not any(stayed(journal, *reports))
