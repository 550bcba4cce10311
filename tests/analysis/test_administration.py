"""The effects of an administrator's operations, in histories that have them and in others."""

from typing import Any

import pytest

from analysis.checkers.administration import expected_by, wrong_records, wrong_topics

Line = dict[str, Any]


def done(operation: str, target: str = "__side-1", outcome: str = "ok", **arguments: Any) -> Line:
    told = {"operation": operation, "target": target, "outcome": outcome, "error": "", "arguments": arguments}
    return {"event": "administered", "client": "administrator-1", "t": 0, **told}


def created(partitions: int = 1, outcome: str = "ok", **settings: str) -> Line:
    return done("create", outcome=outcome, partitions=partitions, settings=settings)


def seen(
    topics: dict[str, Any], records: dict[str, Any] | None = None, groups: dict[str, int] | None = None, at_s: float = 0
) -> Line:
    answers = {"topics": topics, "records": records or {}, "groups": groups or {}}
    return {"event": "cluster_seen", "nodes": [1], "t": int(at_s * 1e9), **answers}


def topic(partitions: int, **settings: str) -> dict[str, Any]:
    return {"replicas": [[1, 2]] * partitions, "settings": settings}


def problems(journal: list[Line], look: Line) -> list[str]:
    expected = expected_by(journal)
    return [f"{name}: {problem}" for name, problem in (*wrong_topics(expected, look), *wrong_records(expected, look))]


SIDE = "__side-1"
WRITTEN = [created(), done("write", partition=0, offset=0, values=["a", "b", "c"])]
KEYED = [
    done("create", partitions=1, settings={"cleanup.policy": "compact"}),
    done("write", partition=0, offset=0, values=["a", "b"], key="k"),
    done("write", partition=0, offset=2, values=["c", ""], key="k"),
]
"""The last record removes the key."""
COMPACTED = {SIDE: topic(1, **{"cleanup.policy": "compact"})}
SHORTENED = [*WRITTEN, done("delete-records", partition=0, offset=2, start=2)]


@pytest.mark.parametrize(
    ("journal", "holds", "broken", "problem"),
    [
        ([created(2)], seen({SIDE: topic(2)}), seen({}), "created, and by broker 1 it does not exist"),
        (
            [created(1), done("grow", partitions=3)],
            seen({SIDE: topic(3)}),
            seen({SIDE: topic(1)}),
            "given 3 partitions, and by broker 1 it has 1",
        ),
        (
            [created(1), done("delete")],
            seen({}),
            seen({SIDE: topic(1)}),
            "deleted, and by broker 1 it exists",
        ),
        (
            [
                created(),
                done("configure", settings={"segment.ms": "1"}),
                done("configure", settings={"segment.ms": "2"}),
            ],
            seen({SIDE: topic(1, **{"segment.ms": "2"})}),
            seen({SIDE: topic(1, **{"segment.ms": "1"})}),
            "segment.ms was set to 2, and is 1 by broker 1",
        ),
        (
            KEYED[:2],
            seen(COMPACTED, {f"{SIDE}-0": [0, [[1, "b"]]]}),
            seen(COMPACTED, {f"{SIDE}-0": [0, [[0, "a"]]]}),
            "1 acknowledged record absent, the first at offset 1 with the value b",
        ),
        (
            KEYED,
            seen(COMPACTED, {f"{SIDE}-0": [0, [[3, ""]]]}),
            seen(COMPACTED, {f"{SIDE}-0": [0, [[1, "b"]]]}),
            "1 acknowledged record absent, the first at offset 3",
        ),
        (
            [done("reassign", "log", partition=0, replicas=[1, 2])],
            seen({"log": topic(1)}),
            seen({"log": {"replicas": [[1, 2, 3]], "settings": {}}}),
            "partition 0 was given the replicas [1, 2], and by broker 1 they are [1, 2, 3]",
        ),
        (
            [done("commit", "g", offset=1), done("delete-group", "g")],
            seen({}, groups={"g": -1}),
            seen({}, groups={"g": 1}),
            "its offset is -1 by the answers (-1: deleted), and its coordinator says 1",
        ),
        (
            WRITTEN,
            seen({SIDE: topic(1)}, {"__side-1-0": [0, [[0, "a"], [1, "b"], [2, "c"]]]}),
            seen({SIDE: topic(1)}, {"__side-1-0": [0, [[0, "a"], [1, "x"]]]}),
            "2 acknowledged records absent, the first at offset 1 with the value b; there is x",
        ),
        (
            SHORTENED,
            seen({SIDE: topic(1)}, {"__side-1-0": [2, [[2, "c"]]]}),
            seen({SIDE: topic(1)}, {"__side-1-0": [0, [[0, "a"], [1, "b"], [2, "c"]]]}),
            "records below 2 were deleted, and the log starts at 0",
        ),
        (
            WRITTEN,
            seen({SIDE: topic(1)}, {"__side-1-0": [0, [[0, "a"], [1, "b"], [2, "c"]]]}),
            seen({SIDE: topic(1)}, {"__side-1-0": [3, []]}),
            "the log starts at 3, and no client deleted records from 0 on",
        ),
        (
            [*WRITTEN, done("configure", settings={"retention.ms": "20000"})],
            seen({SIDE: topic(1, **{"retention.ms": "20000"})}, {"__side-1-0": [2, [[2, "c"]]]}, at_s=21),
            seen({SIDE: topic(1, **{"retention.ms": "20000"})}, {"__side-1-0": [2, [[2, "c"]]]}, at_s=9),
            "the log starts at 2, and the record at offset 0 is too young to expire",
        ),
        (
            [*WRITTEN, done("configure", settings={"retention.bytes": "1000"})],
            seen({SIDE: topic(1, **{"retention.bytes": "1000"})}, {"__side-1-0": [2, [[2, "c"]]]}),
            seen({SIDE: topic(1, **{"retention.bytes": "1000"})}, {"__side-1-0": [1, [[2, "c"]]]}),
            "1 acknowledged record absent, the first at offset 1 with the value b; there is nothing",
        ),
    ],
)
def test_answered_operations_have_their_effects(journal: list[Line], holds: Line, broken: Line, problem: str) -> None:
    assert problems(journal, holds) == []
    assert any(problem in found for found in problems(journal, broken))


@pytest.mark.parametrize(
    ("journal", "looks"),
    [
        ([created(2, "info")], [seen({}), seen({SIDE: topic(2)})]),
        ([created(1), done("grow", outcome="info", partitions=3)], [seen({SIDE: topic(1)}), seen({SIDE: topic(3)})]),
        ([created(1), done("delete", outcome="info")], [seen({}), seen({SIDE: topic(1)})]),
        (
            [
                created(),
                done("raise-floor", "log", "info", settings={"min.insync.replicas": "2"}),
                done("raise-floor", "log", settings={"min.insync.replicas": "1"}),
            ],
            [seen({SIDE: topic(1), "log": topic(1, **{"min.insync.replicas": floor})}) for floor in "12"],
        ),
        (
            [
                done("reassign", "log", partition=0, replicas=[1, 2]),
                done("reassign", "log", "info", partition=0, replicas=[2, 3]),
            ],
            [seen({"log": {"replicas": [replicas], "settings": {}}}) for replicas in ([1, 2], [2, 3])],
        ),
        ([done("commit", "g", "info", offset=1)], [seen({}, groups={"g": -1}), seen({}, groups={"g": 1})]),
        (
            [*WRITTEN, done("delete-records", outcome="info", partition=0, offset=2, start=-1)],
            [
                seen({SIDE: topic(1)}, {"__side-1-0": [start, [[0, "a"], [1, "b"], [2, "c"]][start:]]})
                for start in (0, 1, 2)
            ],
        ),
    ],
)
def test_an_operation_without_an_answer_may_have_an_effect_or_none(journal: list[Line], looks: list[Line]) -> None:
    assert [problems(journal, look) for look in looks] == [[]] * len(looks)


def test_a_refused_creation_has_no_effect() -> None:
    assert problems([created(1, "fail")], seen({})) == []
    assert problems([created(1, "fail")], seen({SIDE: topic(1)})) != []


def test_an_uncertain_record_may_replace_those_of_its_key_at_any_time() -> None:
    uncertain = done("write", outcome="info", partition=0, offset=-1, values=["x"], key="k")
    after = done("write", partition=0, offset=4, values=["d"], key="k")
    nothing = seen(COMPACTED, {f"{SIDE}-0": [0, []]})
    assert problems([*KEYED, uncertain, after], nothing) == []
    (problem,) = problems([*KEYED, uncertain, after | {"arguments": {**after["arguments"], "key": "other"}}], nothing)
    assert "offset 4" in problem
