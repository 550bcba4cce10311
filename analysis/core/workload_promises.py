"""Promises of sets, queues, counters, banks and sources of numbers that do not need a search: what was acknowledged is
not lost, nothing is shown that was not written, and sums and totals are possible.

They are those of Jepsen's workloads (`set-full`, `total-queue`, `counter`, `jepsen.tests.bank`, `unique-ids`), and need
about linear time. An operation that returned took effect between its invocation and its return. One of unknown outcome
may take effect at any time after its invocation, or never. An operation that failed is not among those that are given.

A contradiction is one in every order that real time allows. A pass needs evidence: a read that shows each acknowledged
element, or an answer that the queue was empty. What lacks it is a doubt.
"""

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Final

from analysis.core.models import CounterModel, ModelOperation, enqueued, integer
from history.foreign.edn import FormMap, FormSet, Keyword, text_of
from history.record.schemas import INF
from installation.counted import counted


@dataclass(frozen=True)
class Contradiction:
    """An anomaly, a sentence about its first case, that case's operations, and the number of cases."""

    anomaly: str
    sentence: str
    operations: tuple[ModelOperation, ...]
    count: int = 1


@dataclass(frozen=True)
class PromiseReport:
    """The result for one object."""

    contradictions: Sequence[Contradiction]
    """At most one for each name of an anomaly."""
    doubts: Sequence[tuple[str, str]] = ()
    """Why a pass cannot be concluded, as sentences; each with the name of the anomaly that may be there, or an empty
    text."""
    remarks: Sequence[str] = ()
    """What else was counted, as phrases."""


@dataclass
class _Cases:
    """The contradictions of one object by the names of their anomalies; the first of each is kept."""

    first: dict[str, Contradiction] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, anomaly: str, sentence: str, *operations: ModelOperation) -> None:
        self.first.setdefault(anomaly, Contradiction(anomaly, sentence, operations))
        self.counts[anomaly] += 1

    def report(self, doubts: Sequence[tuple[str, str]] = (), remarks: Sequence[str] = ()) -> PromiseReport:
        contradictions = [
            Contradiction(name, case.sentence, case.operations, self.counts[name]) for name, case in self.first.items()
        ]
        return PromiseReport(contradictions, doubts, remarks)


class WorkloadPromises(ABC):
    """What one kind of workload promises."""

    functions: ClassVar[Mapping[str, bool]]
    """The names of the operations, and whether the completion of each has an answer of its own."""
    anomalies: ClassVar[Mapping[str, bool]]
    """The names of the contradictions, and whether one fails the history unless the user decides otherwise."""
    takes: ClassVar[str] = ""
    """What `--initial` states; empty if the workload has no initial value."""

    def initial(self, form: Any) -> Hashable:
        """What the object has at the start; `form`: what the user stated, or None. Raises ValueError with the
        remedy."""
        if form is not None:
            raise ValueError("this workload has no initial value; leave it out")
        return None

    @abstractmethod
    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        """The argument and the answer of an operation, from the forms of a file. Raises ValueError."""

    @abstractmethod
    def check(self, initial: Any, operations: Sequence[ModelOperation]) -> PromiseReport:
        """Judge one object. `operations`: those that did not fail, in any order."""


# ---- sets


LOST_ELEMENT: Final = "lost-element"
PHANTOM_ELEMENT: Final = "phantom-element"
DUPLICATE_ELEMENT: Final = "duplicate-element"
RESURRECTED_ELEMENT: Final = "resurrected-element"
STALE_READ: Final = "stale-read"


@dataclass
class _Element:
    """What a history says about one element of a set. Times are ns; `INF`: never."""

    added: list[ModelOperation] = field(default_factory=list)
    removed: list[ModelOperation] = field(default_factory=list)
    certain_since: int = INF
    """When it was certainly in the set first: the first return of an add, or of a read that shows it."""
    shown: ModelOperation | None = None
    """The read that shows it and returned last."""
    shown_from: int = -1
    """The latest invocation of a read that shows it."""
    showing: list[ModelOperation] = field(default_factory=list)
    """Of an element that is removed: all reads that show it."""


class SetPromises(WorkloadPromises):
    """Elements that are added, and read together (Jepsen's `set-full`; Maelstrom's broadcast and g-set).

    A read may lag, unless `stale-read` is prohibited. Then elements that are never removed have to be linearizable. An
    element is lost if it was certainly there, the last read that could show it lacks it, and each read with it had
    returned before that read was invoked. An element that is removed was certainly there from each add on until the
    invocation of the next removal.
    """

    functions: ClassVar = {"add": False, "broadcast": False, "remove": False, "read": True}
    anomalies: ClassVar = {
        LOST_ELEMENT: True,
        PHANTOM_ELEMENT: True,
        DUPLICATE_ELEMENT: True,
        RESURRECTED_ELEMENT: True,
        STALE_READ: False,
    }
    takes: ClassVar = "elements"

    def initial(self, form: Any) -> frozenset[str]:
        return frozenset() if form is None else frozenset(_elements(form))

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        if f != "read":
            return text_of(argument), None
        return None, _elements(answer) if is_answered else None

    def check(self, initial: Any, operations: Sequence[ModelOperation]) -> PromiseReport:
        cases, elements = _Cases(), {element: _Element(certain_since=-1) for element in initial}
        reads = sorted(_answered(operations, "read"), key=_invocation)
        for operation in operations:
            if operation.f != "read":
                element = elements.setdefault(str(operation.argument), _Element())
                changes = element.removed if operation.f == "remove" else element.added
                changes.append(operation)
                if operation.f != "remove":
                    element.certain_since = min(element.certain_since, operation.ret)
        for read in reads:
            self._take(read, elements, cases, initial)
        lacking = _last_reads_without(elements, reads)
        late, unread, unseen_removals = 0, list[str](), list[str]()
        for name, element in elements.items():
            if element.removed:
                _judge_resurrection(name, element, cases)
                unread += [name] * _is_unread(name, element, reads, cases, is_initial=name in initial)
                unseen_removals += [name] * _is_removal_unseen(element, reads)
            elif (without := lacking.get(name)) is None or without.inv <= element.certain_since:
                if element.shown is None and element.certain_since < INF:
                    unread.append(name)
            elif element.shown is None or element.shown.ret < without.inv:
                cases.add(
                    LOST_ELEMENT, _lost(name, element, without), *_present(*element.added[:1], element.shown, without)
                )
            else:
                late += 1
                sentence = (
                    f"{name} was in the set {_after(without.inv - element.certain_since)} before a read that lacks it"
                )
                cases.add(STALE_READ, sentence, *_present(*element.added[:1], without, element.shown))
                if element.shown_from < without.inv:  # which of the two reads saw the later set is not known
                    unread.append(name)
        if STALE_READ not in cases.first:
            remaining = {name: element for name, element in elements.items() if not element.removed}
            _judge_orders(remaining, initial, reads, cases)
        doubts = [] if reads else [("", "no read was answered")]
        if unread and reads:
            fate = f"no read shows what became of {'it' if len(unread) == 1 else 'them'}"
            doubts.append((LOST_ELEMENT, f"{_first_names(unread)}: {fate}"))
        if unseen_removals and reads:
            doubts.append(
                (RESURRECTED_ELEMENT, f"{_first_names(unseen_removals)}: no read was invoked after the removal")
            )
        recovered = sum(
            1
            for sought in elements.values()
            if sought.shown and sought.added and min(map(_return, sought.added)) == INF
        )
        remarks = [counted(len(elements), "element"), counted(len(reads), "read"), f"{late:,} were shown late"]
        return cases.report(doubts, [*remarks, f"{recovered:,} of unknown outcome were shown"])

    @staticmethod
    def _take(read: ModelOperation, elements: dict[str, _Element], cases: _Cases, initial: Any) -> None:
        answer: tuple[str, ...] = read.answer  # type: ignore[assignment]
        if len(set(answer)) < len(answer):
            repeated = next(name for name, count in Counter(answer).items() if count > 1)
            cases.add(DUPLICATE_ELEMENT, f"a read shows {repeated} more than once", read)
        for name in answer:
            element = elements.get(name)
            if element is None or (name not in initial and all(add.inv > read.ret for add in element.added)):
                cases.add(PHANTOM_ELEMENT, f"a read shows {name}, without an add", read)
                continue
            element.certain_since, element.shown_from = (
                min(element.certain_since, read.ret),
                max(element.shown_from, read.inv),
            )
            if element.shown is None or read.ret > element.shown.ret:
                element.shown = read
            if element.removed:
                element.showing.append(read)


def _last_reads_without(elements: Iterable[str], reads: Sequence[ModelOperation]) -> dict[str, ModelOperation]:
    """For each element the read that lacks it and was invoked last."""
    remaining, lacking = set(elements), dict[str, ModelOperation]()
    for read in reversed(reads):
        if not remaining:
            break
        without = remaining.difference(read.answer)  # type: ignore[arg-type]
        lacking.update(dict.fromkeys(without, read))
        remaining -= without
    return lacking


def _judge_orders(
    elements: Mapping[str, _Element], initial: Collection[str], reads: Sequence[ModelOperation], cases: _Cases
) -> None:
    """Find reads that no order of the additions explains, though none lacks an element that was certainly there.

    Theory of operation. The elements are never removed, so of two reads one shows all that the other one shows: ordered
    by size, each read has the elements of the one before. And a read that shows `b` and lacks `a` came before `a` and
    after `b`, so the add of `a` had not returned when that of `b` was invoked. If both hold, reads and adds have an
    order that keeps real time: each as early as those before it permit.
    """
    shown = [(read, elements.keys() & set(read.answer)) for read in reads]  # type: ignore[call-overload]
    shown.sort(key=lambda pair: len(pair[1]))
    for (small, fewer), (large, more) in pairwise(shown):
        if not fewer <= more:
            first, second = min(fewer - more), min(more - fewer)
            sentence = f"a read shows {first} and lacks {second}, and another one shows {second} and lacks {first}"
            cases.add(STALE_READ, sentence, small, large)
            return
    added = {name: element for name, element in elements.items() if element.added and name not in initial}
    certain = sorted(added, key=lambda name: min(map(_return, added[name].added)))
    for read, names in shown:
        last = max(names & added.keys(), key=lambda name: min(map(_invocation, added[name].added)), default="")
        lacking = next((name for name in certain if name not in names), "")
        if last and lacking:
            earlier, later = min(added[lacking].added, key=_return), min(added[last].added, key=_invocation)
            if earlier.ret < later.inv:
                sentence = f"a read shows {last} and lacks {lacking}, whose add had returned before that of {last}"
                cases.add(STALE_READ, sentence, earlier, later, read)
                return


def _judge_resurrection(name: str, element: _Element, cases: _Cases) -> None:
    """An element is gone after an acknowledged removal, unless an add may have come later."""
    for read in element.showing:
        removals = (removal for removal in element.removed if removal.ret < read.inv)
        removal = max(removals, key=_invocation, default=None)
        if removal and all(add.ret < removal.inv or add.inv > read.ret for add in element.added):
            cases.add(RESURRECTED_ELEMENT, f"a read shows {name} after its removal was acknowledged", removal, read)
            return


def _is_unread(
    name: str, element: _Element, reads: Sequence[ModelOperation], cases: _Cases, *, is_initial: bool
) -> bool:
    """Judge an element that is removed, in each time in which it was certainly in the set: after an add, and until the
    next removal may take effect. Returns whether no read shows what became of it in one of them."""
    starts = [(add.inv, add.ret) for add in element.added if add.is_answered]
    starts += [(-1, -1)] if is_initial else []
    starts += [(-1, min(map(_return, element.showing)))] if element.showing else []
    showing, stale, is_unread = {read.id for read in element.showing}, list[ModelOperation](), False
    for start, certain_since in starts:
        end = min((removal.inv for removal in element.removed if removal.ret >= start), default=INF)
        first, last = (bisect_right(reads, time, key=_invocation) for time in (certain_since, end - 1))
        lacking = (read for read in reversed(reads[first:last]) if read.ret < end and read.id not in showing)
        without = next(lacking, None)
        later = [read for read in element.showing if read.inv < end and read.ret >= (without.inv if without else start)]
        if without and end == INF and not later:
            sentence = f"{name} was in the set after its removal, and a later read lacks it"
            cases.add(LOST_ELEMENT, sentence, *_present(*element.added[-1:], element.shown, without))
            return False
        stale += [without] if without else []
        is_unread |= not later and (end == INF or without is not None)
        is_unread |= without is not None and all(read.inv < without.inv for read in later)
    if stale:
        sentence = f"{name} was certainly in the set before its removal, and a read lacks it"
        cases.add(STALE_READ, sentence, *element.added[:1], stale[0])
    return is_unread


def _is_removal_unseen(element: _Element, reads: Sequence[ModelOperation]) -> bool:
    """Whether no read was invoked after the last removal of an element, which no add may have followed."""
    removal = max(element.removed, key=_invocation)
    is_last = removal.is_answered and all(add.ret < removal.inv for add in element.added)
    return is_last and not any(read.inv > removal.ret for read in reads[-1:])


def _lost(name: str, element: _Element, read: ModelOperation) -> str:
    last = "no read shows it" if element.shown is None else "the reads that show it had returned before"
    return f"{name} was in the set {_after(read.inv - element.certain_since)} before a read that lacks it; {last}"


# ---- queues


OUT_OF_ORDER: Final = "out-of-order"


class QueuePromises(WorkloadPromises):
    """Elements that are enqueued, and taken once each (Jepsen's `total-queue`).

    At-least-once delivery allows `duplicate-element`, at-most-once delivery allows `lost-element`. `out-of-order`: an
    element was enqueued before another one in real time, and taken after it.
    """

    functions: ClassVar = {"enqueue": False, "dequeue": True, "drain": True}
    anomalies: ClassVar = {LOST_ELEMENT: True, PHANTOM_ELEMENT: True, DUPLICATE_ELEMENT: True, OUT_OF_ORDER: False}

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        if f == "enqueue":
            return text_of(enqueued(argument)), None
        if not is_answered:
            return None, None
        if f == "drain":
            return None, _elements(answer)
        return None, () if answer is None else (text_of(answer),)

    def check(self, initial: Any, operations: Sequence[ModelOperation]) -> PromiseReport:
        del initial
        cases = _Cases()
        enqueues_of, takes_of = dict[str, list[ModelOperation]](), dict[str, list[ModelOperation]]()
        emptied, open_takes = -1, list[ModelOperation]()
        for operation in sorted(operations, key=_invocation):
            if operation.f == "enqueue":
                enqueues_of.setdefault(str(operation.argument), []).append(operation)
            elif not operation.is_answered:
                open_takes.append(operation)
            else:
                if operation.f == "drain" or not operation.answer:
                    emptied = max(emptied, operation.inv)
                for name in operation.answer:  # type: ignore[attr-defined]
                    takes_of.setdefault(name, []).append(operation)
        for name, takes in takes_of.items():
            attempts, in_order = enqueues_of.get(name, []), sorted(takes, key=_return)
            early = (at for at, take in enumerate(in_order) if at >= len(attempts) or attempts[at].inv > take.ret)
            excess = next(early, None)
            if excess == 0:
                cases.add(PHANTOM_ELEMENT, f"{name} was taken, without an enqueue", in_order[0])
            elif excess:
                times = f"{counted(excess + 1, 'time')}, and enqueued {counted(excess, 'time')} until then"
                cases.add(DUPLICATE_ELEMENT, f"{name} was taken {times}", *attempts, *takes)
        untaken = list(_missing(enqueues_of, takes_of))
        doubts = self._judge_missing(untaken, emptied, open_takes, cases)
        _judge_order(enqueues_of, takes_of, cases)
        recovered = sum(1 for name in takes_of if all(not enqueue.is_answered for enqueue in enqueues_of.get(name, [])))
        remarks = [f"{counted(len(enqueues_of), 'element')}, {len(takes_of):,} taken"]
        return cases.report(doubts, [*remarks, f"{recovered:,} of unknown outcome were taken"])

    @staticmethod
    def _judge_missing(
        untaken: Sequence[ModelOperation], emptied: int, open_takes: Sequence[ModelOperation], cases: _Cases
    ) -> Sequence[tuple[str, str]]:
        """Elements that were acknowledged and not taken. Some are in the queue still. A dequeue of unknown outcome may
        have taken one, and a drain any number."""
        lost_enqueues = [enqueue for enqueue in untaken if enqueue.ret < emptied]
        if len(lost_enqueues) > len(open_takes) and not any(take.f == "drain" for take in open_takes):
            for enqueue in lost_enqueues:
                cases.add(LOST_ELEMENT, f"{enqueue.argument} was acknowledged, and the queue was empty later", enqueue)
            return ()
        if not untaken:
            return ()
        names = _first_names([str(enqueue.argument) for enqueue in untaken])
        if len(lost_enqueues) < len(untaken):
            fate = "no later answer says that the queue is empty"
        else:
            fate = f"{counted(len(open_takes), 'operation')} of unknown outcome may have taken them"
        return ((LOST_ELEMENT, f"{names}: acknowledged and not taken, and {fate}"),)


def _missing(
    enqueues_of: Mapping[str, Sequence[ModelOperation]], takes_of: Mapping[str, Sequence[ModelOperation]]
) -> Iterator[ModelOperation]:
    """An acknowledged operation for each element that was taken less often than it was acknowledged."""
    for name, attempts in enqueues_of.items():
        acknowledged = [attempt for attempt in attempts if attempt.is_answered]
        if len(acknowledged) > len(takes_of.get(name, ())):
            yield acknowledged[-1]


def _judge_order(
    enqueues_of: Mapping[str, Sequence[ModelOperation]], takes_of: Mapping[str, Sequence[ModelOperation]], cases: _Cases
) -> None:
    """Of elements that were enqueued and taken once: if `a` was enqueued before `b` in real time, `b` is not taken
    before `a` in real time. Theory of operation: by the invocation of the enqueues, a heap gives the enqueues that had
    returned before. Of these the latest invocation of a dequeue is the strictest one."""
    pairs = [
        (attempts[0], takes_of[name][0])
        for name, attempts in enqueues_of.items()
        if len(attempts) == len(takes_of.get(name, ())) == 1 and takes_of[name][0].f == "dequeue"
    ]
    returned: list[tuple[int, int, ModelOperation, ModelOperation]] = []
    latest: tuple[ModelOperation, ModelOperation] | None = None
    for number, (enqueue, dequeue) in enumerate(sorted(pairs, key=lambda pair: pair[0].inv)):
        while returned and returned[0][0] < enqueue.inv:
            *_, earlier, take = heapq.heappop(returned)
            if latest is None or take.inv > latest[1].inv:
                latest = earlier, take
        if latest is not None and dequeue.ret < latest[1].inv:
            sentence = f"{latest[0].argument} was enqueued before {enqueue.argument}, and taken after it"
            cases.add(OUT_OF_ORDER, sentence, latest[0], enqueue, dequeue, latest[1])
        heapq.heappush(returned, (enqueue.ret, number, enqueue, dequeue))


# ---- counters


IMPOSSIBLE_SUM: Final = "impossible-sum"
STALE_SUM: Final = "stale-sum"
LOST_SUM: Final = "lost-sum"


class CounterPromises(WorkloadPromises):
    """Numbers that are added, and a sum that is read (Jepsen's `counter`; Maelstrom's g-counter and pn-counter).

    A read shows a value between the least and the greatest sum of the additions that took effect. With `stale-sum`
    allowed, a read may lag. Then the last operation of each process counts, if it is a read that was invoked after all
    acknowledged additions.
    """

    functions: ClassVar = {"add": False, "read": True}
    anomalies: ClassVar = {IMPOSSIBLE_SUM: True, LOST_SUM: True, STALE_SUM: True}
    takes: ClassVar = "an integer"

    _MODEL: ClassVar = CounterModel()

    def initial(self, form: Any) -> Hashable:
        return self._MODEL.initial(form)

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        return self._MODEL.values(f, argument, answer, is_answered=is_answered)

    def check(self, initial: Any, operations: Sequence[ModelOperation]) -> PromiseReport:
        cases = _Cases()
        adds = [operation for operation in operations if operation.f == "add"]
        reads = sorted(_answered(operations, "read"), key=_invocation)
        started = {sign: _Sums(adds, _invocation, sign) for sign in (1, -1)}
        ended = {sign: _Sums(adds, _return, sign) for sign in (1, -1)}
        settled = max((add.ret for add in adds if add.is_answered), default=0)
        last = {operation.process: operation for operation in sorted(operations, key=_invocation)}
        for read in reads:
            low, high = (initial + started[sign].until(read.ret) for sign in (-1, 1))
            least, most = low + ended[1].until(read.inv - 1), high + ended[-1].until(read.inv - 1)
            answer = int(read.answer)  # type: ignore[call-overload]
            if not low <= answer <= high:
                bounds = f"what was added before it returned gives {low:,} to {high:,}"
                cases.add(IMPOSSIBLE_SUM, f"a read shows {answer:,}; {bounds}", read)
            elif not least <= answer <= most:
                is_last = last[read.process] is read and read.inv > settled
                bounds = f"additions that had returned, and those that may have happened, give {least:,} to {most:,}"
                cases.add(LOST_SUM if is_last else STALE_SUM, f"a read shows {answer:,}; {bounds}", read)
        doubts = (
            [] if any(read.inv > settled for read in reads) else [("", "no read was invoked after the last addition")]
        )
        return cases.report(doubts, [counted(len(adds), "addition"), counted(len(reads), "read")])


class _Sums:
    """Sums of the additions of one sign, by a time of theirs."""

    def __init__(self, adds: Iterable[ModelOperation], time: Any, sign: int) -> None:
        of_sign = [add for add in adds if int(add.argument) * sign > 0]  # type: ignore[call-overload]
        of_sign = sorted((add for add in of_sign if time(add) < INF), key=time)
        self._times: list[int] = [time(add) for add in of_sign]
        self._sums: list[int] = [0, *accumulate(int(add.argument) for add in of_sign)]  # type: ignore[call-overload]

    def until(self, time: int) -> int:
        """The sum of the additions with this time or an earlier one."""
        return self._sums[bisect_right(self._times, time)]


class EventualCounterPromises(CounterPromises):
    """A counter whose reads may lag."""

    anomalies: ClassVar = {**CounterPromises.anomalies, STALE_SUM: False}


# ---- banks


WRONG_TOTAL: Final = "wrong-total"
NEGATIVE_BALANCE: Final = "negative-balance"
OTHER_ACCOUNTS: Final = "other-accounts"


class BankPromises(WorkloadPromises):
    """Transfers between accounts, whose total every read shows (`jepsen.tests.bank`).

    The total is the stated one, or that of the first read.
    """

    functions: ClassVar = {"transfer": False, "read": True}
    anomalies: ClassVar = {WRONG_TOTAL: True, NEGATIVE_BALANCE: True, OTHER_ACCOUNTS: True}
    takes: ClassVar = "the total of all accounts"

    def initial(self, form: Any) -> int | None:
        return None if form is None else integer("the total", form)

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        if f == "transfer" or not is_answered:
            return text_of(argument), None
        if not isinstance(answer, FormMap):
            raise ValueError(f"the answer of read is {text_of(answer)}: a map of accounts to balances is needed")
        return None, tuple((text_of(name), integer("a balance", balance)) for name, balance in answer.items())

    def check(self, initial: Any, operations: Sequence[ModelOperation]) -> PromiseReport:
        cases = _Cases()
        reads = sorted(_answered(operations, "read"), key=_invocation)
        if not reads:
            return cases.report([("", "no read was answered")])
        first = dict(reads[0].answer)  # type: ignore[call-overload]
        total = sum(first.values()) if initial is None else initial
        for read in reads:
            balances = dict(read.answer)  # type: ignore[call-overload]
            if balances.keys() != first.keys():
                other = _first_names(sorted(balances.keys() ^ first.keys()))
                cases.add(OTHER_ACCOUNTS, f"two reads have different accounts: {other} is in one only", reads[0], read)
            elif sum(balances.values()) != total:
                sentence = f"a read shows accounts with a total of {sum(balances.values()):,}, not {total:,}"
                cases.add(WRONG_TOTAL, sentence, *dict.fromkeys((reads[0], read)))
            if min(balances.values(), default=0) < 0:
                name = min(balances, key=lambda account: balances[account])
                cases.add(NEGATIVE_BALANCE, f"a read shows account {name} with {balances[name]:,}", read)
        transfers = sum(operation.f == "transfer" for operation in operations)
        doubts = [] if any(_answered(operations, "transfer")) else [("", "no transfer was acknowledged")]
        source = "of the first read" if initial is None else "as stated"
        remarks = [f"a total of {total:,} {source}", counted(transfers, "transfer"), counted(len(reads), "read")]
        return cases.report(doubts, remarks)


# ---- sources of numbers


DUPLICATE_ID: Final = "duplicate-id"


class IdPromises(WorkloadPromises):
    """Ids that are generated, each once (Jepsen's `unique-ids`)."""

    functions: ClassVar = {"generate": True}
    anomalies: ClassVar = {DUPLICATE_ID: True}

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        del f, argument  # always `generate`, without one
        return None, text_of(answer) if is_answered else None

    def check(self, initial: Any, operations: Sequence[ModelOperation]) -> PromiseReport:
        del initial
        cases, first = _Cases(), dict[Hashable, ModelOperation]()
        for operation in sorted(_answered(operations, "generate"), key=_invocation):
            earlier = first.setdefault(operation.answer, operation)
            if earlier is not operation:
                cases.add(DUPLICATE_ID, f"{operation.answer} was generated twice", earlier, operation)
        return cases.report([] if first else [("", "no id was generated")], [counted(len(first), "id")])


# ---- echoes


WRONG_ECHO: Final = "wrong-echo"


class EchoPromises(WorkloadPromises):
    """Each answer repeats its request (Maelstrom's `echo`, whose answer is a message)."""

    functions: ClassVar = {"echo": True}
    anomalies: ClassVar = {WRONG_ECHO: True}

    def values(self, f: str, argument: Any, answer: Any, *, is_answered: bool) -> tuple[Hashable, Hashable]:
        del f  # always `echo`
        if isinstance(answer, FormMap):
            answer = next((value for name, value in answer.items() if name in (Keyword("echo"), "echo")), answer)
        return text_of(argument), text_of(answer) if is_answered else None

    def check(self, initial: Any, operations: Sequence[ModelOperation]) -> PromiseReport:
        del initial
        cases, echoes = _Cases(), list(_answered(operations, "echo"))
        for echo in echoes:
            if echo.answer != echo.argument:
                cases.add(WRONG_ECHO, f"{echo.argument} was answered with {echo.answer}", echo)
        return cases.report([] if echoes else [("", "no echo was answered")], [counted(len(echoes), "echo", "echoes")])


PROMISES: Final[Mapping[str, WorkloadPromises]] = {
    "set-full": SetPromises(),
    "total-queue": QueuePromises(),
    "counter-bounds": CounterPromises(),
    "eventual-counter": EventualCounterPromises(),
    "bank": BankPromises(),
    "unique-ids": IdPromises(),
    "echo": EchoPromises(),
}
"""The promises by the names that `--model` takes."""


def failing_anomalies(model: str, allowed: Collection[str], prohibited: Collection[str]) -> frozenset[str]:
    """The anomalies that fail a history of this model, if it is one of promises. Raises ValueError for a name that the
    model does not have, and for one that is both allowed and prohibited."""
    anomalies = PROMISES[model].anomalies if model in PROMISES else {}
    for name in (*allowed, *prohibited):
        if name not in anomalies:
            choices = f"it has {', '.join(anomalies)}" if anomalies else f"those of {', '.join(PROMISES)} can be chosen"
            raise ValueError(f"the model {model} has no anomaly {name}; {choices}")
        if name in allowed and name in prohibited:
            raise ValueError(f"{name} is allowed and prohibited; leave one out")
    return frozenset({name for name, fails in anomalies.items() if fails} - {*allowed} | {*prohibited})


def _answered(operations: Iterable[ModelOperation], f: str) -> Iterator[ModelOperation]:
    return (operation for operation in operations if operation.f == f and operation.is_answered)


def _invocation(operation: ModelOperation) -> int:
    return operation.inv


def _return(operation: ModelOperation) -> int:
    return operation.ret


def _present(*operations: ModelOperation | None) -> Iterator[ModelOperation]:
    return (operation for operation in operations if operation is not None)


def _after(duration_ns: int) -> str:
    return f"{duration_ns / 1e9:.3g} s"


def _first_names(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    rest_text = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest_text


def _elements(form: Any) -> tuple[str, ...]:
    if isinstance(form, FormSet):
        return tuple(form.elements)
    if not isinstance(form, list):
        raise ValueError(f"{text_of(form)} has no elements: #{{1 2}} or a vector is needed")
    return tuple(map(text_of, form))
