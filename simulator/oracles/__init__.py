"""Oracles: invariants that are checked after every step of a simulated run, in the brokers' state and on their disks.

A step is a moment of virtual time: everything that one timer or one arrival causes, down to the last callback. What a
broker sends at one moment arrives at a later one, so no broker sees anything that the oracles have not checked before.
Only brokers whose code has run are checked, and only what has changed since their last check.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

from broker.quorum.wire import METADATA_TOPIC, PARTITION
from broker.server.broker_node import BrokerNode
from broker.trace import Value
from history.damage import Damage
from simulator.disk_faults import DamageListener
from simulator.host import HostContext
from simulator.loop import VirtualLoop
from simulator.oracles.deletion_rules import DELETED
from simulator.oracles.findings import ORACLES, STANDS_STILL, OracleFinding, OracleFindings
from simulator.oracles.health import MachineStates
from simulator.oracles.lease_rules import ControllerLeases
from simulator.oracles.liveness_rules import LivenessRules
from simulator.oracles.machine_view import MachineView
from simulator.oracles.partition_rules import PartitionRules
from simulator.oracles.producer_id_rules import ProducerIdRules
from simulator.oracles.quorum_rules import QuorumRules
from simulator.oracles.settings import OracleSettings

__all__ = ["ORACLES", "OracleFinding", "OracleFindings", "Watch"]


class Watch:
    """The oracles of one cluster. The cluster reports starts and ends of processes; the loop, which hosts have run."""

    def __init__(self, loop: VirtualLoop, machines: Iterable[MachineView], states: MachineStates) -> None:
        self.findings = OracleFindings(loop.time)
        self.looks = 0
        self.machines = {machine.name: machine for machine in machines}
        by_id = {machine.node_id: machine for machine in self.machines.values()}
        self._hosts: dict[HostContext, MachineView] = {}
        self._loop = loop
        self._partitions = PartitionRules(by_id, self.findings)
        self._quorum = QuorumRules(by_id, self.findings)
        self._leases = ControllerLeases(by_id, self.findings)
        self._producer_ids = ProducerIdRules(self.findings)
        self._liveness = LivenessRules(by_id, self.findings, states)
        for machine in self.machines.values():
            machine.disk.listener = DamageListener(partial(self._damaging, machine), partial(self._damaged, machine))
        loop.at_rest = self._look

    def began(self, name: str, life: int, host: HostContext, node: BrokerNode, properties: Mapping[str, str]) -> None:
        """A process has started on a machine, with these properties."""
        machine = self.machines[name]
        machine.settings = OracleSettings(properties)
        machine.node, machine.host, machine.life = node, host, life
        self._hosts[host] = machine

    def ending(self) -> None:
        """A process is about to be ended, possibly within a moment: its actions so far are checked before that."""
        self._loop.look()

    def ended(self, name: str, *, power_lost: bool) -> None:
        """No process runs on a machine any more; with the power its page cache was lost too."""
        machine = self.machines[name]
        machine.process_ended()
        self._hosts = {host: view for host, view in self._hosts.items() if view is not machine}
        if power_lost:
            self._partitions.power_lost(machine)
            self._quorum.power_lost(machine)
        else:
            self._partitions.process_ended(machine)

    def touched(self, name: str) -> None:
        """A machine was changed, or its process starts or ends."""
        self._liveness.touched(name)

    def never_returns(self, host: HostContext, text: str) -> None:
        """A process uses the processor without an end: `text` says how. None of its code runs again. A failure if it is
        a broker's."""
        host.stand_still()
        if (machine := self._hosts.get(host)) is not None:
            sentence = f"{machine.name} does not return to its event loop: it used {text}"
            self.findings.report(STANDS_STILL, METADATA_TOPIC, PARTITION, sentence, {"node": machine.name})

    def clocks_stop(self, name: str, own_time: float) -> None:
        """A machine's clocks are about to stop, at this time since its boot."""
        self.machines[name].clocks_stop(own_time)

    def _damaging(self, machine: MachineView, damage: Damage) -> None:
        """A fault is about to damage a machine's disk: others have counted what it held until now."""
        machine.damaged(damage)
        self._partitions.disk_damaging(machine)
        self._quorum.disk_damaging(machine)

    def _damaged(self, machine: MachineView, _: Damage) -> None:
        """A machine's disk was replaced."""
        machine.look_for_mark()
        self._partitions.power_lost(machine)
        self._quorum.power_lost(machine)

    def heard(self, name: str, event: Mapping[str, Value]) -> None:
        """A broker reports an event at this moment."""
        machine = self.machines[name]
        if str(event["event"]).startswith("quorum_"):
            self._quorum.heard(machine, event)
        elif event["event"] in ("partition_role", DELETED) and machine.node is not None:
            partition = machine.node.replicas.partition(str(event["topic"]), cast(int, event["partition"]))
            if partition is not None and event["event"] == DELETED:
                self._partitions.deletions.answered(partition, event)
            elif partition is not None:
                # A role may have ended by the end of the step, but its commits remain.
                self._partitions.look(machine, [partition])

    def to_json(self) -> dict[str, Any]:
        return {"looks": self.looks, **self.findings.to_json()}

    def _look(self, hosts: list[HostContext]) -> None:
        for host in hosts:
            machine = self._hosts.get(host)
            if machine is None or machine.node is None:
                continue
            node = machine.node
            self.looks += 1
            self._partitions.look(machine, node.replicas.partitions.values())
            self._producer_ids.look(machine)
            if machine.running:
                self._quorum.look(machine, node.quorum)
                self._leases.look(machine)
            if machine.suffered:
                self._partitions.settle(machine)
        self._liveness.look()
