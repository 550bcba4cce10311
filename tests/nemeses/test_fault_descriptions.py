"""The descriptions of faults in reports: the action of each, and its most important evidence."""

from typing import Any

import pytest

from nemeses import KINDS, Fault


def healed(**nodes: Any) -> dict[str, Any]:
    return {"status": "confirmed", "detail": nodes}


SAID: list[tuple[str, dict[str, Any], str]] = [
    ("kill", {"n1": {"pid": 7, "state": "gone"}}, "n1: process state gone"),
    ("pause", {"n1": {"before": "S", "after": "T"}}, "n1: process state T"),
    ("partition-one", {"dropped": {"n1->n2": 3, "n2->n1": 4}}, "7 packets dropped on 2 directed links"),
    ("power-loss", {"n2": {"pages_dropped": 12}}, "no power on n2; 12 dirty pages lost"),
    (
        "power-loss-all",
        {
            "n1": {"writes_lost": 0},
            "n2": {"writes_lost": 3},
            "healed": healed(
                n1={"boot_id": "b", "boot_id_before": "a", "synced_mark": "kept", "unsynced_mark": "lost"},
                n2={"boot_id": "a", "boot_id_before": "a", "synced_mark": "LOST", "unsynced_mark": "kept"},
            ),
        },
        "another boot id on n1; 3 unflushed disk writes lost; marks: 1 of 2 synced kept, 1 of 2 unsynced lost",
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
        "n1: a connect took 2.2 ms before, 257 ms during the fault",
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
def test_the_proof_states_the_most_important_evidence(kind: str, evidence: dict[str, Any], words: str) -> None:
    after = evidence.get("healed", {}).get("detail", {})
    assert KINDS[kind].proof({key: facts for key, facts in evidence.items() if key != "healed"}, after) == words


def test_missing_evidence_is_described() -> None:
    for kind in KINDS.values():
        for seen in ({}, {"error": "this world has no such thing"}, {"n1": {"error": "it does not answer"}}):
            assert isinstance(kind.proof(seen, {}), str), kind.name
            assert isinstance(kind.proof(seen, {"error": "nor now"}), str), kind.name


SENTENCES: list[tuple[str, tuple[str, ...], dict[str, Any], str]] = [
    ("kill", ("n1", "n2"), {}, "the service on n1 and n2 is killed; its machine continues"),
    ("pause", ("n3",), {}, "the service on n3 is suspended, and later resumed"),
    ("power-loss", ("n2",), {"tear": 0}, "n2 loses power; unsynced pages reach the disk partly"),
    (
        "power-loss-all",
        ("n1", "n2", "n3"),
        {"tear": None},
        "n1, n2 and n3 lose power at the same moment; unsynced pages are lost",
    ),
    ("partition-one", ("n1",), {"direction": "both"}, "n1 is cut off from the other nodes, both ways"),
    ("partition-leader", ("n1",), {"direction": "out"}, "nothing that n1 sends reaches the other nodes"),
    ("partition-halves", ("n1", "n2"), {"direction": "in"}, "nothing from the other nodes reaches n1 and n2"),
    ("partition-one", ("n1",), {"pairs": [["n1", "n2"], ["n2", "n1"]]}, "nothing passes n1->n2 and n2->n1"),
    ("stall", ("n1",), {}, "the machine of n1 is suspended while its clocks continue"),
    ("clock-freeze", ("n1",), {}, "the machine of n1 is suspended together with its clocks, which lag afterwards"),
    ("clock-jump", ("n1",), {"jump_s": -90.0}, "the clock of n1 jumps 90 s back"),
    (
        "packet-delay",
        ("n1",),
        {"delay_ms": 80.0, "jitter_ms": 20.0},
        "packets from n1 to the other nodes are 80 ms late, plus or minus 20 ms",
    ),
    ("packet-loss", ("n1",), {"percent": 12.5}, "12.5 % of the packets from n1 to the other nodes are lost"),
]


@pytest.mark.parametrize(("kind", "targets", "parameters", "words"), SENTENCES)
def test_a_sentence_describes_the_action_of_a_fault(
    kind: str, targets: tuple[str, ...], parameters: dict[str, Any], words: str
) -> None:
    assert KINDS[kind].sentence(Fault(kind, targets, parameters=parameters)) == words
