"""Kinds of fault of a user's own, which a campaign names in `[nemesis] kinds`.

Theory of operation. `FaultKind` is the user's interface: what a fault does to one node. `own_kind` makes a `Kind` of
it, with a mechanism of its own, so schedules, scripts, journal and analysis use it as any other kind. Each run has one
object of the user's class.

`evidence` is asked after the injection and after the heal. A fault is confirmed if there is evidence of it, and healed
if it has ended. Evidence that is always there therefore proves nothing: its heal is a mismatch. `heal` is
also called on every node before the first fault and at the end of the run, because a killed run may have left faults.

The user's code may fail or never return. So each call runs in a thread with a deadline, one call at a time. An
exception and a late call are inconclusive evidence, with file and line.
"""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from history.damage import Damage
from history.fault_looks import FaultGroup, FaultMark
from history.journal.evidence_rule import EvidenceRule
from history.own_classes import OwnClassError, class_in, made, place_in
from installation.programs import run_program
from installation.sanitize import brief, visible_line
from nemeses.fault import Evidence, Fault, Status, combine, worst
from nemeses.kind import Facts, NodeKind, RandomDraw, listed
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import guarded
from nemeses.mechanisms.service import start_and_verify
from nemeses.mechanisms.shell import brief_command
from nemeses.parameters import Parameter
from nemeses.ports import Host, HostError, Result

LIMIT_S: Final = 60.0
LONGEST_LIMIT_S: Final = 3_600.0
HEAL: Final = "heal"
"""The word with which scripts heal faults of a user's own."""
_NAME: Final = re.compile("[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LETTERS: Final = 300
R = TypeVar("R")


class TargetNode:
    """A node, for a fault of a user's own."""

    def __init__(self, host: Host, parameters: Mapping[str, Any], time_scale: float) -> None:
        self.name = host.name
        """Such as n1."""
        self.address = host.address
        """The address by which other nodes reach it."""
        self.port = host.port
        """The first port of its service."""
        self.data_dir = host.data_dir
        """The directory on its own disk with the service's data."""
        self.parameters = parameters
        """The values of the fault's parameters by name; empty where no fault is known, as when everything is healed."""
        self._host = host
        self._time_scale = time_scale

    @classmethod
    def of(cls, data_dir: str | os.PathLike[str], **parameters: float) -> TargetNode:
        """A node for a test of a fault. Its commands run on this machine, and no service runs on it."""
        return cls(_ThisMachine(os.fspath(data_dir)), parameters, 1.0)

    @property
    def pid(self) -> int | None:
        """The process id of its service on the node; None if it does not run."""
        return self._host.service_pid()

    def run(self, command: str, *, timeout_s: float = 10.0, exit_codes: Sequence[int] = (0,)) -> Result:
        """Run a shell command on the node to its end. The result has `exit_code`, `stdout` and `stderr`. Raises
        `HostError` for another exit code than these, without an answer in time, and for a node that cannot be
        reached."""
        result = self._host.run(command, timeout_s=timeout_s * self._time_scale)
        if result.exit_code not in exit_codes:
            output = visible_line((result.stderr or result.stdout).strip()) or "no output"
            raise HostError(f"{self.name}: exit code {result.exit_code}: {brief(output, _LETTERS)}")
        return result


@dataclass(frozen=True)
class _ThisMachine:
    """A host without a service, for tests of faults."""

    data_dir: str
    name: str = "n1"
    address: str = "127.0.0.1"
    port: int = 0
    probe_port: int = 0

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        try:
            done = run_program(["sh", "-c", command], timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise HostError(f"{self.name}: {brief_command(command)!r} did not end within {timeout_s:g} s") from None
        return Result(done.returncode, done.stdout, done.stderr)

    def service_pid(self) -> None:
        return None

    def service_exit(self, pid: int | None = None) -> None:
        del pid

    def start_service(self) -> None:
        pass


class FaultKind(ABC):
    """A kind of fault of a user's own. It needs no argument to be made. Each run has its own object."""

    name: ClassVar[str]
    """The name in campaigns, reports and journals, such as "flip-bit"."""
    text: ClassVar[str]
    """What it does to a node, without a full stop: "a bit of the log is flipped"."""
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    """Numbers that steps may set. Random faults draw them from `drawn`, or have the default."""
    needs_service: ClassVar[bool] = False
    """Whether it needs a service that runs: not on a node whose service another fault has ended or suspended."""
    ends_service: ClassVar[bool] = False
    """Whether it ends the service: that is not a finding, and after the heal the service is started again."""
    may_destroy: ClassVar[Collection[str]] = ()
    """The damage that it may do to its node, which the analysis excuses."""
    limit_s: ClassVar[float] = LIMIT_S
    """The time after which a call of a method is given up."""

    @abstractmethod
    def inject(self, node: TargetNode) -> None:
        """Inject the fault on a node."""

    @abstractmethod
    def evidence(self, node: TargetNode) -> str | None:
        """What shows, now, that the fault is in force on a node, as a text; None if nothing does."""

    @abstractmethod
    def heal(self, node: TargetNode) -> None:
        """End the fault on a node, and do nothing on a node without it."""


class OwnFaults(Mechanism):
    """The faults of one kind of a user's own, in one run."""

    stage = 65  # of services, which start later
    use: ClassVar[str]
    fault_class: ClassVar[type[FaultKind]]

    def inject(self, host: Host, parameters: Mapping[str, Any]) -> Evidence:
        """Inject on one node. Raises `HostError`."""
        kind, node = self._on(host, parameters)
        self._call("inject", lambda: kind.inject(node))
        text = self._evidence(kind, node)
        missing = {} if text else {"error": f"{self.use}: evidence() shows nothing of the fault"}
        return Evidence("confirmed" if text else "mismatch", {"evidence": text, **missing})

    def heal(self, host: Host, parameters: Mapping[str, Any], *, starts: bool = False) -> Evidence:
        """Heal on one node. `starts`: also start its service. Raises `HostError`."""
        kind, node = self._on(host, parameters)
        self._call("heal", lambda: kind.heal(node))
        started = start_and_verify(host, self.site, self.in_force) if starts else Evidence("confirmed", {})
        text = self._evidence(kind, node)
        left = {"error": f"{self.use}: after heal() there still is evidence: {text}"} if text else {}
        statuses: list[Status] = [started.status, "mismatch" if text else "confirmed"]
        return Evidence(worst(statuses), {**started.detail, "evidence": text, **left})

    def clear_leftovers(self) -> Evidence | None:
        return combine(self.on_each(self.site.hosts, lambda host: self.heal(host, {})))

    def on_each(self, names: Iterable[str], action: Callable[[Host], Evidence]) -> dict[str, Evidence]:
        """The evidence of `action` on each node, one after the other: the user's object may have a state."""
        return {name: guarded(action, self.site.hosts[name]) for name in names}

    def _on(self, host: Host, parameters: Mapping[str, Any]) -> tuple[FaultKind, TargetNode]:
        own = {each.name: parameters.get(each.name, each.default) for each in self.fault_class.parameters}
        return self._object, TargetNode(host, own if parameters else {}, self.site.time_scale)

    @property
    def _object(self) -> FaultKind:
        if not hasattr(self, "_made"):
            try:
                self._made = made(self.use, self.fault_class)
            except OwnClassError as error:
                raise HostError(str(error)) from error
        return self._made

    def _evidence(self, kind: FaultKind, node: TargetNode) -> str:
        text: object = self._call("evidence", lambda: kind.evidence(node))
        if not isinstance(text, str | None):
            raise HostError(f"{self.use}: evidence() returned {brief(repr(text), 40)}; return a text, or None")
        return brief(visible_line((text or "").strip()), _LETTERS)

    def _call(self, method: str, call: Callable[[], R]) -> R:
        """The result of a user's method. Raises `HostError` if it raises, or does not return in time."""
        outcomes: queue.SimpleQueue[tuple[R | None, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                outcomes.put((call(), None))
            except BaseException as error:  # passed to the caller, even `SystemExit`
                outcomes.put((None, error))

        limit_s = self.fault_class.limit_s * self.site.time_scale
        threading.Thread(target=work, name=f"own-fault-{method}", daemon=True).start()
        try:
            value, error = outcomes.get(timeout=limit_s)
        except queue.Empty:
            raise HostError(f"{self.use}: {method}() did not return within {limit_s:g} s") from None
        if error is not None:
            raise HostError(place_in(self.use.rpartition(":")[0], error)) from error
        return value  # type: ignore[return-value]


class OwnKind(NodeKind[OwnFaults]):
    """Evidence: the text that `evidence` of the user's class returns; after the heal it returns none."""

    proven_by = "what its class reports"
    group = FaultGroup.OWN
    seen = (EvidenceRule("evidence", unlike=("",)),)
    healed = (EvidenceRule("evidence", values=("",)),)
    needs_service = False
    healed_by = HEAL
    fault_class: ClassVar[type[FaultKind]]
    source: ClassVar[tuple[str, str]]
    """The file, as the campaign names it, and its text."""

    def inject(self, by: OwnFaults, fault: Fault) -> Evidence:
        return combine(by.on_each(fault.targets, lambda host: by.inject(host, fault.parameters)))

    def heal(self, by: OwnFaults, fault: Fault) -> Evidence:
        starts = self.fault_class.ends_service
        return combine(by.on_each(fault.targets, lambda host: by.heal(host, fault.parameters, starts=starts)))

    def sentence(self, fault: Fault) -> str:
        return f"on {listed(fault.targets)}: {self.action}"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        del heal
        return str(facts.get("evidence"))

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        rng = drawn.rng()
        return {each.name: each.draw(rng) if each.drawn else each.default for each in self.fault_class.parameters}


def own_kind(use: str, text: str, number: int, taken: Collection[str]) -> OwnKind:
    """The kind of fault `parser.py:Class` whose file has this text. `number`: its place among the campaign's own kinds,
    from 0. `taken`: names that it cannot have. Raises OwnClassError."""
    fault_class = class_in(use, text, FaultKind, "a kind of fault")  # type: ignore[type-abstract]
    if problem := fault_problem(fault_class, taken):
        raise OwnClassError(f"{use}.{problem}")
    made(use, fault_class)  # each run makes its own object
    attributes: dict[str, Any] = {"name": fault_class.name, "action": fault_class.text, "injected_by": fault_class.name}
    attributes |= {"fault_class": fault_class, "parameters": fault_class.parameters}
    attributes |= {"source": (use.rpartition(":")[0], text), "mark": tuple(FaultMark)[number % len(FaultMark)]}
    attributes["mechanism"] = type(
        f"{fault_class.__name__}Faults",
        (OwnFaults,),
        {"part": f"own {fault_class.name}", "use": use, "fault_class": fault_class},
    )
    damage = {Damage(each) for each in fault_class.may_destroy}
    attributes["destroys"] = frozenset(
        damage | {Damage.PROGRESS, Damage.MEMORY} if fault_class.ends_service else damage
    )
    if fault_class.needs_service or fault_class.ends_service:
        attributes |= {"needs_service": True, "rests_on": frozenset({"machine", "process", "execution"})}
    if fault_class.ends_service:
        attributes |= {"service": "ended", "hides": frozenset({"process"})}
        attributes["healed"] = (*OwnKind.healed, EvidenceRule("port", values=("open",), unless="withheld_by"))
    kind: OwnKind = type(fault_class.__name__, (OwnKind,), attributes)()
    return kind


def fault_problem(class_: type[FaultKind], taken: Collection[str]) -> str:
    """What is wrong with the attributes of a class; empty if nothing is."""
    name, text = getattr(class_, "name", None), getattr(class_, "text", None)
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return 'name: a word in small letters is needed, such as "flip-bit"'
    if name in taken:
        return f"name: {name!r} is the name of another kind of fault or step; choose another"
    if not isinstance(text, str) or not text.strip():
        return 'text: a text is needed, such as "a bit of the log is flipped"'
    if not isinstance(class_.parameters, tuple) or not all(isinstance(each, Parameter) for each in class_.parameters):
        return 'parameters: a tuple is needed, such as (Parameter("count", "bits", "how many", 1, 8, default=1),)'
    for each in class_.parameters:
        if each.default is None and each.drawn is None:
            return f"parameters: {each.name} has neither a default nor a range `drawn`; give it one of them"
        if each.contradiction:
            return f"parameters: {each.contradiction}; correct the Parameter"
    damage, words = class_.may_destroy, [str(each) for each in Damage]
    if isinstance(damage, str) or (unknown := [each for each in damage if each not in words]):
        return (
            f"may_destroy: {damage if isinstance(damage, str) else unknown[0]!r} is not a list of: {', '.join(words)}"
        )
    if type(class_.limit_s) not in (int, float) or not 0 < class_.limit_s <= LONGEST_LIMIT_S:
        return f"limit_s: seconds are needed, more than 0 and at most {LONGEST_LIMIT_S:,.0f}"
    return ""
