"""The state of a host behind a lost connection: only the results of its commands count."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from history.journal.writer import Journal
from history.reader import read_run
from nemeses.mechanisms.shell import process_script
from nemeses.ports import HostError
from orchestrator.machine.ssh import ScriptUnit, SshHost
from orchestrator.running.service_watch import ServiceWatch
from orchestrator.worlds.remote import paths
from orchestrator.worlds.remote.world import MirroredFile

UNIT = paths.service_unit(systemd=False)
SERVICE = {UNIT.pid_script(): (0, "42\n", ""), process_script(42): (0, "start=7\nthreads=S\n", "")}
CUT = (-1, "", "")
"""As paramiko and fabric report a channel that was closed without an exit status."""
REFUSED = (1, "", "sudo: a password is required")


class Connection:
    """Stands in for fabric's. `answers`: exit code, output and errors, by command."""

    answers: ClassVar[dict[str, tuple[int, str, str]]]
    otherwise = (0, "", "")
    opened: int

    def __init__(self, *_: object, **__: object) -> None:
        self.client = SimpleNamespace(
            set_missing_host_key_policy=lambda _: None, load_host_keys=lambda _: None, close=lambda: None
        )
        self.transport = SimpleNamespace(sock=SimpleNamespace(setsockopt=lambda *_: None))
        self.is_connected = False

    def open(self) -> None:
        type(self).opened += 1
        self.is_connected = True

    def close(self) -> None:
        self.is_connected = False

    def run(self, command: str, **_: Any) -> object:
        code, stdout, stderr = self.answers.get(command, self.otherwise)
        return SimpleNamespace(return_code=code, stdout=stdout, stderr=stderr)


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> type[Connection]:
    class Mine(Connection):
        """Answers by the function of one test."""

    Mine.answers, Mine.opened = dict(SERVICE), 0
    monkeypatch.setattr("fabric.Connection", Mine)
    return Mine


@pytest.fixture
def host(tmp_path: Path) -> SshHost:
    return SshHost("n1", "127.0.0.1", 9092, UNIT, key_file=None, known_hosts=tmp_path / "known")


def test_a_command_with_a_lost_connection_has_not_ended(connection: type[Connection], host: SshHost) -> None:
    connection.answers["true"] = CUT
    with pytest.raises(HostError, match="n1: 'true': the connection ended before the command did"):
        host.run("true")
    assert host.service_pid() == 42
    assert connection.opened == 2, "the next command has a connection of its own"


@pytest.mark.parametrize("unanswered", [CUT, REFUSED], ids=["cut off", "refused"])
def test_a_failed_check_of_a_service_does_not_count_as_its_end(
    connection: type[Connection], host: SshHost, unanswered: tuple[int, str, str], tmp_path: Path
) -> None:
    watch = ServiceWatch({"n1": host}, "the last words of {}".format, Journal(tmp_path))
    watch.expect(["n1"])
    connection.answers[UNIT.pid_script()] = unanswered
    watch.look()
    with pytest.raises(HostError, match="n1: "):
        host.service_pid()
    assert read_run(tmp_path).service_exits == []
    connection.answers[UNIT.pid_script()] = (0, "\n", "")
    connection.answers[UNIT.exit_script(42)] = (0, "1\n", "")
    watch.look()
    assert [(each.way, each.exit_code) for each in read_run(tmp_path).service_exits] == [("ended", 1)]


def test_a_file_of_a_host_that_can_start_no_program_cannot_be_read(
    connection: type[Connection], host: SshHost, tmp_path: Path
) -> None:
    connection.otherwise = (0, "0\n", "sh: Cannot fork")
    file = MirroredFile(host, "/run/events.jsonl", tmp_path / "events.jsonl", stamped=True)
    with pytest.raises(HostError, match=r"n1: its boot and /run/events\.jsonl cannot be read: sh: Cannot fork"):
        file.settle(1.0)


def test_a_timeout_on_a_lost_connection_prints_no_message() -> None:
    """Its timer ends it from a thread of its own: what that raises would be a traceback among the progress."""

    def lost() -> None:
        raise EOFError

    made = SshHost("n1", "127.0.0.1", 1, ScriptUnit((), "", "", ""), key_file=None, known_hosts=None)
    connection = made._new_connection(1.0)
    runner = connection.config.runners.remote(connection)
    runner.channel = SimpleNamespace(close=lost)
    runner.kill()
