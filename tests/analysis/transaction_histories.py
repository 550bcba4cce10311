"""Small histories of transactions: random ones, as EDN, and all orders of each."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from pathlib import Path
from typing import Final

from analysis.foreign.judgement import ForeignJudgement
from analysis.foreign.transaction_judgement import judge_transactions
from history.foreign.transaction_rows import LIST_APPEND, WRITES, read_transactions
from tests.analysis.foreign_files import edn

Answer = tuple[int, ...]
PROCESSES: Final = 20
OPEN_KEYS: Final = 10
MOST_WRITES: Final = 32
"""Of a large history: its processes, the keys that are in use at once, and the writes to a key before it is left."""


@dataclass
class SmallTransaction:
    """`steps`: `r` or `w`, the key, and the element or the answer. `inv`, `ret`: places in the order of events."""

    process: int
    kind: str = "ok"
    steps: list[tuple[str, int, int | Answer]] = field(default_factory=list)
    inv: int = 0
    ret: int = 0


def edn_of(transactions: Sequence[SmallTransaction], workload: str) -> str:
    """The history as Elle writes it."""
    events = []
    for transaction in transactions:
        for kind, at in (("invoke", transaction.inv), (transaction.kind, transaction.ret)):
            steps = " ".join(_step(*step, workload, is_known=kind == "ok") for step in transaction.steps)
            events.append((at, (transaction.process, kind, "txn", f"[{steps}]")))
    return edn(*(event for _, event in sorted(events)))


def _step(f: str, key: int, value: int | Answer, workload: str, *, is_known: bool) -> str:
    if isinstance(value, int):
        return f"[:{WRITES[workload]} {key} {value}]"
    if not is_known:
        return f"[:r {key} nil]"
    shown = f"[{' '.join(map(str, value))}]" if workload == LIST_APPEND else str(value[-1]) if value else "nil"
    return f"[:{f} {key} {shown}]"


def judged(text: str, workload: str, place: Path, **options: str) -> ForeignJudgement:
    """The judgement of a history in EDN."""
    place.mkdir()
    path = place / "history.edn"
    path.write_text(text)
    return judge_transactions(read_transactions(path, place, workload), **{"consistency": "serializable", **options})


def drawn(generator: random.Random, workload: str, most: int = 5) -> list[SmallTransaction]:
    """A history of a store that executes transactions one by one or step by step, with some faults."""
    count, keys = generator.randint(2, most), generator.randint(1, 3)
    lag, fault = generator.random() < 0.5, generator.random() < 0.6
    transactions, elements = [], iter(range(1, 100))
    for number in range(count):
        kind = generator.choices(("ok", "info", "fail"), (8, 1, 1))[0]
        transaction = SmallTransaction(number, kind)
        for _ in range(generator.randint(1, 4)):
            key = generator.randrange(keys)
            is_write = generator.random() < 0.5
            transaction.steps.append(("w", key, next(elements)) if is_write else ("r", key, ()))
        transactions.append(transaction)
    order = [number for number in range(count) for _ in transactions[number].steps]
    if fault and generator.random() < 0.5:
        generator.shuffle(order)
    store: dict[int, list[int]] = {}
    old: dict[int, list[int]] = {}
    at = [0] * count
    for number in order:
        transaction = transactions[number]
        f, key, value = transaction.steps[at[number]]
        if f == "w" and isinstance(value, int):
            is_applied = transaction.kind == "ok" or (transaction.kind == "info" and number % 2)
            if is_applied or (fault and generator.random() < 0.1):
                old[key] = list(store.get(key, ()))
                place = generator.randint(0, len(old[key])) if fault and generator.random() < 0.1 else len(old[key])
                store.setdefault(key, []).insert(place, value)
        else:
            source = old if fault and generator.random() < 0.2 else store
            answer = source.get(key, [])
            if workload != LIST_APPEND and fault and answer and generator.random() < 0.2:
                answer = answer[: generator.randint(0, len(answer))]
            transaction.steps[at[number]] = (f, key, tuple(answer))
        at[number] += 1
    places = list(range(2 * count))
    if lag:
        generator.shuffle(places)
    for number, transaction in enumerate(transactions):
        transaction.inv, transaction.ret = sorted(places[2 * number : 2 * number + 2])
    free_from = [0] * count
    for transaction in sorted(transactions, key=lambda each: each.inv):  # a process goes on after any outcome
        transaction.process = next(number for number in range(count) if free_from[number] <= transaction.inv)
        free_from[transaction.process] = transaction.ret
    return transactions


def has_order(transactions: Sequence[SmallTransaction], workload: str, *, real_time: bool) -> bool:
    """Whether a serial order explains all answers: all orders are tried."""
    return any(
        _explains(order, workload)
        for order in _orders(transactions)
        if not real_time
        or all(later.kind != "ok" or later.ret > earlier.inv for earlier, later in combinations(order, 2))
    )


def _orders(transactions: Sequence[SmallTransaction]) -> Iterator[tuple[SmallTransaction, ...]]:
    certain = [each for each in transactions if each.kind == "ok"]
    possible = [each for each in transactions if each.kind == "info"]
    for size in range(len(possible) + 1):
        for chosen in combinations(possible, size):
            yield from permutations([*certain, *chosen])


def _explains(order: Sequence[SmallTransaction], workload: str) -> bool:
    state: dict[int, Answer] = {}
    for transaction in order:
        for _, key, value in transaction.steps:
            before = state.get(key, ())
            if isinstance(value, int):
                state[key] = (*before, value)
            elif transaction.kind == "ok":
                shown = value if workload == LIST_APPEND else value[-1:]
                if shown != (before if workload == LIST_APPEND else before[-1:]):
                    return False
    return True


def lines(count: int, workload: str, seed: int = 1) -> Iterator[str]:
    """The events of a store that executes each transaction at one moment between its events."""
    generator = random.Random(seed)
    write = WRITES[workload]
    state: dict[int, list[int]] = {}
    keys = list(range(OPEN_KEYS))
    under_way: dict[int, str] = {}
    index = 0
    for number in range(count):
        process = number % PROCESSES if generator.random() < 0.7 else generator.randrange(PROCESSES)
        if process in under_way:
            yield _event("ok", process, under_way.pop(process), index)
            index += 1
        asked, answered = [], []
        for _ in range(generator.randint(1, 4)):
            place = generator.randrange(OPEN_KEYS)
            key = keys[place]
            elements = state.setdefault(key, [])
            if generator.random() < 0.5:
                elements.append(len(elements) + 1)
                asked.append(f"[:{write} {key} {elements[-1]}]")
                answered.append(asked[-1])
                if len(elements) == MOST_WRITES:
                    keys[place] = max(keys) + 1
                    del state[key]
                continue
            asked.append(f"[:r {key} nil]")
            shown = str(elements[-1]) if elements else "nil"
            if workload == LIST_APPEND:
                shown = f"[{' '.join(map(str, elements))}]"
            answered.append(f"[:r {key} {shown}]")
        under_way[process] = f"[{' '.join(answered)}]"
        yield _event("invoke", process, f"[{' '.join(asked)}]", index)
        index += 1
    for process, done in under_way.items():
        yield _event("ok", process, done, index)
        index += 1


def _event(kind: str, process: int, value: str, index: int) -> str:
    return f"{{:type :{kind}, :f :txn, :value {value}, :process {process}, :time {index * 1000}, :index {index}}}\n"
