"""Anomalies: their kinds and broken promises, as checkers declare them, and the finding of one in a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from installation.counted import counted

NOT_SHOWN: Final = "The events do not show the cause: "
"""The start of the cause of an anomaly that the nodes' events do not show."""


@dataclass(frozen=True)
class Promise:
    """A promise that a system can break: its code in reports, and the promise in a few words.

    `stands_alone`: breaking another promise never causes this one to break. A cell that expects an anomaly of another
    class does not tolerate one of this class.
    """

    code: str
    text: str
    stands_alone: bool = False


@dataclass(frozen=True)
class AnomalyKind:
    """The name of an anomaly, the promise that it breaks, and its meaning in a sentence. `guards`: the rules of
    docs/conformance.md whose violation it may reveal, if that is more than the clients' contract."""

    name: str
    breaks: Promise
    meaning: str
    guards: tuple[str, ...] = ()


OWN: Final = Promise("OWN", "what the campaign's own checkers promise")
BROKEN: Final = AnomalyKind(
    "own-promise-broken",
    OWN,
    "A checker of the campaign's own (`[checks] use`), or its model (`[checks] model`), found a contradiction. "
    "Verdicts have the name that the checker or the model has for it; this name stands for all of them.",
)


@dataclass(frozen=True)
class Anomaly:
    """One proven contradiction, in one partition or in one register (then `topic` is its key and `partition` -1). If it
    concerns neither, `topic` is empty and `partition` -1.

    `witness` holds exactly the operations (or records, for replicas) that contradict each other, as flat mappings;
    `count`: how many such contradictions the partition has (of real-time anomalies only the worst is named). `promise`:
    the code of the broken promise; the checker that declares the anomaly fills it (`Checker.judged`). An anomaly of a
    campaign's own checker or model has the promise `OWN` and a name that only this campaign knows. `cause`: by the
    nodes' events, in one sentence (`analysis.page.causes`); empty until the analysis has derived it.
    """

    name: str
    topic: str
    partition: int
    sentence: str
    witness: tuple[dict[str, Any], ...]
    count: int = 1
    promise: str = ""
    cause: str = ""

    @property
    def kind(self) -> str:
        """The name of its `AnomalyKind`."""
        return BROKEN.name if self.promise == OWN.code else self.name

    @property
    def where(self) -> str:
        """The partition or register, for people; empty if it concerns neither."""
        if self.partition >= 0:
            return f"{self.topic}-{self.partition}"
        return f"register {self.topic}" if self.topic else ""


def anomaly_count(anomalies: Sequence[object]) -> str:
    """The number of anomalies with its noun."""
    return counted(len(anomalies), "anomaly", "anomalies")
