"""The clients of a run, whatever the workload: started in their order, put under load, probed, read from and ended."""

import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from analysis.evidence import run_directory
from history.journal.writer import Journal
from history.reader import read_run
from history.record.schemas import APPEND, OK
from nemeses.scheduling import Scheduler, ThreadScheduler
from orchestrator.campaign.plan import expand
from orchestrator.campaign.systems import deploy
from orchestrator.errors import OverdueError, RunError
from orchestrator.running.clients import MOST_CROWDED, Fleet, crowding_of, ready_s
from orchestrator.running.runner import describe
from orchestrator.store.directories import RunDirectory
from orchestrator.worlds.base import WorldSpec
from orchestrator.worlds.process.lab import ProcessWorld
from tests.orchestrator.campaigns import campaign
from workloads.command_client import STARTS
from workloads.control import Append, Appended, AppendResult, Close, Command, Probe, Probed, StopLoad, Stopped
from workloads.process import ClientError, ClientHandle
from workloads.settings import ClientSettings

OWN_CLIENTS = Path(__file__).resolve().parents[1] / "workloads" / "own_clients.py"


def fleet(tmp_path: Path, journal: Journal, text: str, client_class: str = "Log") -> Fleet:
    client = f'[client]\nclient_class = "{OWN_CLIENTS}:{client_class}"\noptions = {{ file = "{tmp_path / "store"}" }}\n'
    (planned,) = expand(campaign(text + client), "s")
    return Fleet(planned, tmp_path, "n1:1,n2:2", journal)


class Slow(ClientHandle):
    """Takes as long as a client may take within its timeout; no other code waits for it."""

    def __init__(self, kind: str, role: str, settings: ClientSettings, log: Path) -> None:
        del kind, role
        super().__init__(settings.client, log)
        self._is_program = bool(settings.own.client_command)
        # A class: the object is made, and then called. A program has only the timeout of its environment.
        self._takes_s = settings.own_timeout_s if self._is_program else 2 * settings.own_patience_s
        self._told: Command = Close()

    @property
    def exit_code(self) -> int | None:
        return None

    def close(self, timeout_s: float = 10.0) -> None: ...

    def kill(self) -> None: ...

    def _tell(self, command: Command) -> None:
        self._told = command

    def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        match self._told:
            case Probe() as asked if self._takes_s <= (asked.timeout_s if self._is_program else timeout_s):
                self._hear(Probed(asked.id, True))
            case Append() as asked if asked.count * self._takes_s <= timeout_s:
                self._hear(Appended(asked.id, [AppendResult("ok", 0, "")] * asked.count))
            case StopLoad() if self._takes_s <= timeout_s:
                self._hear(Stopped(0))
        return holds()


class Refused(Slow):
    """Refuses its first `times` probes."""

    times = 0

    def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        if isinstance(self._told, Probe) and self.times:
            self.times -= 1
            self._hear(Probed(self._told.id, False, "cut off"))
            return holds()
        return super()._until(holds, timeout_s)


CLIENTS = {"class": f'client_class = "{OWN_CLIENTS}:Log"', "program": 'client_command = ["true"]'}
ACTIONS: dict[str, Callable[[Fleet], object]] = {
    "append": lambda running: running.append(0, acks=-1, count=3, timeout_s=1),
    "end the load": lambda running: running.end_load(),
    "probe": lambda running: running.await_service(0.0),
}


@pytest.mark.parametrize("time_scale", [1.0, 4.0])
@pytest.mark.parametrize(("client", "action"), [*(("class", action) for action in ACTIONS), ("program", "probe")])
def test_a_client_has_the_timeout_of_the_campaign(tmp_path: Path, client: str, action: str, time_scale: float) -> None:
    (planned,) = expand(campaign(f"{LOAD}[client]\n{CLIENTS[client]}\ntimeout_s = 12\n"), "s")
    with Journal(tmp_path) as journal:
        running = Fleet(planned, tmp_path, "n1:1", journal, time_scale, start_client=Slow)
        running.start_first()
        running.complete()
        running.begin_load()
        ACTIONS[action](running)


class Clock(ThreadScheduler):
    """Time that passes during a wait."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Refusing(Slow):
    """A program whose every change is refused, after as long as a program takes to start."""

    clock: Clock
    asked_s: list[float]

    def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        del timeout_s
        assert isinstance(self._told, Probe)
        self.asked_s.append(self.clock.now_s)
        self.clock.now_s += 0.1
        self._hear(Probed(self._told.id, False, "not the leader"))
        return holds()


@pytest.mark.parametrize(("bound_s", "partitions"), [(1.0, 2), (60.0, 2), (7200.0, 2), (86400.0, 400)])
def test_a_program_is_restarted_until_the_end_of_convergence(tmp_path: Path, bound_s: float, partitions: int) -> None:
    load = LOAD.replace("partitions = 2", f"partitions = {partitions}")
    (planned,) = expand(campaign(f'{load}[client]\nclient_command = ["true"]\n'), "s")
    Refusing.clock, Refusing.asked_s = Clock(), []
    with Journal(tmp_path) as journal:
        running = Fleet(planned, tmp_path, "n1:1", journal, scheduler=Refusing.clock, start_client=Refusing)
        running.start_first()
        running.complete()
        with pytest.raises(OverdueError, match=r"takes no writes within .*: not the leader"):
            running.await_service(bound_s)
    assert len(Refusing.asked_s) <= STARTS - partitions
    assert max(after - before for before, after in pairwise(Refusing.asked_s)) <= max(0.11, bound_s / 90)
    assert bound_s <= Refusing.asked_s[-1] + 0.1 <= bound_s + 0.2, "the last one is made at the bound"


def wait_until(reached: Callable[[], bool], running: Fleet) -> None:
    give_up_s = time.monotonic() + 60
    while not reached():
        running.check()
        assert time.monotonic() < give_up_s


LOAD = '[workload]\nkind = "append-log"\npartitions = 2\nproducers = 1\nconsumers = 1\nrate = 200\n'


@pytest.mark.rotating(3, among="clients of a run")
def test_a_load_from_its_first_client_to_the_final_reads(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        running = fleet(tmp_path, journal, LOAD)
        assert running.has_first
        running.start_first()
        running.wait_ready()
        running.begin_load()
        wait_until(lambda: running.first_ack_ns is not None, running)
        running.complete()
        running.wait_ready()
        wait_until(lambda: running.counts["ok"] > 60, running)
        wait_until(lambda: "consumer-1" in read_run(tmp_path).logs.rows["client"].to_pylist(), running)
        assert [result.outcome for result in running.append(0, acks=-1, count=1, timeout_s=1)] in (
            [["ok"], ["fail"], ["info"]]
        )
        reader = running.start_reader()
        running.end_load()
        running.await_service(60.0)
        answers = running.read_everything(reader, 60.0)
        running.close()
    rows = read_run(tmp_path).logs.rows.to_pylist()
    assert {row["client"] for row in rows} == {"producer-1", "consumer-1", "probe", "reader-1"}
    acknowledged = sum(row["f"] == APPEND and row["type"] == OK for row in rows)
    assert sum(answer.end for answer in answers) >= acknowledged > 0


def test_the_record_of_a_run_names_its_checkers(tmp_path: Path) -> None:
    def settings_of(text: str) -> dict[str, object]:
        (planned,) = expand(campaign(text), "s")
        deployed = deploy(planned)
        world = ProcessWorld(WorldSpec("r", tmp_path, 3, deployed))
        workload: dict[str, object] = describe(planned, world, deployed, "of a reason")["workload"]
        return workload

    client = '\n[client]\nclient_command = ["true"]'
    assert settings_of("").items() >= {"kind": "log", "judge": "log", "producers": 2, "partitions": 4}.items()
    assert (
        settings_of('[workload]\nkind = "append-log"' + client).items()
        >= {"kind": "append-log", "judge": "log"}.items()
    )
    registers = settings_of('[system]\nname = "etcd"\n[workload]\nkind = "register"')
    assert registers.items() >= {"kind": "register", "judge": "register", "keys": 4}.items()
    assert "partitions" not in registers


@pytest.mark.parametrize(
    ("text", "clients", "assignment"),
    [
        ("[workload]\npartitions = 2\nproducers = 1\nconsumers = 1", "producer-1 consumer-1", ((1, 2, 3), (2, 3, 1))),
        (
            '[workload]\npartitions = 1\nreplication_factor = 2\nplacement = "off-controller"\nconsumers = 0',
            "producer-1 producer-2",
            None,
        ),
        ('[system]\nname = "etcd"\n[workload]\nkind = "register"\nclients = 2', "client-1 client-2", None),
    ],
    ids=["log", "settled late", "registers"],
)
def test_the_plan_that_a_run_writes_is_read_whole(
    tmp_path: Path, text: str, clients: str, assignment: tuple[tuple[int, ...], ...] | None
) -> None:
    (planned,) = expand(campaign(text), "s")
    deployed = deploy(planned)
    world = ProcessWorld(WorldSpec("r", tmp_path, 3, deployed))
    RunDirectory(tmp_path).write_description(describe(planned, world, deployed, "of a reason"))
    plan = run_directory.describe(tmp_path)
    assert plan.defects == ()
    assert plan.plan.clients == (*clients.split(), "probe", "reader-1")
    assert (plan.node_names, plan.assignment) == (("n1", "n2", "n3"), assignment)
    assert set(plan.system.roles) == set(plan.node_names)


def test_options_of_a_cell_override_those_of_the_client() -> None:
    read = campaign(
        '[system]\nname = "etcd"\n[workload]\nkind = "register"\n[client]\ntimeout_s = 1.5\n[[cell]]\nname = "plain"\n'
        '[[cell]]\nname = "old"\nclient = { options = { reads = "serializable" } }\n'
    )
    plain, old = (planned.client for planned in expand(read, "s"))
    assert plain.client_class.endswith("client.py:EtcdClient")
    assert (plain.timeout_s, old.timeout_s) == (1.5, 1.5)
    assert (plain.options, old.options) == ({"reads": "linearizable"}, {"reads": "serializable"})


@pytest.mark.rotating(3, among="clients of a run")
def test_every_client_is_ready_before_the_load_starts(tmp_path: Path) -> None:
    """A consumer that is only started under load may come when the faults are over."""
    with Journal(tmp_path) as journal:
        running = fleet(tmp_path, journal, LOAD)
        running.start_first()
        running.start_others()
        running.wait_ready()
        started = [line["client"] for line in read_run(tmp_path).journal if line["event"] == "client"]
        assert started == ["producer-1", "consumer-1", "probe"]
        assert running.counts == {"ok": 0, "fail": 0, "info": 0}
        running.complete()
        running.start_others()
        wait_until(lambda: running.counts["ok"] > 0, running)
        assert len([line for line in read_run(tmp_path).journal if line["event"] == "client"]) == 3
        running.kill()


def test_the_readiness_timeout_grows_with_clients_load_and_time_scale() -> None:
    alone = ready_s(1, time_scale=1.0, crowded=1.0)
    assert alone < ready_s(20, time_scale=1.0, crowded=1.0)
    assert ready_s(1, time_scale=4.0, crowded=1.0) == 4 * alone
    assert ready_s(1, time_scale=1.0, crowded=3.0) == 3 * alone


@pytest.mark.parametrize(("waiting", "crowded"), [(0.1, 1.0), (6.0, 3.0), (1_000.0, MOST_CROWDED)])
def test_the_machines_load_is_that_of_each_processor(
    waiting: float, crowded: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (waiting, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert crowding_of(ThreadScheduler()) == crowded
    assert crowding_of(Clock()) == crowded


def test_a_simulated_run_waits_as_long_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (1_000.0, 0.0, 0.0))
    assert crowding_of(cast("Scheduler", object())) == 1.0


@pytest.mark.parametrize(("printed", "message"), [("", "; it printed nothing"), ("Traceback", "; see ")])
def test_only_a_log_with_content_is_pointed_to(tmp_path: Path, printed: str, message: str) -> None:
    log = tmp_path / "client.log"
    log.write_text(printed)
    settings = ClientSettings("p", 1, 1, 1, 1, "n1:1", "t", 1, str(tmp_path))
    client = Slow("log", "producer", settings, log)
    with pytest.raises(ClientError, match=f"client p is not ready after 0 s{message}"):
        client.wait_ready(0.0)


@pytest.mark.rotating(3, among="clients of a run")
def test_without_clients_that_start_first_the_probe_does(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        running = fleet(tmp_path, journal, LOAD.replace("producers = 1", "producers = 0"))
        assert not running.has_first
        running.start_first()
        running.await_service(60.0)
        running.close()


def test_a_partition_that_refuses_writes_is_named(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        running = fleet(tmp_path, journal, LOAD, "Unanswered")
        running.complete()
        with pytest.raises(RunError, match=r"partition 0 takes no writes within 0 s: ConnectionResetError: gone"):
            running.await_service(0.0)
        running.kill()


@pytest.mark.parametrize(
    ("times", "bound_s", "error"),
    [
        (0, 0.0, None),
        (1, 60.0, None),
        (1, 0.0, "partition 0 took a write at the second attempt, but 0 s were over during the first"),
        (2, 0.0, "partition 0 takes no writes within 0 s: cut off"),
    ],
)
def test_a_single_attempt_as_long_as_the_bound_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, bound_s: float, error: str | None
) -> None:
    monkeypatch.setattr(Refused, "times", times)
    (planned,) = expand(campaign(f"{LOAD}[client]\n{CLIENTS['class']}\n"), "s")
    with Journal(tmp_path) as journal:
        running = Fleet(planned, tmp_path, "n1:1", journal, start_client=Refused)
        running.complete()
        if error is None:
            running.await_service(bound_s)
            return
        with pytest.raises(RunError, match=error) as raised:
            running.await_service(bound_s)
    assert isinstance(raised.value, OverdueError) == (times > 1), "only that is a bound that the cluster did not keep"


def test_the_run_ends_with_the_reason_of_a_failed_client_start(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        running = fleet(tmp_path, journal, LOAD, "Registers")
        running.start_first()
        with pytest.raises(ClientError, match=r"own_clients\.py:\d+: Registers is not a LogClient"):
            running.wait_ready()
        running.close()
    lines = [json.loads(line) for line in (tmp_path / "history" / "journal.jsonl").read_text().splitlines()]
    assert any("Registers is not a LogClient" in line.get("text", "") for line in lines)
    (ended,) = [line for line in lines if line["event"] == "client_ended"]
    assert (ended["client"], ended["exit_code"], ended["files"]["producer-1-1.arrows"]["bytes"] > 0) == (
        "producer-1",
        1,
        True,
    )
