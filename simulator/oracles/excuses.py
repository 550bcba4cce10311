"""Exemptions from oracles' findings: damage that a fault did to the node in question.

`EXCUSED_BY` is the only list of exemptions. It names damage, as the kinds of fault declare it (`history.damage`), so
the declaration of a new kind of fault is sufficient. An excuse applies to the damaged node only:
- damage to a whole disk, or to writes since an older state, excuses what was counted of the earlier disk, until a
  process on the new disk has registered;
- rotted bytes excuse how a node treats the log that contains them, until they are overwritten or restored;
- a stopped clock excuses the lease that was held then, until that lease has ended.

A loss that is caused by damage to too many nodes is never excused: the campaign must expect it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from history.damage import OTHER_DISK, Damage
from simulator.oracles.findings import (
    EPOCH_FELL,
    EPOCHS_DIFFER,
    LEASE_SHARED,
    MARK_FELL,
    NO_MAJORITY,
    NOT_DURABLE,
    NOT_VALID,
    ORACLES,
    POINT_AHEAD,
    PREFIX_CHANGED,
    PRODUCERS_DIFFER,
    SEQUENCE_GAP,
    START_FELL,
)
from simulator.oracles.log_copy import CopiedLog

_ROT: Final = frozenset({Damage.SYNCED})

EXCUSED_BY: Final[Mapping[str, frozenset[Damage]]] = dict.fromkeys(ORACLES, frozenset[Damage]()) | {
    # The node's vote and epoch were on the lost disk.
    EPOCH_FELL: OTHER_DISK,
    # A leader counts what it learned about the old disk; the content of that disk is still compared with it.
    NO_MAJORITY: OTHER_DISK,
    NOT_DURABLE: OTHER_DISK | _ROT,
    # A process truncates its log at rotted bytes, and fetches the rest again.
    MARK_FELL: _ROT,
    PREFIX_CHANGED: _ROT,
    POINT_AHEAD: _ROT,
    # The log's start was on the lost disk, or the log was cut below it.
    START_FELL: OTHER_DISK | _ROT,
    # No CRC covers a leader epoch or a base offset.
    EPOCHS_DIFFER: _ROT,
    NOT_VALID: _ROT,
    PRODUCERS_DIFFER: _ROT,
    SEQUENCE_GAP: _ROT,
    # The lease ends by a clock that has skipped an interval.
    LEASE_SHARED: frozenset({Damage.ELAPSED_TIME}),
}


class LogBeforeDamage(NamedTuple):
    """The content of a node's log just before its disk was damaged, and the offset up to which it was durable."""

    copy: CopiedLog
    durable_end: int


def excuses(oracle: str, damage: frozenset[Damage]) -> bool:
    """Whether damage of these kinds to a node excuses the oracle's finding about it."""
    return bool(EXCUSED_BY[oracle] & damage)
