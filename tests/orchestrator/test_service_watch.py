"""An unexpected event of a service is a finding, and an effect of a fault is not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from history.journal.service_events import ServiceExit
from history.journal.writer import Journal
from history.reader import read_run
from nemeses import HostError, Result
from nemeses.mechanisms.shell import process_script
from orchestrator.running import service_watch
from orchestrator.running.service_watch import Autopsy, LogEvents, ServiceWatch, record_fatal_lines


class FakeHost:
    """A host whose service runs under `pid`, or does not (None), and which can be cut off from us."""

    data_dir = "/data"

    def __init__(self, pid: int | None) -> None:
        self.pid = pid
        self.start = "7"
        self.threads = "S"
        self.reachable = True
        self.status: int | None = None
        self.cores = ""
        self.asked: list[int | None] = []

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        assert timeout_s > 0
        if not self.reachable:
            raise HostError("n: not reachable")
        if self.pid is not None and command == process_script(self.pid):
            return Result(0, f"start={self.start}\nthreads={self.threads}\n", "")
        return Result(0, self.cores, "")

    def service_pid(self) -> int | None:
        if not self.reachable:
            raise HostError("n: not reachable")
        return self.pid

    def service_exit(self, pid: int | None = None) -> int | None:
        self.asked.append(pid)
        return self.status


class Watched:
    def __init__(self, directory: Path, kernel_words: Callable[[str, int], str] = lambda _name, _pid: "") -> None:
        self.directory = directory
        self.hosts = {"n1": FakeHost(11), "n2": FakeHost(12)}
        self.journal = Journal(directory)
        words = "the last words of {}".format
        autopsy = Autopsy(self.hosts, 0.0, kernel_words)  # type: ignore[arg-type]
        self.watch = ServiceWatch(self.hosts, words, self.journal, autopsy=autopsy)  # type: ignore[arg-type]
        self.watch.expect(self.hosts)

    def exits(self) -> list[ServiceExit]:
        return read_run(self.directory).service_exits

    def found(self) -> list[tuple[str, str]]:
        return [(each.node, each.way) for each in self.exits()]

    def nodes(self, what: str) -> list[dict[str, Any]]:
        return [line for line in read_run(self.directory).journal if line.get("what") == what]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.mark.parametrize(
    ("status", "code", "signal"), [(0, 0, None), (70, 70, None), (137, None, 9), (134, None, 6), (None, None, None)]
)
def test_a_service_that_exits_unexpectedly_is_recorded_once_with_status_and_last_lines(
    watched: Watched, status: int | None, code: int | None, signal: int | None
) -> None:
    watched.watch.look()
    watched.hosts["n1"].pid, watched.hosts["n1"].status = None, status
    watched.watch.look()
    watched.watch.look()
    (exit,) = watched.exits()
    assert (exit.node, exit.way, exit.exit_code, exit.signal) == ("n1", "ended", code, signal)
    assert exit.last_words == "the last words of n1"
    assert watched.watch.ended == {"n1": "the last words of n1"}
    assert set(watched.hosts["n1"].asked) == {11}


@pytest.mark.parametrize("change", [{"pid": 99}, {"start": "8"}], ids=["another pid", "the same pid used again"])
def test_a_service_restarted_by_another_process_counts_as_restarted(watched: Watched, change: dict[str, Any]) -> None:
    vars(watched.hosts["n1"]).update(change)
    watched.watch.look()
    watched.watch.look()
    assert watched.found() == [("n1", "restarted")]
    assert watched.watch.ended == {}, "it runs"


def test_a_suspended_service_is_found_once_for_each_suspension(watched: Watched) -> None:
    for threads in ("T", "T", "S", "ST", "T"):
        watched.hosts["n2"].threads = threads
        watched.watch.look()
    assert watched.found() == [("n2", "stood still"), ("n2", "stood still")]


def test_a_service_suspended_by_a_fault_is_a_finding_only_after_the_heal(watched: Watched) -> None:
    watched.watch.begin("stopped", ["n2"])
    watched.hosts["n2"].threads = "T"
    watched.watch.look()
    assert watched.found() == []
    watched.watch.end("stopped", ["n2"])
    watched.watch.look()
    assert watched.found() == [("n2", "stood still")]


def test_a_service_without_evidence_of_its_resume_is_excused(watched: Watched) -> None:
    watched.watch.begin("stopped", ["n2"])
    watched.hosts["n2"].threads = "T"
    watched.watch.end("stopped", ["n2"], seen=False)
    watched.watch.look()
    watched.watch.expect(["n1", "n2"])
    watched.watch.look()
    assert watched.found() == []
    watched.hosts["n2"].threads = "S"
    watched.watch.expect(["n1", "n2"])
    watched.hosts["n2"].threads = "T"
    watched.watch.look()
    assert watched.found() == [("n2", "stood still")], "it had been seen to run in between"


def test_a_pause_that_ends_after_a_restart_does_not_excuse_the_new_process(watched: Watched) -> None:
    watched.watch.begin("stopped", ["n1"])
    watched.hosts["n1"].threads = "T"
    watched.watch.begin("ended", ["n1"])
    watched.hosts["n1"].pid = None
    watched.hosts["n1"].pid, watched.hosts["n1"].threads, watched.hosts["n1"].start = 99, "S", "8"
    watched.watch.end("ended", ["n1"])
    watched.watch.end("stopped", ["n1"])
    watched.watch.begin("stopped", ["n1"])
    watched.hosts["n1"].threads = "T"
    watched.watch.look()
    assert watched.found() == []
    watched.watch.end("stopped", ["n1"])
    watched.watch.look()
    assert watched.found() == [("n1", "stood still")]


def test_a_service_that_exits_while_suspended_is_an_unexpected_exit(watched: Watched) -> None:
    watched.watch.begin("stopped", ["n2"])
    watched.hosts["n2"].pid = None
    watched.watch.look()
    assert watched.found() == [("n2", "ended")]


def test_a_service_ended_by_a_fault_is_excused_until_its_restart(watched: Watched) -> None:
    watched.watch.begin("ended", ["n1"])
    watched.hosts["n1"].pid = None
    watched.watch.look()
    assert watched.found() == []
    watched.hosts["n1"].pid = 21
    watched.watch.end("ended", ["n1"])
    watched.hosts["n1"].pid = None
    watched.watch.look()
    assert watched.found() == [("n1", "ended")]


def test_a_service_that_exits_after_its_restart_is_an_unexpected_exit(watched: Watched) -> None:
    watched.watch.begin("ended", ["n1"])
    watched.hosts["n1"].pid, watched.hosts["n1"].status = None, 1
    watched.watch.end("ended", ["n1"])
    assert [(each.way, each.exit_code) for each in watched.exits()] == [("not up", 1)]
    assert watched.hosts["n1"].asked[-1] is None, "whichever was started last"


def test_a_service_that_may_never_have_started_is_not_reported(watched: Watched) -> None:
    watched.watch.begin("ended", ["n1"])
    watched.hosts["n1"].pid = None
    watched.watch.end("ended", ["n1"])
    assert watched.found() == []
    watched.watch.attest()
    assert [line["node"] for line in watched.nodes("running")] == ["n2"], "but it is missing there"


def test_a_service_that_ended_between_two_checks_and_restarted_with_the_others_has_ended(watched: Watched) -> None:
    watched.hosts["n1"].pid = 99
    watched.watch.expect(["n1", "n2"])
    assert watched.found() == [("n1", "restarted")]


def test_a_service_unobservable_under_a_fault_must_be_the_same_process_afterwards(watched: Watched) -> None:
    watched.watch.begin("unseen", ["n1"])
    watched.hosts["n1"].start = "8"
    watched.watch.look()
    assert watched.found() == [], "who stands still is not asked"
    watched.watch.end("unseen", ["n1"])
    watched.watch.look()
    assert watched.found() == [("n1", "restarted")]


def test_an_unreachable_node_is_queried_again(watched: Watched) -> None:
    watched.hosts["n1"].reachable = False
    watched.hosts["n1"].pid = None
    watched.watch.look()
    assert watched.found() == []
    watched.hosts["n1"].reachable = True
    watched.watch.look()
    assert watched.found() == [("n1", "ended")]


def test_services_running_at_the_end_are_named_with_their_process(watched: Watched) -> None:
    watched.hosts["n1"].threads = "T"
    watched.watch.attest()
    assert [(line["node"], line["pid"], line["start"]) for line in watched.nodes("running")] == [("n2", 12, "7")]
    assert watched.found() == [("n1", "stood still")]


@pytest.mark.parametrize(("status", "found"), [(0, []), (143, []), (70, [("n1", "ended badly")]), (None, [])])
def test_the_exit_status_of_a_stopped_service_is_recorded(
    watched: Watched, status: int | None, found: list[tuple[str, str]]
) -> None:
    watched.hosts["n1"].status = status
    watched.watch.say_stopped("n1", 11, 11, (0, 143))
    watched.watch.say_stopped("n2", None, None, (0, 143))
    assert watched.found() == found
    assert [(line["status"], line["ran"]) for line in watched.nodes("stopped")] == [(status, True), (None, False)]


@pytest.mark.parametrize(("asked", "way"), [(None, "ended"), (99, "restarted")])
def test_a_service_gone_before_its_stop_is_an_unexpected_exit(watched: Watched, asked: int | None, way: str) -> None:
    """With the status of an orderly exit: it ran at the last check, and had exited before its stop."""
    watched.hosts["n1"].status = 0
    watched.watch.attest()
    watched.watch.say_stopped("n1", 11, asked, (0, 143))
    assert watched.found() == [("n1", way)]
    assert watched.exits()[0].how == "with exit code 0"


def test_the_kernel_log_is_read_for_services_that_it_may_have_killed(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def words(name: str, pid: int) -> str:
        asked.append((name, pid))
        return "Out of memory: Killed process 11 (python)"

    watched = Watched(tmp_path, words)
    watched.hosts["n1"].pid, watched.hosts["n1"].status = None, 137
    watched.hosts["n2"].pid, watched.hosts["n2"].status = None, 1
    watched.watch.look()
    killed, ended = watched.exits()
    assert killed.how == "by the kernel for lack of memory (Out of memory: Killed process 11 (python))"
    assert ended.how == "with exit code 1"
    assert asked == [("n1", 11)]


def test_a_core_dump_is_searched_after_a_signal_that_writes_one(watched: Watched) -> None:
    for name, status in (("n1", 134), ("n2", 137)):
        watched.hosts[name].pid, watched.hosts[name].status = None, status
        watched.hosts[name].cores = "/data/core.11\n"
    watched.watch.look()
    assert [each.core for each in watched.exits()] == ["/data/core.11", ""]


def test_fatal_lines_are_recorded_once_a_pattern(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    log.write_text("INFO fine\nFATAL the disk is gone\nFATAL again\nassertion failed: x\n")
    with Journal(tmp_path) as journal:
        record_fatal_lines({"n1": log, "n2": tmp_path / "absent"}, ["^FATAL", "assertion.* failed", "panic"], journal)
    found = [(each.node, each.pattern, each.line) for each in read_run(tmp_path).fatal_lines]
    assert found == [("n1", "^FATAL", "FATAL the disk is gone"), ("n1", "assertion.* failed", "assertion failed: x")]


def test_the_fatal_part_of_a_long_line_is_recorded(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    log.write_text(f"{'x' * 3_000_000}FATAL the disk is gone{'y' * 3_000}\n")
    with Journal(tmp_path) as journal:
        record_fatal_lines({"n1": log}, ["FATAL"], journal)
    (found,) = read_run(tmp_path).fatal_lines
    assert found.line.startswith("xxx")
    assert "FATAL the disk is gone" in found.line
    assert len(found.line) == 500


def log_events(directory: Path) -> list[tuple[str, str, str]]:
    journal = read_run(directory).journal
    return [(line["node"], line["name"], line["line"]) for line in journal if line["event"] == "log_event"]


def test_lines_of_a_log_that_are_events_are_recorded_once_and_whole(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    names = {"became leader": "election", "^WARN|leader": "warning"}
    with Journal(tmp_path) as journal:
        events = LogEvents({"n1": log, "n2": tmp_path / "absent"}, names, journal)
        events.look()
        for text in ("INFO fine\nn1 became leader\nWARN n1 beca", "me leader\n", "", "WARN slow\nINFO fine\n"):
            with log.open("a") as file:
                file.write(text)
            events.look()
    assert log_events(tmp_path) == [
        ("n1", "election", "n1 became leader"),
        ("n1", "election", "WARN n1 became leader"),
        ("n1", "warning", "WARN slow"),
    ]


def test_a_log_with_too_many_events_is_left_out_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_watch, "MOST_EVENTS", 2)
    log = tmp_path / "service.log"
    log.write_text("became leader\n" * 5)
    with Journal(tmp_path) as journal:
        LogEvents({"n1": log}, {"became": "election"}, journal).look()
    assert len(log_events(tmp_path)) == 2
    assert "n1: its log has 2 events; further ones are left out" in {
        line.get("text") for line in read_run(tmp_path).journal
    }
