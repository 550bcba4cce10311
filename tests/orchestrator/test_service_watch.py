"""A service that ends though nobody ended it is a finding; one that a fault has ended is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from history import Journal, read_run
from nemeses import HostError
from orchestrator.running.service_watch import ServiceWatch, record_fatal_lines


class FakeHost:
    """A host whose service runs under `pid`, or does not (None), and which can be cut off from us."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid
        self.reachable = True
        self.status: int | None = None

    def service_pid(self) -> int | None:
        if not self.reachable:
            raise HostError("n: not reachable")
        return self.pid

    def service_exit(self, pid: int) -> int | None:
        assert pid == 11
        return self.status


class Watched:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hosts = {"n1": FakeHost(11), "n2": FakeHost(12)}
        self.journal = Journal(directory)
        words = "the last words of {}".format
        self.watch = ServiceWatch(self.hosts, words, self.journal)  # type: ignore[arg-type]
        self.watch.expect(self.hosts)

    def found(self) -> list[tuple[str, int | None, int | None, str]]:
        found = read_run(self.directory).service_exits
        return [(each.node, each.exit_code, each.signal, each.last_words) for each in found]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.mark.parametrize(
    ("status", "code", "signal"), [(0, 0, None), (70, 70, None), (137, None, 9), (134, None, 6), (None, None, None)]
)
def test_a_service_that_ends_by_itself_is_recorded_once_with_how_and_its_last_words(
    watched: Watched, status: int | None, code: int | None, signal: int | None
) -> None:
    watched.watch.look()
    watched.hosts["n1"].pid, watched.hosts["n1"].status = None, status
    watched.watch.look()
    watched.watch.look()
    assert watched.found() == [("n1", code, signal, "the last words of n1")]
    assert watched.watch.ended == {"n1": "the last words of n1"}


def test_one_that_somebody_else_has_started_again_has_ended_all_the_same(watched: Watched) -> None:
    watched.hosts["n1"].pid = 99
    watched.watch.look()
    assert [each[0] for each in watched.found()] == ["n1"]


def test_what_a_fault_ends_is_excused_until_it_is_expected_again(watched: Watched) -> None:
    watched.watch.excuse(["n1"])
    watched.hosts["n1"].pid = None
    watched.watch.look()
    assert watched.found() == []
    watched.hosts["n1"].pid = 11
    watched.watch.expect(["n1"])
    watched.hosts["n1"].pid = None
    watched.watch.look()
    assert [each[0] for each in watched.found()] == ["n1"]


def test_a_node_that_cannot_be_asked_is_asked_again(watched: Watched) -> None:
    watched.hosts["n1"].reachable = False
    watched.hosts["n1"].pid = None
    watched.watch.look()
    assert watched.found() == []
    watched.hosts["n1"].reachable = True
    watched.watch.look()
    assert [each[0] for each in watched.found()] == ["n1"]


def test_fatal_lines_are_recorded_once_a_pattern(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    log.write_text("INFO fine\nFATAL the disk is gone\nFATAL again\nassertion failed: x\n")
    with Journal(tmp_path) as journal:
        record_fatal_lines({"n1": log, "n2": tmp_path / "absent"}, ["^FATAL", "assertion.* failed", "panic"], journal)
    found = [(each.node, each.pattern, each.line) for each in read_run(tmp_path).fatal_lines]
    assert found == [("n1", "^FATAL", "FATAL the disk is gone"), ("n1", "assertion.* failed", "assertion failed: x")]
