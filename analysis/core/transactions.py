"""What a history of transactions shows: the versions of each key, their order, and anomalies that need no cycle.

The workloads are Elle's (Kingsbury and Alvaro, VLDB 2020): `list-append`, where a read shows the order of all elements
before it, and `rw-register`, where a read shows one value. Elements are unique for each key, so that each read names
the step that wrote what it shows.

The order of the versions of a list is the longest answer of its key. Elements that no answer shows come after those,
because each answer has all elements before it. Of a register only this is known: the initial value is the first; a
transaction that reads a version and writes another one writes the later one. `VersionOrders` adds what an assumption or
the model says about the order of accesses.

A transaction of unknown outcome happened if another one shows one of its writes; else nothing is concluded from it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analysis.core import consistency_models
from analysis.core.grouping import joined, places_in, ranges
from history.record.schemas import FAIL, INFO, OK
from history.value_runs import I64

Bools = npt.NDArray[np.bool_]
UNKNOWN: Final = -1
"""Instead of a version: it is not known which one."""
OF_LINE: Final = "the transaction of line"
COLUMNS: Final = ("line", "process", "type", "inv", "ret", "is_write", "key")


class Finding(NamedTuple):
    """An anomaly: its name, the transactions of one example, a sentence, and how many there are."""

    name: str
    transactions: tuple[int, ...]
    sentence: str
    number: int = 1


@dataclass(frozen=True)
class TransactionTable:
    """The transactions of a history and their steps, as columns. `parts` gives the elements again, with the number of
    the first step: for each step the place of its first element and one place more, and the elements."""

    line: I64
    process: I64
    outcome: I64
    inv: I64
    ret: I64
    txn: I64
    """Of each step from here on: its transaction."""
    is_write: Bools
    key: I64
    """The place of the key in `keys`."""
    length: I64
    """The number of elements; -1 of an answer that is not known."""
    last: I64
    """The last element, or 0 without one."""
    keys: I64
    parts: Callable[[], Iterator[tuple[int, I64, I64]]]
    title: str

    @classmethod
    def of(cls, read: Callable[..., Iterable[pa.Table]], title: str = OF_LINE) -> "TransactionTable":
        """`read` gives the parts of the table `TRANSACTIONS` with the columns that it is given.
        `title`: what precedes a line in the name of a transaction."""

        def parts() -> Iterator[tuple[int, I64, I64]]:
            first = 0
            for table in read("elements"):
                lists = table["elements"].combine_chunks().flatten()
                yield first, lists.offsets.to_numpy().astype(np.int64), lists.values.to_numpy()
                first += len(lists)

        columns: dict[str, list[npt.NDArray[np.int64]]] = {name: [] for name in (*COLUMNS, "txn", "length", "last")}
        rows = 0
        for table in read(*COLUMNS, "elements"):
            for name in COLUMNS:
                column = table[name].combine_chunks()
                flat = column.flatten() if pa.types.is_list(column.type) else column
                columns[name].append(flat.to_numpy(zero_copy_only=False))
            counts = table["key"].combine_chunks().value_lengths().to_numpy()
            columns["txn"].append(np.repeat(np.arange(rows, rows + len(table)), counts))
            rows += len(table)
            lists = table["elements"].combine_chunks().flatten()
            ends, elements = lists.offsets.to_numpy().astype(np.int64), lists.values.to_numpy()
            length = np.where(lists.is_valid().to_numpy(zero_copy_only=False), np.diff(ends), -1)
            last = np.zeros(len(length), np.int64)
            last[length > 0] = elements[ends[1:][length > 0] - 1]
            columns["length"].append(length)
            columns["last"].append(last)
        merged = {name: np.concatenate(column) for name, column in columns.items()}
        keys, key = np.unique(merged.pop("key"), return_inverse=True)
        is_write, outcome = merged.pop("is_write").astype(np.bool_), merged.pop("type").astype(np.int64)
        return cls(outcome=outcome, is_write=is_write, key=key, keys=keys, parts=parts, title=title, **merged)

    def name(self, number: int) -> str:
        """A transaction in words."""
        return f"{self.title} {self.line[number]}"


class VersionOrders(NamedTuple):
    """Pairs of versions: an earlier and a later one."""

    earlier: I64
    later: I64


class Observations:
    """What the steps show. A version is the number of the step that wrote it, or `initial(key)`.

    `is_list`: the workload is list-append; `names`: the texts of keys and elements that are not their own number;
    `with_unknown`: whether transactions of unknown outcome that were read count as committed."""

    def __init__(
        self, table: TransactionTable, names: Mapping[int, str], *, is_list: bool, with_unknown: bool = True
    ) -> None:
        self.table = table
        self.findings: list[Finding] = []
        self.doubts: list[str] = []
        self.position = np.full(len(table.txn), -1, np.int64)
        """Of each write: its place in the order of its list, -1 if no answer shows it."""
        self._names = names
        self._is_list = is_list
        self._is_broken = np.zeros(len(table.keys), np.bool_)
        """Keys whose versions have no order that all answers share."""
        self._elements = np.unique(table.last[table.is_write])
        writes = np.flatnonzero(table.is_write)
        codes = self._codes(table.key[writes], table.last[writes])
        order = np.argsort(codes, kind="stable")
        self._codes_in_order, self._writes_in_order = codes[order], writes[order]
        self._refuse_repeated()
        of_step = table.outcome[table.txn]
        self._is_answer = ~table.is_write & (table.length >= 0) & (of_step == OK)
        grouped = np.lexsort((np.arange(len(table.txn)), table.key, table.txn))
        self._grouped = grouped
        """The steps by transaction and key."""
        changes = (np.diff(table.txn[grouped]) != 0) | (np.diff(table.key[grouped]) != 0)
        self._starts = np.concatenate(([0], np.flatnonzero(changes) + 1, [len(grouped)]))[: None if len(grouped) else 1]
        self.version = self._versions_of_lists() if is_list else self._versions_of_registers()
        """Of each answer: what it shows."""
        shown = self.version[(self.version >= 0) & (self.version < len(table.txn))]
        self.is_committed = table.outcome == OK
        """Whether a transaction is known to have happened."""
        observed = np.zeros(len(table.outcome), np.bool_)
        observed[table.txn[shown]] = True
        observed[table.txn[self.position >= 0]] = True
        if with_unknown:
            self.is_committed |= observed & (table.outcome == INFO)
        self._is_last_write = self._last_writes()
        firsts = grouped[self._starts[:-1]] if len(grouped) else grouped
        external = firsts[self._is_answer[firsts] & (self.version[firsts] != UNKNOWN)]
        self.external = external[self._is_usable(self.version[external])]
        """The answers that show what was there before the transaction."""

    def initial(self, key: I64) -> I64:
        """The version of each key before the first write."""
        return key + len(self.table.txn)

    def find(self) -> None:
        """Looks for all anomalies that need no cycle."""
        self._find_aborted_and_intermediate()
        self._find_internal()
        self._find_lost_updates()
        self._find_fractured()

    def orders(self, *, with_reads: bool) -> VersionOrders:
        """What the steps prove about the order of versions. `with_reads`: also that a transaction which reads a version
        of a register writes a later one, which holds if no transaction reads from a later one in a circle (G1c)."""
        table = self.table
        writes = np.flatnonzero(table.is_write & self.is_committed[table.txn] & ~self._is_broken[table.key])
        if not self._is_list:
            final = writes[self._is_last_write[writes]]
            earlier, later = self.initial(table.key[final]), final
            if with_reads:
                reads, ends = self._joined_steps(self.external, final)
                is_version = self.version[reads] < len(table.txn)
                earlier = np.concatenate((earlier, self.version[reads][is_version]))
                later = np.concatenate((later, ends[is_version]))
            return VersionOrders(earlier, later)
        is_shown = self.position[writes] >= 0
        shown, hidden = writes[is_shown], writes[~is_shown]
        shown = shown[np.lexsort((self.position[shown], table.key[shown]))]
        previous = np.concatenate(([0], shown[:-1]))[: len(shown)]
        is_first = np.concatenate(([True], np.diff(table.key[shown]) != 0))[: len(shown)]
        earlier = np.where(is_first, self.initial(table.key[shown]), previous)
        last = self.initial(np.arange(len(table.keys)))
        last[table.key[shown]] = shown  # the last one of each key remains
        return VersionOrders(np.concatenate((earlier, last[table.key[hidden]])), np.concatenate((shown, hidden)))

    def accesses(self) -> tuple[I64, I64]:
        """The steps that show or write the version of a register which other transactions see, and these versions."""
        table = self.table
        final = table.is_write & self._is_last_write & self.is_committed[table.txn] & ~self._is_broken[table.key]
        writes = np.flatnonzero(final)
        return np.concatenate((writes, self.external)), np.concatenate((writes, self.version[self.external]))

    def dependencies(self) -> tuple[I64, I64]:
        """The answers that show the write of another committed transaction, and these writes."""
        table = self.table
        answers = np.flatnonzero((self.version >= 0) & (self.version < len(table.txn)))
        writes = self.version[answers]
        is_other = (table.txn[answers] != table.txn[writes]) & self.is_committed[table.txn[writes]]
        return answers[is_other], writes[is_other]

    def text(self, number: int) -> str:
        """A key or element as the file has it."""
        return self._names.get(number, str(number))

    def key_text(self, step: int) -> str:
        """The key of a step."""
        return self.text(int(self.table.keys[self.table.key[step]]))

    def version_text(self, version: int) -> str:
        """A version of a key in words."""
        if version >= len(self.table.txn):
            return "the initial state"
        return self.text(int(self.table.last[version]))

    def version_key(self, version: int) -> str:
        """The key of a version."""
        count = len(self.table.txn)
        return self.text(int(self.table.keys[version - count])) if version >= count else self.key_text(version)

    def transaction(self, number: int) -> str:
        """A transaction in words."""
        return self.table.name(number)

    def _codes(self, key: I64, element: I64) -> I64:
        """A number for each pair that may have been written, -1 for others."""
        places = places_in(self._elements, element)
        return np.where(places < 0, -1, key * len(self._elements) + places)

    def _located(self, key: I64, element: I64) -> I64:
        """The step that wrote each element, or -1."""
        places = places_in(self._codes_in_order, self._codes(key, element))
        return np.where(places < 0, -1, self._writes_in_order[places]) if len(self._writes_in_order) else places

    def _refuse_repeated(self) -> None:
        repeated = np.flatnonzero(np.diff(self._codes_in_order) == 0)
        if not len(repeated):
            return
        first, second = self._writes_in_order[repeated[0]], self._writes_in_order[repeated[0] + 1]
        writers = [self.transaction(int(self.table.txn[step])) for step in (first, second)]
        keys = np.unique(self.table.key[self._writes_in_order[repeated]])
        self._is_broken[keys] = True
        self.doubts.append(
            f"key {self.key_text(first)}: {self.version_text(first)} was written by {writers[0]} and again by "
            f"{writers[1]}; an answer does not say which one it shows, so nothing is concluded from {len(keys)} of "
            f"{len(self.table.keys)} keys"
        )

    def _versions_of_registers(self) -> I64:
        table = self.table
        version = np.full(len(table.txn), UNKNOWN, np.int64)
        answers = np.flatnonzero(self._is_answer & ~self._is_broken[table.key])
        written = self._located(table.key[answers], table.last[answers])
        is_initial = table.length[answers] == 0
        version[answers] = np.where(is_initial, self.initial(table.key[answers]), written)
        self._find_garbage(answers[(written < 0) & ~is_initial])
        return version

    def _versions_of_lists(self) -> I64:
        """Finds the order of each list, and the answers that contradict it."""
        table, answers = self.table, np.flatnonzero(self._is_answer)
        by_length = answers[np.lexsort((table.length[answers], table.key[answers]))]
        longest = np.full(len(table.keys), -1, np.int64)
        longest[table.key[by_length]] = by_length  # the last one of each key remains
        counts = np.where(longest < 0, 0, table.length[longest])
        start = np.cumsum(counts) - counts
        spine = np.zeros(int(counts.sum()), np.int64)
        for first, ends, elements in table.parts():
            here = longest[(longest >= first) & (longest < first + len(ends) - 1)]
            size = table.length[here]
            spine[ranges(start[table.key[here]], size)] = elements[ranges(ends[here - first], size)]
        contradicting = []
        for first, ends, elements in table.parts():
            here = answers[np.searchsorted(answers, first) : np.searchsorted(answers, first + len(ends) - 1)]
            size = table.length[here]
            is_other = elements[ranges(ends[here - first], size)] != spine[ranges(start[table.key[here]], size)]
            contradicting.append(np.unique(np.repeat(here, size)[is_other]))
        spine_key = np.repeat(np.arange(len(counts)), counts)
        self._find_contradicting(np.concatenate(contradicting), longest)
        self._find_duplicates(spine_key, spine, longest)
        written = self._located(spine_key, spine)
        is_sound = ~self._is_broken[spine_key]
        self._find_garbage(np.unique(longest[spine_key[(written < 0) & is_sound]]))
        in_order = ranges(np.zeros(len(counts), np.int64), counts)
        is_placed = (written >= 0) & is_sound
        self.position[written[is_placed]] = in_order[is_placed]
        version = np.full(len(table.txn), UNKNOWN, np.int64)
        sound = answers[~self._is_broken[table.key[answers]]]
        is_empty = table.length[sound] == 0
        version[sound[is_empty]] = self.initial(table.key[sound[is_empty]])
        filled = sound[~is_empty]
        version[filled] = written[start[table.key[filled]] + table.length[filled] - 1]
        self._spine, self._start = written, start
        return version

    def _is_usable(self, versions: I64) -> Bools:
        """Whether each version is the initial one, or that of a committed transaction."""
        is_write = versions < len(self.table.txn)
        writers = self.table.txn[np.where(is_write, versions, 0)] if len(self.table.txn) else versions
        is_usable: Bools = ~is_write | self.is_committed[writers]
        return is_usable

    def _last_writes(self) -> Bools:
        is_last = np.zeros(len(self.table.txn), np.bool_)
        writes = self._grouped[self.table.is_write[self._grouped]]
        txn, key = self.table.txn[writes], self.table.key[writes]
        is_last[writes[np.concatenate(((np.diff(txn) != 0) | (np.diff(key) != 0), [True]))[: len(writes)]]] = True
        return is_last

    def _joined_steps(self, left: I64, right: I64) -> tuple[I64, I64]:
        """The pairs of steps of one transaction on one key."""
        table, width = self.table, max(len(self.table.keys), 1)
        at, other = joined(table.txn[left] * width + table.key[left], table.txn[right] * width + table.key[right])
        return left[at], right[other]

    def _add(self, name: str, transactions: Iterable[int], sentence: str, count: int) -> None:
        self.findings.append(Finding(name, tuple(dict.fromkeys(map(int, transactions))), sentence, count))

    def _find_contradicting(self, answers: I64, longest: I64) -> None:
        table = self.table
        answers = answers[~self._is_broken[table.key[answers]]]
        if not len(answers):
            return
        step = int(answers[0])
        txns = table.txn[step], table.txn[longest[table.key[step]]]
        sentence = (
            f"key {self.key_text(step)}: {self.transaction(txns[0])} read elements that {self.transaction(txns[1])} "
            "read in another order or not at all, though it read more: no order of appends explains both"
        )
        self._add(consistency_models.INCOMPATIBLE_ORDER, txns, sentence, len(answers))
        self._is_broken[table.key[answers]] = True

    def _find_duplicates(self, key: I64, elements: I64, longest: I64) -> None:
        order = np.lexsort((elements, key))
        repeated = (np.diff(key[order]) == 0) & (np.diff(elements[order]) == 0)
        at = order[1:][repeated]
        at = at[~self._is_repeated_write(key[at])]
        if not len(at):
            return
        step = int(longest[key[at[0]]])
        element = self.text(int(elements[at[0]]))
        txn = self.table.txn[step]
        sentence = f"key {self.key_text(step)}: {self.transaction(txn)} read {element} more than once"
        self._add(consistency_models.DUPLICATE_ELEMENTS, [txn], sentence, len(at))
        self._is_broken[key[at]] = True

    def _is_repeated_write(self, keys: I64) -> Bools:
        """Whether an element of each key was written more than once."""
        repeated = np.flatnonzero(np.diff(self._codes_in_order) == 0)
        return np.isin(keys, self.table.key[self._writes_in_order[repeated]])

    def _find_garbage(self, answers: I64) -> None:
        if not len(answers):
            return
        step = int(answers[0])
        txn = self.table.txn[step]
        shown = "an element" if self._is_list else self.text(int(self.table.last[step]))
        sentence = f"key {self.key_text(step)}: {self.transaction(txn)} read {shown} that no transaction wrote"
        self._add(consistency_models.GARBAGE_READ, [txn], sentence, len(answers))

    def _find_aborted_and_intermediate(self) -> None:
        table, count = self.table, len(self.table.txn)
        answers = np.flatnonzero((self.version >= 0) & (self.version < count))
        writes = self.version[answers]
        if self._is_list:
            failed = np.flatnonzero((self.position >= 0) & (table.outcome[table.txn] == FAIL))
            is_same_key = (self.version != UNKNOWN) & (table.key == (table.key[failed[0]] if len(failed) else -1))
            readers = np.flatnonzero(is_same_key & (table.length > self.position[failed[:1]].max(initial=-1)))
        else:
            is_failed = table.outcome[table.txn[writes]] == FAIL
            failed, readers = writes[is_failed], answers[is_failed]
        if len(failed):
            self._add_read(consistency_models.G1A, int(readers[0]), int(failed[0]), "which failed", len(failed))
        is_early = ~self._is_last_write[writes] & (table.txn[writes] != table.txn[answers])
        is_early &= table.outcome[table.txn[writes]] != FAIL
        if is_early.any():
            step, write = int(answers[is_early][0]), int(writes[is_early][0])
            self._add_read(consistency_models.G1B, step, write, "which wrote the key again later", int(is_early.sum()))

    def _add_read(self, name: str, step: int, write: int, reason: str, count: int) -> None:
        txns = self.table.txn[step], self.table.txn[write]
        sentence = (
            f"key {self.key_text(step)}: {self.transaction(txns[0])} read {self.version_text(write)} of "
            f"{self.transaction(txns[1])}, {reason}"
        )
        self._add(name, txns, sentence, count)

    def _find_internal(self) -> None:
        """Answers that contradict earlier steps of their own transaction, or show later ones."""
        table = self.table
        size = np.diff(self._starts)
        groups = np.flatnonzero((size > 1) & self.is_committed[table.txn[self._grouped[self._starts[:-1]]]])
        wrong_steps: list[int] = []
        for start, end in zip(self._starts[groups].tolist(), self._starts[groups + 1].tolist(), strict=True):
            steps = self._grouped[start:end].tolist()
            wrong_steps += self._contradicting_step(steps) if self._is_list else self._changed_value(steps)
        if wrong_steps:
            txn = table.txn[wrong_steps[0]]
            sentence = (
                f"key {self.key_text(wrong_steps[0])}: {self.transaction(txn)} read something else than its own "
                "earlier steps left there"
            )
            self._add(consistency_models.INTERNAL, [txn], sentence, len(wrong_steps))
        self._find_future_and_reversed()

    def _contradicting_step(self, steps: list[int]) -> list[int]:
        length, base, appended = self.table.length, UNKNOWN, list[int]()
        for step in steps:
            if self.table.is_write[step]:
                appended.append(step)
            elif self.version[step] == UNKNOWN:
                return []
            else:
                end, count = int(length[step]), len(appended)
                start = int(self._start[self.table.key[step]])
                tail = self._spine[start + end - count : start + end].tolist() if count <= end else None
                if tail != appended or (base != UNKNOWN and end != base + count):
                    return [step]
                base, appended = end, []
        return []

    def _changed_value(self, steps: list[int]) -> list[int]:
        state: tuple[int, int] | None = None
        for step in steps:
            value = int(self.table.length[step]), int(self.table.last[step])
            if not self.table.is_write[step]:
                if value[0] < 0:
                    continue
                if state not in (None, value):
                    return [step]
            state = value
        return []

    def _find_future_and_reversed(self) -> None:
        table = self.table
        reads, writes = self._joined_steps(self.external, np.flatnonzero(table.is_write))
        shows = self.position[writes] < table.length[reads] if self._is_list else self.version[reads] == writes
        shows &= (self.position[writes] >= 0) | (not self._is_list)
        if shows.any():
            step, write = int(reads[shows][0]), int(writes[shows][0])
            self._add_read(consistency_models.FUTURE_READ, step, write, "before it wrote it", int(shows.sum()))
        if not self._is_list:
            return
        steps = self._grouped[table.is_write[self._grouped] & self.is_committed[table.txn[self._grouped]]]
        steps = steps[~self._is_broken[table.key[steps]]]
        place = np.where(self.position[steps] < 0, len(table.txn) + len(self._spine), self.position[steps])
        is_same = (np.diff(table.txn[steps]) == 0) & (np.diff(table.key[steps]) == 0)
        reversed_ = steps[1:][is_same & (np.diff(place) < 0)]
        if len(reversed_):
            step = int(reversed_[0])
            txn = table.txn[step]
            sentence = (
                f"key {self.key_text(step)}: {self.transaction(txn)} appended {self.version_text(step)} after another "
                "element, but the list has it before that one, or without it"
            )
            self._add(consistency_models.INCOMPATIBLE_ORDER, [txn], sentence, len(reversed_))

    def _find_lost_updates(self) -> None:
        """Several transactions read one version of a key and wrote the key."""
        table = self.table
        reads, _ = self._joined_steps(self.external, np.flatnonzero(table.is_write & self._is_last_write))
        order = np.argsort(self.version[reads], kind="stable")
        repeated = np.flatnonzero(np.diff(self.version[reads[order]]) == 0)
        if not len(repeated):
            return
        steps = reads[order[repeated[0] : repeated[0] + 2]]
        txns = table.txn[steps]
        sentence = (
            f"key {self.key_text(steps[0])}: {self.transaction(txns[0])} and {self.transaction(txns[1])} both read "
            f"{self.version_text(int(self.version[steps[0]]))} and wrote the key: one update is lost"
        )
        self._add(consistency_models.LOST_UPDATE, txns, sentence, len(repeated))

    def _find_fractured(self) -> None:
        """Transactions that read one write of another transaction, and miss another one."""
        table = self.table
        answers, writes = self.dependencies()
        finals = np.flatnonzero(table.is_write & self._is_last_write & ~self._is_broken[table.key])
        at, final_place = joined(table.txn[writes], table.txn[finals])
        read_steps, missed_writes = answers[at], finals[final_place]
        width = max(len(table.keys), 1)
        pair, read = joined(
            table.txn[read_steps] * width + table.key[missed_writes],
            table.txn[self.external] * width + table.key[self.external],
        )
        read_steps, missed_writes, reads = read_steps[pair], missed_writes[pair], self.external[read]
        if self._is_list:
            is_missed = (self.position[missed_writes] < 0) | (self.position[missed_writes] >= table.length[reads])
        else:
            own_reads, own_writes = self._joined_steps(self.external, finals)
            before = np.full(len(table.txn), UNKNOWN, np.int64)
            before[own_writes] = self.version[own_reads]
            is_missed = (self.version[reads] >= len(table.txn)) | (self.version[reads] == before[missed_writes])
        is_missed &= table.txn[missed_writes] != table.txn[reads]
        for name, chosen in (
            (consistency_models.FRACTURED_READ, is_missed),
            (consistency_models.VANISHED, is_missed & (read_steps < reads)),
        ):
            if chosen.any():
                step, write, later = (int(steps[chosen][0]) for steps in (read_steps, missed_writes, reads))
                txns = table.txn[step], table.txn[write]
                sentence = (
                    f"{self.transaction(txns[0])} read key {self.key_text(step)} as {self.transaction(txns[1])} left "
                    f"it, but key {self.key_text(later)} without its {self.version_text(write)}"
                )
                self._add(name, txns, sentence, int(chosen.sum()))
