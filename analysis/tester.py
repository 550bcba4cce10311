"""What the tester's own shortages leave of an anomaly.

The journal says when the tester ran out of a resource (`tester_short`), and since when that may have been so. What the
system did from then on may be the tester's doing: an anomaly is proven only by evidence from before. A journal that
does not say how its run ended was lost with the orchestrator; it has no word of what ended that. The processes of the
system may have ended of the same cause, so their last seconds in such a journal prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analysis.core.anomaly import Anomaly
from history.journal import TESTER_SHORT

BEFORE_LOSS_NS: Final = 15_000_000_000
"""How long before the last line of a lost journal the cause of its loss may have worked."""
_TIMES: Final = ("at", "inv", "ret")
"""The keys of a witness's rows that are moments of the run's clock."""


@dataclass(frozen=True)
class Shortage:
    """From `since` (a `t` of the journal) on the system's deeds may be the tester's. `why`: a clause."""

    since: int
    why: str


def shortages(journal: Sequence[Mapping[str, Any]]) -> list[Shortage]:
    """What the tester ran out of, by its journal."""
    return [
        Shortage(int(line["since"]), f"the tester ran out of {line['resource']} ({line['seen']})")
        for line in journal
        if line["event"] == TESTER_SHORT
    ]


def lost_journal(journal: Sequence[Mapping[str, Any]]) -> list[Shortage]:
    """The end of the orchestrator, where the journal does not say how the run ended; else nothing."""
    ended = any(line.get("unfinished") or (line["event"], line.get("name")) == ("phase", "done") for line in journal)
    if not journal or ended:
        return []
    return [Shortage(journal[-1]["t"] - BEFORE_LOSS_NS, "the journal does not say how the run ended")]


def cause_at(moment: float, found: Iterable[Shortage]) -> str:
    """Why the tester may have caused what was seen at this moment; empty where it cannot have."""
    return next((each.why for each in found if moment >= each.since), "")


def cause_of(anomaly: Anomaly, found: Sequence[Shortage]) -> str:
    """Why the tester may have caused this anomaly; empty where all its evidence is older than each shortage."""
    moments = [_moments(row) for row in anomaly.witness]
    is_timed = bool(moments) and all(moments)
    return cause_at(max(max(row) for row in moments) if is_timed else math.inf, found)


def _moments(row: Mapping[str, Any]) -> list[int]:
    return [row[key] for key in _TIMES if isinstance(row.get(key), int)]
