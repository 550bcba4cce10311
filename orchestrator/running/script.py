"""Runs the steps of a scripted nemesis, one after the other, each within its deadline.

A step waits for a condition of the cluster instead of a fixed time (a wait for seconds keeps the timing of faults
within a load). A step that fails ends the run with its number, its text, and the last observation.

Adds a replica to a partition and records what its bootstrap took: a script's `join` step.

The record has where the new replica's log starts, the number of bytes that it copied, its epoch file beside the
leader's, and the time until it was in sync. `analysis/checkers/bootstrap.py` compares them with the offsets that the
leader stated before and after.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar

from msgspec.structs import asdict

from history.journal.writer import Journal
from installation.sanitize import visible, visible_line
from nemeses import HEALED_BY, Fault
from nemeses.mechanisms.shell import ask, list_files_script
from nemeses.ports import Host, HostError
from nemeses.scheduling import REAL_TIME, Scheduler
from orchestrator.campaign.steps import (
    HEAL,
    ConfigureStep,
    ConsumeStep,
    CutStep,
    DeleteRecordsStep,
    ElectStep,
    Groups,
    HealStep,
    JoinStep,
    NodeStep,
    ProduceStep,
    RunStep,
    Step,
    WaitStep,
)
from orchestrator.errors import RunError
from orchestrator.running.clients import Fleet
from orchestrator.running.cluster import Cluster
from orchestrator.running.event_tail import EventTail, LogTail, checkpointed_high_watermark, matches
from orchestrator.running.faults import FaultLog
from orchestrator.running.progress import Progress
from orchestrator.worlds.base import Node
from systems import PartitionState, View
from workloads.control import AppendResult, ReadDone, RecordsDeleted

_EPOCHS: Final = "leader-epoch-checkpoint"
_HEADER_LINES: Final = 2
_OUTPUT: Final = 2_000
"""The characters of each output of a command that the journal keeps."""
T = TypeVar("T")
Until = Callable[[JoinStep, Callable[[], tuple[object, str]]], object]
"""Repeats an attempt within the step's deadline; see `Stepper`."""


def join(
    step: JoinStep,
    node: str,
    cluster: Cluster,
    hosts: Mapping[str, Host],
    nodes: Mapping[str, Node],
    journal: Journal,
    until: Until,
    scheduler: Scheduler,
) -> None:
    """Make `node` a replica and wait until it is in sync. Raises `RunError` if it is one already, and when the deadline
    passes; `HostError` when its files cannot be read."""
    before = _offsets(step, cluster, until)
    state = until(step, lambda: (cluster.view().partitions.get(step.partition), "the partition is not known"))
    assert isinstance(state, PartitionState)
    if node in state.replicas:
        raise RunError(f"{step.title}: {node} has a replica of partition {step.partition} already")
    replicas = (*state.replicas, node)
    until(step, lambda: _accepted(cluster.control.reassign(step.partition, replicas)))
    began_s = scheduler.monotonic()
    journal.reassigned(step.partition, [nodes[name].id for name in replicas])
    leader = str(until(step, lambda: _in_sync(cluster.view(), step.partition, node)))
    seconds = scheduler.monotonic() - began_s
    directory = f"log/{cluster.topic}-{step.partition}"
    segments = ask(hosts[node], list_files_script(hosts[node].data_dir, f"{directory}/*.log"))
    sizes = {int(PurePosixPath(path).stem): int(size) for path, size in segments.items() if path != "listed"}
    journal.joined(
        node,
        step.partition,
        leader=leader,
        seconds=round(seconds, 3),
        before=before,
        after=_offsets(step, cluster, until),
        segments=sorted(sizes),
        moved=sum(sizes.values()),
        epochs=_epochs(hosts[node], directory),
        leader_epochs=_epochs(hosts[leader], directory),
        starts_at=step.starts_at,
    )


def _accepted(complaint: str | None) -> tuple[bool, str]:
    return complaint is None, complaint or ""


def _offsets(step: JoinStep, cluster: Cluster, until: Until) -> Mapping[str, int]:
    def attempt() -> tuple[Mapping[str, int] | None, str]:
        offsets = cluster.control.offsets(step.partition)
        return (None, offsets) if isinstance(offsets, str) else (offsets, "")

    offsets = until(step, attempt)
    assert isinstance(offsets, Mapping)
    return offsets


def _in_sync(view: View, partition: int, node: str) -> tuple[str | None, str]:
    """The leader, as soon as the node is in sync."""
    state = view.partitions.get(partition)
    is_in = state is not None and node in state.isr
    return (state.leader if state is not None and is_in else None), str(view)


def _epochs(host: Host, directory: str) -> list[tuple[int, int]]:
    """The entries (epoch, start offset) of a replica's epoch file. Raises `HostError`."""
    path = f"{host.data_dir}/{directory}/{_EPOCHS}"
    result = host.run(f"cat {path}")
    if not result.ok:
        raise HostError(f"{host.name}: {path} cannot be read: {result.stderr.strip()}")
    lines = result.stdout.splitlines()[_HEADER_LINES:]
    return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines if line.strip())]


POLL_S = 0.03


class StepClients:
    """The clients that a step uses: the probe for appends and deletions, a new reader for every read."""

    def __init__(self, fleet: Fleet, acknowledged: Callable[[int], None], scheduler: Scheduler) -> None:
        self._fleet = fleet
        self._acknowledged = acknowledged
        self._scheduler = scheduler

    def append(self, partition: int, *, acks: int, count: int, timeout_s: float) -> list[AppendResult]:
        results = self._fleet.append(partition, acks=acks, count=count, timeout_s=timeout_s)
        if any(result.outcome == "ok" for result in results):
            self._acknowledged(self._scheduler.monotonic_ns())
        return results

    def delete_records(self, partition: int, offset: int, timeout_s: float) -> RecordsDeleted:
        return self._fleet.delete_records(partition, offset, timeout_s)

    def read_all(self, partition: int, timeout_s: float) -> ReadDone:
        reader = self._fleet.start_reader()
        reader.wait_ready(timeout_s)
        try:
            return reader.read_all(partition, timeout_s)
        finally:
            reader.close()


class Stepper:
    """The steps of one run. `tick` is called while a step waits; it may raise to end the run.

    `time_scale` multiplies the steps' own time limits. `command_for` fills in the words of a command for a node."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        clients: StepClients,
        faults: FaultLog,
        hosts: Mapping[str, Host],
        nodes: Sequence[Node],
        journal: Journal,
        progress: Progress,
        tick: Callable[[], None],
        command_for: Callable[[Sequence[str], Node], Sequence[str]],
        time_scale: float = 1.0,
        scheduler: Scheduler = REAL_TIME,
    ) -> None:
        self._cluster = cluster
        self._clients = clients
        self._faults = faults
        self._hosts = hosts
        self._nodes = {node.name: node for node in nodes}
        self._journal = journal
        self._progress = progress
        self._tick = tick
        self._command_for = command_for
        self._time_scale = time_scale
        self._scheduler = scheduler
        self._names: dict[str, str] = {}
        self._tails = {node.name: EventTail(node.record_dir / "events.jsonl") for node in nodes}
        self._logs = {node.name: LogTail(node.record_dir / "service.log") for node in nodes}

    def run(self, steps: Sequence[Step]) -> None:
        """Raises `RunError` at the first step that fails."""
        for step in steps:
            self._progress.say(f"{step.title}{' - ' + step.why if step.why else ''}", dim=True)
            self._journal.note(step.title, step=step.number, why=step.why)
            if not isinstance(step, WaitStep):
                for name in self._nodes:
                    self._tails[name].mark()
                    self._logs[name].mark()
            try:
                self._do(step)
            except (HostError, ValueError) as error:
                raise RunError(f"{step.title}: {error}") from error
            self._journal.event("step_done", step=step.number)

    def _do(self, step: Step) -> None:
        match step:
            case NodeStep():
                self._node_step(step)
            case CutStep():
                self._cut(step)
            case HealStep():
                self._heal(step)
            case ProduceStep():
                self._produce(step)
            case ConsumeStep():
                answer = self._clients.read_all(step.partition, step.deadline_s * self._time_scale)
                if not answer.complete:
                    raise RunError(f"{step.title}: read to offset {answer.read} of {answer.end}")
            case DeleteRecordsStep():
                self._delete_records(step)
            case ConfigureStep():
                self._configure(step)
            case JoinStep():
                node = self._resolve(step, step.node)
                join(step, node, self._cluster, self._hosts, self._nodes, self._journal, self._until, self._scheduler)
            case WaitStep():
                self._wait(step)

    def _delete_records(self, step: DeleteRecordsStep) -> None:
        def attempt() -> tuple[bool, str]:
            answer = self._clients.delete_records(step.partition, step.offset, step.timeout_s * self._time_scale)
            return not answer.error, answer.error

        self._until(step, attempt)

    def _configure(self, step: ConfigureStep) -> None:
        node = None if step.node is None else self._resolve(step, step.node)

        def attempt() -> tuple[bool, str]:
            complaint = self._cluster.control.configure(step.settings, node)
            return complaint is None, complaint or ""

        self._until(step, attempt)

    def _node_step(self, step: NodeStep) -> None:
        node = self._resolve(step, step.node)
        if step.alias is not None:
            self._names[step.alias] = node
            self._journal.note(f"{step.alias} is {node}", step=step.number)
        if step.kind is not None:
            self._inject(step, (node,), step.parameters)
        elif step.do in HEALED_BY:
            self._end(step, node, HEALED_BY[step.do])
        elif isinstance(step, ElectStep):
            self._until(step, lambda: self._try_to_elect(node, step.partition))
        elif isinstance(step, RunStep):
            self._run_command(step, node)
        elif step.do == "sync":
            result = self._hosts[node].run(f"sync -f {shlex.quote(str(self._nodes[node].data_dir))}")
            if not result.ok:
                raise RunError(f"{step.title}: {result.stderr.strip()}")

    def _run_command(self, step: RunStep, node: str) -> None:
        host, words = self._hosts[node], self._command_for(step.command, self._nodes[node])
        timeout_s = step.deadline_s * self._time_scale
        result = host.run(f"cd {shlex.quote(host.data_dir)} && {shlex.join(words)}", timeout_s=timeout_s)
        self._journal.note(
            f"{step.title}: exit code {result.exit_code}",
            step=step.number,
            exit_code=result.exit_code,
            stdout=visible(result.stdout[-_OUTPUT:]),
            stderr=visible(result.stderr[-_OUTPUT:]),
        )
        if result.exit_code not in step.exit_codes:
            last_words = visible_line((result.stderr or result.stdout).strip()[-_OUTPUT:]) or "no output"
            raise RunError(f"{step.title}: exit code {result.exit_code}: {last_words}")

    def _try_to_elect(self, node: str, partition: int | None) -> tuple[bool, str]:
        complaint = self._cluster.elect(node, partition)
        return complaint is None, complaint or ""

    def _cut(self, step: CutStep) -> None:
        """Cut two groups. A node that has roles in both groups is cut from the others."""
        first, second = self._groups(step, step.between)
        pairs = [[a, b] for a in first for b in second if a != b]
        if not pairs:
            raise RunError(f"{step.title}: both are {first[0]}, which cannot be cut from itself")
        pairs += [] if step.one_way else [[b, a] for a, b in pairs if [b, a] not in pairs]
        self._inject(step, first, {"pairs": pairs})

    def _groups(self, step: Step, groups: Groups) -> Groups:
        """The nodes that two groups currently mean."""
        first, second = (tuple(self._resolve(step, name) for name in group) for group in groups)
        return first, second

    def _heal(self, step: HealStep) -> None:
        healed = frozenset(name for name, kind in self._faults.kinds.items() if kind.healed_by == HEAL)
        if step.node is not None:
            on_nodes = frozenset(name for name in healed if self._faults.kinds[name].takes == "node")
            self._end(step, self._resolve(step, step.node), on_nodes)
            return
        if step.between is None:
            self._faults.heal(lambda fault: fault.kind in healed)
            return
        first, second = map(set, self._groups(step, step.between))

        def is_meant(fault: Fault) -> bool:
            cut = fault.parameters.get("pairs", [])
            return bool(cut) and all({a, b} & first and {a, b} & second for a, b in cut)

        if not self._faults.heal(is_meant):
            raise RunError(f"{step.title}: nothing to end: the cut does not exist")

    def _inject(self, step: Step, targets: tuple[str, ...], parameters: Mapping[str, Any]) -> None:
        assert step.kind is not None, "only for steps that start a fault"
        evidence = self._faults.inject(Fault(step.kind.name, targets, parameters=parameters))
        if not evidence.confirmed:
            raise RunError(f"{step.title}: the fault is {evidence.status}: {evidence.cause}")

    def _end(self, step: Step, node: str, kinds: frozenset[str]) -> None:
        if not self._faults.heal(lambda fault: fault.kind in kinds and node in fault.targets):
            raise RunError(f"{step.title}: nothing to end: {node} is not under such a fault")

    def _produce(self, step: ProduceStep) -> None:
        timeout_s = step.timeout_s * self._time_scale
        if step.until_ok:
            self._produce_until_ok(step, timeout_s)
            return
        results = self._clients.append(step.partition, acks=step.acks, count=step.count, timeout_s=timeout_s)
        outcomes = [result.outcome for result in results] or ["nothing"]
        if step.expect != "any" and outcomes != [step.expect] * step.count:
            last_error = results[-1].error if results else "no answer"
            raise RunError(f"{step.title}: expected {step.expect}, got {outcomes[-1]} ({last_error})")
        self._journal.note(
            f"{step.title}: {', '.join(outcomes)}", step=step.number, results=[asdict(result) for result in results]
        )

    def _produce_until_ok(self, step: ProduceStep, timeout_s: float) -> None:
        results: list[AppendResult] = []

        def attempt() -> tuple[bool, str]:
            remaining = step.count - _acknowledged(results)
            appended = self._clients.append(step.partition, acks=step.acks, count=remaining, timeout_s=timeout_s)
            results.extend(appended)
            return _acknowledged(results) == step.count, appended[-1].error if appended else "no answer"

        self._until(step, attempt)
        outcomes = [result.outcome for result in results]
        self._journal.note(
            f"{step.title}: {', '.join(outcomes)}", step=step.number, results=[asdict(result) for result in results]
        )

    def _resolve(self, step: Step, name: str) -> str:
        """The node that a name in a step currently means; waits, within the step's deadline, for the role to be
        taken."""
        if name in self._names:
            return self._names[name]
        if name in self._nodes:
            return name
        role, *numbers = name.split(":")
        return str(self._until(step, lambda: _filled(self._cluster.view(), role, *map(int, numbers))))

    def _wait(self, step: WaitStep) -> None:
        arguments: dict[str, Any] = dict(step.arguments)
        if step.condition == "seconds":
            self._let_pass(arguments["seconds"] * self._time_scale)
            return
        if "node" in arguments:
            arguments["node"] = self._resolve(step, arguments["node"])
        if "nodes" in arguments:
            arguments["nodes"] = {self._resolve(step, name) for name in arguments["nodes"]}
        look = getattr(self, f"_see_{step.condition}")
        self._until(step, lambda: look(**arguments))

    def _let_pass(self, seconds: float) -> None:
        ends_s = self._scheduler.monotonic() + seconds
        while (left_s := ends_s - self._scheduler.monotonic()) > 0:
            self._tick()
            self._scheduler.sleep(min(POLL_S, left_s))

    def _until(self, step: Step, look: Callable[[], tuple[object, str]]) -> object:
        """Look until a value is found; `look` returns (the value or a false value, the observation for the message)."""
        deadline_s = step.deadline_s * self._time_scale
        give_up = self._scheduler.monotonic() + deadline_s
        while True:
            value, observation = look()
            if value:
                return value
            if self._scheduler.monotonic() > give_up:
                raise RunError(f"{step.title}: not within {deadline_s:g} s; last seen: {observation}")
            self._tick()
            self._scheduler.sleep(POLL_S)

    # Each `_see_` returns (whether the condition holds, the observation).

    def _see_leader(self, node: str, partition: int) -> tuple[bool, str]:
        view = self._cluster.view()
        state = view.partitions.get(partition)
        return state is not None and state.leader == node, str(view)

    def _see_offline(self, partition: int) -> tuple[bool, str]:
        view = self._cluster.view()
        state = view.partitions.get(partition)
        return state is not None and view.controller is not None and state.leader is None, str(view)

    def _see_isr(self, nodes: set[str], partition: int) -> tuple[bool, str]:
        view = self._cluster.view()
        state = view.partitions.get(partition)
        return state is not None and set(state.isr) == nodes, str(view)

    def _see_in_sync(self, partition: int) -> tuple[bool, str]:
        view = self._cluster.view()
        state = view.partitions.get(partition)
        return state is not None and state.whole, str(view)

    def _see_offset(self, name: str, at_least: int, partition: int) -> tuple[bool, str]:
        offsets = self._cluster.control.offsets(partition)
        if isinstance(offsets, str):
            return False, offsets
        return offsets[name] >= at_least, f"{name} is {offsets[name]}"

    def _see_controller(self, node: str) -> tuple[bool, str]:
        view = self._cluster.view()
        return view.controller == node, str(view)

    def _see_fenced(self, node: str) -> tuple[bool, str]:
        view = self._cluster.view()
        return view.certain and bool(view.unfenced) and node not in view.unfenced, str(view)

    def _see_unfenced(self, node: str) -> tuple[bool, str]:
        view = self._cluster.view()
        return view.certain and node in view.unfenced, str(view)

    def _see_event(self, event: str, node: str, where: Mapping[str, Any]) -> tuple[bool, str]:
        events = self._tails[node].since_mark()
        if any(reported.get("event") == event and matches(reported, where) for reported in events):
            return True, ""
        return False, f"on {node}: {', '.join(str(event.get('event')) for event in events[-12:]) or 'no event'}"

    def _see_log(self, node: str, pattern: str) -> tuple[bool, str]:
        printed = self._logs[node].since_mark()
        return any(re.search(pattern, line) for line in printed), f"on {node}: {printed[-1] if printed else 'nothing'}"

    def _see_checkpoint(self, node: str, at_least: int, partition: int) -> tuple[bool, str]:
        checkpoint = checkpointed_high_watermark(
            self._hosts[node], f"{self._nodes[node].data_dir}/log", self._cluster.topic, partition
        )
        return checkpoint is not None and checkpoint >= at_least, f"on {node}: {checkpoint}"

    def _see_log_end(self, node: str, at_least: int, partition: int) -> tuple[bool, str]:
        progress = self._tails[node].progress(self._cluster.topic, partition)
        return progress is not None and progress["log_end_offset"] >= at_least, f"on {node}: {progress}"


def _acknowledged(results: Sequence[AppendResult]) -> int:
    return sum(result.outcome == "ok" for result in results)


def _filled(view: View, role: str, partition: int = 0, which: int = 0) -> tuple[str | None, str]:
    """The node with a role, and the observation. `which`: index of the follower, in the order of the replicas."""
    if role == "controller":
        return view.controller, str(view)
    state = view.partitions.get(partition)
    if state is None or state.leader is None:
        return None, str(view)
    if role == "leader":
        return state.leader, str(view)
    followers = [name for name in state.replicas if name != state.leader]
    return followers[which] if which < len(followers) else None, str(view)
