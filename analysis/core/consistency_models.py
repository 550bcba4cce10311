"""Consistency models of transactions, by the anomalies that they prohibit.

The anomalies of dependency cycles are those of Adya (PhD thesis, 1999): G0, G1c, G-single and G2-item; G-nonadjacent is
a cycle without two anti-dependencies in succession, which snapshot isolation prohibits (Cerone and Gotsman 2016,
theorem 9). With `-process` a cycle also needs the order of a process, with `-realtime` that of real time.
`no-serial-order`: registers without a known cycle, after a search through all orders.
"""

from collections.abc import Iterable, Mapping
from typing import Final

PROCESS: Final = "-process"
REALTIME: Final = "-realtime"
GARBAGE_READ: Final = "garbage-read"
DUPLICATE_ELEMENTS: Final = "duplicate-elements"
INCOMPATIBLE_ORDER: Final = "incompatible-order"
G1A: Final = "G1a"
G1B: Final = "G1b"
FUTURE_READ: Final = "future-read"
INTERNAL: Final = "internal"
LOST_UPDATE: Final = "lost-update"
FRACTURED_READ: Final = "fractured-read"
NO_SERIAL_ORDER: Final = "no-serial-order"
VANISHED: Final = "observed-transaction-vanishes"

_UNCOMMITTED: Final = frozenset({"G0", DUPLICATE_ELEMENTS, GARBAGE_READ})
_COMMITTED: Final = _UNCOMMITTED | {G1A, G1B, "G1c", FUTURE_READ, INCOMPATIBLE_ORDER}
_MONOTONIC: Final = _COMMITTED | {VANISHED}
_ATOMIC: Final = _MONOTONIC | {INTERNAL, FRACTURED_READ}
_SNAPSHOT: Final = _ATOMIC | {LOST_UPDATE, "G-single", "G-nonadjacent"}
_SERIALIZABLE: Final = _SNAPSHOT | {"G2-item", NO_SERIAL_ORDER}


def _with(anomalies: frozenset[str], *suffixes: str) -> frozenset[str]:
    """The anomalies, and those with the suffixes that an order of time may add to."""
    timed = [name for name in anomalies if name.startswith("G") or name == NO_SERIAL_ORDER]
    return anomalies | {f"{name}{suffix}" for name in timed for suffix in suffixes}


PROHIBITED: Final[Mapping[str, frozenset[str]]] = {
    "read-uncommitted": _UNCOMMITTED,
    "read-committed": _COMMITTED,
    "monotonic-atomic-view": _MONOTONIC,
    "read-atomic": _ATOMIC,
    "snapshot-isolation": _SNAPSHOT,
    "strong-session-snapshot-isolation": _with(_SNAPSHOT, PROCESS),
    "strong-snapshot-isolation": _with(_SNAPSHOT, PROCESS, REALTIME),
    "repeatable-read": _SERIALIZABLE,
    "serializable": _SERIALIZABLE,
    "strong-session-serializable": _with(_SERIALIZABLE, PROCESS),
    "strict-serializable": _with(_SERIALIZABLE, PROCESS, REALTIME),
}
"""The anomalies that each model prohibits, weaker models first. Reads by predicate are not recorded, so that repeatable
reads (Adya's PL-2.99) and serializability prohibit the same."""
STRICT_SERIALIZABLE: Final = "strict-serializable"
SERIAL: Final = ("repeatable-read", "serializable", "strong-session-serializable", STRICT_SERIALIZABLE)
"""The models that a serial order of the transactions proves."""


def has_process_order(model: str) -> bool:
    """Whether the model keeps the order of each process."""
    return model.startswith(("strong", "strict"))


def has_real_time_order(model: str) -> bool:
    """Whether the model keeps the order of real time, which is one of each process, too."""
    return has_process_order(model) and "session" not in model


def ruled_out(anomalies: Iterable[str]) -> list[str]:
    """The models that prohibit one of the anomalies, weaker models first."""
    names = set(anomalies)
    return [model for model, prohibited in PROHIBITED.items() if prohibited & names]
