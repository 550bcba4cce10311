"""What a report says of the evidence of each kind of fault."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.proof import proof


def healed(**nodes: Any) -> dict[str, Any]:
    return {"status": "confirmed", "detail": nodes}


SAID: list[tuple[str, dict[str, Any], str]] = [
    ("kill", {"n1": {"pid": 7, "state": "gone"}}, "n1: process state gone"),
    ("pause", {"n1": {"before": "S", "after": "T"}}, "n1: process state T"),
    ("partition-one", {"dropped": {"n1->n2": 3, "n2->n1": 4}}, "7 packets dropped on 2 directed links"),
    ("power-loss", {"n2": {"pages_dropped": 12}}, "another boot id on n2; 12 dirty pages lost"),
    (
        "power-loss-all",
        {
            "n1": {"writes_lost": 0},
            "n2": {"writes_lost": 3},
            "healed": healed(
                n1={"synced_mark": "kept", "unsynced_mark": "lost"}, n2={"synced_mark": "LOST", "unsynced_mark": "kept"}
            ),
        },
        "another boot id on n1, n2; 3 unflushed disk writes lost; marks: 1 of 2 synced kept, 1 of 2 unsynced lost",
    ),
    (
        "clock-jump",
        {"n1": {"jump_s": -9.0, "moved": {"real_s": -8.994, "steady_s": 0.004, "tolerance_s": 0.158}}},
        "n1: its clock moved by -8.99 s, its time since boot by +0.00 s (read within 0.16 s)",
    ),
    ("clock-jump", {"n1": {"error": "shared"}}, "n1: its clock was not read"),
    (
        "packet-delay",
        {"n1": {"connect_before_ms": 2.16, "connect_ms": 256.7}},
        "n1: a connect took 2.2 ms before, 257 ms then",
    ),
    ("packet-loss", {"n3": {"dropped": 38, "seen": 113}}, "n3: 38 of 113 packets dropped"),
    (
        "clock-freeze",
        {
            "n1": {"state": "frozen", "silent_s": 1.25},
            "healed": healed(n1={"moved": {"real_s": -3.0, "steady_s": -3.001, "tolerance_s": 0.2}}),
        },
        "n1: frozen, silent for 1.2 s when asked; afterwards its time since boot was off by -3.00 s",
    ),
    ("stall", {"n2": {"state": "stalled", "silent_s": 1.25}}, "n2: stalled, silent for 1.2 s when asked"),
    ("stall", {}, ""),
]


@pytest.mark.parametrize(("kind", "evidence", "words"), SAID)
def test_the_evidence_that_matters_most_is_told(kind: str, evidence: dict[str, Any], words: str) -> None:
    assert proof(kind, evidence) == words
