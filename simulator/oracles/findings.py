"""The oracles' counts of comparisons in a run, and their findings."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.errors import ErrorCode
from broker.quorum.wire import METADATA_TOPIC

EPOCH_FELL: Final = "epoch-fell"
MARK_FELL: Final = "high-watermark-fell"
TWO_LEADERS: Final = "two-leaders-of-one-epoch"
NO_MAJORITY: Final = "committed-without-majority"
LOGS_DIFFER: Final = "log-mismatch"
INCOMPLETE: Final = "leader-incomplete"
NARROW_ISR: Final = "isr-too-narrow"
NOT_DURABLE: Final = "committed-not-durable"
BAD_MARK: Final = "high-watermark-invalid"
PREFIX_CHANGED: Final = "committed-prefix-changed"
VOTE_FIRST: Final = "vote-before-disk"
LEASE_SHARED: Final = "lease-shared"
EPOCHS_DIFFER: Final = "epochs-contradict-log"
NOT_GRANTED: Final = "isr-not-granted"
BAD_ELECTION: Final = "election-not-allowed"
NOT_A_MEMBER: Final = "member-incomplete"
MISCOUNTED: Final = "counted-not-shared"
UNMATCHED: Final = "followed-unmatched"
IN_RECOVERY: Final = "served-in-recovery"
VOTE_AGAINST: Final = "vote-against-log"
OLD_EPOCH: Final = "committed-old-epoch"
NO_VOTES: Final = "led-without-votes"
LEADS_ON: Final = "leads-unheard"
SNAPSHOT_DIFFERS: Final = "snapshot-mismatch"
WOULD_GRANT: Final = "isr-would-be-granted"
WOULD_COUNT: Final = "fetch-would-be-counted"
WOULD_ANSWER: Final = "request-would-be-answered"
WOULD_TAKE: Final = "commit-would-be-taken"
WOULD_OBEY: Final = "quorum-request-would-be-taken"
PRODUCERS_DIFFER: Final = "producers-contradict-log"
SEQUENCE_GAP: Final = "sequence-gap"
OFFSETS_DIFFER: Final = "offsets-contradict-log"
NOT_VALID: Final = "batch-not-valid"
STANDS_STILL: Final = "stands-still"
ISR_KEEPS: Final = "isr-keeps-unreachable"
POINT_AHEAD: Final = "recovery-point-ahead"
START_FELL: Final = "answered-start-fell"
ASSIGNMENT_DIFFERS: Final = "assignment-contradicts-log"
ID_SHARED: Final = "producer-id-shared"
START_BACK: Final = "log-start-fell"

ORACLES: Final = (
    EPOCH_FELL,
    MARK_FELL,
    TWO_LEADERS,
    NO_MAJORITY,
    LOGS_DIFFER,
    INCOMPLETE,
    NARROW_ISR,
    NOT_DURABLE,
    BAD_MARK,
    PREFIX_CHANGED,
    VOTE_FIRST,
    LEASE_SHARED,
    EPOCHS_DIFFER,
    NOT_GRANTED,
    BAD_ELECTION,
    NOT_A_MEMBER,
    MISCOUNTED,
    UNMATCHED,
    IN_RECOVERY,
    VOTE_AGAINST,
    OLD_EPOCH,
    NO_VOTES,
    LEADS_ON,
    SNAPSHOT_DIFFERS,
    WOULD_GRANT,
    WOULD_COUNT,
    WOULD_ANSWER,
    WOULD_TAKE,
    WOULD_OBEY,
    PRODUCERS_DIFFER,
    SEQUENCE_GAP,
    OFFSETS_DIFFER,
    NOT_VALID,
    STANDS_STILL,
    ISR_KEEPS,
    POINT_AHEAD,
    START_FELL,
    ASSIGNMENT_DIFFERS,
    ID_SHARED,
    START_BACK,
)
"""The oracles, each named as the anomaly that it finds (`analysis/checkers/oracles.py` says what they mean)."""


@dataclass
class OracleFinding:
    """An oracle's first failure for a log, its time `at` in virtual seconds, and the number of failures."""

    oracle: str
    topic: str
    partition: int
    at: float
    sentence: str
    witness: tuple[Mapping[str, Any], ...]
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "at": round(self.at, 6), "witness": [dict(part) for part in self.witness]}


class OracleFindings:
    """The number of comparisons by oracle, and of those about the metadata log; and the findings. `time` returns the
    virtual seconds."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.checks = dict.fromkeys(ORACLES, 0)
        self.of_quorum = dict.fromkeys(ORACLES, 0)
        self.now = time
        self._found: dict[tuple[str, str, int], OracleFinding] = {}

    @property
    def found(self) -> tuple[OracleFinding, ...]:
        return tuple(self._found.values())

    def compared(self, oracle: str, topic: str, count: int = 1) -> None:
        """Count `count` comparisons of an oracle for a log."""
        self.checks[oracle] += count
        if topic == METADATA_TOPIC:
            self.of_quorum[oracle] += count

    def report(self, oracle: str, topic: str, partition: int, sentence: str, *witness: Mapping[str, Any]) -> None:
        """Report a failure of an oracle. The first one for each log is kept, the others are counted."""
        earlier_finding = self._found.get((oracle, topic, partition))
        if earlier_finding is not None:
            earlier_finding.count += 1
            return
        finding = OracleFinding(oracle, topic, partition, self.now(), sentence, witness)
        self._found[oracle, topic, partition] = finding

    def to_json(self) -> dict[str, Any]:
        return {
            "checks": self.checks,
            "of_quorum": self.of_quorum,
            "findings": [finding.to_json() for finding in self.found],
        }


def members_text(nodes: Iterable[int]) -> str:
    """The members of a set of replicas, for people."""
    return str(members) if (members := [*nodes]) else "empty"


def first_flaw(flaws: Iterable[str]) -> str:
    """The first of some flaws, or how the process would end; empty without a flaw."""
    try:
        return next(iter(flaws), "")
    except Exception as error:  # the process would end
        return f"would end with {type(error).__name__}: {error}"


Expectation = tuple[str, object, object]
"""What a broker is asked, its answer, and what the rules demand."""


def first_difference(expectations: Iterable[Expectation]) -> Iterator[str]:
    """The first wrong answer, as the end of a sentence about the broker. What follows it is not asked."""
    for question, answer, expected in expectations:
        if answer != expected:
            yield f"would answer {question} with {_text(answer)}, not {_text(expected)}"
            return


def _text(answer: object) -> str:
    """An answer, for people; a request that waits has none."""
    if isinstance(answer, set):
        return " and ".join(sorted(map(_text, answer)))
    return "nothing yet" if answer is None else answer.name if isinstance(answer, ErrorCode) else str(answer)
