"""Mutations of the oracles' record of a simulated run, and of the identity of its simulation."""

import json
from typing import Any

from tests.mutations.mutation import PASSES, Catalog, fails, unknown
from tests.mutations.stored import Stored

mutation = Catalog("oracles", base="simulated")

RECORD, SUMMARY = "history/oracles.json", "simulation.json"
BOTH = (RECORD, SUMMARY)
TELLS = unknown("oracle")

FINDING = {
    "oracle": "leader-incomplete",
    "topic": "log",
    "partition": 0,
    "at": 3.25,
    "sentence": "log-0: n2 leads in epoch 4 without offset 7 of epoch 3, which is committed",
    "witness": [{"node": "n2", "leads": 4, "offset": 7, "epoch": 3}],
    "count": 1,
}


def says(run: Stored, /, *names: str, **fields: Any) -> None:
    """These files say something else."""
    for name in names:
        run.edit(name, lambda data: json.dumps(json.loads(data) | fields).encode())


mutation.add("the record deleted", lambda run: run.remove(RECORD), TELLS)
mutation.add("the record emptied", lambda run: run.empty(RECORD), TELLS)
mutation.add("the record torn", lambda run: run.edit(RECORD, lambda data: data[: len(data) // 2]), TELLS)
mutation.add("the summary deleted", lambda run: run.remove(SUMMARY), unknown(r"simulation\.json"))
mutation.add("an oracle found something", lambda run: says(run, RECORD, findings=[FINDING]), fails("leader-incomplete"))


@mutation(TELLS)
def record_and_summary_are_another_runs(run: Stored) -> None:
    """As those of another cell would be, whose world has the same seed."""
    says(run, *BOTH, run="20260101T000000ff-other-1", digest="0" * 64)


@mutation(TELLS)
def nothing_was_compared(run: Stored) -> None:
    checks = json.loads((run / RECORD).read_text())["checks"]
    says(run, RECORD, checks=dict.fromkeys(checks, 0))


@mutation(unknown("oracle", "log-mismatch"))
def an_oracle_compared_nothing(run: Stored) -> None:
    checks = json.loads((run / RECORD).read_text())["checks"]
    says(run, RECORD, checks=checks | {"log-mismatch": 0})


@mutation(PASSES)
def no_log_was_cut(run: Stored) -> None:
    """A run may be without that."""
    checks = json.loads((run / RECORD).read_text())["checks"]
    says(run, RECORD, checks=checks | {"committed-prefix-changed": 0}, looks=1_000)


for _oracle in ("leads-unheard", "isr-would-be-granted", "fetch-would-be-counted"):

    def _compared_nothing(run: Stored, oracle: str = _oracle) -> None:
        """There were three voters, and three replicas."""
        checks = json.loads((run / RECORD).read_text())["checks"]
        says(run, RECORD, checks=checks | {oracle: 0})

    mutation.add(f"{_oracle} compared nothing", _compared_nothing, unknown("oracle", _oracle))


mutation.add("the oracles made no check", lambda run: says(run, RECORD, looks=0), TELLS)
