"""The names of what can go wrong with a replicated log, and the finding that carries one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# What kind of promise each anomaly breaks (docs/mutants.md): acknowledged write lost, replicas diverge, stale read,
# uncommitted read, high watermark goes back, stuck, (offset, epoch) reused, duplicate, gap; of a register: that some
# order explains it (LIN).
CLASSES: Final[Mapping[str, str]] = {
    "lost-acknowledged-write": "AWL",
    "committed-then-truncated": "AWL",
    "offset-mismatch": "OFR",
    "duplicate": "DUP",
    "phantom": "PH",
    "aborted-read": "PH",
    "gap": "GAP",
    "poll-skip": "GAP",
    "append-reorder": "SR",
    "future-read": "SR",
    "stale-read": "SR",
    "session-violation": "SR",
    "producer-order": "SR",
    "non-monotonic-high-watermark": "HWR",
    "replica-divergence": "DIV",
    "epoch-regression": "DIV",
    "epoch-start-mismatch": "DIV",
    "replica-order-mismatch": "DIV",
    "prefix-changed": "DIV",
    "not-converged": "STK",
    "register-phantom": "PH",
    "stale-register-read": "SR",
    "non-linearizable-register": "LIN",
}


@dataclass(frozen=True)
class Anomaly:
    """One proven contradiction in one partition, or in one register: `topic` is its key then, `partition` is -1.

    `witness` holds exactly the operations (or records, for replicas) that contradict each other, as flat mappings;
    `count` says how many such contradictions the partition has (real-time anomalies: the worst stands for all).
    """

    name: str
    topic: str
    partition: int
    sentence: str
    witness: tuple[dict[str, Any], ...]
    count: int = 1

    @property
    def klass(self) -> str:
        """The class of promise broken, as `CLASSES` has it."""
        return CLASSES[self.name]

    @property
    def where(self) -> str:
        """The partition or register, as people name it."""
        return f"{self.topic}-{self.partition}" if self.partition >= 0 else f"register {self.topic}"
