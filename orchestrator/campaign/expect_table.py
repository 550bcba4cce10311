"""Reads what a cell of a campaign expects of its runs: its table `expect`.

A cell that expects *fail* names the anomaly, and one that expects *unknown* its reasons: otherwise any failure, or any
inconclusive run, would meet the expectation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from analysis.checker_registry import CLASSES as ANOMALIES
from analysis.checker_registry import REASONS
from analysis.expectation import ABOVE_UPLOADS, BEFORE_FAULTS, DEMANDS, contradicts
from analysis.verdict import FAIL, PASS, UNKNOWN, Expectation
from orchestrator.campaign.model import VERDICTS
from systems.toml_tables import Table, suggestion

LOG: Final = "log"


def read_expect(table: Table, judge: str = LOG, *, is_tiered: bool = True) -> Expectation:
    """The expectation of a cell. `judge`: the data type of its workload's operations. `is_tiered`: its topic uses
    remote storage. Raises `InputError`."""
    verdict = table.text("verdict", PASS, choices=VERDICTS)
    anomaly = table.text("anomaly", "") or None
    reasons = _one_or_more(table, "reason")
    must_hold = table.texts("must_hold", ())
    may_show = table.texts("may_show", ())
    for key, given, comes_with in (
        ("anomaly", anomaly, FAIL),
        ("must_hold", must_hold, FAIL),
        ("may_show", may_show, FAIL),
        ("reason", reasons, UNKNOWN),
    ):
        if given and verdict != comes_with:
            table.refuse(f'{key}: only verdict = "{comes_with}" takes it, and it is {verdict!r}; leave it out', key)
    _check_known(table, "anomaly", (anomaly,) if anomaly else (), ANOMALIES)
    _check_known(table, "reason", reasons, REASONS)
    _check_known(table, "must_hold", must_hold, DEMANDS)
    _check_known(table, "may_show", may_show, ANOMALIES)
    if verdict == FAIL and anomaly is None:
        table.refuse("anomaly is missing; a cell that must fail names it", "verdict")
    if verdict == UNKNOWN and not reasons:
        table.refuse("reason is missing; a cell that must be unknown says why: a code of docs/anomalies.md", "verdict")
    for demand in must_hold:
        if demand in (BEFORE_FAULTS, ABOVE_UPLOADS) and judge != LOG:
            table.refuse(f"must_hold: {demand!r} exists for logs only; leave it out", "must_hold")
    if ABOVE_UPLOADS in must_hold and not is_tiered:
        table.refuse(
            f"must_hold: {ABOVE_UPLOADS!r} exists for topics with tiered storage only; leave it out", "must_hold"
        )
    for demand in must_hold:
        if contradicts(demand, anomaly):
            table.refuse(f"must_hold: {demand!r} cannot hold where {anomaly} is expected; leave it out", "must_hold")
    table.done()
    return Expectation(verdict, anomaly, reasons, must_hold, may_show)


def _one_or_more(table: Table, key: str) -> tuple[str, ...]:
    """A text, or several in a list; empty if the key is missing."""
    if isinstance(table.data.get(key), list):
        return table.texts(key)
    given = table.text(key, "")
    return (given,) if given else ()


def _check_known(table: Table, key: str, given: Sequence[str], known: Collection[str]) -> None:
    for each in given:
        if each not in known:
            table.refuse(f"{key}: {each!r} is not known; {suggestion(each, known)}", key)
