"""Oracles: what must hold after every step of a simulated run, looked up in the brokers' own state and on their disks.

A step is a moment of virtual time: what one timer or one arrival sets off, down to the last callback. What a broker
sends at a moment arrives at a later one, so nobody sees what no oracle has seen. Only brokers whose code has run are
looked at, and of them only what differs from the last look.
"""

from simulator.oracles.findings import ORACLES, OracleFinding, OracleFindings
from simulator.oracles.watch import Watch

__all__ = ["ORACLES", "OracleFinding", "OracleFindings", "Watch"]
