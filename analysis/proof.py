"""What proves a fault, in a few words for a report: of its evidence, what matters most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Facts = Mapping[str, Any]


def proof(kind: str, evidence: Facts) -> str:
    """A sentence about the evidence of a fault of this kind, as the journal has it; empty when there is none."""
    if "dropped" in evidence:
        packets = sum(evidence["dropped"].values())
        return f"{packets} packets dropped on {len(evidence['dropped'])} directed links"
    nodes = {name: facts for name, facts in evidence.items() if name != "healed" and isinstance(facts, Mapping)}
    healed = evidence.get("healed") or {}
    after = healed.get("detail") if isinstance(healed, Mapping) else None
    after = after if isinstance(after, Mapping) else {}
    if kind.startswith("power"):
        return _power(nodes, after)
    tell = _BY_KIND.get(kind, _process)
    return "; ".join(f"{name}: {tell(facts, _facts(after, name))}" for name, facts in nodes.items())


def _facts(of: Facts, name: str) -> Facts:
    found = of.get(name)
    return found if isinstance(found, Mapping) else {}


def _power(nodes: Mapping[str, Facts], after: Facts) -> str:
    told = [f"another boot id on {', '.join(nodes)}"]
    for fact, words in (("pages_dropped", "dirty pages lost"), ("writes_lost", "unflushed disk writes lost")):
        counts = [int(facts[fact] or 0) for facts in nodes.values() if fact in facts]
        if any(counts) or (counts and fact == "pages_dropped"):
            told.append(f"{sum(counts)} {words}")
    marks = [_facts(after, name) for name in nodes if "synced_mark" in _facts(after, name)]
    if marks:
        kept = sum(mark["synced_mark"] == "kept" for mark in marks)
        lost = sum(mark.get("unsynced_mark") == "lost" for mark in marks)
        told.append(f"marks: {kept} of {len(marks)} synced kept, {lost} of {len(marks)} unsynced lost")
    return "; ".join(told)


def _clock(facts: Facts, _: Facts) -> str:
    moved = facts.get("moved")
    if not isinstance(moved, Mapping):
        return "its clock was not read"
    return (
        f"its clock moved by {moved['real_s']:+.2f} s, its time since boot by {moved['steady_s']:+.2f} s "
        f"(read within {moved['tolerance_s']:.2f} s)"
    )


def _delay(facts: Facts, _: Facts) -> str:
    if "connect_ms" not in facts:
        return "no connect was timed"
    return f"a connect took {facts.get('connect_before_ms', 0):.1f} ms before, {facts['connect_ms']:.0f} ms then"


def _loss(facts: Facts, _: Facts) -> str:
    return f"{facts.get('dropped', 0)} of {facts.get('seen', 0)} packets dropped"


def _stop(facts: Facts, after: Facts) -> str:
    words = f"{facts.get('state', 'not seen to stop')}, silent for {facts.get('silent_s', 0):.1f} s when asked"
    moved = after.get("moved")
    if isinstance(moved, Mapping) and moved.get("steady_s") is not None:
        words += f"; afterwards its time since boot was off by {moved['steady_s']:+.2f} s"
    return words


def _process(facts: Facts, _: Facts) -> str:
    return f"process state {facts.get('after') or facts.get('state')}"


_BY_KIND: Mapping[str, Callable[[Facts, Facts], str]] = {
    "clock-jump": _clock,
    "packet-delay": _delay,
    "packet-loss": _loss,
    "stall": _stop,
    "clock-freeze": _stop,
}
