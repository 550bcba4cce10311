"""The promises of workloads: a table of histories, and histories of honest objects that never break one."""

import random
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.core.models import MODELS, ModelOperation
from analysis.core.object_judgement import judge_object, model_of
from analysis.core.workload_promises import PROMISES, PromiseReport
from history.foreign.edn import form_of
from history.foreign.kinds import MODELS_OF, PROMISE_NAMES
from history.record.schemas import INF

NEVER = INF
Row = tuple[str, str, str | None, int, int]
"""The function, the argument and the answer as EDN, the invocation and the return."""


def operations_of(model: str, *rows: Row) -> list[ModelOperation]:
    operations = []
    for number, (f, argument, answer, inv, ret) in enumerate(rows):
        form = None if answer is None else form_of(answer)
        values = model_of(model).values(f, form_of(argument), form, is_answered=ret < INF)
        operations.append(ModelOperation(number, number, f, *values, inv, ret))
    return operations


def report(model: str, *rows: Row, initial: str | None = None) -> PromiseReport:
    promises = PROMISES[model]
    return promises.check(promises.initial(None if initial is None else form_of(initial)), operations_of(model, *rows))


def anomalies(model: str, *rows: Row, initial: str | None = None) -> dict[str, int]:
    return {case.anomaly: case.count for case in report(model, *rows, initial=initial).contradictions}


def add(element: str, inv: int, ret: int = NEVER) -> Row:
    return "add", element, None, inv, ret


def read(answer: str, inv: int, ret: int) -> Row:
    return "read", "nil", answer, inv, ret


def put(element: str, inv: int, ret: int = NEVER) -> Row:
    return "enqueue", element, None, inv, ret


def take(answer: str, inv: int, ret: int = NEVER) -> Row:
    return "dequeue", "nil", answer if ret < NEVER else None, inv, ret


def removed(element: str, inv: int, ret: int = NEVER) -> Row:
    return "remove", element, None, inv, ret


def drained(answer: str, inv: int, ret: int) -> Row:
    return "drain", "nil", answer, inv, ret


def paid(inv: int, ret: int) -> Row:
    return "transfer", "{:from 0 :to 1 :amount 5}", None, inv, ret


def generated(answer: str, inv: int, ret: int) -> Row:
    return "generate", "nil", answer, inv, ret


CASES: dict[str, tuple[str, tuple[Row, ...], dict[str, int]]] = {
    # sets
    "a late element": ("set-full", (add("1", 0, 1), read("[]", 2, 3), read("[1]", 4, 5)), {"stale-read": 1}),
    "a read during the add": ("set-full", (add("1", 0, 9), read("[]", 2, 3), read("[1]", 4, 5)), {}),
    "an element that vanishes": (
        "set-full",
        (add("1", 0, 1), read("[1]", 2, 3), read("[]", 4, 5), read("[]", 6, 7)),
        {"lost-element": 1},
    ),
    "an acknowledged element that no read shows": (
        "set-full",
        (add("1", 0, 1), add("2", 0, 1), read("[]", 2, 3)),
        {"lost-element": 2},
    ),
    "an element of unknown outcome": ("set-full", (add("1", 0), read("[]", 2, 3)), {}),
    "an element of unknown outcome that was seen": (
        "set-full",
        (add("1", 0), read("[1]", 2, 3), read("[]", 4, 5)),
        {"lost-element": 1},
    ),
    "reads at once": ("set-full", (add("1", 0, 1), read("[1]", 2, 9), read("[]", 3, 4)), {"stale-read": 1}),
    "an element that nobody added": ("set-full", (read("[1]", 2, 3),), {"phantom-element": 1}),
    "an element before its add": ("set-full", (read("[1]", 0, 1), add("1", 2, 3)), {"phantom-element": 1}),
    "an element twice": ("set-full", (add("1", 0, 1), read("[1 1]", 2, 3)), {"duplicate-element": 1}),
    "a removed element": ("set-full", (add("1", 0, 1), removed("1", 2, 3), read("[]", 4, 5)), {}),
    "a removed element that returns": (
        "set-full",
        (add("1", 0, 1), removed("1", 2, 3), read("[1]", 4, 5)),
        {"resurrected-element": 1},
    ),
    "a removal during a read": ("set-full", (add("1", 0, 1), removed("1", 2, 5), read("[1]", 4, 6)), {}),
    "an element that is added again": (
        "set-full",
        (add("1", 0, 1), removed("1", 2, 3), add("1", 3, 6), read("[1]", 4, 5)),
        {},
    ),
    "an element that is missing before its removal": (
        "set-full",
        (add("1", 0, 1), read("[]", 2, 3), removed("1", 4, 5), read("[]", 6, 7)),
        {"stale-read": 1},
    ),
    "an element that is missing before an open removal": (
        "set-full",
        (add("1", 0, 1), read("[]", 2, 3), read("[1]", 4, 5), removed("1", 6)),
        {"stale-read": 1},
    ),
    "an element that is lost after its removal": (
        "set-full",
        (add("1", 0, 1), removed("1", 2, 3), add("1", 4, 5), read("[]", 6, 7)),
        {"lost-element": 1},
    ),
    "an element that is removed twice and returns": (
        "set-full",
        (add("1", 0, 1), removed("1", 2, 3), add("1", 4, 5), removed("1", 6, 7), read("[1]", 8, 9)),
        {"resurrected-element": 1},
    ),
    "an element that is gone after an open removal": (
        "set-full",
        (add("1", 0, 1), removed("1", 2), read("[]", 4, 5)),
        {},
    ),
    "reads that show two elements in different orders": (
        "set-full",
        (add("1", 0, 9), add("2", 0, 9), read("[1]", 1, 8), read("[2]", 1, 8), read("[1 2]", 10, 11)),
        {"stale-read": 1},
    ),
    "a read that lacks the earlier one of two elements": (
        "set-full",
        (add("1", 1, 2), add("2", 3, 4), read("[2]", 0, 5), read("[1 2]", 6, 7)),
        {"stale-read": 1},
    ),
    "a read that lacks the earlier one of two elements at once": (
        "set-full",
        (add("1", 1, 3), add("2", 2, 4), read("[2]", 0, 5), read("[1 2]", 6, 7)),
        {},
    ),
    # queues
    "each element once": ("total-queue", (put("1", 0, 1), take("1", 2, 3), drained("[]", 4, 5)), {}),
    "an element in the drain": ("total-queue", (put("1", 0, 1), drained("[1]", 4, 5)), {}),
    "an element that is gone": ("total-queue", (put("1", 0, 1), drained("[]", 4, 5)), {"lost-element": 1}),
    "an empty queue with an element": ("total-queue", (put("1", 0, 1), take("nil", 4, 5)), {"lost-element": 1}),
    "an empty queue before the element": ("total-queue", (put("1", 0, 6), take("nil", 4, 5)), {}),
    "an element in an open dequeue": ("total-queue", (put("1", 0, 1), take("", 2), drained("[]", 4, 5)), {}),
    "two elements in one open dequeue": (
        "total-queue",
        (put("1", 0, 1), put("2", 0, 1), take("", 2), drained("[]", 4, 5)),
        {"lost-element": 2},
    ),
    "two elements in one open drain": (
        "total-queue",
        (put("1", 0, 1), put("2", 0, 1), ("drain", "nil", None, 2, NEVER), take("nil", 4, 5)),
        {},
    ),
    "an element that is taken twice": (
        "total-queue",
        (put("1", 0, 1), take("1", 2, 3), take("1", 4, 5)),
        {"duplicate-element": 1},
    ),
    "an element that is taken twice and enqueued again": (
        "total-queue",
        (put("1", 0, 1), take("1", 2, 3), take("1", 4, 5), put("1", 6, 7), drained("[]", 8, 9)),
        {"duplicate-element": 1},
    ),
    "an element that is enqueued twice": (
        "total-queue",
        (put("1", 0, 1), put("1", 0), take("1", 2, 3), take("1", 4, 5)),
        {},
    ),
    "an element from nowhere": ("total-queue", (take("1", 2, 3),), {"phantom-element": 1}),
    "an element before its enqueue": ("total-queue", (take("1", 0, 1), put("1", 2, 3)), {"phantom-element": 1}),
    "an order": (
        "total-queue",
        (put("1", 0, 1), put("2", 2, 3), take("2", 4, 5), take("1", 6, 7)),
        {"out-of-order": 1},
    ),
    "enqueues at once": ("total-queue", (put("1", 0, 3), put("2", 2, 4), take("2", 4, 5), take("1", 6, 7)), {}),
    "dequeues at once": ("total-queue", (put("1", 0, 1), put("2", 2, 3), take("2", 4, 6), take("1", 5, 7)), {}),
    # counters
    "a sum": ("counter-bounds", (add("2", 0, 1), add("-1", 2, 3), read("1", 4, 5)), {}),
    "an open addition": ("counter-bounds", (add("2", 0), read("2", 4, 5), read("0", 6, 7)), {}),
    "a sum that lacks an addition": (
        "counter-bounds",
        (add("2", 0, 1), read("0", 2, 3), add("1", 4, 5), read("3", 6, 7)),
        {"stale-sum": 1},
    ),
    "a last sum that lacks an addition": ("counter-bounds", (add("2", 0, 1), read("0", 2, 3)), {"lost-sum": 1}),
    "a sum that nothing explains": ("counter-bounds", (add("2", 0, 1), read("3", 2, 3)), {"impossible-sum": 1}),
    "a sum below zero": ("eventual-counter", (add("-2", 0, 1), read("-3", 2, 3)), {"impossible-sum": 1}),
    # banks
    "equal totals": ("bank", (read("{0 5 1 5}", 0, 1), paid(2, 3), read("{0 0 1 10}", 4, 5)), {}),
    "another total": ("bank", (read("{0 5 1 5}", 0, 1), paid(2, 3), read("{0 0 1 5}", 4, 5)), {"wrong-total": 1}),
    "a debt": ("bank", (read("{0 5 1 5}", 0, 1), paid(2, 3), read("{0 -5 1 15}", 4, 5)), {"negative-balance": 1}),
    "a lost account": ("bank", (read("{0 5 1 5}", 0, 1), paid(2, 3), read("{0 10}", 4, 5)), {"other-accounts": 1}),
    # ids and echoes
    "ids": ("unique-ids", (generated("1", 0, 1), generated('"1"', 0, 1)), {}),
    "an id twice": ("unique-ids", (generated("[1]", 0, 1), generated("(1)", 0, 1)), {"duplicate-id": 1}),
    "an echo": ("echo", (("echo", '"a"', '{:type "echo_ok" :echo "a"}', 0, 1),), {}),
    "another echo": ("echo", (("echo", '"a"', '{:echo "b"}', 0, 1),), {"wrong-echo": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_history_breaks_these_promises(name: str) -> None:
    model, rows, expected = CASES[name]
    assert anomalies(model, *rows) == expected


UNDECIDED: dict[str, tuple[str, tuple[Row, ...]]] = {
    "a set without a read": ("set-full", (add("1", 0, 1),)),
    "an element after the last read": ("set-full", (read("[]", 0, 1), add("1", 2, 3))),
    "two reads at once": ("set-full", (add("1", 0, 1), read("[1]", 2, 9), read("[]", 3, 4))),
    "a removal after the last read": ("set-full", (add("1", 0, 1), read("[1]", 2, 3), removed("1", 4, 5))),
    "an add after the last removal": ("set-full", (removed("1", 0, 1), read("[]", 2, 3), add("1", 4, 5))),
    "an element that no read shows before its removal": (
        "set-full",
        (add("1", 0, 1), read("[]", 2, 3), removed("1", 4, 5), read("[]", 6, 7)),
    ),
    "a queue that was not drained": ("total-queue", (put("1", 0, 1), put("2", 0, 1), take("1", 2, 3))),
    "an open dequeue": ("total-queue", (put("1", 0, 1), take("", 2), drained("[]", 4, 5))),
    "an open drain": ("total-queue", (put("1", 0, 1), ("drain", "nil", None, 2, NEVER), take("nil", 4, 5))),
    "a sum before the additions": ("counter-bounds", (read("0", 0, 1), add("1", 2, 3))),
    "a bank without a transfer": ("bank", (read("{0 5}", 0, 1),)),
    "a bank without a read": ("bank", (paid(0, 1),)),
    "no id": ("unique-ids", ()),
    "no echo": ("echo", ()),
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_a_history_without_evidence_has_a_doubt(name: str) -> None:
    model, rows = UNDECIDED[name]
    assert report(model, *rows).doubts
    assert set(anomalies(model, *rows)) <= {"stale-read"}


def test_the_stated_start_counts() -> None:
    assert anomalies("set-full", read("[1]", 2, 3), initial="#{1}") == {}
    assert anomalies("set-full", read("[]", 2, 3), initial="#{1}") == {"lost-element": 1}
    assert anomalies("counter-bounds", read("7", 2, 3), initial="7") == {}
    assert anomalies("bank", read("{0 5}", 2, 3), initial="6") == {"wrong-total": 1}


def test_names_of_models_are_those_of_the_command() -> None:
    assert tuple(PROMISES) == PROMISE_NAMES
    for name, promises in PROMISES.items():
        assert all(name in MODELS_OF[f] for f in promises.functions if f != "read"), name


def honest(seed: int) -> Iterator[tuple[str, list[Row]]]:
    """Histories of objects that take effect at one moment of each operation; some outcomes are unknown."""
    rng = random.Random(seed)
    elements, queue, total, balances = set[str](), list[str](), 0, [50, 50]
    rows: dict[str, list[Row]] = {"set-full": [], "total-queue": [], "counter-bounds": [], "bank": []}
    for now in range(10, 10 + 20 * rng.randint(2, 20), 20):
        inv, ret = now - rng.randint(0, 60), now + rng.randint(1, 60)
        happens, is_known = rng.random() < 0.8, rng.random() < 0.8
        end = ret if is_known and happens else NEVER
        name = str(now)
        if rng.random() < 0.5:
            amount = rng.randint(-3, 3)
            if happens:
                queue.append(name)
                total += amount
                balances = [balances[0] - amount, balances[1] + amount]
            element, is_removal = rng.choice(("1", "2", name)), rng.random() < 0.3
            rows["set-full"].append((removed if is_removal else add)(element, inv, end))
            if happens:
                elements = elements - {element} if is_removal else elements | {element}
            rows["total-queue"].append(put(name, inv, end))
            rows["counter-bounds"].append(add(str(amount), inv, end))
            rows["bank"].append(("transfer", f"{{:amount {amount}}}", None, inv, end))
        else:
            rows["set-full"].append(read(f"[{' '.join(elements)}]", inv, ret))
            rows["counter-bounds"].append(read(str(total), inv, ret))
            rows["bank"].append(read(f"{{0 {balances[0]} 1 {balances[1]}}}", inv, ret))
            if happens and rng.random() < 0.2:
                answer = f"[{' '.join(queue)}]" if is_known else None
                rows["total-queue"].append(("drain", "nil", answer, inv, end))
                queue.clear()
            elif happens:
                taken = queue.pop(0) if queue else "nil"
                rows["total-queue"].append(take(taken, inv, end))
    yield from rows.items()


@given(st.integers(0, 1 << 32))
def test_an_honest_object_breaks_no_promise(seed: int) -> None:
    for model, rows in honest(seed):
        assert anomalies(model, *rows) == {}, rows


@pytest.mark.parametrize("removals", [0.0, 0.3])
@given(seed=st.integers(0, 1 << 32))
def test_a_set_breaks_a_promise_if_and_only_if_no_order_explains_it(seed: int, removals: float) -> None:
    """With `stale-read`, which a test of linearizability prohibits. If elements are removed, only if."""
    r = random.Random(seed)
    initial, elements = r.sample("123", r.randint(0, 2)), r.sample("1234", r.randint(1, 4))
    rows, state = list[Row](), set(initial)
    for at in range(40, 40 + 10 * r.randint(2, 7), 10):
        inv, ret = at - r.randint(0, 30), NEVER if r.random() < 0.15 else at + r.randint(1, 30)
        element = r.choice(elements)
        if r.random() < 0.5:
            is_removal = r.random() < removals
            state = state - {element} if is_removal else state | {element}
            rows.append((removed if is_removal else add)(element, inv, ret))
        elif ret < NEVER:
            shown = state ^ {element} if r.random() < 0.3 else state
            rows.append(read(f"[{' '.join(sorted(shown))}]", inv, ret))
    stated = f"#{{{' '.join(initial)}}}"
    model, operations = MODELS["set"], operations_of("set", *rows)
    searched = judge_object(model, model.initial(form_of(stated)), operations, budget=1 << 16, failing=())
    is_broken, is_explained = bool(anomalies("set-full", *rows, initial=stated)), not searched.contradictions
    assert not (is_broken and is_explained)
    assert removals or is_broken or is_explained


@given(st.integers(0, 1 << 32))
def test_a_sum_is_refused_if_no_subset_of_additions_gives_it(seed: int) -> None:
    """By brute force: the additions that had returned, and any of those that had been invoked."""
    rng = random.Random(seed)
    adds = [add(str(rng.choice([1, 1, -1])), rng.randint(0, 9), rng.choice([12, 15, NEVER])) for _ in range(4)]
    inv = rng.randint(0, 20)
    ret = inv + rng.randint(0, 9)
    needed = sum(int(amount) for _, amount, _, _, end in adds if end < inv)
    free = [int(amount) for _, amount, _, start, end in adds if end >= inv and start <= ret]
    possible = {needed + sum(some) for count in range(len(free) + 1) for some in combinations(free, count)}
    for answer in range(-6, 7):
        broken: dict[str, Any] = anomalies("counter-bounds", *adds, read(str(answer), inv, ret))
        assert (not broken) == (answer in possible), (adds, inv, ret, answer)
