"""Reads what a cell of a campaign expects of its runs: its table `expect`.

A cell that expects *fail* names the anomaly, and one that expects *unknown* its reasons: otherwise any failure, or any
inconclusive run, would meet the expectation.
"""

from collections.abc import Collection
from typing import Final

from analysis.checker_registry import CLASSES as ANOMALIES
from analysis.checker_registry import REASONS
from analysis.expectation import ABOVE_UPLOADS, BEFORE_FAULTS, DEMANDS, contradicts
from analysis.verdict import FAIL, UNKNOWN, Expectation
from systems.declared_tables import read
from systems.toml_tables import Table

LOG: Final = "log"
COMES_WITH: Final = {"anomaly": FAIL, "at_least": FAIL, "must_hold": FAIL, "may_show": FAIL, "reason": UNKNOWN}
"""By key: the verdict with which alone it has a meaning."""
EXPECT_WORDS: Final = {"anomaly": ANOMALIES, "reason": REASONS, "must_hold": DEMANDS, "may_show": ANOMALIES}


def read_expect(
    table: Table, judge: str = LOG, *, is_tiered: bool = True, own_anomalies: Collection[str] | None = None
) -> Expectation:
    """The expectation of a cell. `judge`: the data type of its workload's operations. `is_tiered`: its topic uses
    remote storage. `own_anomalies`: those of the campaign's own checkers and of its model; None if they are not known,
    so that an anomaly may have any name. Raises `InputError`."""
    words = {key: named for key, named in EXPECT_WORDS.items() if named is not ANOMALIES}
    if own_anomalies is not None:
        words["anomaly"] = words["may_show"] = ANOMALIES.keys() | own_anomalies
    expected = read(table, Expectation, words)
    verdict, anomaly, must_hold = expected.verdict, expected.anomaly, expected.must_hold
    for key, comes_with in COMES_WITH.items():
        if key in table and verdict != comes_with:
            table.refuse(f'{key}: only verdict = "{comes_with}" takes it, and it is {verdict!r}; leave it out', key)
    if verdict == FAIL and not table.data.get("anomaly"):
        table.refuse("anomaly is missing; a cell that must fail names it", "verdict")
    if verdict == UNKNOWN and not table.data.get("reason"):
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
    return expected
