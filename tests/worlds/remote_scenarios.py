"""The scenarios inside the sandboxes of the remote world's tests: the machines are nodes of a namespace world.

A program: `python -m tests.worlds.remote_scenarios <name> <arguments>` prints the scenario's result as JSON.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nemeses import Fault, Nemesis
from nemeses.ports import PowerSwitch
from orchestrator.errors import WorldError
from orchestrator.machine.sandbox import PRIVATE_ROOT
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.base import Progress
from orchestrator.worlds.namespaces.lab import NamespaceWorld
from orchestrator.worlds.node_collection import copy_data
from orchestrator.worlds.remote import paths
from orchestrator.worlds.remote.machines import Collected, Machines
from orchestrator.worlds.remote.world import RemoteWorld
from systems.service import Place, Service
from tests.worlds.support import StandIns, send, specification

DEADLINE_S = 120.0

TRACE = f"{paths.RUNTIME}/events.jsonl"


class Switch:
    """The namespace world's power switch; it notifies the connections to a node that loses power."""

    def __init__(self, inner: PowerSwitch, hosts: Mapping[str, SshHost]) -> None:
        self._inner = inner
        self._hosts = hosts

    def cut(self, names: Collection[str], tear: int | None = None) -> dict[str, dict[str, Any]]:
        for name in names:
            self._hosts[name].disconnect()
        return self._inner.cut(names, tear)

    def restore(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return self._inner.restore(names)

    def is_on(self, name: str) -> bool:
        return self._inner.is_on(name)


class Lent(Machines):
    """Nodes of a namespace world as a lab's machines, provisioned by a few shell commands."""

    power: Switch

    def __init__(self, lender: NamespaceWorld, directory: Path, run_id: str, *, become: bool = False) -> None:
        self._lender = lender
        self._trouble: str | None = None
        self.hosts = {
            node.name: SshHost(
                node.name,
                node.address,
                paths.DEFAULT_PORT,
                paths.service_unit(systemd=False),
                key_file=PRIVATE_ROOT / run_id / "ssh" / "id_ed25519",
                known_hosts=directory / "known_hosts",
                accept_new=True,
                become=become,
            )
            for node in lender.nodes
        }
        self.power = Switch(lender.power, self.hosts)
        self.network = lender.network

    def provision(self) -> None:
        launcher = f'#!/bin/sh\n[ $# -gt 0 ] || set -- /bin/sh {paths.SERVICE}\nLAUNCHED=yes exec "$@"\n'
        for host in self.hosts.values():
            host.put(paths.LAUNCHER, launcher)
            assert host.run(f"chmod +x {paths.LAUNCHER}").ok

    def refuse(self, trouble: str | None) -> None:
        self._trouble = trouble

    def reset(self, on_progress: Progress) -> None:
        if self._trouble is not None:
            raise WorldError(self._trouble)
        for host in self.hosts.values():
            assert host.run("rm -rf /data/log").ok
            on_progress(f"{host.name} is as new")

    def collect(self, destinations: Mapping[str, Path], wanted: Collected) -> None:
        directory, patterns = wanted
        for name, destination in destinations.items():
            copy_data(self._lender._machines[name].data / directory, patterns, destination)


@contextmanager
def machines(directory: str, nodes: int, **options: Any) -> Iterator[Lent]:
    lender = NamespaceWorld(specification(Path(directory, "lender"), nodes))
    lender.up()
    try:
        lent = Lent(lender, Path(directory), "run")
        lent.provision()
        yield Lent(lender, Path(directory), "run", **options) if options else lent
    finally:
        lender.down()


def remote(lent: Lent, run_dir: Path, **options: Any) -> RemoteWorld:
    spec = specification(run_dir, len(lent.hosts), **options)
    world = RemoteWorld(spec, "inventory", lent, frozenset(), ["a limit"], 1.0)
    world.up()
    return world


def whole_run(directory: str) -> Any:
    """Two runs on the same machines: configured, started, collected; and what is left on a machine afterwards."""
    seen = []
    with machines(directory, 2) as lent:
        for number in (1, 2):
            run_dir = Path(directory, f"run-{number}")
            world = remote(lent, run_dir, run_id=f"run-{number}", arguments=("--mutant", "some_mutant"))
            world.start_services()
            pids = [world.hosts[node.name].service_pid() for node in world.nodes]
            for node in world.nodes:
                send(node, f"!run {number} on {node.name}")
            world.restart(world.nodes[0])
            world.stop_service(world.nodes[1])
            stopped = world.hosts["n2"].service_pid()
            world.collect_all()
            world.down()
            _until(lambda: lent.hosts["n1"].run("ps -e -o comm=").stdout.split().count("tail") == 0)
            seen.append({"pids": pids, "stopped": stopped, "still": lent.hosts["n1"].service_pid()})
    return seen


@dataclass(frozen=True)
class OtherSystem(StandIns):
    """A system whose files are brought, that is prepared, and whose first port is not 9092."""

    files_name: str = "other/2.0"

    def ports(self, number: int) -> Mapping[str, int]:
        return {"client": 7000 + number, "peer": 9092}

    def service(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> Service:
        service = super().service(node, nodes, time_scale)
        seen = f"echo $LAUNCHED $SYSTEM {node.files_dir} {node.ports['peer']} $(pwd) > prepared"
        return replace(service, prepare=(("sh", "-c", seen),), environment={"SYSTEM": "other"})


def another_system(directory: str) -> Any:
    """The commands that a machine gets for a foreign service, and its identifying port."""
    with machines(directory, 2) as lent:
        spec = replace(specification(Path(directory, "run"), 2), deployment=OtherSystem())
        world = RemoteWorld(spec, "inventory", lent, frozenset(), [], 1.0)
        world.up()
        world.prepare_services()
        world.start_services()
        seen = {
            "ports": [node.port for node in world.nodes],
            "noted": [lent.hosts[node.name].run(f"cat {paths.SERVICE_PORT}").stdout for node in world.nodes],
            "reached": [lent.hosts[node.name].port for node in world.nodes],
            "prepared": lent.hosts["n1"].run("cat /data/prepared").stdout.strip(),
            "works in": lent.hosts["n1"].run(f"readlink /proc/{lent.hosts['n1'].service_pid()}/cwd").stdout.strip(),
        }
        world.stop_services()
        world.down()
    return seen


def broken_connections(directory: str) -> Any:
    """A trace that is written while every connection is broken again and again comes home whole, each line once."""
    with machines(directory, 1) as lent:
        world = remote(lent, Path(directory, "run"))
        host = lent.hosts["n1"]
        _write_on(host, 400)
        for _ in range(8):
            time.sleep(0.15)
            host.disconnect()
        _until(lambda: host.run(f"tail -n 1 {TRACE}").stdout == '{"number": 400}\n')
        assert host.run(f"printf '{{\"cut\": \"sho' >> {TRACE}; printf 'last words' >> {paths.SERVICE_LOG}").ok
        world.collect_all()
        events = _events(world, "n1")
        world.down()
    return events


def power_cut(directory: str) -> Any:
    """Writes before a cut are read as a prefix of the data; writes after it are complete."""
    with machines(directory, 2) as lent:
        world = remote(lent, Path(directory, "run"))
        world.start_services()
        nemesis = Nemesis(world.site)
        _write_on(lent.hosts["n1"], 100_000)
        _until(lambda: len(_events(world, "n1")) > 50)
        cut = Fault("power-loss", ("n1",))
        evidence = [nemesis.inject(cut), nemesis.heal(cut)]
        for number in range(1, 4):
            assert lent.hosts["n1"].run(f"echo '{{\"after\": {number}}}' >> {TRACE}").ok
        world.collect_all()
        result = {"evidence": [each.to_json() for each in evidence], "events": _events(world, "n1")}
        world.down()
    return result


def words(directory: str) -> Any:
    """What is said of a broker that ends, of a machine that cannot be made ready, and of one that is gone."""
    said = []
    with machines(directory, 1) as lent:
        world = remote(lent, Path(directory, "run"), configure=lambda _: "refuse=this configuration\n")
        try:
            world.start_service(world.nodes[0])
        except WorldError as error:
            said.append(str(error))
        lent.power.cut(["n1"])
        try:
            world.collect_all()
        except WorldError as error:
            said.append(str(error))
        world.down()
        lent.power.restore(["n1"])
        lent.refuse("n1: does not come back")
        for _ in range(2):  # the second sees that the first has let go of the directory
            try:
                remote(lent, Path(directory, "run"))
            except WorldError as error:
                said.append(str(error))
    return said


def as_another_user(directory: str) -> Any:
    """Commands become root's through sudo, whatever they hold; the broker outlives the terminal that sudo makes."""
    with machines(directory, 1) as lent:
        host = lent.hosts["n1"]
        # A sudo that is one as far as this goes: it says who it was, and takes only what `sudo -n` may be given.
        sudo = '#!/bin/sh\n[ "$1" = -n ] || exit 9\nshift\nASKED=yes exec "$@"\n'
        host.put("/usr/local/bin/sudo", sudo)
        assert host.run("chmod +x /usr/local/bin/sudo").ok
        asking = Lent(lent._lender, Path(directory), "run", become=True)
        text = "a 'quoted' \"text\" with $HOME, `ticks`, \\ and a\nsecond line\n"
        asking.hosts["n1"].put("/etc/brownout/odd file", text)
        world = remote(asking, Path(directory, "run"))
        world.start_services()
        pid = world.hosts["n1"].service_pid()
        result = {
            "asked": asking.hosts["n1"].run("echo $ASKED").stdout.strip(),
            "plain": host.run("echo $ASKED").stdout.strip(),
            "same": host.run("cat '/etc/brownout/odd file'").stdout == text,
            "pid": pid,
        }
        world.stop_service(world.nodes[0])
        world.collect_all()
        result["events"] = _events(world, "n1")
        world.down()
    return result


def strangers(directory: str) -> Any:
    """A host's key is believed the first time where that was asked for, and another key never."""
    with machines(directory, 1):
        known = Path(directory, "known_hosts")
        kind, key = known.read_text().split()[1:]
        said = {"kind": kind}
        known.write_text(known.read_text().replace(key, _other_key(directory)))
        for name, accept in (("changed", True), ("unknown", False)):
            host = SshHost(
                "n1",
                "10.77.0.11",
                paths.DEFAULT_PORT,
                paths.service_unit(systemd=False),
                key_file=PRIVATE_ROOT / "run" / "ssh" / "id_ed25519",
                known_hosts=known,
                accept_new=accept,
            )
            try:
                host.connect()
            except Exception as error:
                said[name] = str(error)
            known.write_text("")
    return said


def _other_key(directory: str) -> str:
    path = Path(directory, "other")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().split()[1]


def _write_on(host: SshHost, count: int) -> None:
    """Have a host write numbered lines to the trace, on and on."""
    script = f'i=1; while [ $i -le {count} ]; do echo "{{\\"number\\": $i}}"; i=$((i+1)); sleep 0.003; done'
    assert host.run(f"setsid sh -c {shlex.quote(script)} >> {TRACE} 2>/dev/null </dev/null &").ok


def _events(world: RemoteWorld, name: str) -> list[dict[str, Any]]:
    node = next(node for node in world.nodes if node.name == name)
    return [json.loads(line) for line in (node.record_dir / "events.jsonl").read_text().splitlines()]


def _until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up, "it takes too long"
        time.sleep(0.05)


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])), flush=True)
