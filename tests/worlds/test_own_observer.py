"""A user's observer that is wrong, or does not answer: the error names file and line, and no caller waits for ever."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.command.line import main
from orchestrator.errors import RunError
from orchestrator.running.cluster import Cluster
from orchestrator.worlds.observer_guard import observe
from systems import Deployed, Elector, Observer, View, load_system
from tests.orchestrator.test_invalid_client_lines import CAMPAIGN, running_below, write_my_tests
from tests.systems.places import place

DESCRIPTION = """
name = "mine"
class = "mine.py:Mine"
workloads = ["register"]
[roles.server]
ports = { client = 1 }
command = ["true"]
"""
CLASS = """import json, sys, threading
from brownout_api import InputError, PortObserver, System, View

class Observer:
    def view(self):
        {view}

    def create_topic(self, assignment, timeout_s): return "not yet"
    def elect(self, node, partition): return threading.current_thread().name
    def close(self): self.closed_in = threading.current_thread()

class Mine(System):
    elects = frozenset({elects})
    def observe(self, members, topic, time_scale=1.0):
        {made}
        return Observer()
"""

# The setup of a run looks until all is well, so what it sees first is taken.
SEEN = "        seen = super().view()\n"
RAISES = "assert self.__dict__.setdefault('first', seen) is seen, 'seen before'"


def observer(
    directory: Path, view: str = "return View()", *, made: str = "pass", elects: str = "()", time_scale: float = 1.0
) -> Observer:
    (directory / "system.toml").write_text(DESCRIPTION)
    (directory / "mine.py").write_text(CLASS.format(view=view, made=made, elects=elects))
    system = load_system("mine", directory=directory)
    members = Deployed(system, ("server",), "cluster").members([place(1)])
    return observe(system, members, "", time_scale)


@pytest.mark.parametrize(
    ("view", "line", "said"),
    [
        ("return {}['leader']", 6, "view() of the observer raised: FILE: KeyError: 'leader'"),
        ("json.loads('')", 6, "view() of the observer raised: FILE: JSONDecodeError: Expecting value"),
        ("sys.exit(0)", 6, "view() of the observer raised: FILE: SystemExit: 0"),
        ("raise OSError('gone')", 6, "view() of the observer raised: FILE: OSError: gone"),
        ("return None", 5, "FILE: view() of the observer: it returned NoneType and no View"),
        (
            "return View(unfenced=['n1'])",
            5,
            "FILE: view() of the observer: unfenced is a list, and must be a frozenset",
        ),
        ("return View(controller=1)", 5, "FILE: view() of the observer: controller is 1, and must be a node's name"),
        ("return View(partitions={0: 'n1'})", 5, "FILE: view() of the observer: partitions must have a PartitionState"),
        ("return View(complaints=[OSError()])", 5, "FILE: view() of the observer: complaints must be a tuple of texts"),
        ("raise InputError('n1 has no such thing')", 0, "n1 has no such thing"),
    ],
)
def test_an_invalid_view_is_reported_with_its_line(tmp_path: Path, view: str, line: int, said: str) -> None:
    with pytest.raises(RunError) as caught:
        observer(tmp_path, view).view()
    assert str(caught.value).startswith(said.replace("FILE", f"{tmp_path}/mine.py:{line}"))


def test_an_observer_gets_all_ports_of_a_node(tmp_path: Path) -> None:
    """A node often reports its state at another port than the one for clients."""
    assert main(["init", str(tmp_path / "mine")]) == 0
    deployed = Deployed(load_system("my-system", directory=tmp_path / "mine"), ("server",), "cluster")
    node = replace(place(1), ports={"client": 7000, "admin": 7001})
    (member,) = deployed.members([node])
    assert (member.port, member.ports) == (7000, {"client": 7000, "admin": 7001})
    assert {member: "it can be a key"}[member]


def test_an_observer_that_fails_to_open_is_reported_by_its_first_call(tmp_path: Path) -> None:
    wrong = observer(tmp_path, made="members[1]")
    with pytest.raises(RunError, match=r"view\(\) of the observer raised: .*/mine\.py:15: IndexError"):
        wrong.view()
    wrong.close()


def test_a_view_that_does_not_return_ends_the_wait_for_it(tmp_path: Path) -> None:
    stuck = observer(tmp_path, "threading.Event().wait()", time_scale=0.1)
    said = rf"^{tmp_path}/mine\.py:6: view\(\) of the observer did not return within 1 s; it is still running$"
    stuck.create_topic([[1]], 60.0)  # it is made now
    cluster = Cluster(stuck, [], "")
    for _ in range(2):  # the second time at once
        with pytest.raises(RunError, match=said):
            cluster.await_view(lambda _: True, "waiting for anything", 600.0)
    cluster.close()


# As a person's program does it: the worker of the pool is one that Python waits for when it ends.
STUCK = """
import sys
from dataclasses import replace
from pathlib import Path
from orchestrator.exit import leave
from orchestrator.errors import RunError
from tests.worlds.test_own_observer import observer

pool = "from concurrent.futures import ThreadPoolExecutor as Pool; Pool(1).submit(threading.Event().wait).result()"
try:
    stuck = observer(Path(sys.argv[1]), pool, time_scale=0.1)
    stuck.create_topic([[1]], 60.0)  # it is made now
    stuck.view()
except RunError as error:
    print(error)
    leave(2)
"""


def test_a_view_that_does_not_return_keeps_no_command_from_its_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STUCK, str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (2, "")
    assert "/mine.py:6: view() of the observer did not return within 1 s" in done.stdout


def test_all_of_it_is_done_in_one_thread_of_its_own(tmp_path: Path) -> None:
    fine = observer(tmp_path, "return View(controller=threading.current_thread().name)", elects="{'cluster'}")
    assert isinstance(fine, Elector)
    assert fine.view() == View(controller="own-observer")
    assert (fine.elect("n1", None), fine.create_topic([[1]], 1.0)) == ("own-observer", "not yet")
    fine.close()
    (tmp_path / "other").mkdir()
    assert not isinstance(observer(tmp_path / "other"), Elector)


def test_a_run_with_a_failing_observer_is_unknown_and_leaves_no_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write_my_tests(tmp_path)
    mine = files["my-tests/my_system.py"]
    assert mine.count(SEEN) == 1
    (tmp_path / "my_system.py").write_text(mine.replace(SEEN, f"{SEEN}        {RAISES}\n"))
    line = 2 + mine[: mine.index(SEEN)].count("\n")
    (tmp_path / "observed.toml").write_text(CAMPAIGN.replace('"garbled"', '"observed"'))
    store = tmp_path / "store"
    command = ["run", str(tmp_path / "observed.toml"), "--store", str(store), "--engine", "in-process", "--quiet"]

    assert main(command) == 2

    (run,) = [path.parent for path in store.glob("observed/*/run.toml")]
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["verdict"] == "unknown"
    assert f"my_system.py:{line}: AssertionError: seen before" in str(verdict["reasons"])
    assert "Traceback" not in capsys.readouterr().err
    assert running_below(tmp_path) == []
