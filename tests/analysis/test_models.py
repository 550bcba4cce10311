"""Sequential models: the search agrees with all orders of small histories, and its answers have proofs."""

from collections.abc import Callable, Hashable, Sequence
from itertools import chain, combinations, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.core.model_search import WrongOrderError, require_order, search, until, witness
from analysis.core.models import MODELS, Model, ModelOperation
from analysis.core.register_operations import OutOfBudget
from history.foreign.edn import FormMap, FormSet, Keyword, form_of
from history.foreign.kinds import MODEL_NAMES, MODELS_OF
from history.record.schemas import INF

BUDGET = 100_000
VALUES = st.sampled_from(["1", "2"])
NUMBERS = st.integers(-1, 2)
STEP = st.tuples(st.sampled_from(["read", "write"]), st.sampled_from(["x", "y"]), VALUES)


def drawn(f: str, argument: st.SearchStrategy[Any], answer: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(f), argument, answer)


NONE = st.none()
CALLS: dict[str, st.SearchStrategy[Any]] = {
    "mutex": drawn("acquire", NONE, NONE) | drawn("release", NONE, NONE),
    "set": drawn("add", VALUES, NONE) | drawn("remove", VALUES, NONE) | drawn("read", NONE, st.frozensets(VALUES)),
    "fifo-queue": drawn("enqueue", VALUES, NONE) | drawn("dequeue", NONE, VALUES | st.just("nil")),
    "unordered-queue": drawn("enqueue", VALUES, NONE) | drawn("dequeue", NONE, VALUES | st.just("nil")),
    "counter": drawn("add", NUMBERS, NONE) | drawn("read", NONE, NUMBERS),
    "multi-register": drawn("txn", st.lists(STEP, min_size=1, max_size=2).map(tuple), NONE),
    "key-value": drawn("get", NONE, st.sampled_from(["", "1", "2", "12", "21"]))
    | drawn("put", VALUES, NONE)
    | drawn("append", VALUES, NONE)
    | drawn("delete", NONE, NONE),
}
"""What a client may do and be answered: right and wrong answers."""


@st.composite
def histories(draw: st.DrawFn, model: str) -> list[ModelOperation]:
    operations = []
    for number in range(draw(st.integers(1, 5))):
        f, argument, answer = draw(CALLS[model])
        inv = draw(st.integers(0, 12))
        ret = inv + draw(st.integers(1, 6)) if draw(st.integers(0, 4)) else INF
        operations.append(ModelOperation(number, number, f, argument, answer if ret < INF else None, inv, ret, number))
    return operations


def has_an_order(model: Model, initial: Hashable, operations: Sequence[ModelOperation]) -> bool:
    """Tries every order of the answered operations and of each choice of the others."""
    answered = [each for each in operations if each.is_answered]
    others = [each for each in operations if not each.is_answered]
    chosen = chain.from_iterable(combinations(others, count) for count in range(len(others) + 1))
    return any(is_allowed(model, initial, order) for some in chosen for order in permutations([*answered, *some]))


def is_allowed(model: Model, initial: Hashable, order: Sequence[ModelOperation]) -> bool:
    if any(later.ret < earlier.inv for earlier, later in combinations(order, 2)):
        return False
    states = {initial}
    for operation in order:
        states = {after for state in states for after in model.step(state, operation)}
    return bool(states)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_search_agrees_with_all_orders(name: str, data: st.DataObject) -> None:
    model, operations = MODELS[name], data.draw(histories(name))
    initial = model.initial(None)
    order = search(model, initial, operations, BUDGET)
    assert (order is not None) == has_an_order(model, initial, operations)
    if order is not None:
        require_order(model, initial, operations, order)
        return
    guilty, remaining = witness(model, initial, operations)
    assert guilty in remaining
    assert guilty.is_answered
    assert not has_an_order(model, initial, remaining)
    assert has_an_order(model, initial, [each for each in until(operations, guilty.ret - 1) if each.inv < guilty.ret])


def operation(number: int, f: str, argument: Hashable, answer: Hashable, inv: int, ret: int) -> ModelOperation:
    return ModelOperation(number, number, f, argument, answer, inv, ret, number + 1)


ADD = operation(0, "add", "1", None, 0, 2)
READ = operation(1, "read", None, frozenset({"1"}), 3, 4)
LATE = operation(2, "add", "2", None, 5, 6)


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        pytest.param([ADD], "the operation of line 2 is missing", id="an answered operation is missing"),
        pytest.param([LATE, ADD, READ], "the operation of line 1 returned before", id="against real time"),
        pytest.param([ADD, LATE, READ], "the operation of line 2 returned before", id="after a later operation"),
        pytest.param([ADD, READ, LATE, LATE], "twice", id="an operation is there twice"),
        pytest.param([ADD, READ._replace(answer=frozenset()), LATE], "does not have", id="an answer was changed"),
    ],
)
def test_the_verifier_refuses_a_wrong_order(order: list[ModelOperation], sentence: str) -> None:
    with pytest.raises(WrongOrderError, match=sentence):
        require_order(MODELS["set"], frozenset(), [ADD, READ, LATE], order)


def test_an_order_that_the_model_refuses_is_refused() -> None:
    early = READ._replace(answer=frozenset({"1", "2"}))
    with pytest.raises(WrongOrderError, match="the model refuses the operation of line 2"):
        require_order(MODELS["set"], frozenset(), [ADD, early, LATE], [ADD, early, LATE])


def test_a_search_ends_with_its_budget() -> None:
    adds = [operation(number, "enqueue", str(number), None, 0, 100) for number in range(9)]
    last = operation(9, "dequeue", None, "none of them", 101, 102)
    with pytest.raises(OutOfBudget):
        search(MODELS["fifo-queue"], (), [*adds, last], 50)


def test_the_search_leaves_out_unanswered_adds_that_no_read_shows() -> None:
    adds = [operation(number, "add", str(number), None, 0, INF) for number in range(40)]
    reads = [operation(40 + at, "read", None, frozenset({"3"} if at else ()), 10 * at, 10 * at + 1) for at in range(4)]
    assert search(MODELS["set"], frozenset(), [*adds, *reads], 100) is not None


def test_a_removal_of_unknown_outcome_explains_that_no_read_shows_the_element() -> None:
    removal = operation(2, "remove", "1", None, 1, INF)
    assert search(MODELS["set"], frozenset(), [ADD, removal, READ._replace(answer=frozenset())], 100) is not None


def test_concurrent_appends_are_ordered_by_the_next_answer() -> None:
    appends = [operation(number, "append", f"<{number}>", None, 0, 100) for number in range(20)]
    answer = "".join(f"<{number}>" for number in reversed(range(20)))
    get = operation(20, "get", None, answer, 101, 102)
    assert search(MODELS["key-value"], "", [*appends, get], 1_000) is not None


Values = Callable[[Model], tuple[Hashable, Hashable]]


@pytest.mark.parametrize(
    ("model", "f", "argument", "answer", "remedy"),
    [
        ("set", "read", None, 3, "is not a set"),
        ("set", "read", None, [1, 1], "more than once"),
        ("counter", "add", "1", None, "an integer is needed"),
        ("counter", "read", None, True, "an integer is needed"),
        ("multi-register", "txn", [[Keyword("send"), 1, 2]], None, r"\[:write KEY VALUE\] is needed"),
        ("multi-register", "txn", [[Keyword("r"), 1, None]], [[Keyword("r"), 2, 1]], "was invoked"),
        ("key-value", "put", 1, None, "a text is needed"),
    ],
)
def test_a_value_that_the_model_does_not_have_is_refused(
    model: str, f: str, argument: Any, answer: Any, remedy: str
) -> None:
    with pytest.raises(ValueError, match=remedy):
        MODELS[model].values(f, argument, answer, is_answered=True)


@pytest.mark.parametrize(
    ("model", "f"),
    [
        ("set", "read"),
        ("fifo-queue", "dequeue"),
        ("unordered-queue", "dequeue"),
        ("counter", "read"),
        ("key-value", "get"),
    ],
)
def test_a_model_omits_an_argument_that_it_does_not_use(model: str, f: str) -> None:
    """Such as the time limit of a dequeue."""
    assert MODELS[model].values(f, 5, None, is_answered=False) == (None, None)


@pytest.mark.parametrize(
    ("model", "stated", "state"),
    [
        ("set", FormSet({"1": 1}), frozenset({"1"})),
        ("counter", 7, 7),
        ("multi-register", form_of("{:x 0}"), frozenset({(":x", "0")})),
        ("key-value", "a", "a"),
    ],
)
def test_an_initial_state_can_be_stated(model: str, stated: Any, state: Hashable) -> None:
    assert MODELS[model].initial(stated) == state


@pytest.mark.parametrize("model", ["mutex", "fifo-queue", "unordered-queue"])
def test_a_model_without_an_initial_value_refuses_one(model: str) -> None:
    with pytest.raises(ValueError, match="leave it out"):
        MODELS[model].initial(FormMap({}))


def test_the_command_line_and_the_hints_have_every_model() -> None:
    assert tuple(MODELS) == MODEL_NAMES
    for name, model in MODELS.items():
        names = [f for f in model.functions if f not in ("read", "txn")] or ["[:read ...]"]
        assert all(name in MODELS_OF[f] for f in names), name


@pytest.mark.parametrize("text", ["[1 2]", "(1 2)", "[]", "[[:read :x nil]]"])
def test_a_vector_is_one_form(text: str) -> None:
    form = form_of(text)
    assert isinstance(form, list)
    assert len(form) == text.count("1") + text.count("2") + text.count("[:")
