"""Makes the runs of a campaign one after the other: lab, world, run, verdict.

With `meanwhile` the analysis of a run does not delay the load of the next one (`background_analysis`).

Theory of operation. One process of the lowest priority analyzes the runs of an invocation while the next ones are made.
It has the engine: with Spark it starts the session, and the Java virtual machine inherits the priority. So the load of
the next run gets every processor that it asks for, and the analysis uses what is left. The kernel ends this process
first if memory is short.

Invariants. Results are in the order of the runs. The lock of a run is held by the invocation's process until its result
is there. An interrupt ends the process at once; `unjudged` are the runs that then have no verdict, or an unknown one. A
process that ends unexpectedly makes only the run unknown that it analyzed; the next runs get another process.

Simulated runs can also be made side by side, each in a process of its own. The parent has the plan, prints what each
run said when it has ended, and raises `Interrupted` only when the runs that had started have their verdicts: no
evidence is lost. A second interrupt ends all processes at once.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import shlex
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from analysis.engines.processor_time import tree_of
from analysis.evidence.run_toml import SIMULATION
from analysis.verdict import first_reasons
from history import seal
from history.journal.writer import Journal
from history.time_scale import ORDINARY
from installation.commands import command
from installation.counted import counted
from installation.files import PROJECT_ROOT
from nemeses.ports import HostError
from orchestrator.campaign.description import RunWorld, run_description
from orchestrator.campaign.lookup import shortest
from orchestrator.campaign.model import FILESYSTEMS, STRICT, Campaign
from orchestrator.campaign.plan import PlannedRun, expand, invocation_of
from orchestrator.campaign.steps import RUN, NodeStep, RunStep
from orchestrator.campaign.systems import deploy, software_of
from orchestrator.cleanup import always, described
from orchestrator.errors import Interrupted, RunError, UsageError
from orchestrator.machine.locks import RunLock
from orchestrator.running.engine import IN_PROCESS, Engine, judge
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.running.run import Run, RunDependencies
from orchestrator.running.versions import versions
from orchestrator.running.worker_processes import begin_process, worker_processes
from orchestrator.store import plans, run_digests
from orchestrator.store.directories import LABS, RunDirectory, Store
from orchestrator.world_kinds import WORLDS
from orchestrator.worlds.base import World, WorldSpec
from orchestrator.worlds.lab import Lab, LabSpec
from orchestrator.worlds.selection import Selection, lab_named
from systems import Deployed
from workloads.kinds.log import ADMINISTERS_EVERY

if TYPE_CHECKING:
    from analysis.verdict import Verdict

LOWEST: Final = 19
"""The niceness of the process."""
_FIRST_TO_END: Final = "1000"
"""The adjustment of the kernel's choice when memory is short."""


@dataclass
class _Waiting:
    run: RunDirectory
    lock: contextlib.ExitStack
    result: Future[Verdict]


class BackgroundAnalysis:
    """The runs that wait for their verdict, and the process that analyzes them."""

    def __init__(self, engine: Engine, *, niceness: int = LOWEST) -> None:
        """`engine`: not started here; the process has its own copy."""
        self._engine = engine
        self._niceness = niceness
        self._waiting: deque[_Waiting] = deque()
        self._pool: ProcessPoolExecutor | None = None

    def start(self) -> None:
        """Start the process and its session, unless they were started before."""
        self._started()

    def add(self, run: RunDirectory, lock: contextlib.ExitStack) -> None:
        """Analyze a run after those that were added before. `lock`: its lock, which is released with the result."""
        self._waiting.append(_Waiting(run, lock, self._started().submit(_judge, run.path)))

    def ended(self) -> Iterator[Verdict]:
        """The verdicts that are there, up to the first run that has none yet."""
        while self._waiting and self._waiting[0].result.done():
            yield self._next()

    def rest(self) -> Iterator[Verdict]:
        """All verdicts that were not returned before; waits for them."""
        while self._waiting:
            yield self._next()

    def hurry(self) -> None:
        """No load is left that the analysis could disturb: give it the priority of this process, if permitted."""
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        for process in multiprocessing.active_children():
            for pid in tree_of(process.pid or 0):
                with contextlib.suppress(OSError):  # it has ended, or only root may do this
                    for thread in os.listdir(f"/proc/{pid}/task"):
                        os.setpriority(os.PRIO_PROCESS, int(thread), usual)

    @property
    def unjudged(self) -> list[Path]:
        """The runs whose verdict was not returned."""
        return [waiting.run.path for waiting in self._waiting]

    def close(self) -> None:
        """End the process when the runs that were added have their verdicts."""
        if self._pool is not None:
            with contextlib.suppress(BrokenProcessPool):
                self._pool.submit(_stop).result()
            self._pool.shutdown()

    def abandon(self) -> None:
        """End the process at once; the run that it was analyzing stays unknown."""
        if self._pool is not None:
            for process in multiprocessing.active_children():
                process.kill()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            gc.collect()  # ends its semaphores, which Python otherwise reports as leaked

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(self._engine, self._niceness)
            )
            self._pool.submit(_start)
        return self._pool

    def _next(self) -> Verdict:
        oldest = self._waiting[0]
        try:
            verdict = oldest.result.result()
        except BrokenProcessPool:
            verdict = _ended_unexpectedly(oldest.run.path)
            self._pool = None
            for later in list(self._waiting)[1:]:
                later.result = self._started().submit(_judge, later.run.path)
        self._waiting.popleft().lock.close()
        return verdict


def _ended_unexpectedly(run: Path) -> Verdict:
    from analysis.doubt import ANALYSIS_BROKEN
    from analysis.placeholder_verdict import undecided

    remedy = command("analyze", str(run))
    return undecided(
        run,
        f"the process that analyzed it ended unexpectedly, possibly for lack of memory; analyze it: {remedy}",
        ANALYSIS_BROKEN,
    )


_own_engine: Engine
"""The engine of this process, which analyzes runs."""


def _begin(engine: Engine, niceness: int) -> None:
    global _own_engine
    os.setpriority(os.PRIO_PROCESS, 0, niceness)  # before anything heavy is imported
    begin_process()
    with contextlib.suppress(OSError):  # not on every system
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END, encoding="ascii")
    _own_engine = engine


def _start() -> None:
    _own_engine.start()


def _judge(run: Path) -> Verdict:
    return judge(run, _own_engine)


def _stop() -> None:
    _own_engine.stop()


STARTED_VARIABLE = "BROWNOUT_STARTED_NS"
_HOLD_S = 1.0


@dataclass
class CampaignInvocation:
    """One `brownout run`: the campaign and the runs to make."""

    campaign: Campaign
    stamp: str
    todo: tuple[PlannedRun, ...]
    all_ids: tuple[str, ...]


@dataclass(frozen=True)
class RunOptions:
    """How the runs are made. `shell_prefix`: what users put before a lab's shell command when they are outside of its
    sandbox. `keep`: see `Runner`. `messages`: see `WorldSpec`. `meanwhile`: analyze each run while the next one
    is made."""

    selection: Selection
    engine: Engine
    inventory: Path | None = None
    keep: bool = False
    shell_prefix: str = ""
    messages: bool = False
    meanwhile: bool = False
    become_password: str | None = field(default=None, repr=False)


class Runner:
    """Makes runs in one lab and has each analyzed.

    With `keep`, the world of the last run, or of one that missed its expectation, remains until the user presses
    Ctrl-C.
    """

    def __init__(self, store: Store, options: RunOptions, progress: Progress, interrupts: Interrupts) -> None:
        self._store = store
        self._options = options
        self._progress = progress
        self._interrupts = interrupts
        self._kept: World | None = None
        self._later: BackgroundAnalysis | None = None
        self._result: list[str] = []
        # Only the first run of an invocation measures its start from the start of the command.
        self._started_ns = int(os.environ.get(STARTED_VARIABLE) or time.monotonic_ns())

    def make_all(self, invocation: CampaignInvocation) -> None:
        """Make all remaining runs. Raises `Interrupted`; `RunError` when the lab cannot be made; `UsageError` when
        another process makes them, or has made some since they were listed."""
        campaign_dir = self._store.campaign_dir(invocation.campaign.name)
        with plans.held_plan(campaign_dir, invocation.stamp):
            require_unmade(self._store, invocation)
            self._make_in_lab(invocation)

    def make_one(self, planned: PlannedRun) -> list[str]:
        """Make a run of an invocation whose plan the caller holds; returns lines about its result. Raises `RunError`
        when the lab cannot be made."""
        self._make_in_lab(CampaignInvocation(planned.campaign, invocation_of(planned.id), (planned,), (planned.id,)))
        return self._result

    def _make_in_lab(self, invocation: CampaignInvocation) -> None:
        selection = self._options.selection
        spec = lab_spec(
            invocation.campaign,
            self._store,
            self._options.inventory,
            cells={planned.cell.name for planned in invocation.todo},
            keep=self._options.keep,
            become_password=self._options.become_password,
        )
        lab = selection.lab(spec)
        require_faults(invocation.campaign, lab, selection.reason)
        lock = RunLock(spec.directory)  # a locked directory is not removed as a leftover

        def close() -> None:
            try:
                lab.close()
            except (RunError, HostError, OSError) as error:
                self._progress.say(f"taking the {lab.name} lab down: {described(error)}")

        def remove_directory() -> None:
            with contextlib.suppress(OSError):  # gone, or kept because it has diagnostics
                spec.directory.rmdir()

        with always(self._take_down, close, lock.release, remove_directory, shield=self._interrupts.shielded):
            lock.take()
            self._open(lab)
            require_faults(invocation.campaign, lab, selection.reason)  # the lab now knows what its machines support
            with self._judging(invocation):
                self._make_each(invocation, lab)

    def _open(self, lab: Lab) -> None:
        try:
            lab.open(lambda text: self._progress.say(text, dim=True))
        except RunError as error:
            if self._options.keep:
                self._progress.announce(str(error))
                self._hold(lab)
            raise

    def _make_each(self, invocation: CampaignInvocation, lab: Lab) -> None:
        for number, planned in enumerate(invocation.todo, 1):
            self._stop_if_asked()
            self._progress.run(f"{planned.cell.name} seed {planned.seed} ({number}/{len(invocation.todo)})")
            self._progress.say(f"run {planned.id}")
            as_expected = self._one(planned, lab)
            is_last = number == len(invocation.todo)
            if self._options.keep and (is_last or not as_expected):
                self._hold(lab)
                if not is_last:
                    raise Interrupted
            with self._interrupts.shielded():
                self._take_down()
            self._started_ns = time.monotonic_ns()

    @contextlib.contextmanager
    def _judging(self, invocation: CampaignInvocation) -> Iterator[None]:
        """If it was asked for, runs are analyzed in the background. At the end all have their verdicts, except after an
        interrupt."""
        if len(invocation.todo) == 1 or not self._options.meanwhile:
            yield
            return
        self._later = BackgroundAnalysis(self._options.engine)
        try:
            try:
                yield
            except Exception:
                self._judge_the_rest(self._later)
                raise
            self._judge_the_rest(self._later)
        except Interrupted:
            self._later.abandon()
            raise

    def _judge_the_rest(self, later: BackgroundAnalysis) -> None:
        for verdict in later.ended():
            self._report(verdict)
        if later.unjudged:
            later.hurry()
            self._progress.phase("analysis", self._options.engine.kind)
        for verdict in later.rest():
            self._report(verdict)
        later.close()

    @property
    def unjudged(self) -> list[Path]:
        """The runs that were made and whose analysis has not ended, after an interrupt."""
        return [] if self._later is None else self._later.unjudged

    def _one(self, planned: PlannedRun, lab: Lab) -> bool:
        """Make a run and analyze it, now or in the background; returns False if it is known to have
        missed its expectation."""
        directory = self._store.create(planned)
        with contextlib.ExitStack() as lock:
            lock.enter_context(directory.held())
            try:
                self._make(planned, directory, lab)
            except RunError as error:
                self._progress.say(f"the run was not finished: {described(error)}")
            finally:
                self._record_digest(planned, directory)
            self._stop_if_asked()
            if self._later is not None:
                self._later.add(directory, lock.pop_all())
                for judged in self._later.ended():
                    self._report(judged)
                return True
            self._progress.phase("analysis", self._options.engine.kind)
            verdict = judge(directory.path, self._options.engine)
        self._report(verdict)
        return verdict.met

    def _record_digest(self, planned: PlannedRun, directory: RunDirectory) -> None:
        """Store the digest of the evidence beside the plan, also of a run that was given up or interrupted: it may
        prove a failure."""
        try:
            digest = seal.digest(directory.path)
            run_digests.record(directory.path.parent, planned.id, digest)
        except OSError as error:
            self._progress.say(f"the digest of the run cannot be stored: {error}")
        else:
            self._progress.say(f"evidence: {digest}")

    def _report(self, verdict: Verdict) -> None:
        self._result = [
            f"{verdict.verdict}, expected {verdict.expected}{'' if verdict.met else ' - NOT MET'}: {verdict.run}",
            *(
                f"  {line}"
                for line in (*verdict.drawn, *verdict.unmet, *verdict.cause_lines, *first_reasons(verdict.reasons, 5))
            ),
        ]
        for line in self._result:
            self._progress.say(line)

    def _stop_if_asked(self) -> None:
        """Raise `Interrupted` if the user has asked to stop and the exception was lost."""
        if self._interrupts.requested:
            raise Interrupted

    def _make(self, planned: PlannedRun, directory: RunDirectory, lab: Lab) -> None:
        campaign, deployed = planned.campaign, deploy(planned, repeatable=lab.repeatable)
        world = lab.world(
            WorldSpec(
                run_id=planned.id,
                run_dir=directory.path,
                node_count=campaign.topology.nodes,
                deployment=deployed,
                filesystem=campaign.topology.filesystem,
                rootfs=find_rootfs(campaign, lab.name),
                seed=planned.derived_seed("world"),
                messages=self._options.messages,
            )
        )
        if self._options.keep:
            self._kept = world
        description = describe(planned, world, deployed, self._options.selection.reason)
        directory.write_description(description)
        with Journal(directory.path, clock=world.scheduler.monotonic_ns, wall=world.scheduler.wall) as journal:
            journal.run_started(run=planned.id, cell=planned.cell.name, seed=planned.seed, world=world.name)
            Run(
                RunDependencies(
                    planned=planned,
                    directory=directory,
                    world=world,
                    deployed=deployed,
                    journal=journal,
                    progress=self._progress,
                    interrupts=self._interrupts,
                    started_ns=world.scheduler.moment_of(self._started_ns),
                    on_first_ack=self._options.engine.start if self._later is None else self._later.start,
                    keep=self._options.keep,
                )
            ).execute()

    def _hold(self, lab: Lab) -> None:
        """Print how to log in, and wait until the user presses Ctrl-C."""
        with contextlib.suppress(Interrupted):
            for name, host in lab.hosts.items():
                enter = f"{self._options.shell_prefix} {shlex.join(lab.shell(name))}".strip()
                self._progress.announce(f"{name} at {host.address}: {enter}")
            self._progress.announce(f"the {lab.name} lab is kept as it is, its services stopped, until Ctrl-C")
            while True:
                time.sleep(_HOLD_S)

    def _take_down(self) -> None:
        """Remove the last run's world, if it was kept."""
        world, self._kept = self._kept, None
        if world is None:
            return
        try:
            world.down()
        except (RunError, HostError, OSError) as error:
            self._progress.say(f"taking the world down: {described(error)}")


def describe(planned: PlannedRun, world: World, deployed: Deployed, reason: str) -> dict[str, Any]:
    """The content of `run.toml` for a run that starts now. `reason`: why this world was chosen."""
    run_world = RunWorld(
        name=world.name,
        reason=reason,
        time_scale=world.time_scale,
        limits=tuple(world.limits),
        left_out=planned.campaign.nemesis.left_out(world.capabilities),
    )
    started = datetime.now(UTC).isoformat(timespec="seconds")
    defaults = {role: dict(deployed.system.defaults(role)) for role in dict.fromkeys(deployed.roles)}
    content = run_description(planned, deployed, run_world)
    return {**content, "started": started, "versions": versions(), "defaults": defaults}


def require_unmade(store: Store, invocation: CampaignInvocation) -> None:
    """Raise `UsageError` when another process has made a run since the runs were listed."""
    campaign_dir = store.campaign_dir(invocation.campaign.name)
    run_ids = [run.id for run in invocation.todo if (campaign_dir / run.id).exists()]
    if run_ids:
        raise UsageError(
            f"{campaign_dir / run_ids[0]} was made by another process meanwhile; continue with the rest: --resume"
        )


def lab_spec(
    campaign: Campaign,
    store: Store,
    inventory: Path | None,
    *,
    cells: Collection[str] = (),
    keep: bool = False,
    become_password: str | None = None,
) -> LabSpec:
    """The lab's inputs for a campaign's cells (default: all). Each call names a new directory and does not create it.
    Raises `InputError` for an unknown system."""
    return LabSpec(
        node_count=campaign.topology.nodes,
        filesystem=campaign.topology.filesystem,
        directory=store.root / LABS / f"{store.new_stamp()}-{os.getpid()}",  # several processes may share a store
        software=software_of(campaign, cells),
        inventory=inventory,
        keep=keep,
        become_password=become_password,
    )


def require_faults(campaign: Campaign, lab: Lab | type[Lab], reason: str) -> None:
    """Raise `UsageError` when the campaign needs a fault that the lab's world cannot inject, or clients that it does
    not have: a campaign never runs with less than it states. `reason`: why this world was chosen."""
    kind, system = campaign.workload.kind, campaign.system
    if lab.systems is not None and (system.directory is not None or system.name not in lab.systems):
        other = system.name if system.directory is None else f"the system in {system.directory}"
        raise UsageError(
            f"{campaign.path}: the {lab.name} world runs {', '.join(sorted(lab.systems))} only, not {other}; "
            f"use another --world"
        )
    if campaign.swarm is not None and campaign.swarm.nodes[0] != campaign.swarm.nodes[1] and lab.keeps_machines:
        raise UsageError(
            f"{campaign.path}: [swarm] draws the number of nodes, and all runs of the {lab.name} world have the same "
            f"machines; set [swarm] nodes = [{campaign.topology.nodes}, {campaign.topology.nodes}]"
        )
    if campaign.topology.filesystem == STRICT and lab.name != SIMULATION:
        raise UsageError(
            f"{campaign.path}: [topology] filesystem = {STRICT!r} is a simulated disk, which the {lab.name} world does "
            f"not have; make it one of {', '.join(FILESYSTEMS)}"
        )
    if lab.name == SIMULATION and any(isinstance(step, RunStep) for step in campaign.nemesis.steps):
        raise UsageError(
            f"{campaign.path}: a step has do = {RUN!r}, and nodes of the {SIMULATION} world run no commands; use "
            "another --world, or leave the step out"
        )
    signals = [step for step in campaign.nemesis.steps if isinstance(step, NodeStep) and "signal" in step.parameters]
    if lab.name == SIMULATION and signals:
        raise UsageError(
            f"{campaign.path}: {signals[0].title}: processes of the {SIMULATION} world get no signals; use another "
            "--world, or leave signal out"
        )
    if lab.name == SIMULATION and campaign.nemesis.own_kinds:
        raise UsageError(
            f"{campaign.path}: [nemesis] kinds has faults of its own, and nodes of the {SIMULATION} world run no "
            "commands; use another --world, or leave kinds out"
        )
    if lab.workloads is not None and kind not in lab.workloads:
        raise UsageError(
            f"{campaign.path}: [workload] kind {campaign.workload.named!r} has no clients in the {lab.name} world; "
            f"there are: {', '.join(sorted(lab.workloads))}; or use another --world"
        )
    lacking = sorted(campaign.nemesis.needs - lab.capabilities)
    draws_clients = campaign.swarm is not None and campaign.topology.world == SIMULATION
    administers = campaign.workload.parameters.get(ADMINISTERS_EVERY.key)
    if lab.name != SIMULATION and (administers or (draws_clients and not lacking)):
        raise UsageError(
            f"{campaign.path}: {ADMINISTERS_EVERY.key}, or a [swarm] of the {SIMULATION}, has administrators, and the "
            f"{lab.name} world has none; use --world {SIMULATION}"
        )
    if not lacking:
        return
    limits = [limit for limit in getattr(lab, "limits", ()) if any(kind in limit for kind in lacking)]
    able = [name for name in WORLDS if campaign.nemesis.needs <= lab_named(name).capabilities]
    elsewhere = f"worlds that can: {', '.join(able)}" if able else "no world can do all of it"
    remedy = (
        "; or list what it can do without in [nemesis] optional_faults" if campaign.nemesis.kind == "random" else ""
    )
    raise UsageError(
        f"{campaign.path}: it needs {', '.join(lacking)}, which the {lab.name} world cannot do: "
        f"{'; '.join(limits) or reason}; {elsewhere}{remedy}"
    )


def find_rootfs(campaign: Campaign, world: str) -> Path | None:
    """The directory tree that the campaign's nodes run on; None: the world's default. Raises `UsageError`."""
    if campaign.topology.node_root == "machine":
        return None
    if world != "namespaces":
        raise UsageError(
            f'{campaign.path}: node_root = "image" is for the namespace world, and this is the {world} world'
        )
    import nodeimage  # needed by few campaigns

    try:
        return nodeimage.find(PROJECT_ROOT).rootfs
    except nodeimage.ImageError as error:
        raise UsageError(f'{campaign.path}: node_root = "image", but {error}') from error


def plan_invocation(
    store: Store,
    campaign: Campaign,
    *,
    cells: Sequence[str] = (),
    seeds: Sequence[int] = (),
    select: Sequence[str] = (),
    where: Sequence[str] = (),
    world: str,
    time_scales: Sequence[float] = (ORDINARY,),
) -> CampaignInvocation:
    """A new invocation, recorded in the store so that it can be resumed. `world`: the name of the chosen world;
    `time_scales`: those that it may have. Raises `UsageError` if it cannot be recorded, or an existing invocation is
    newer."""
    campaign_dir = store.campaign_dir(campaign.name)
    choice: dict[str, Any] = {"cells": cells, "seeds": seeds, "select": select, "where": where}
    place: dict[str, Any] = {"world": world, "time_scales": time_scales}
    while True:  # until the stamp is unique: concurrent processes see the same newest stamp
        stamp = plans.newest_stamp(campaign_dir, store.new_stamp())
        planned = expand(campaign, stamp, **choice)
        try:
            if plans.keep_plan(campaign_dir, campaign, stamp, planned, **choice, **place):
                return CampaignInvocation(campaign, stamp, planned, tuple(run.id for run in planned))
        except OSError as error:
            raise UsageError(f"{store.root} cannot be written: {error.strerror}; give another --store") from error


def resume_invocation(
    store: Store,
    campaign: Campaign,
    *,
    where: Sequence[str] = (),
    world: str,
    time_scales: Sequence[float] = (ORDINARY,),
) -> CampaignInvocation:
    """The campaign's last unfinished invocation, with only the runs that have no verdict yet left to make. `world`: the
    name of the world chosen now, which must be the same as then, as must be the scales that it may have.

    The evidence of an interrupted run is moved to `interrupted/`. Raises `UsageError` when there is nothing to resume,
    or another process is making the runs.
    """
    campaign_dir = store.campaign_dir(campaign.name)
    if not plans.stamps(campaign_dir):
        raise UsageError(f"{campaign.name} was never run in {store.root}; leave out --resume")
    stamp = plans.open_stamp(campaign_dir)
    if stamp is None:
        gate_command = command("gate", str(shortest(campaign_dir)))
        raise UsageError(f"{campaign.name}: every planned run is made; see their results with: {gate_command}")
    try:
        plan = plans.read_plan(campaign_dir, stamp)
    except plans.PlanError as error:
        raise UsageError(str(error)) from error
    if plan.text != campaign.text:
        raise UsageError(f"{campaign.path} has changed since it was interrupted; run it again without --resume")
    if plan.where != tuple(where):
        options = " ".join(plan.where) or "neither --world nor --inventory"
        raise UsageError(f"{campaign.name} was last run with {options}; resume it in the same world")
    if plan.world not in ("", world):
        raise UsageError(
            f"{campaign.name} was last run in the {plan.world} world, and this is the {world} world: resume it where "
            "that world is available, or run it again without --resume"
        )
    if not set(time_scales) <= set(plan.time_scales):
        then, now = (" or ".join(f"{scale:g}" for scale in scales) for scales in (plan.time_scales, time_scales))
        raise UsageError(
            f"{campaign.name} was last run with the time scale {then}, and its machines now have {now}; set it as it "
            "was, or run it again without --resume"
        )
    planned = expand(campaign, plan.stamp, cells=plan.cells, seeds=plan.seeds, select=plan.select, where=where)
    with plans.held_plan(campaign_dir, plan.stamp):
        todo = tuple(run for run in planned if not RunDirectory(campaign_dir / run.id).judged)
        for run in todo:
            _set_aside(campaign_dir, run.id)
    return CampaignInvocation(campaign, plan.stamp, todo, tuple(run.id for run in planned))


def withdraw(store: Store, invocation: CampaignInvocation) -> None:
    """Remove an invocation that was stopped and is not to be resumed, except for its runs that have a verdict; they
    keep the plan. Raises `OSError`."""
    campaign_dir = store.campaign_dir(invocation.campaign.name)
    unjudged = [run for run in map(campaign_dir.joinpath, invocation.all_ids) if not RunDirectory(run).judged]
    for path in unjudged:
        store.remove(RunDirectory(path))
    if len(unjudged) == len(invocation.all_ids):
        plans.drop_plan(campaign_dir, invocation.stamp)


def _set_aside(campaign_dir: Path, run_id: str) -> None:
    """Move the files of an interrupted run away for the run that replaces it."""
    path = campaign_dir / run_id
    if not path.exists():
        return
    with RunDirectory(path).held():
        aside = campaign_dir / "interrupted"
        aside.mkdir(exist_ok=True)
        number = 1
        while (aside / f"{run_id}.{number}").exists():
            number += 1
        path.rename(aside / f"{run_id}.{number}")


# ---- Simulated runs side by side.


@dataclass(frozen=True)
class _RunTask:
    """A run for a worker. `reason`: why this world was chosen."""

    store: Path
    planned: PlannedRun
    reason: str
    plots: bool


def require_parallel(world: str, engine: str) -> None:
    """Raise `UsageError` where runs cannot be made side by side."""
    if world != SIMULATION:
        raise UsageError(
            f"--jobs: the {world} world makes one run at a time, since its nodes share this machine; leave out --jobs, "
            f"or use --world {SIMULATION}"
        )
    if engine != IN_PROCESS:
        raise UsageError("--jobs: each process analyzes its runs itself; leave out --engine spark")


def make_in_parallel(
    invocation: CampaignInvocation,
    store: Store,
    options: RunOptions,
    progress: Progress,
    interrupts: Interrupts,
    jobs: int,
) -> None:
    """Make all remaining runs in `jobs` processes. Raises as `Runner.make_all`, and `RunError` when a process ends
    unexpectedly."""
    count, ended = len(invocation.todo), 0
    with plans.held_plan(store.campaign_dir(invocation.campaign.name), invocation.stamp):
        require_unmade(store, invocation)
        todo = iter(
            _RunTask(store.root, planned, options.selection.reason, options.engine.plots) for planned in invocation.todo
        )
        with worker_processes(jobs, interrupts) as pool, interrupts.shielded():
            pending: set[Future[str]] = set()
            while True:
                while len(pending) < jobs and not interrupts.requested and (task := next(todo, None)) is not None:
                    pending.add(pool.submit(_make, task))
                if not pending:
                    break
                progress.run(f"{ended}/{counted(count, 'run')}, {len(pending)} under way")
                done, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    ended += 1
                    for line in future.result().splitlines():
                        progress.say(line)
    if interrupts.requested:
        raise Interrupted


def _make(task: _RunTask) -> str:
    """In a worker: make one run and analyze it; returns what it said of its result."""
    store = Store(task.store)
    engine = Engine(IN_PROCESS, plots=task.plots)
    options = RunOptions(Selection(lab_named(SIMULATION), task.reason), engine)
    runner = Runner(store, options, Progress(quiet=True), Interrupts(lambda: None, lambda: None))
    try:
        return "\n".join(runner.make_one(task.planned))
    except RunError as error:
        return f"{task.planned.id} was not made: {described(error)}"
