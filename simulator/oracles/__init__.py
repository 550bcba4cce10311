"""Oracles: invariants that are checked after every step of a simulated run, in the brokers' state and on their disks.

A step is a moment of virtual time: everything that one timer or one arrival causes, down to the last callback. What a
broker sends at one moment arrives at a later one, so no broker sees anything that the oracles have not checked before.
Only brokers whose code has run are checked, and only what has changed since their last check.
"""

from simulator.oracles.findings import ORACLES, OracleFinding, OracleFindings
from simulator.oracles.watch import Watch

__all__ = ["ORACLES", "OracleFinding", "OracleFindings", "Watch"]
