"""Reduces a contradiction on a register to a few operations, and writes the sentence that explains it.

An operation may be dropped only if an order that explains the whole history would also explain what remains: reads and
mismatches always; a write if no remaining operation saw its value and no remaining mismatch can have needed it. So what
remains is a contradiction of the whole history.

Then each operation is tried alone. A write is replaced by one that may have happened at any time. If the result is
still a contradiction, the write is not needed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from analysis.core.register_operations import RegisterOperation, counts, is_pure, is_sure, seen_values, written
from history.record.schemas import CAS, INF, INFO, OK, READ, WRITE
from history.record.values import SESSION_SHIFT, decode_value
from installation.counted import counted

MOST_CHECKS: Final = 2_000
MOST_DIGITS: Final = 20
MOST_NAMED: Final = 12
"""Operations that a sentence names; the witness has all."""


def shrink(
    operations: Sequence[RegisterOperation], refuted: Callable[[list[RegisterOperation]], bool]
) -> list[RegisterOperation]:
    """A subset that is a contradiction and needs each of its operations, in order of invocation. `refuted` gets the
    subset and, for dropped writes, writes that may have happened at any time.

    Large parts are tried first. After `MOST_CHECKS` trials the current subset is returned though it may not be minimal.
    """
    remaining = [operation for operation in operations if counts(operation)]
    checks = 0
    part = max(1, len(remaining) // 2)
    while checks < MOST_CHECKS:
        dropped = False
        at = len(remaining)
        while at > 0 and checks < MOST_CHECKS:
            at = max(0, at - part)
            smaller = _without(remaining, remaining[at : at + part])
            if len(smaller) == len(remaining):
                continue
            checks += 1
            if refuted(smaller):
                remaining = smaller
                dropped = True
                at = min(at, len(remaining))
        if part == 1 and not dropped:
            break
        part = max(1, part // 2)
    return _needed(remaining, refuted, MOST_CHECKS - checks)


def _needed(
    operations: Sequence[RegisterOperation], refuted: Callable[[list[RegisterOperation]], bool], checks: int
) -> list[RegisterOperation]:
    """The operations that the contradiction needs. Writes are dropped before reads, first those that have not
    returned. `checks`: how many may be tried."""
    remaining, hidden = list(operations), list[RegisterOperation]()
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for operation in sorted(
            remaining, key=lambda operation: (is_pure(operation), operation.type == OK, -operation.inv)
        ):
            reduced = [other for other in remaining if other is not operation]
            earliest = min((other.inv for other in operations), default=0)
            free = (
                []
                if is_pure(operation)
                else [RegisterOperation(operation.id, WRITE, INFO, earliest, INF, written(operation))]
            )
            if checks > 0 and refuted([*reduced, *hidden, *free]):
                remaining, hidden, is_smaller = reduced, [*hidden, *free], True
            checks -= 1
    return remaining


def _without(operations: list[RegisterOperation], candidates: list[RegisterOperation]) -> list[RegisterOperation]:
    """The operations without those candidates that may be dropped, reads and mismatches first."""
    dropped = {operation.id for operation in candidates if is_pure(operation)}
    remaining = [operation for operation in operations if operation.id not in dropped]
    changing = {operation.id for operation in candidates if not is_pure(operation)}
    while changing:
        observed_values = seen_values(remaining)
        mismatches = [operation for operation in remaining if is_sure(operation)]
        first_write: dict[int | None, int] = {}
        for operation in remaining:
            if not is_pure(operation):
                first_write[written(operation)] = min(operation.inv, first_write.get(written(operation), INF))
        droppable = {
            operation.id
            for operation in remaining
            if operation.id in changing
            and written(operation) not in observed_values
            and all(_is_apart(operation, other, first_write.get(other.expected)) for other in mismatches)
        }
        if not droppable:
            break
        remaining = [operation for operation in remaining if operation.id not in droppable]
        changing -= droppable
    return remaining


def _is_apart(write: RegisterOperation, mismatch: RegisterOperation, awaited: int | None) -> bool:
    """Whether a write of an unseen value cannot explain the mismatch: it was over before the expected value was
    first written (`awaited`), or started after the mismatch was returned."""
    return write.inv > mismatch.ret or (awaited is not None and write.ret < awaited)


def contradiction(key: str, guilty: Sequence[RegisterOperation]) -> tuple[str, str]:
    """The anomaly's name and sentence for a set of operations that no order explains."""
    for read in sorted(guilty, key=lambda operation: -operation.inv):
        if read.f == READ and (newer := _newer(read, guilty)) is not None:
            late = _length_of_time(read.inv - newer.ret)
            order = f"{value_text(_held(newer))} is newer than {value_text(read.value)}"
            text = f"{_phrase(key, read)}, invoked {late} after {_phrase(key, newer)} had returned, though {order}"
            return "stale-register-read", text
    early = _from_the_future(guilty)
    if early is not None:
        look, write = early
        return "non-linearizable-register", (
            f"{_phrase(key, look)}, and returned {_length_of_time(write.inv - look.ret)} before {_phrase(key, write)} "
            "was invoked"
        )
    text = "; ".join(_timed(key, operation, guilty[0].inv) for operation in guilty[:MOST_NAMED])
    text += f"; and {len(guilty) - MOST_NAMED} more" if len(guilty) > MOST_NAMED else ""
    return "non-linearizable-register", f"no order explains {counted(len(guilty), 'operation')}: {text}"


def describe(row: Mapping[str, Any]) -> str:
    """One line that says what an operation of a witness did."""
    if row.get("op") == "cas":
        swap = f"{value_text(row.get('expected'))} to {value_text(row.get('new'))}"
        return f"compare-and-set of {row['key']} from {swap}"
    return f"{row.get('op')} of {row['key']} = {value_text(row.get('value'))}"


def value_text(value: int | str | None) -> str:
    """A register's value as `client.n`: write n of a client, from 0. `nil`: absent. A session above 1 comes first,
    because a restarted client counts from 0 again. A number that no client writes is shown as it is; so is a text of a
    witness that is not a number."""
    if value is None:
        return "nil"
    if isinstance(value, str):
        return value_text(int(value)) if value.isdecimal() and len(value) < MOST_DIGITS else value
    if value < 1 << SESSION_SHIFT:
        return str(value)
    session, client, count = decode_value(value)
    return f"{client}.{count}" if session == 1 else f"{session}.{client}.{count}"


def phantom(key: str, look: RegisterOperation, refused: RegisterOperation | None) -> str:
    """The sentence for a value that was seen though no operation that may have happened wrote it."""
    if refused is None:
        reason = "was never written"
    else:
        reason = f"only {_effect(key, refused)} would have written, which certainly did not happen ({refused.error})"
    return f"{_phrase(key, look)}, which {reason}"


def _newer(read: RegisterOperation, guilty: Sequence[RegisterOperation]) -> RegisterOperation | None:
    """An operation that had returned before the read started, and showed a value that is newer than the read's."""
    holders = [operation for operation in guilty if operation is not read and _holds(operation, read.value)]
    over = min((operation.ret for operation in holders), default=INF) if read.value is not None else -1
    for operation in sorted(guilty, key=lambda operation: operation.ret):
        value = _held(operation)
        if _is_written_again(value, guilty) or _is_written_again(read.value, guilty):
            continue  # a value that returns is neither older nor newer than another
        if operation.type != OK or operation.ret >= read.inv or value is None or value == read.value:
            continue
        if over < max(other.inv for other in guilty if _holds(other, value)):
            return operation
    return None


def _is_written_again(value: int | None, guilty: Sequence[RegisterOperation]) -> bool:
    return sum(not is_pure(operation) and written(operation) == value for operation in guilty) > 1


def _held(operation: RegisterOperation) -> int | None:
    """The value of the key after the operation took effect, if the operation shows it."""
    if is_sure(operation):
        return None
    return operation.value if operation.f == READ else written(operation)


def _holds(operation: RegisterOperation, value: int | None) -> bool:
    """Whether it shows that the key held a value: it wrote it, read it, or swapped it away."""
    return not is_sure(operation) and (
        _held(operation) == value or (operation.f == CAS and operation.expected == value)
    )


def _from_the_future(guilty: Sequence[RegisterOperation]) -> tuple[RegisterOperation, RegisterOperation] | None:
    for look in guilty:
        value = look.value if look.f == READ else look.expected if look.f == CAS and look.type == OK else None
        for write in [] if _is_written_again(value, guilty) else guilty:
            if value is not None and not is_pure(write) and written(write) == value and look.ret < write.inv:
                return look, write
    return None


def _phrase(key: str, operation: RegisterOperation) -> str:
    """An operation as a phrase for a sentence."""
    if operation.f == READ:
        return f"{operation.client} read {key} = {value_text(operation.value)}"
    return _effect(key, operation) + (" reported a mismatch" if is_sure(operation) else "")


def _effect(key: str, operation: RegisterOperation) -> str:
    """A write or compare-and-set as a phrase, without its outcome."""
    if operation.f == CAS:
        swap = f"{value_text(operation.expected)} to {value_text(operation.new)}"
        return f"{operation.client}'s compare-and-set of {key} from {swap}"
    return f"{operation.client}'s write of {key} = {value_text(operation.value)}"


def _timed(key: str, operation: RegisterOperation, origin: int) -> str:
    start = (operation.inv - origin) / 1e6
    end = "never returned" if operation.ret >= INF else f"{(operation.ret - origin) / 1e6:.3f} ms"
    unsure = " (may have happened)" if operation.type == INFO else ""
    return f"{_phrase(key, operation)}{unsure}, {start:.3f} ms .. {end}"


def _length_of_time(ns: int) -> str:
    return f"{ns / 1e9:.3f} s" if ns >= 1_000_000_000 else f"{ns / 1e6:.3f} ms"
