"""Clean shutdowns: a process gets SIGTERM, exits in time, and is gone."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nemeses import HEALED_BY, INJECTED_BY, KINDS, Fault, Nemesis, Result, Site, injectable
from tests.nemeses.fakes import ENDINGS, FakeHost, lines, unreachable

STOP = Fault("stop", ("n1",))
ENDED = {"start": "7", "signalled": "yes", "state": "gone", "waited": "2", "port": "closed"}

POLITE = "import signal, sys; signal.signal(15, lambda *_: sys.exit())"
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN)"
SERVE = """
import socket, time
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True: time.sleep(60)
"""


@pytest.mark.parametrize(("change", "status"), ENDINGS)
def test_a_stop_is_confirmed_by_a_process_that_exited_after_sigterm(change: dict[str, str], status: str) -> None:
    host = FakeHost("n1", lambda _: lines(**{**ENDED, **change}))
    evidence = Nemesis(Site({"n1": host}, stop_deadline_s=12, time_scale=2)).inject(STOP)
    assert evidence.status == status
    assert evidence.detail["n1"]["deadline_s"] == 24
    assert "kill -TERM 42" in host.commands[0]


@pytest.mark.parametrize("answer", [unreachable, lambda _: "", lambda _: "no such file\n"])
def test_a_host_that_does_not_answer_is_inconclusive(answer: object) -> None:
    assert Nemesis(Site({"n1": FakeHost("n1", answer)})).inject(STOP).status == "inconclusive"  # type: ignore[arg-type]


def test_a_host_without_its_service_is_inconclusive() -> None:
    host = FakeHost("n1")
    host.pid = None
    assert Nemesis(Site({"n1": host})).inject(STOP).status == "inconclusive"
    assert host.commands == []


def test_a_stopped_service_is_restarted_once() -> None:
    host = FakeHost("n1", lambda _: lines(port="open"))
    host.pid = None
    nemesis = Nemesis(Site({"n1": host}))
    assert [nemesis.heal(STOP).status, nemesis.heal(STOP).status] == ["confirmed", "confirmed"]
    assert host.starts == 1


class RealService(FakeHost):
    """A process of this machine that listens on a port of its own."""

    def __init__(self, manners: str) -> None:
        super().__init__("n1")
        self.process = subprocess.Popen([sys.executable, "-c", manners + SERVE], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None, "opened as a pipe"
        self.port = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=timeout_s, check=False)
        return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def service(request: pytest.FixtureRequest) -> Iterator[RealService]:
    made = RealService(request.param)
    yield made
    made.process.kill()
    made.process.communicate()


@pytest.mark.parametrize("service", [POLITE], indirect=True)
def test_the_end_of_a_real_process_is_observed(service: RealService) -> None:
    evidence = Nemesis(Site({"n1": service})).inject(STOP)
    assert evidence.status == "confirmed", evidence
    assert service.process.wait(60) == 0, "it ended in its own way"
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", service.port)):
        pass


@pytest.mark.parametrize("service", [STUBBORN], indirect=True)
def test_a_real_process_that_will_not_end_is_a_mismatch(service: RealService) -> None:
    evidence = Nemesis(Site({"n1": service}, stop_deadline_s=1)).inject(STOP)
    assert evidence.status == "mismatch"
    assert evidence.detail["n1"]["state"] != "gone"
    assert evidence.detail["n1"]["port"] == "open"
    assert "had not exited after" in KINDS["stop"].proof(evidence.detail, {})


def test_a_stop_has_its_sentence_proof_script_words_and_worlds() -> None:
    kind = KINDS["stop"]
    assert kind.sentence(STOP) == "the service on n1 gets SIGTERM and shuts down"
    assert kind.proof({"n1": ENDED}, {}) == "n1: it exited within 3 s"
    assert INJECTED_BY["stop"] is kind
    assert HEALED_BY["start"] >= {"stop", "kill"}
    assert "stop" in injectable(()), "every world can inject it"
