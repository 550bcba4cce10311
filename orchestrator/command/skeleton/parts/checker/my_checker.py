"""A checker of the history of a run: no client waits too long for an answer.

docs/own-checkers.md of Brownout (`brownout docs own-checkers`) explains each part. A campaign names the class:

    [checks]
    use = ["my_checker.py:MyChecker"]
"""

from collections.abc import Iterator

from brownout_api import BrokenPromise, HistoryChecker, RunHistory

LONGEST_S = 5.0


class MyChecker(HistoryChecker):
    """Replace the promise, the anomalies and `check` by yours."""

    promise = f"an operation is answered within {LONGEST_S:g} s"
    anomalies = {"late-answer": "A client waited longer for an answer."}  # each contradiction with its meaning
    # needs = {"read": 100}       with fewer answered operations a run is unknown
    limit_s = 300  # a check that takes longer leaves the run unknown

    def check(self, history: RunHistory) -> Iterator[BrokenPromise]:
        # `history` has all operations, `history.ok()` those that certainly happened, `history.faults` the faults.
        # An operation of the type "info" may have happened, or may still happen.
        for operation in history.ok():
            took_s = (operation.ret - operation.inv) / 1e9
            if took_s > LONGEST_S:
                sentence = f"{operation.client} waited {took_s:.1f} s for the answer of {operation.f}"
                yield self.anomaly("late-answer", sentence, operation)
