"""What can go wrong with a system, as checkers declare it, and the finding that carries one of these names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Promise:
    """A class of promise that a system can break: its code, as reports show it, and the promise in a few words.

    `stands_alone`: no breach of another promise brings about a breach of this one. A cell that expects an anomaly of
    another class does not tolerate one of this class beside it.
    """

    code: str
    text: str
    stands_alone: bool = False


@dataclass(frozen=True)
class AnomalyKind:
    """A name for what a checker can find, the promise that it breaks, and what it means in a sentence. `guards`: the
    rules of docs/conformance.md of whose breach it may tell, where that is more than the clients' contract."""

    name: str
    breaks: Promise
    meaning: str
    guards: tuple[str, ...] = ()


@dataclass(frozen=True)
class Anomaly:
    """One proven contradiction, in one partition or in one register (`topic` is its key then, `partition` -1), if it
    has to do with one; else `topic` is empty, `partition` -1.

    `witness` holds exactly the operations (or records, for replicas) that contradict each other, as flat mappings;
    `count`: how many such contradictions the partition has (of real-time anomalies only the worst is named). `promise`:
    the code of the broken promise; the checker that declares the anomaly fills it (`Checker.judged`).
    """

    name: str
    topic: str
    partition: int
    sentence: str
    witness: tuple[dict[str, Any], ...]
    count: int = 1
    promise: str = ""

    @property
    def where(self) -> str:
        """The partition or register, as people name it; empty where it has to do with neither."""
        if self.partition >= 0:
            return f"{self.topic}-{self.partition}"
        return f"register {self.topic}" if self.topic else ""
