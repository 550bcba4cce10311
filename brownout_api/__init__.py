"""All names that a user's programs import: tests of a user-defined system (`docs/your-system.md`), and notebooks that
evaluate a store (`docs/tables.md`).

    from brownout_api import RegisterClient, Refused

A client is one class: `RegisterClient` (`read`, `write`, `compare_and_set` of keys) or `LogClient` (`append`, `read`,
`end` of partitions). An operation that returns has happened. One that raises `Refused` certainly has not happened and
never will. After any other exception it may have happened, or may still happen. An append whose acknowledgement names
no offset returns `NO_OFFSET`.

A system with a class of its own derives from `System`; most systems need none. `observe` returns an `Observer`; its
`view` describes the cluster's state: a `View`, with a `PartitionState` for each partition. It answers soon and never
raises, otherwise the run is unknown. `Member` is a node as the observer sees it, `Place` a node as templates and
`variables` see it. `InputError` is for mistakes that the user can correct: raised before a run, it ends the command
with exit code 64 and its message.

A checker of a campaign's own derives from `HistoryChecker`. Its `check` gets the `RunHistory`, whose elements are
`ClientOperation`s, and yields `self.anomaly(...)` for each contradiction (`docs/own-checkers.md`). `RunHistory.of`
makes a history for a test.

A kind of fault of a campaign's own derives from `FaultKind`. Its `inject`, `evidence` and `heal` get a `TargetNode`, on
which they run commands; a `Parameter` is a number that a step may set (`docs/own-faults.md`).

A workload of a campaign's own derives from `OwnWorkload`, and its client from `Client`. The workload draws
`Operation`s, and each names a method of the client (`docs/own-workloads.md`).

`testing` plays a workload, runs a checker and proves the evidence of a fault in a unit test.

`results` gives the tables of a store as DataFrames.

Brownout puts this package on the path of the classes that it loads; nothing has to be installed for it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from analysis.history_checker import BrokenPromise, ClientOperation, HistoryChecker, RunHistory
from nemeses.own_kind import FaultKind, TargetNode
from nemeses.parameters import Parameter
from systems.errors import InputError
from systems.service import Place
from systems.system import PortObserver, System
from systems.view import Member, Observer, PartitionState, View
from workloads.api import NO_OFFSET, Client, LogClient, Refused, RegisterClient
from workloads.own_workload import Operation, OwnWorkload

if TYPE_CHECKING:
    from orchestrator.store.results import Results

__all__ = [
    "NO_OFFSET",
    "BrokenPromise",
    "Client",
    "ClientOperation",
    "FaultKind",
    "HistoryChecker",
    "InputError",
    "LogClient",
    "Member",
    "Observer",
    "Operation",
    "OwnWorkload",
    "Parameter",
    "PartitionState",
    "Place",
    "PortObserver",
    "Refused",
    "RegisterClient",
    "RunHistory",
    "System",
    "TargetNode",
    "View",
    "results",
]


def results(store: str | os.PathLike[str], *, spark: Any = None) -> Results:
    """The results of a store, a directory of runs, as it is now. Nothing is written.

    `runs`, `checks`, `faults`, `anomalies` and `seconds` of the result are DataFrames, and so is `operations()`.
    `left_out` has the runs whose rows are absent, with reasons; a warning announces each table that lacks rows. With
    `spark`, a SparkSession, they are its DataFrames, otherwise those of pandas. Raises InputError for a directory
    without campaigns, an unusable session, and without pandas."""
    from orchestrator.store.results import read_results  # clients need neither Arrow nor the orchestrator

    return read_results(store, spark)
