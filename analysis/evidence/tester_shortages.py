"""Turns anomalies that the tester's own shortages may have caused into doubts.

The journal records when the tester ran out of a resource (`tester_short`), and since when that may have been so. The
tester may have caused everything that the system did from then on, so only earlier evidence proves an anomaly. A
journal that does not say how its run ended was lost with the orchestrator, for an unrecorded cause. The same cause may
have ended the system's processes, so the last seconds of such a journal prove nothing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analysis.core.anomaly import Anomaly
from history.journal.writer import TESTER_SHORT

BEFORE_LOSS_NS: Final = 15_000_000_000
"""How long before the last line of a lost journal the cause of its loss may have been active."""
_TIMES: Final = ("at", "inv", "ret")
"""The keys of a witness's rows that are times of the run's clock."""


@dataclass(frozen=True)
class Shortage:
    """From `since` (a `t` of the journal) on the tester may have caused what the system did. `why`: a clause."""

    since: int
    why: str


def shortages(journal: Sequence[Mapping[str, Any]]) -> list[Shortage]:
    """The shortages that the journal records."""
    return [
        Shortage(int(line["since"]), f"the tester ran out of {line['resource']} ({line['seen']})")
        for line in journal
        if line["event"] == TESTER_SHORT
    ]


def lost_journal(journal: Sequence[Mapping[str, Any]]) -> list[Shortage]:
    """The loss of the orchestrator, if the journal does not say how the run ended; else empty."""
    ended = any(line.get("unfinished") or (line["event"], line.get("name")) == ("phase", "done") for line in journal)
    if not journal or ended:
        return []
    return [Shortage(journal[-1]["t"] - BEFORE_LOSS_NS, "the journal does not say how the run ended")]


def cause_at(moment: float, tester_shortages: Iterable[Shortage]) -> str:
    """Why the tester may have caused what was seen at `moment`; empty if it cannot have."""
    return next((shortage.why for shortage in tester_shortages if moment >= shortage.since), "")


def cause_of(anomaly: Anomaly, tester_shortages: Sequence[Shortage]) -> str:
    """Why the tester may have caused this anomaly; empty if all its evidence is older than each shortage."""
    moments = [_moments(row) for row in anomaly.witness]
    is_timed = bool(moments) and all(moments)
    return cause_at(max(max(row) for row in moments) if is_timed else math.inf, tester_shortages)


def _moments(row: Mapping[str, Any]) -> list[int]:
    return [row[key] for key in _TIMES if isinstance(row.get(key), int)]
