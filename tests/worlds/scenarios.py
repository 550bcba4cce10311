"""The scenarios inside the sandboxes of the tests. Each returns the result that its test checks.

A program: `python -m tests.worlds.scenarios <name> <arguments>` prints the scenario's result as JSON.
"""

import errno
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import nodeimage
from installation.files import PROJECT_ROOT
from nemeses import Fault, HostError, Nemesis
from orchestrator.errors import Interrupted, WorldError
from orchestrator.machine import cgroups, links, syscalls
from orchestrator.machine.cgroups import Cgroup
from orchestrator.worlds import node_collection
from orchestrator.worlds.base import WorldSpec
from orchestrator.worlds.namespaces import filesystems
from orchestrator.worlds.namespaces import lab as namespaces
from orchestrator.worlds.namespaces.lab import BridgeNetwork, Machine, NamespaceWorld
from systems import Deployed, load_system
from systems.service import Place, Service
from tests.worlds.support import STAND_IN, StandIns, own_run_id, send, specification

LOG = "/data/log/topic-0/00000000000000000000.log"


@contextmanager
def world(run_dir: str, nodes: int = 3, **options: Any) -> Iterator[NamespaceWorld]:
    made = NamespaceWorld(specification(Path(run_dir), nodes, **options))
    made.up()
    try:
        yield made
    finally:
        made.down()


def tell(message: Any) -> None:
    print(json.dumps(message), flush=True)


def three_nodes(run_dir: str) -> Any:
    """What the nodes are like from the inside."""
    begun_s = time.monotonic()
    with world(run_dir) as made:
        return {
            node.name: {
                "hostname": _ask(made, node.name, "hostname"),
                "boot_id": _ask(made, node.name, "cat /proc/sys/kernel/random/boot_id"),
                "own_boot_id": _ask(made, node.name, "cat /run/brownout/boot_id"),
                "uptime_s": float(_ask(made, node.name, "cat /proc/uptime").split()[0]),
                "lasted_s": time.monotonic() - begun_s,
                "first_process": _ask(made, node.name, "cat /proc/1/cmdline | tr '\\0' ' '"),
                "processes": len(_ask(made, node.name, "ls -d /proc/[0-9]*").split()),
                "data": _ask(made, node.name, "stat -f -c %T /data"),
                "addresses": _ask(made, node.name, "ip -br -4 addr show eth0"),
                "root_home": _ask(made, node.name, "ls -A /root"),
                "python": _ask(made, node.name, f"cd {PROJECT_ROOT} && {sys.executable} -c 'import broker; print(1)'"),
                "read_only": made.hosts[node.name].run(f"touch {PROJECT_ROOT}/broker/x").exit_code != 0,
                "peer": _ask(made, node.name, "getent hosts n2").split()[0],
            }
            for node in made.nodes
        }


def on_the_image(run_dir: str) -> Any:
    """A node on the nodes' image, with the real broker: what it sees, and what it does not."""
    spec = WorldSpec(
        run_id="run",
        run_dir=Path(run_dir),
        node_count=1,
        deployment=Deployed(load_system(), ("broker",), "brownout-run"),
        rootfs=nodeimage.find(PROJECT_ROOT).rootfs,
    )
    made = NamespaceWorld(spec)
    made.up()
    try:
        made.start_services()
        return {
            "release": _ask(made, "n1", ". /etc/os-release; echo $VERSION_CODENAME"),
            "site": _ask(made, "n1", "cat /opt/brownout/site.key"),
            "broker": _ask(made, "n1", f"tr '\\0' ' ' < /proc/{made.hosts['n1'].service_pid()}/cmdline"),
            "loaded": _ask(made, "n1", f"cat /proc/{made.hosts['n1'].service_pid()}/maps"),
            "project": made.hosts["n1"].run(f"ls {PROJECT_ROOT}").exit_code == 0,
            "read_only": made.hosts["n1"].run("touch /opt/brownout/app/broker/x").exit_code != 0,
        }
    finally:
        made.down()


def brokers(run_dir: str) -> Any:
    """Start, stop and collect."""
    with world(run_dir, arguments=("--mutant", "some_mutant")) as made:
        made.start_services()
        pids = {name: host.service_pid() for name, host in made.hosts.items()}
        made.hosts["n1"].start_service()
        for node in made.nodes:
            send(node, f"!from {node.name}")
        made.restart(made.nodes[0])
        restarted = made.hosts["n1"].service_pid()
        made.stop_service(made.nodes[1])
        for node in made.nodes:
            made.collect(node, Path(run_dir, "collected", node.name))
            made.collect(node, node.record_dir)
        return {"pids": pids, "restarted": restarted, "stopped": made.hosts["n2"].service_pid()}


def broker_that_ends(run_dir: str) -> Any:
    with world(run_dir, 1, configure=lambda _: "refuse=this configuration\n") as made:
        try:
            made.start_service(made.nodes[0])
        except WorldError as error:
            return str(error)
    return None


class Prepared(StandIns):
    """Stand-ins that are prepared, and say where."""

    def service(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> Service:
        return replace(super().service(node, nodes, time_scale), prepare=(("sh", "-c", "pwd > here"),))


def working_directories(run_dir: str) -> Any:
    """Where a service is prepared, and where it then runs."""
    made = NamespaceWorld(replace(specification(Path(run_dir), 1), deployment=Prepared()))
    made.up()
    try:
        made.prepare_services()
        made.start_services()
        running = f"readlink /proc/{made.hosts['n1'].service_pid()}/cwd"
        return [_ask(made, "n1", "cat /data/here"), _ask(made, "n1", running)]
    finally:
        made.down()


class Wrapped(StandIns):
    """Stand-ins that a script starts, and does not become."""

    def service(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> Service:
        service = super().service(node, nodes, time_scale)
        return replace(service, command=("sh", "-c", '"$@"; :', "sh", *service.command))


def several_processes(run_dir: str) -> Any:
    """What comes of faults to a service of two processes, how many there are after each, and of one that was left."""
    made = NamespaceWorld(replace(specification(Path(run_dir), 1), deployment=Wrapped()))
    count = f"cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c '^{STAND_IN}$'"
    made.up()
    try:
        made.start_services()
        nemesis, host = Nemesis(made.site), made.hosts["n1"]
        seen: dict[str, Any] = {}
        for kind in ("pause", "kill", "stop"):
            injected, there = nemesis.inject(Fault(kind, ("n1",))), _ask(made, "n1", f"{count}; true")
            healed = nemesis.heal(Fault(kind, ("n1",)))
            seen[kind] = [injected.status, int(there), healed.status, int(_ask(made, "n1", count))]
        host.run(f"kill -9 {host.service_pid()}")
        while host.service_pid() is not None:  # a killed process may still be ending when kill returns
            time.sleep(0.01)
        made.start_service(made.nodes[0])
        return {**seen, "left": int(_ask(made, "n1", count))}
    finally:
        made.down()


def no_program(directory: str, mode: str) -> Any:
    """A system with a missing program (no mode), or a program with this mode: the result of its start."""
    Path(directory, "system.toml").write_text(
        'name = "x"\nworkloads = ["register"]\n[roles.server]\nports = { client = 7000 }\n'
        'command = ["{{ system_dir }}/my-server"]\n'
    )
    if mode:
        Path(directory, "my-server").touch(int(mode, 8))
    deployed = Deployed(load_system("x", directory=Path(directory)), ("server",), "cluster")
    made = NamespaceWorld(WorldSpec("run", Path(directory, "run"), 1, deployed))
    made.up()
    try:
        made.start_service(made.nodes[0])
    except (WorldError, HostError) as error:
        return [type(error).__name__, str(error)]
    finally:
        made.down()
    return None


def power_loss(run_dir: str, filesystem: str) -> Any:
    """Synced lines survive, others do not; a plain kill keeps both."""
    with world(run_dir, 2, filesystem=filesystem) as made:
        made.start_services()
        nemesis, node = Nemesis(made.site), made.nodes[0]
        send(node, "!synced")
        send(node, "in memory when killed")
        killed = Fault("kill", (node.name,))
        evidence = {"kill": nemesis.inject(killed), "kill healed": nemesis.heal(killed)}
        after_kill = _ask(made, node.name, f"cat {LOG}")
        send(node, "!synced again")
        send(node, "in memory when the power went")
        lost = Fault("power-loss", (node.name,))
        begun_s = time.monotonic()
        evidence |= {"power loss": nemesis.inject(lost)}
        others_alive = made.hosts["n2"].service_pid() is not None
        evidence |= {"power loss healed": nemesis.heal(lost), "healed twice": nemesis.heal(lost)}
        return {
            "evidence": {name: each.to_json() for name, each in evidence.items()},
            "after_kill": after_kill.splitlines(),
            "after_power_loss": _ask(made, node.name, f"cat {LOG}").splitlines(),
            "others_alive": others_alive,
            "uptime_s": float(_ask(made, node.name, "cat /proc/uptime").split()[0]),
            "lasted_s": time.monotonic() - begun_s,
        }


def all_lose_power(run_dir: str) -> Any:
    with world(run_dir) as made:
        made.start_services()
        for node in made.nodes:
            send(node, f"!synced by {node.name}")
            send(node, "lost")
        nemesis, fault = Nemesis(made.site), Fault("power-loss-all", tuple(made.hosts))
        injected, healed = nemesis.inject(fault), nemesis.heal(fault)
        logs = {name: _ask(made, name, f"cat {LOG}") for name in made.hosts}
        return {"injected": injected.to_json(), "healed": healed.to_json(), "logs": logs}


def torn(run_dir: str) -> Any:
    """Cuts with different seeds: synced data is always a prefix of the remaining data."""
    synced, unsynced = "s" * 10_000, "u" * 200_000
    write = (
        f"printf %s {synced} > /data/f && sync -f /data && head -c {len(unsynced)} /dev/zero | tr '\\0' u >> /data/f"
    )
    found = []
    with world(run_dir, 1) as made:
        for seed in range(6):
            _ask(made, "n1", write)
            lost = made.power.cut(["n1"], seed)["n1"]
            made.power.restore(["n1"])
            size = int(_ask(made, "n1", "stat -c %s /data/f"))
            kept = _ask(made, "n1", f"head -c {len(synced)} /data/f") == synced
            content = _ask(made, "n1", "tail -c +10001 /data/f | tr -s '\\0u' '.u'")
            found.append({**lost, "size": size, "kept": kept, "rest": content})
    return found


_STRANGE_FILES = """\
import os, socket
os.chdir("/data")
socket.socket(socket.AF_UNIX).bind("socket")
os.mkfifo("pipe")
os.mknod("device", 0o020600, os.makedev(1, 5))
os.symlink("nowhere", "dangling")
os.symlink("/etc", "outside")
os.mkdir("directory"); open("directory/inside.log", "w").close(); os.mkfifo("directory/pipe.log")
os.symlink("directory", "to-directory")
open("file", "w").write("x" * 50000)
os.link("file", "directory/hard-link.log")
open("sparse", "w").truncate(1 << 28)  # larger than the disk
open("unreadable", "w").write("x"); os.chmod("unreadable", 0)
"""


def strange_files(run_dir: str) -> Any:
    """Cuts that tear, with every kind of file in the data directory, and what is collected of them."""
    with world(run_dir, 1) as made:
        made.start_services()
        _ask(made, "n1", f"{sys.executable} -c {shlex.quote(_STRANGE_FILES)} && sync -f /data && echo made")
        nemesis = Nemesis(made.site)
        seen: dict[str, Any] = {}
        for seed in range(3):
            lost = Fault("power-loss", ("n1",), parameters={"tear": seed})
            seen[f"cut {seed}"] = [nemesis.inject(lost).to_json(), nemesis.heal(lost).to_json()]
        source, patterns = made._machines["n1"].data, ("*", "*/*.log", "*/hostname", "**/passwd")
        node_collection.copy_data(source, patterns, Path(run_dir, "collected"))
        collected = Path(run_dir, "collected", "data").rglob("*")
        seen["collected"] = sorted(path.name for path in collected if path.is_file())
        return seen


def failing_cuts(run_dir: str) -> Any:
    """Power cuts that fail at each stage: whether each node is on afterwards, and whether it answers in the end."""

    def fail(*_: object) -> Any:
        raise OSError(errno.EIO, "the test's error")

    def fail_for_n2(name: str) -> None:
        if name.endswith("n2"):
            fail()
        set_down(name)

    set_down, seen = links.set_down, dict[str, Any]()
    stages = (
        (links, "set_down", fail_for_n2),
        (namespaces, "tear", fail),
        (syscalls, "shut_filesystem_down", fail),
    )
    with world(run_dir, 2) as made:
        made.start_services()
        for holder, name, failing in stages:
            real = getattr(holder, name)
            setattr(holder, name, failing)
            try:
                said = str(made.power.cut(["n1", "n2"], 7))
            except WorldError as error:
                said = str(error)
            setattr(holder, name, real)
            on = [made.power.is_on(name) for name in ("n1", "n2")]
            made.power.restore(["n1", "n2"])
            seen[name] = {"said": said, "on": on, "answers": [_ask(made, each, "echo yes") for each in ("n1", "n2")]}
    return seen


def partitions(run_dir: str) -> Any:
    """What gets through, before, during and after each cut."""
    faults = {
        "out": Fault("partition-one", ("n1",), parameters={"direction": "out"}),
        "halves": Fault("partition-halves", ("n1", "n2")),
        "pairs": Fault("partition-one", (), parameters={"pairs": [["n3", "n4"], ["n4", "n3"]]}),
        "reject": Fault("reject", ("n2",)),
        "reject-in": Fault("reject", ("n2",), parameters={"direction": "in"}),
    }
    with world(run_dir, 4) as made:
        nemesis = Nemesis(made.site)
        found: dict[str, Any] = {"before": _reach(made)}
        for name, fault in faults.items():
            injected = nemesis.inject(fault).to_json()
            during, one_way = _reach(made), _one_way(made)
            healed = nemesis.heal(fault).to_json()
            found[name] = {"injected": injected, "during": during, "one_way": one_way, "healed": healed}
        return {**found, "after": _reach(made), "left": sorted(made.network.cut_pairs())}


def pause(run_dir: str) -> Any:
    with world(run_dir, 2) as made:
        made.start_services()
        nemesis, fault = Nemesis(made.site), Fault("pause", ("n1",))
        injected = nemesis.inject(fault)
        healed, again = nemesis.heal(fault), nemesis.heal(fault)
        send(made.nodes[0], "awake")
        return [each.to_json() for each in (injected, healed, again)]


def heal_everything(run_dir: str) -> Any:
    """Every kind of harm at once, then one call."""
    with world(run_dir, 4) as made:
        made.start_services()
        Nemesis(made.site).inject(Fault("partition-halves", ("n1", "n2")))
        for kind, target in (("kill", "n1"), ("pause", "n2"), ("power-loss", "n3")):
            Nemesis(made.site).inject(Fault(kind, (target,)))
        healed = Nemesis(made.site).heal_all()
        for node in made.nodes:
            send(node, "all is well")
        return healed.to_json()


def failures(run_dir: str) -> Any:
    """Worlds that cannot come up; each must leave room for the next, in the same directory."""
    said = []
    keep = node_collection.keep_configuration
    for disk_bytes, keeping in ((4096, keep), ((128 << 20), _no_space), ((128 << 20), keep)):
        spec = replace(specification(Path(run_dir), 2), disk_bytes=disk_bytes)
        setattr(namespaces, "keep_configuration", keeping)  # noqa: B010 - as above
        setattr(filesystems, "find_program", lambda _: "/bin/false")  # noqa: B010 - a name that the module only imports
        namespaces._SSH_DEADLINE_S = 2.0
        try:
            NamespaceWorld(spec).up()
        except WorldError as error:
            said.append(str(error))
    left = [*cgroups.sandbox_group(os.environ["BROWNOUT_SANDBOX"]).path.glob("*/"), *Path("/run/brownout").glob("*/")]
    return {"said": said, "left": [str(path) for path in left], "links": sorted(os.listdir("/proc/sys/net/ipv4/conf"))}


def interrupted(run_dir: str) -> Any:
    """A world whose set-up is interrupted at each of its stages, while its cleanup raises; nothing of it is left."""
    raised, stages = [], ((BridgeNetwork, "install"), (Cgroup, "create"), (Machine, "create"), (Machine, "power_on"))
    remove = Cgroup.remove

    def broken(group: Cgroup, timeout_s: float = 60.0) -> None:
        remove(group, timeout_s)
        raise OSError("the cleanup broke")

    for holder, name in stages:
        real = getattr(holder, name)
        setattr(holder, name, _interrupt)
        setattr(Cgroup, "remove", broken)  # noqa: B010 - a method, for mypy
        try:
            NamespaceWorld(specification(Path(run_dir), 2)).up()
        except BaseException as error:
            raised.append(f"{type(error).__name__}: {'; '.join(getattr(error, '__notes__', ()))}")
        finally:
            setattr(holder, name, real)
            setattr(Cgroup, "remove", remove)  # noqa: B010 - as above
        links, tables = os.listdir("/sys/class/net"), _tables()
        left = [path.name for path in cgroups.sandbox_group(os.environ["BROWNOUT_SANDBOX"]).path.glob("*/")]
        raised[-1] += f" {sorted(set(links) & {'br0'})} {tables} {left}"
    return raised


def _interrupt(*_: object) -> None:
    raise Interrupted


def _tables() -> list[str]:
    listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def same_directory(run_dir: str) -> Any:
    with world(run_dir, 1):
        try:
            NamespaceWorld(specification(Path(run_dir), 1, run_id="other")).up()
        except WorldError as error:
            return str(error)
    return None


def wait_to_be_killed(run_dir: str, moment: str) -> Any:
    """Get to some point of a run, say so, and stay there."""
    tell({"pid": os.getpid()})
    run_id = own_run_id(run_dir)
    if moment == "starting":
        NamespaceWorld(specification(Path(run_dir), run_id=run_id)).up(lambda _: time.sleep(60))
    with world(run_dir, run_id=run_id) as made:
        made.start_services()
        Nemesis(made.site).inject(Fault("pause", ("n1",)))
        if moment == "in the dark":
            made.power.cut(["n2"])
        if moment == "cut":
            made.network.cut({("n1", "n2")})
        tell("ready")
        time.sleep(60)


def side_by_side(run_dir: str) -> Any:
    """Reports its start, continues at a signal, and then reads its own data."""
    with world(run_dir, 2, run_id=Path(run_dir).name) as made:
        made.start_services()
        send(made.nodes[0], f"!{run_dir}")
        tell({"addresses": [node.address for node in made.nodes]})
        sys.stdin.readline()
        Nemesis(made.site).inject(Fault("power-loss", ("n2",)))
        tell("one node is off")
        sys.stdin.readline()
        return {"log": _ask(made, "n1", f"cat {LOG}"), "on": [made.power.is_on(name) for name in made.hosts]}


def _ask(made: NamespaceWorld, name: str, command: str) -> str:
    done = made.hosts[name].run(command)
    assert done.ok, f"{name}: {command}: {done.stderr}"
    return done.stdout.strip()


def _reach(made: NamespaceWorld) -> list[list[str]]:
    """The pairs between which no connection can be made."""

    # A second is too short for a busy machine: what it has not got to yet would be taken for cut.
    def unreached(source: str) -> list[list[str]]:
        probes = "".join(
            f"(timeout 4 bash -c 'exec 3<>/dev/tcp/{other.address}/22' 2>/dev/null || echo {other.name}) &"
            for other in made.nodes
            if other.name != source
        )
        return [[source, other] for other in _ask(made, source, f"{probes} wait").split()]

    with ThreadPoolExecutor(len(made.nodes)) as pool:
        return sorted(pair for pairs in pool.map(unreached, made.hosts) for pair in pairs)


_RECEIVER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7777))
print("bound", flush=True)
while True:
    print(s.recv(16).decode(), flush=True)
"""


def _one_way(made: NamespaceWorld) -> list[list[str]]:
    """The pairs between which a datagram is lost, by what the receivers get."""
    for name in made.hosts:
        _ask(made, name, f"echo {shlex.quote(_RECEIVER)} > /tmp/receive.py")
        _ask(made, name, f"{sys.executable} -S /tmp/receive.py > /tmp/got 2>&1 & echo $! > /tmp/receiver")
        while "bound" not in _ask(made, name, "cat /tmp/got"):
            time.sleep(0.01)
    for _ in range(3):  # what is on its way through a busy machine need not be there when the receivers are asked
        for source in made.hosts:
            sends = "".join(f"printf {source} > /dev/udp/{node.address}/7777; " for node in made.nodes)
            _ask(made, source, f"bash -c '{sends}'")
        time.sleep(0.1)
    for name in made.hosts:
        _ask(
            made,
            name,
            "bash -c 'printf end > /dev/udp/127.0.0.1/7777'; until grep -q end /tmp/got; do sleep 0.01; done",
        )
    lost = []
    for name in made.hosts:
        got = _ask(made, name, "kill $(cat /tmp/receiver); cat /tmp/got").split()
        lost += [[source, name] for source in made.hosts if source not in got]
    return sorted(lost)


if __name__ == "__main__":
    tell(globals()[sys.argv[1]](*sys.argv[2:]))
