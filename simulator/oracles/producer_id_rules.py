"""The oracle of producer ids: no two processes of brokers may assign the same id, and none assigns an id twice (K98-1).

Two producers with one id look like one that repeats itself: a broker drops the batches of the second one as duplicates,
and acknowledges them. That needs two producers that write to one partition, so the oracle compares what each process
may assign. A block belongs to the process that got it, also after its end.
"""

from simulator.oracles.findings import ID_SHARED, OracleFindings
from simulator.oracles.machine_view import MachineView

_NO_TOPIC = ""


class ProducerIdRules:
    """The blocks of ids of all processes of a cluster."""

    def __init__(self, findings: OracleFindings) -> None:
        self._findings = findings
        self._blocks: dict[tuple[str, int, int], range] = {}
        """By machine, life of its process and end of the block: what it had when it was seen first."""
        self._next_ids: dict[tuple[str, int, int], int] = {}
        """The first unused id of each block when it was seen last."""

    def look(self, machine: MachineView) -> None:
        """Check the block of a broker's process."""
        if machine.node is None or not (ids := machine.node.producer_ids.ids.unused):
            return
        key = (machine.name, machine.life, ids.stop)
        if self._next_ids.get(key) == ids.start:
            return
        self._findings.compared(ID_SHARED, _NO_TOPIC)
        if ids.start < self._next_ids.get(key, 0):
            self._report(machine, ids, "has assigned some of them already")
        elif key not in self._blocks:
            for (name, life, _), block in self._blocks.items():
                if block.start < ids.stop and ids.start < block.stop:
                    self._report(machine, ids, f"process {life} of {name} got {block.start} to {block.stop - 1}")
            self._blocks[key] = ids
        self._next_ids[key] = ids.start

    def _report(self, machine: MachineView, ids: range, problem: str) -> None:
        sentence = (
            f"process {machine.life} of {machine.name} may assign the producer ids {ids.start} to {ids.stop - 1}, and "
            f"{problem}"
        )
        witness = {"node": machine.name, "first": ids.start, "last": ids.stop - 1}
        self._findings.report(ID_SHARED, _NO_TOPIC, -1, sentence, witness)
