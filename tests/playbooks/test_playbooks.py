"""The playbooks provision, start, stop, collect and wipe hosts, and report failures."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.errors import UsageError
from orchestrator.machine.playbooks import STRATEGY_VARIABLE, PlaybookError, Target, play
from orchestrator.worlds.namespaces import requirements
from tests.worlds import support

DEADLINE_S = 600.0
PLAYBOOKS = [
    path.relative_to(PROJECT_ROOT).as_posix() for path in (PROJECT_ROOT / "playbooks").rglob("*") if path.is_file()
]
"""When one of these differs from the main branch, the quick tier has all tests of playbooks."""
STAND_IN = PROJECT_ROOT / "tests/worlds/stand_in_broker.py"
# Asked for its help, a broker has imported everything that it needs.
MAIN = """\
import sys
import crc32c, msgspec, uvloop
if sys.argv[1:] == ["--help"]:
    sys.exit()
"""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A stand-in for the broker, and the packages that the real one needs, as `provision` takes them."""
    directory = tmp_path_factory.mktemp("archives")
    main = directory / "main.py"
    main.write_text(MAIN + STAND_IN.read_text().replace("from __future__ import annotations\n", ""))
    with tarfile.open(directory / "app.tar.gz", "w:gz") as app:
        app.add(main, "broker/__main__.py")
    with tarfile.open(directory / "site.tar.gz", "w:gz", compresslevel=1) as site:
        for name in ("crc32c", "msgspec", "uvloop"):
            package = importlib.metadata.distribution(name)
            for file in package.files or ():
                if ".." not in file.parts:
                    site.add(file.locate(), str(file))
    # A version's files are not compressed, and each version has a directory of its own.
    with tarfile.open(directory / "files.tar", "w") as files:
        files.add(main, "lib/main.jar")
    trees = {"app": "app.tar.gz", "site": "site.tar.gz", "files/kafka/4.1.1": "files.tar"}
    return json.dumps(
        {
            "brownout_trees": [
                {
                    "to": f"/opt/brownout/{name}",
                    "archive": str(directory / archive),
                    "key": f"{archive.partition('.')[0]} 1",
                }
                for name, archive in trees.items()
            ]
        }
    )


@pytest.fixture(autouse=True)
def _skip_where_the_machine_cannot(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("root") and (missing := requirements.missing("ext4")):
        pytest.skip(" / ".join(map(str, missing)))


def played(scenario: str, *arguments: str) -> Any:
    """Run a scenario in a sandbox of its own; what it returned."""
    return support.play(scenario, *arguments, module="tests.playbooks.scenarios", deadline_s=DEADLINE_S)


@pytest.mark.rotating(6, among="playbooks", files=PLAYBOOKS)
@pytest.mark.root
def test_a_second_run_makes_no_changes(tmp_path: Path, archives: str) -> None:
    home = sorted(os.listdir(Path.home()))
    seen = played("provision_twice", str(tmp_path), archives)
    bare, provisioned, again, tagged = seen["changed"]
    assert provisioned["n1"] == provisioned["n2"] >= 4
    assert bare == provisioned, "check mode reports the changes of a run"
    assert "brownout" not in seen["untouched"].replace("/etc/brownout:", ""), "and does none of it"
    assert again == {"n1": 0, "n2": 0}
    assert tagged == {"n1": 0, "n2": 1}, "tags choose what is done; with Ansible's own strategy, too"
    assert seen["keys"] == ["app 1", "site 1", "files 1"]
    assert seen["jar"] == "/opt/brownout/files/kafka/4.1.1/lib/main.jar"
    unpacked = "provision: Unpack the system's files: changed on n1, n2"
    assert any(line.startswith(unpacked) for line in seen["lines"])
    assert seen["processes"] == []
    assert seen["home"] == home, "nothing is written to the user's home"
    assert "ansible" not in seen["left"], "nor left on the hosts"


@pytest.mark.rotating(6, among="playbooks", files=PLAYBOOKS)
@pytest.mark.root
def test_a_broker_is_started_collected_stopped_and_wiped(tmp_path: Path, archives: str) -> None:
    seen = played("a_service", str(tmp_path), archives)
    start, started, collect, stop, wipe, wiped = seen["changed"]
    assert (start, stop, wipe) == (1, 1, 1)
    assert (started, collect, wiped) == (0, 0, 0)
    pid, said = seen["running"].split("\n", 1)
    assert int(pid) > 0
    assert "--config /etc/brownout/server.properties --mutant some_mutant" in said
    assert seen["stopped"].split() == ["off", "started"]
    assert seen["left"].split() == ["off", "/data:", "lost+found", "/run/brownout:", "boot_id"]
    collected, copied = contents(tmp_path / "collected/n1/data"), contents(tmp_path / "copied/data")
    assert {name: collected[name] for name in copied} == copied, "the layout is the same in every world"
    assert "topic-0/00000000000000000007.log" in collected
    assert "dot.kafka_cleanshutdown" in collected, "uploads of artifacts lose hidden files"
    assert not (tmp_path / "collected/n1/data/of an earlier run").exists()
    # An interrupt ended Ansible and everything that it had started, here and there.
    interrupted = seen["interrupted"]
    assert interrupted["here"] == interrupted["left"] == []
    assert not interrupted["waited_for_it"]


@pytest.mark.rotating(6, among="playbooks", files=PLAYBOOKS)
@pytest.mark.root
def test_a_java_system_is_refused_on_a_host_without_a_suitable_java(tmp_path: Path, archives: str) -> None:
    seen = played("on_java", str(tmp_path), archives)
    none, old = seen["none"]["said"], seen["old"]["said"]
    assert "Java 17 or later is needed, and this host has none in the PATH of root; install one" in none
    assert "Java 17 or later is needed, and this host has Java 8; install one" in old
    assert seen["refused"] == "", "nothing was unpacked"
    first, second = seen["changed"]
    assert (first > 0, second) == (True, 0)
    assert seen["jar"] == "/opt/brownout/files/kafka/4.1.1/lib/main.jar"


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.rotating(6, among="playbooks", files=PLAYBOOKS)
@pytest.mark.root
def test_a_failure_is_reported_with_its_task_and_host(tmp_path: Path, archives: str) -> None:
    seen = played("failures", str(tmp_path), archives)
    said = {name: failure["said"] for name, failure in seen.items()}
    assert all("/artifacts/" in words and words.endswith("/stdout") for words in said.values())
    assert (seen["unreachable"]["unreachable"], seen["unreachable"]["failed"]) == (["n9"], ["n1"])
    assert "n9 cannot be reached" in said["unreachable"]
    assert "task 'Stop the service and empty its data' failed on n1" in said["unreachable"]
    assert "btrfs" in said["setting"]
    assert "ext4, xfs" in said["setting"]
    assert seen["disks"]["failed"] == ["n1", "n2"]
    assert "no disk has the serial 'no such disk' (brownout_data_serial); the node has" in said["disks"]
    assert "/usr/share (brownout_data_dir) has files that are not Brownout's" in said["disks"]
    assert "the service ended at its start; its last words: refused: this configuration" in said["start"]
    assert "port 9092 did not open within 8 s; the service's last words: arguments:" in said["start"], said["start"]
    assert "/etc/brownout/service.port is not there yet: a campaign writes it" in said["not configured"]
    assert seen["not ours"]["failed"] == ["n1"]
    assert "/data is not known as Brownout's own" in said["not ours"]
    assert seen["another key"]["unreachable"] == ["n1"]
    assert "host key" in said["another key"].lower()


@pytest.mark.rotating(6, among="playbooks", files=PLAYBOOKS)
@pytest.mark.root
def test_a_data_disk_is_made_once_and_mounted_always(tmp_path: Path, archives: str) -> None:
    seen = played("a_disk", str(tmp_path), archives)
    assert seen["made"] == [2, "ext2/ext3"]
    assert seen["mounted"] == [1, "ext2/ext3"], "what was undone is done again"
    assert "kept" in seen["script"]


def test_an_unknown_strategy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STRATEGY_VARIABLE, "quick")
    with pytest.raises(UsageError, match=f"{STRATEGY_VARIABLE}=quick.*mitogen_linear"):
        play("stop", [Target("n1", "192.0.2.1")], tmp_path, on_progress=print)


def test_a_playbook_that_cannot_be_read_is_quoted(tmp_path: Path) -> None:
    target = Target("n1", "127.0.0.1", known_hosts=tmp_path / "known_hosts")
    (tmp_path / "known_hosts").touch()
    with pytest.raises(PlaybookError, match="no such playbook"):
        play("no such playbook", [target], tmp_path, on_progress=print)


@pytest.mark.rotating(6, among="playbooks", files=PLAYBOOKS)
def test_the_playbooks_are_clean(tmp_path: Path) -> None:
    """By the strictest profile; see playbooks/.ansible-lint."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    home = dict.fromkeys(("HOME", "ANSIBLE_HOME", "XDG_CACHE_HOME"), str(tmp_path))
    command = [str(Path(sys.executable).with_name("ansible-lint")), "--offline", "--nocolor"]
    environment = {"PATH": path, "LC_ALL": "C.UTF-8", **home}
    done = subprocess.run(
        command, cwd=PROJECT_ROOT / "playbooks", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
