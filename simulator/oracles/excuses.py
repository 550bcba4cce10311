"""What excuses an oracle's finding: damage that a fault did to the node in question.

`EXCUSED_BY` is the only list of exemptions. It names damage, as the kinds of fault declare it (`history.damage`), so a
new kind of fault is covered by what it declares. An excuse holds for the damaged node only:
- damage to a whole disk, or to what was written since an older state, excuses what was counted of the earlier disk,
  until a process on the new disk has registered;
- rotted bytes excuse what a node makes of the log that they are in, until they are written over or turned back;
- a clock that stood still excuses the lease that was held then, until that lease has ended.

What a cluster loses because too many nodes were damaged is never excused: a campaign says what it expects.
"""

from __future__ import annotations

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
    PREFIX_CHANGED,
    PRODUCERS_DIFFER,
    SEQUENCE_GAP,
)
from simulator.oracles.log_copy import CopiedLog

_ROT: Final = frozenset({Damage.SYNCED})

EXCUSED_BY: Final[Mapping[str, frozenset[Damage]]] = dict.fromkeys(ORACLES, frozenset[Damage]()) | {
    # The node's vote and epoch were on the disk that is gone.
    EPOCH_FELL: OTHER_DISK,
    # A leader counts what it heard of the disk that was there; what that disk held is held against it all the same.
    NO_MAJORITY: OTHER_DISK,
    NOT_DURABLE: OTHER_DISK | _ROT,
    # A process cuts its log where it finds it rotted, and fetches the rest again.
    MARK_FELL: _ROT,
    PREFIX_CHANGED: _ROT,
    # No CRC covers a leader epoch or a base offset.
    EPOCHS_DIFFER: _ROT,
    NOT_VALID: _ROT,
    PRODUCERS_DIFFER: _ROT,
    SEQUENCE_GAP: _ROT,
    # The lease ends by a clock that has missed an interval.
    LEASE_SHARED: frozenset({Damage.ELAPSED_TIME}),
}


class LogBeforeDamage(NamedTuple):
    """What a node had of a log just before its disk was damaged, and up to which offset that was durable."""

    copy: CopiedLog
    durable_end: int


def excuses(oracle: str, damage: frozenset[Damage]) -> bool:
    """Whether damage of these kinds to a node excuses what the oracle finds of it."""
    return bool(EXCUSED_BY[oracle] & damage)
