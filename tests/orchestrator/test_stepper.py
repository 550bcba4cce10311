"""Scripted steps against a world that a test controls: the condition and the failure of each."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from history.journal.writer import Journal
from nemeses.fault import Evidence, Fault
from nemeses.mechanisms.shell import list_files_script
from nemeses.ports import Result
from nemeses.scheduling import REAL_TIME, Scheduler, ThreadScheduler
from orchestrator.errors import RunError
from orchestrator.running.faults import FaultLog
from orchestrator.running.progress import Progress
from orchestrator.running.script import Stepper
from orchestrator.worlds.base import Node
from systems import PartitionState, View
from tests.nemeses.fakes import UnhinderedNemesis
from tests.orchestrator.campaigns import campaign
from tests.orchestrator.unwatched import Unwatched
from workloads.control import AppendResult, ReadDone, RecordsDeleted


class FakeWorld(UnhinderedNemesis):
    """Three nodes; a test scripts what the cluster answers, look by look."""

    topic = "log"

    def __init__(self, tmp_path: Path) -> None:
        self.directory = tmp_path
        self.done: list[str] = []
        self.views: list[View] = [view()]
        self.outcomes = [AppendResult("ok", 0, "")]
        self.attempts: list[list[AppendResult]] = []
        self.complaints: list[str] = []
        self.evidence = "confirmed"
        self.files: dict[str, str] = {}
        self.results: dict[str, Result] = {}
        self.looks = 0
        self.stated: list[Mapping[str, int] | str] = [{"last-tiered": -1, "pending-upload": 0}]

    # the cluster
    def view(self) -> View:
        self.looks += 1
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]

    def elect(self, node: str, partition: int | None) -> str | None:
        self.done.append(f"elect {node} {partition}")
        return self.complaints.pop(0) if self.complaints else None

    # the topic
    @property
    def control(self) -> "FakeWorld":
        return self

    def create_topic_with(
        self, assignment: Sequence[Sequence[int]], settings: Mapping[str, str], timeout_s: float
    ) -> str | None:
        raise AssertionError(f"no step creates the topic: {assignment} {settings} {timeout_s}")

    def configure(self, settings: Mapping[str, str], node: str | None) -> str | None:
        self.done.append(f"configure {node} {dict(settings)}")
        return self.complaints.pop(0) if self.complaints else None

    def reassign(self, partition: int, nodes: Sequence[str]) -> str | None:
        self.done.append(f"reassign {partition} to {','.join(nodes)}")
        return self.complaints.pop(0) if self.complaints else None

    def offsets(self, partition: int) -> Mapping[str, int] | str:
        assert partition == 0
        return self.stated.pop(0) if len(self.stated) > 1 else self.stated[0]

    # the clients
    def append(self, partition: int, *, acks: int, count: int, timeout_s: float) -> Sequence[AppendResult]:
        self.done.append(f"append {count} to {partition} acks {acks} within {timeout_s:g}")
        return self.attempts.pop(0) if self.attempts else self.outcomes * count

    def delete_records(self, partition: int, offset: int, timeout_s: float) -> RecordsDeleted:
        self.done.append(f"delete {partition} below {offset} within {timeout_s:g}")
        complaint = (self.complaints.pop(0) if self.complaints else None) or ""
        return RecordsDeleted(1, 1, -1 if complaint else offset, complaint)

    def read_all(self, partition: int, timeout_s: float) -> ReadDone:
        self.done.append(f"read {partition} within {timeout_s:g}")
        return ReadDone(1, complete=True, end=3, read=3)

    # the nemesis
    def inject(self, fault: Fault) -> Evidence:
        self.done.append(f"inject {fault.kind} {','.join(fault.targets)}")
        return Evidence(self.evidence, {"seen": "something"})  # type: ignore[arg-type]

    def heal(self, fault: Fault) -> Evidence:
        self.done.append(f"heal {fault.kind} {','.join(fault.targets)}")
        return Evidence("confirmed", {})

    # a host
    data_dir = "/data"

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        self.done.append(f"run {command} within {timeout_s:g}")
        return self.results.get(command, Result(0, self.files.get(command, ""), ""))

    def node(self, number: int) -> Node:
        name = f"n{number}"
        (self.directory / name).mkdir(exist_ok=True)
        return Node(name, number, "127.0.0.1", {"client": 9092}, "/data", "", "", record_dir=self.directory / name)

    def print(self, node: str, text: str) -> None:
        with open(self.directory / node / "service.log", "a") as file:
            file.write(text)

    def emit(self, node: str, **event: object) -> None:
        with open(self.directory / node / "events.jsonl", "a") as file:
            file.write(json.dumps(event) + "\n")


def view(leader: str | None = "n1", isr: tuple[str, ...] = ("n1", "n2"), **changes: Any) -> View:
    partitions = {0: PartitionState(leader, 1, isr, ("n1", "n2"))}
    return View(
        **{
            "controller": "n3",
            "epoch": 1,
            "unfenced": frozenset({"n1", "n2", "n3"}),
            "partitions": partitions,
            **changes,
        }
    )


@pytest.fixture
def world(tmp_path: Path) -> FakeWorld:
    return FakeWorld(tmp_path)


class Passed(ThreadScheduler):
    """A time that passes during a sleep."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ticks = 0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def tick(self) -> None:
        self.ticks += 1


def play(
    world: FakeWorld,
    text: str,
    tick: Callable[[], None] = lambda: None,
    *,
    system: str = "brownout",
    scheduler: Scheduler = REAL_TIME,
) -> list[dict[str, Any]]:
    """Run the steps (one a line; keys separated by `;`) and return the journal."""
    tables = "".join(
        "[[nemesis.step]]\n" + line.strip().replace(";", "\n") + "\n" for line in text.strip().splitlines()
    )
    head = f'[system]\nname = "{system}"\n'
    head += '[workload]\nassignment = [[1, 2]]\n[checks]\nupper_bound = "session"\n[nemesis]\nkind = "steps"\n'
    script = campaign(head + tables).nemesis.steps
    nodes = [world.node(number) for number in (1, 2, 3)]
    with Journal(world.directory) as journal:
        Stepper(
            cluster=world,  # type: ignore[arg-type]
            clients=world,  # type: ignore[arg-type]
            faults=FaultLog(world, journal, Progress(quiet=True), Unwatched()),  # type: ignore[arg-type]
            hosts=dict.fromkeys(("n1", "n2", "n3"), world),  # type: ignore[arg-type]
            nodes=nodes,
            journal=journal,
            progress=Progress(quiet=True),
            tick=tick,
            command_for=lambda words, node: [word.replace("{{ node.name }}", node.name) for word in words],
            scheduler=scheduler,
        ).run(script)
    return [json.loads(line) for line in (world.directory / "history" / "journal.jsonl").read_text().splitlines()]


def test_roles_are_resolved_when_their_step_runs_and_names_stay(world: FakeWorld) -> None:
    world.views = [view("n1"), view("n2")]
    play(
        world,
        """
        do = "kill"; node = "leader:0"; as = "A"
        do = "pause"; node = "follower:0"
        do = "start"; node = "A"
        """,
    )
    assert world.done == ["inject kill n1", "inject pause n1", "heal kill n1"]


def test_followers_are_selected_by_their_number(world: FakeWorld) -> None:
    everyone = ("n1", "n2", "n3")
    world.views = [view(partitions={0: PartitionState("n2", 1, everyone, everyone)})]
    play(
        world,
        """
        do = "kill"; node = "follower:0:1"
        do = "pause"; node = "follower:0:0"
        """,
    )
    assert world.done == ["inject kill n3", "inject pause n1"]


def test_a_step_waits_for_a_role_without_a_node(world: FakeWorld) -> None:
    world.views = [view(None), View(), view("n2")]
    play(world, 'do = "kill"; node = "leader:0"')
    assert world.done == ["inject kill n2"]
    assert world.looks == 3


def test_a_cut_and_its_end(world: FakeWorld) -> None:
    journal = play(world, 'do = "cut"; between = ["n1", ["n2", "n3"]]; one_way = true\ndo = "heal"')
    assert world.done == ["inject partition-one n1", "heal partition-one n1"]
    (invoked,) = [line for line in journal if line["event"] == "fault_invoked"]
    assert invoked["parameters"]["pairs"] == [["n1", "n2"], ["n1", "n3"]]
    assert [line["event"] for line in journal if line["event"].startswith("fault")] == [
        "fault_invoked",
        "fault_injected",
        "fault_healed",
    ]


def test_a_node_in_both_groups_is_cut_from_the_others(world: FakeWorld) -> None:
    journal = play(world, 'do = "cut"; between = [["leader:0"], ["n1", "n2", "n3"]]')
    (invoked,) = [line for line in journal if line["event"] == "fault_invoked"]
    assert invoked["parameters"]["pairs"] == [["n1", "n2"], ["n1", "n3"], ["n2", "n1"], ["n3", "n1"]]
    with pytest.raises(RunError, match=r"step 1 \(cut leader:0 <-> n1\): both are n1, which cannot be cut from itself"):
        play(world, 'do = "cut"; between = ["leader:0", "n1"]')


def test_steps_suspend_and_resume_machines_and_move_clocks(world: FakeWorld) -> None:
    journal = play(
        world,
        """
        do = "stall"; node = "n1"
        do = "resume"; node = "n1"
        do = "freeze"; node = "leader:0"; as = "A"
        do = "resume"; node = "A"
        do = "set-clock"; node = "n2"; jump_s = -90
        do = "reset-clock"; node = "n2"
        """,
    )
    assert world.done == [
        f"{verb} {fault}" for fault in ("stall n1", "clock-freeze n1", "clock-jump n2") for verb in ("inject", "heal")
    ]
    assert [line["parameters"] for line in journal if line["event"] == "fault_invoked"] == [{}, {}, {"jump_s": -90}]
    assert any(line.get("text") == "step 5 (set-clock n2 jump_s=-90)" for line in journal)


def test_packets_are_delayed_and_lost_until_healed(world: FakeWorld) -> None:
    journal = play(
        world,
        """
        do = "delay"; node = "n1"; delay_ms = 100; jitter_ms = 5
        do = "lose"; node = "n1"; percent = 12.5
        do = "lose"; node = "n2"; percent = 1
        do = "cut"; between = ["n1", "n3"]
        do = "heal"; node = "n1"
        do = "heal"
        """,
    )
    assert world.done[4:] == [
        "heal packet-delay n1",
        "heal packet-loss n1",
        "heal packet-loss n2",
        "heal partition-one n1",
    ]
    invoked = [line["parameters"] for line in journal if line["event"] == "fault_invoked"]
    assert invoked[:3] == [{"delay_ms": 100, "jitter_ms": 5}, {"percent": 12.5}, {"percent": 1}]


def test_one_of_several_cuts_can_be_ended(world: FakeWorld) -> None:
    play(
        world,
        """
        do = "cut"; between = ["n1", "n2"]
        do = "cut"; between = ["n2", "n3"]; one_way = true
        do = "heal"; between = ["n3", "n2"]
        """,
    )
    assert world.done == ["inject partition-one n1", "inject partition-one n2", "heal partition-one n2"]
    with pytest.raises(RunError, match=r"step 1 \(heal n1 <-> n3\): nothing to end: the cut does not exist"):
        play(world, 'do = "heal"; between = ["n1", "n3"]')


@pytest.mark.parametrize(
    ("condition", "before", "after"),
    [
        ('leader = "n2"', view("n1"), view("n2")),
        ('isr = ["n2"]', view(), view("n2", ("n2",))),
        ("offline = 0", view(), view(None, ("n1",))),
        ("in_sync = 0", view("n1", ("n1",)), view()),
        ('controller = "n1"', view(), view(controller="n1")),
        ('fenced = "n1"', view(), view(unfenced=frozenset({"n2", "n3"}))),
        ('unfenced = "n1"', view(unfenced=frozenset({"n2"})), view()),
    ],
)
def test_a_wait_observes_until_its_condition_holds(world: FakeWorld, condition: str, before: View, after: View) -> None:
    world.views = [before, before, after]
    play(world, f'do = "wait"; {condition}')
    assert world.looks == 3


def test_without_a_controller_fencing_is_unknown(world: FakeWorld) -> None:
    world.views = [View(unfenced=frozenset())]
    with pytest.raises(RunError, match="not within"):
        play(world, 'do = "wait"; fenced = "n1"; deadline_s = 0.1')


@pytest.mark.parametrize("condition", ["fenced", "unfenced"])
def test_an_uncertain_view_does_not_satisfy_a_wait_for_fencing(world: FakeWorld, condition: str) -> None:
    alive = frozenset({"n1", "n2"} if condition == "unfenced" else {"n2"})
    world.views = [view(unfenced=alive, certain=False)]
    with pytest.raises(RunError, match="not within"):
        play(world, f'do = "wait"; {condition} = "n1"; deadline_s = 0.1')


def test_an_event_counts_only_after_the_last_action(world: FakeWorld) -> None:
    world.node(2)
    world.emit("n2", event="truncated", partition=0, to_offset=7)
    ticks = []

    def tick() -> None:
        ticks.append(1)
        world.emit("n2", event="truncated", partition=1)
        if len(ticks) == 2:
            world.emit("n2", event="truncated", partition=0, to_offset=3)

    play(
        world,
        """
        do = "kill"; node = "n2"
        do = "start"; node = "n2"
        do = "wait"; event = "truncated"; node = "n2"; where = { partition = 0 }
        do = "wait"; event = "truncated"; node = "n2"; where = { partition = 0, to_offset = 3 }
        """,
        tick,
    )
    assert len(ticks) == 2


def test_the_checkpoint_on_a_nodes_disk_is_read(world: FakeWorld) -> None:
    command = "cat /data/log/replication-offset-checkpoint"
    world.files[command] = "0\n2\nlog 1 9\nlog 0 4\n"
    play(world, 'do = "wait"; checkpoint = 4; node = "n1"')
    with pytest.raises(RunError, match=r"step 1 \(wait for checkpoint: .*\): not within 0.1 s; last seen: on n1: 4"):
        play(world, 'do = "wait"; checkpoint = 5; node = "n1"; deadline_s = 0.1')


def test_the_log_end_is_from_the_last_event_of_the_node(world: FakeWorld) -> None:
    world.node(1)
    world.emit("n1", event="replica_progress", topic="log", partition=0, log_end_offset=9, high_watermark=2)
    world.emit("n1", event="replica_progress", topic="log", partition=0, log_end_offset=3, high_watermark=2)
    play(world, 'do = "wait"; log_end = 3; node = "n1"')
    with pytest.raises(RunError, match="not within"):
        play(world, 'do = "wait"; log_end = 4; node = "n1"; deadline_s = 0.1')


PROMOTE = """do = "run"; node = "leader:0"; command = ["promote", "{{ node.name }}", "two words"]; deadline_s = 5"""
PROMOTED = "cd /data && promote n1 'two words'"


@pytest.mark.parametrize(
    ("keys", "result"),
    [
        ("", Result(0, "done", "")),
        ("exit_codes = [0, 3]", Result(3, "", "standby already")),
        ("exit_codes = [3]", Result(3, "", "x" * 10_000)),
    ],
)
def test_a_command_runs_on_a_node_and_its_result_is_in_the_journal(world: FakeWorld, keys: str, result: Result) -> None:
    world.results[PROMOTED] = result
    journal = play(world, f"{PROMOTE}; {keys}")
    assert world.done == [f"run {PROMOTED} within 5"]
    (line,) = [line for line in journal if "exit_code" in line]
    assert (line["step"], line["exit_code"]) == (1, result.exit_code)
    assert (line["stdout"], line["stderr"]) == (result.stdout, result.stderr[-2000:])


@pytest.mark.parametrize(("keys", "code"), [("", 1), ("exit_codes = [1]", 0), ("", 127)])
def test_another_exit_code_ends_the_run(world: FakeWorld, keys: str, code: int) -> None:
    world.results[PROMOTED] = Result(code, "", "no such\nstandby")
    with pytest.raises(RunError, match=rf"step 1 .*: exit code {code}: no such.*standby"):
        play(world, f'{PROMOTE}; {keys}\ndo = "kill"; node = "n1"')
    assert world.done == [f"run {PROMOTED} within 5"]


def test_appends_and_reads_are_sent_to_the_clients(world: FakeWorld) -> None:
    play(
        world,
        'do = "produce"; count = 2; acks = 1; timeout_s = 3\ndo = "consume"; partition = 0\ndo = "sync"; node = "n2"',
    )
    assert world.done == ["append 2 to 0 acks 1 within 3", "read 0 within 30", "run sync -f /data within 10"]


def test_a_deletion_of_records_is_sent_again_until_it_is_answered(world: FakeWorld) -> None:
    world.complaints = ["NOT_LEADER_OR_FOLLOWER"]
    play(world, 'do = "delete-records"; offset = 7; timeout_s = 2')
    assert world.done == ["delete 0 below 7 within 2"] * 2
    world.complaints = ["POLICY_VIOLATION"] * 1_000
    with pytest.raises(RunError, match=r"step 1 \(delete-records of 0 below 7\).*POLICY_VIOLATION"):
        play(world, 'do = "delete-records"; offset = 7; deadline_s = 0.1')


def test_an_outcome_that_was_not_expected_fails_the_step(world: FakeWorld) -> None:
    world.outcomes = [AppendResult("info", -1, "_MSG_TIMED_OUT")]
    with pytest.raises(RunError) as caught:
        play(world, 'do = "produce"; acks = "all"')
    assert str(caught.value) == ("step 1 (produce 1 to 0 with acks=all): expected ok, got info (_MSG_TIMED_OUT)")
    play(world, 'do = "produce"; expect = "info"')
    play(world, 'do = "produce"; expect = "any"')


def test_a_fault_without_proof_fails_the_step(world: FakeWorld) -> None:
    world.evidence = "mismatch"
    with pytest.raises(RunError, match=r"step 1 \(kill n1\): the fault is mismatch: seen: something"):
        play(world, 'do = "kill"; node = "n1"')


def test_ending_an_absent_fault_fails_the_step(world: FakeWorld) -> None:
    with pytest.raises(RunError, match=r"step 1 \(resume n1\): nothing to end: n1 is not under such a fault"):
        play(world, 'do = "resume"; node = "n1"')


def test_a_wait_past_its_deadline_reports_the_last_observation(world: FakeWorld) -> None:
    with pytest.raises(RunError) as caught:
        play(world, 'do = "heal"\ndo = "wait"; leader = "n2"; deadline_s = 0.05')
    assert str(caught.value) == (
        "step 2 (wait for leader: node=n2, partition=0): not within 0.05 s; last seen: controller n3, unfenced "
        "n1,n2,n3; partition 0: leader n1, in sync n1,n2"
    )


def test_a_wait_for_seconds_continues_the_load_without_observation(world: FakeWorld) -> None:
    passed = Passed()
    play(world, 'do = "wait"; seconds = 90.5', passed.tick, scheduler=passed)
    assert passed.now_s == pytest.approx(90.5)
    assert passed.ticks > 1, "the run is looked after meanwhile"
    assert world.looks == 0


def test_an_election_is_repeated_until_the_node_leads(world: FakeWorld) -> None:
    world.complaints = ["n1 leads", "the controller is busy"]
    play(world, 'do = "elect"; node = "n2"; partition = 0\ndo = "elect"; node = "n2"', system="apache-kafka-zk")
    assert world.done == ["elect n2 0"] * 3 + ["elect n2 None"]


def test_an_election_past_its_deadline_reports_the_reason(world: FakeWorld) -> None:
    world.complaints = ["the controller is busy"] * 1000
    with pytest.raises(RunError, match=r"step 1 \(elect n2 partition=0\): not within .*: the controller is busy"):
        play(world, 'do = "elect"; node = "n2"; partition = 0; deadline_s = 0.05', system="apache-kafka-zk")


def test_appends_are_followed_by_others_until_all_are_acknowledged(world: FakeWorld) -> None:
    ok, lost = AppendResult("ok", 0, ""), AppendResult("info", -1, "NOT_LEADER")
    world.attempts = [[lost], [ok, lost], [ok]]
    journal = play(world, 'do = "produce"; count = 2; acks = 1; until_ok = true')
    assert world.done == [f"append {count} to 0 acks 1 within 5" for count in (2, 2, 1)]
    assert [each["outcome"] for each in journal[-2]["results"]] == ["info", "ok", "info", "ok"]
    assert (journal[-1]["event"], journal[-1]["step"]) == ("step_done", 1)


def test_appends_that_are_never_acknowledged_end_the_run(world: FakeWorld) -> None:
    world.outcomes = [AppendResult("info", -1, "NOT_LEADER")]
    with pytest.raises(RunError, match=r"not within 0.05 s; last seen: NOT_LEADER"):
        play(world, 'do = "produce"; until_ok = true; deadline_s = 0.05')


def test_a_line_is_waited_for_that_is_printed_after_the_last_action(world: FakeWorld) -> None:
    world.node(1)
    world.print("n1", "deleted brokers: 2\n")
    moments = iter(["deleted brok", "ers: 2, and more\n"])

    def tick() -> None:
        world.print("n1", next(moments))

    play(world, 'do = "kill"; node = "n2"\ndo = "wait"; log = "deleted brokers: [0-9]"; node = "n1"', tick)
    assert next(moments, None) is None


def test_a_wait_for_an_absent_line_reports_the_printed_lines(world: FakeWorld) -> None:
    world.node(1)
    world.print("n1", "something else\n")
    with pytest.raises(RunError, match=r"log: node=n1, pattern=deleted\): not within .*: on n1: something else"):
        play(world, 'do = "wait"; log = "deleted"; node = "n1"; deadline_s = 0.05')


def test_a_setting_is_changed_as_soon_as_the_cluster_accepts_it(world: FakeWorld) -> None:
    world.complaints = ["NOT_CONTROLLER: moved"]
    play(world, 'do = "configure"; settings = { "remote.storage.enable" = true }')
    assert world.done == ["configure None {'remote.storage.enable': 'true'}"] * 2
    play(world, 'do = "configure"; node = "n2"; settings = { "a.b" = 1 }')
    assert world.done[-1] == "configure n2 {'a.b': '1'}"


def test_a_wait_accepts_an_offset_stated_by_the_leader(world: FakeWorld) -> None:
    world.stated = ["n1 does not answer", {"last-tiered": 4}, {"last-tiered": 5}]
    play(world, 'do = "wait"; offset = "last-tiered"; at_least = 5')
    world.stated = [{"last-tiered": 4}]
    with pytest.raises(RunError, match=r"not within 0.01 s; last seen: last-tiered is 4"):
        play(world, 'do = "wait"; offset = "last-tiered"; at_least = 5; deadline_s = 0.01')


def test_a_replica_joins_and_the_journal_records_its_start_and_size(world: FakeWorld) -> None:
    three = {0: PartitionState("n1", 1, ("n1", "n2", "n3"), ("n1", "n2", "n3"))}
    world.views = [view(), view(), view(partitions=three)]
    world.complaints = ["REQUEST_TIMED_OUT: slow"]
    world.stated = [{"pending-upload": 7}, {"pending-upload": 9}]
    script = str(list_files_script("/data", "log/log-0/*.log"))
    world.files = {
        script: "log/log-0/00000000000000000008.log=30\nlog/log-0/00000000000000000012.log=12\nlisted=yes\n",
        "cat /data/log/log-0/leader-epoch-checkpoint": "0\n2\n0 0\n1 5\n",
    }
    journal = play(world, 'do = "join"; node = "n3"; partition = 0; starts_at = "pending-upload"')
    assert world.done[:2] == ["reassign 0 to n1,n2,n3"] * 2
    (moved,) = [line for line in journal if line["event"] == "reassigned"]
    assert (moved["partition"], moved["replicas"]) == (0, [1, 2, 3])
    (joined,) = [line for line in journal if line["event"] == "joined"]
    assert (joined["node"], joined["leader"], joined["segments"], joined["moved"]) == ("n3", "n1", [8, 12], 42)
    assert (joined["before"], joined["after"]) == ({"pending-upload": 7}, {"pending-upload": 9})
    assert joined["epochs"] == joined["leader_epochs"] == [[0, 0], [1, 5]]
    assert joined["starts_at"] == "pending-upload"


def test_a_replica_joins_only_once(world: FakeWorld) -> None:
    with pytest.raises(RunError, match="n2 has a replica of partition 0 already"):
        play(world, 'do = "join"; node = "n2"')
