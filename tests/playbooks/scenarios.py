"""The scenarios inside the sandboxes of the playbooks' tests: namespace nodes, reached by SSH as any host is.

The nodes have no systemd. A program: `python -m tests.playbooks.scenarios <name> <arguments>` prints the scenario's
result as JSON.
"""

import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.machine.playbooks import STRATEGY_VARIABLE, PlaybookError, Played, Target, play
from orchestrator.worlds.namespaces.filesystems import DataDisk
from orchestrator.worlds.namespaces.lab import NamespaceWorld
from orchestrator.worlds.remote import paths
from tests.worlds.scenarios import tell, world

PROPERTIES = f"{paths.ETC}/server.properties"
SERVICE = "/opt/brownout/bin/service-control"
PORT_WAIT_S = 300  # for a port that does not open: longer than an interrupt takes, however slow the machine is
LOGS = {
    "topic-0": (
        "00000000000000000000.log",
        "00000000000000000007.log",
        "00000000000000000000.index",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "quorum-state",
        "notes.txt",
    ),
    "without anything wanted": ("00000000000000000000.timeindex",),
    ".": (
        "replication-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "meta.properties",
        "quorum-state",
        ".kafka_cleanshutdown",
        ".lock",
    ),
}


class Hosts:
    """Nodes of a namespace world as the targets of playbooks."""

    def __init__(self, made: NamespaceWorld, directory: Path, archives: dict[str, str]) -> None:
        self.made = made
        self.directory = directory
        self.archives = archives
        self.lines: list[str] = []
        access = made._access
        self.targets = [
            Target(node.name, node.address, key_file=access.key_file, known_hosts=access.known_hosts)
            for node in made.nodes
        ]

    def play(self, playbook: str, *, variables: dict[str, Any] | None = None, **options: Any) -> Played:
        options = {"targets": self.targets, "on_progress": self.lines.append, **options}
        return play(playbook, directory=self.directory, variables={**self.archives, **(variables or {})}, **options)

    def fails(self, playbook: str, **options: Any) -> dict[str, Any]:
        """What is said when it fails, as it must."""
        try:
            self.play(playbook, **options)
        except PlaybookError as error:
            return {"said": str(error), "unreachable": error.unreachable, "failed": error.failed}
        raise AssertionError(f"{playbook} ended well")

    def ask(self, name: str, command: str) -> str:
        done = self.made.hosts[name].run(command, timeout_s=30)
        assert done.ok, f"{name}: {command}: {done.stderr}"
        return str(done.stdout).strip()

    def configure(self, name: str, arguments: str = "", **properties: str) -> None:
        """Write a broker's server.properties and how it is started, as a world does."""
        node = next(node for node in self.made.nodes if node.name == name)
        given = {
            "listeners": f"PLAINTEXT://{node.address}:9092",
            "log.dir": "/data/log",
            "trace.path": "/run/brownout/events.jsonl",
            **properties,
        }
        text = "".join(f"{key}={value}\\n" for key, value in given.items())
        self.ask(name, f"printf '{text}' > {PROPERTIES}")
        command = f"PYTHONPATH={paths.PYTHON_PATH} exec python3 -m broker --config {PROPERTIES} {arguments}"
        self.ask(name, f"echo {shlex.quote(command)} > {paths.SERVICE}; echo 9092 > {paths.SERVICE_PORT}")


@contextmanager
def hosts(run_dir: str, archives: str, nodes: int = 1) -> Iterator[Hosts]:
    """The directory of Ansible's files is deeper than a socket's path may be, and has a space in it."""
    with world(run_dir, nodes) as made:
        yield Hosts(made, Path(run_dir, "a long way", "d" * 100, "ansible"), json.loads(archives))


def provision_twice(run_dir: str, archives: str) -> Any:
    with hosts(run_dir, archives, 2) as them:
        bare = them.play("provision", check=True)
        untouched = them.ask("n1", "ls -A /opt /etc/brownout")
        provisioned = them.play("provision")
        lines = list(them.lines)
        again = them.play("provision")
        os.environ[STRATEGY_VARIABLE] = "linear"
        them.ask("n2", "rm /etc/security/limits.d/*brownout* && rm -r /opt/brownout/bin")
        tagged = them.play("provision", tags=["limits"], check=True)
        return {
            "changed": [dict(played.changed) for played in (bare, provisioned, again, tagged)],
            "untouched": untouched,
            "lines": lines,
            "keys": them.ask(
                "n1", "cat /opt/brownout/app.key /opt/brownout/site.key /opt/brownout/files/kafka/4.1.1.key"
            ).splitlines(),
            "jar": them.ask("n1", "find /opt/brownout/files -name '*.jar'"),
            "left": them.ask("n1", "ls -A /tmp /root"),
            "processes": left("ansible", "mitogen", "ssh: "),
            "home": sorted(os.listdir(Path.home())),
        }


def a_service(run_dir: str, archives: str) -> Any:
    with hosts(run_dir, archives) as them:
        them.play("provision")
        them.configure("n1", "--mutant some_mutant")
        plays = [them.play("start"), them.play("start")]
        running = them.ask("n1", f"{SERVICE} status; cat /run/brownout/service.log")
        for directory, names in LOGS.items():
            files = " ".join(f"'/data/log/{directory}/{name}'" for name in names)
            them.ask("n1", f'mkdir -p \'/data/log/{directory}\'; for f in {files}; do echo "$f" > "$f"; done')
        collected = Path(run_dir, "collected")
        Path(collected, "n1", "data", "of an earlier run").mkdir(parents=True)
        plays.append(them.play("collect", variables={"brownout_collect_to": str(collected)}))
        them.made.collect(them.made.nodes[0], Path(run_dir, "copied"))
        plays.append(them.play("stop"))
        stopped = them.ask("n1", f"{SERVICE} status; {SERVICE} start")
        plays += [them.play("wipe"), them.play("wipe")]
        return {
            "changed": [played.changed["n1"] for played in plays],
            "running": running,
            "stopped": stopped,
            "left": them.ask("n1", f"{SERVICE} status; ls -A /data /run/brownout"),
            "interrupted": interrupted(them),
        }


def interrupted(them: Hosts) -> Any:
    """Ctrl-C while a task waits on the node: for a port that does not open."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    them.configure("n1", listeners="PLAINTEXT://127.0.0.1:9093")

    def interrupt() -> None:
        while "service.pid" not in them.ask("n1", "ls /run/brownout"):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    begun = time.monotonic()
    try:
        them.play("start", variables={"brownout_start_deadline_s": str(PORT_WAIT_S)})
    except KeyboardInterrupt:
        took = time.monotonic() - begun
    thread.join()
    return {
        "waited_for_it": took >= PORT_WAIT_S,
        "here": processes("ansible-playbook"),
        "left": left("ansible-playbook", "ssh -"),
    }


def failures(run_dir: str, archives: str) -> Any:
    with hosts(run_dir, archives, 2) as them:
        node, other = them.targets
        nowhere = replace(node, name="n9", address="10.77.0.99")
        found = {
            "unreachable": them.fails("wipe", targets=[node, nowhere]),
            "setting": them.fails("provision", targets=[node], variables={"brownout_filesystem": "btrfs"}),
            "disks": them.fails(
                "provision",
                targets=[
                    replace(node, variables={"brownout_data_serial": "no such disk"}),
                    replace(other, variables={"brownout_data_dir": "/usr/share"}),
                ],
            ),
        }
        # Hosts without a known key are accepted the first time, and must then keep their key.
        strangers = [replace(target, known_hosts=None) for target in them.targets]
        them.play("provision", targets=strangers)
        found["not configured"] = them.fails("start", targets=strangers)
        them.configure("n1", refuse="this configuration")
        them.configure("n2", listeners="PLAINTEXT://127.0.0.1:9093")
        # The first exits on its own on a machine of any speed; the second never listens, and times out.
        patience = [
            replace(each, variables={"brownout_start_deadline_s": s})
            for each, s in zip(strangers, (60, 8), strict=True)
        ]
        found["start"] = them.fails("start", targets=patience)
        them.ask("n1", "rm /etc/brownout/data_dir")
        found["not ours"] = them.fails("wipe", targets=strangers)
        known = them.directory / "known_hosts"
        lines = [line.split() for line in known.read_text().splitlines()]
        known.write_text(
            "".join(f"{name} {kind} {lines[1 - number][2]}\n" for number, (name, kind, _) in enumerate(lines))
        )
        found["another key"] = them.fails("stop", targets=strangers[:1])
        return found


def on_java(run_dir: str, archives: str) -> Any:
    """A node whose `java` is what the test says."""
    with hosts(run_dir, archives) as them:
        system = {"brownout_system": "apache_kafka", "brownout_java": 17}

        def java(says: str, code: int) -> None:
            script = f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n"
            them.ask("n1", f"printf %s {shlex.quote(script)} > /usr/local/bin/java; chmod +x /usr/local/bin/java")

        java("not found", 127)
        found: dict[str, Any] = {"none": them.fails("provision", variables=system)}
        java('openjdk version "1.8.0_392"', 0)
        found["old"] = them.fails("provision", variables=system)
        found["refused"] = them.ask("n1", "ls /opt/brownout/files 2>/dev/null || true")
        java('openjdk version "21.0.1" 2023-10-17', 0)
        found["changed"] = [them.play("provision", variables=system).changed["n1"] for _ in range(2)]
        found["jar"] = them.ask("n1", "find /opt/brownout/files -name '*.jar'")
        return found


def a_disk(run_dir: str, archives: str) -> Any:
    with hosts(run_dir, archives) as them:
        disk = DataDisk("disk", Path(run_dir), 64 << 20, "ext4")
        disk.create()
        attached = disk.attach()
        number = attached.device.removeprefix("/dev/loop")
        variables = {"brownout_data_device": "/dev/data", "brownout_data_dir": "/srv/data"}
        seen: dict[str, Any] = {}

        def provision(name: str) -> None:
            played = them.play("provision", variables=variables, tags=["disk"])
            seen[name] = [played.changed["n1"], them.ask("n1", "stat -f -c %T /srv/data")]

        try:
            with open(attached.device, "r+b") as raw:
                raw.write(bytes(2 << 20))
            them.ask("n1", f"mknod /dev/data b 7 {number}; mknod /dev/loop{number} b 7 {number}")
            provision("made")
            them.ask("n1", "touch /srv/data/kept; umount /srv/data")
            provision("mounted")
            seen["script"] = them.ask("n1", "umount /srv/data; /opt/brownout/bin/mount-data; ls /srv/data")
            them.ask("n1", "umount /srv/data")
        finally:
            attached.release()
            disk.close()
        return seen


def processes(*words: str) -> list[str]:
    """The processes of this sandbox, nodes included, whose command has one of the words in it; not this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if path.parent.name == str(os.getpid()):
            continue
        try:
            command = path.read_text(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if any(word in command for word in words):
            found.append(command)
    return found


def left(*words: str) -> list[str]:
    """Such processes that do not end in ten seconds: after a longer time, one that ends on its own would count as
    ended."""
    deadline = time.monotonic() + 10
    while (found := processes(*words)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


if __name__ == "__main__":
    tell(globals()[sys.argv[1]](*sys.argv[2:]))
