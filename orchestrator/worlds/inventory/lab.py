"""The lab of an inventory: checks and provisions hosts once, wipes them for each run, leaves them at the end."""

import contextlib
import functools
import math
import shlex
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from installation.files import PROJECT_ROOT
from nemeses import Host, HostError, Need, injectable, needing
from nemeses.mechanisms.shell import ask, reach_script
from nemeses.scheduling import for_each
from nodeimage import ImageError, PythonPackages, site_archive
from orchestrator.cleanup import clean_up, described
from orchestrator.errors import UsageError, WorldError
from orchestrator.machine.playbooks import PlaybookError, Target
from orchestrator.machine.ssh import SshHost
from orchestrator.machine.ssh_proxy import proxy_options
from orchestrator.worlds.base import Progress, World, WorldSpec, accepts, no_progress
from orchestrator.worlds.inventory import hosts, parser
from orchestrator.worlds.inventory.checks import CheckedHost, check_all, examine
from orchestrator.worlds.inventory.hosts import InventoryHost
from orchestrator.worlds.inventory.machines import HostMachines
from orchestrator.worlds.lab import Lab, LabSpec
from orchestrator.worlds.remote import playbook_variables
from orchestrator.worlds.remote.playbook_variables import Provisions
from orchestrator.worlds.remote.world import RemoteWorld

# ---- Checks that hosts and clients can reach every broker port, so that firewalls are found before a run.

_LISTENS_S = 60
_PATIENCE_S = 5.0  # more than a slow connection needs; a firewall takes longer
# Accepts connections as the broker would, and ends after a timeout if it is not killed.
_LISTENER = """
import os, signal, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family)
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
signal.alarm(int(sys.argv[3]))
os.setsid()
null = os.open(os.devnull, os.O_RDWR)
for standard in (0, 1, 2):
    os.dup2(null, standard)
while True:
    server.accept()[0].close()
"""


def require_ways(hosts: Mapping[str, SshHost], titles: Mapping[str, str], time_scale: float = 1.0) -> None:
    """Check that every host, and this machine, can connect to every broker port; no broker may run. `time_scale`
    multiplies the time for a connection.

    Raises `WorldError` with each blocked connection, `HostError` when a host does not answer."""
    closed: list[str] = []
    with contextlib.ExitStack() as listening:
        for_each(hosts.values(), lambda host: listening.enter_context(_listener(host, time_scale)))

        def look(host: SshHost) -> None:
            unreached = [other for other in hosts.values() if other is not host]
            give_up = time.monotonic() + _PATIENCE_S * time_scale
            while unreached:
                answers = ask(host, reach_script([(other.name, other.address, other.port) for other in unreached]))
                unreached = [other for other in unreached if answers.get(other.name) != "open"]
                if time.monotonic() > give_up:
                    break
            closed.extend(
                f"{titles[host.name]} cannot connect to {titles[other.name]} at {other.address} port {other.port}"
                for other in unreached
            )

        for_each(hosts.values(), look)
        closed.extend(
            f"this machine cannot connect to {titles[host.name]} at {host.address} port {host.port}"
            for host in hosts.values()
            if not accepts(host.address, host.port)
        )
    if closed:
        ways = "\n".join(f"  {way}" for way in sorted(closed))
        raise WorldError(
            f"brokers and clients would not reach each other; open the port in the firewalls, or set brownout_address "
            f"to addresses that are reachable:\n{ways}"
        )


@contextlib.contextmanager
def _listener(host: SshHost, time_scale: float) -> Iterator[None]:
    lasts_s = math.ceil(_LISTENS_S * time_scale)
    started = host.run(f"python3 -c {shlex.quote(_LISTENER)} {host.address} {host.port} {lasts_s}")
    if not started.ok:
        last_line = started.stderr.strip().splitlines()[-1:]
        raise WorldError(f"{host.name}: its port {host.port} cannot be listened at: {' '.join(last_line)}")
    try:
        yield
    finally:
        with contextlib.suppress(HostError):
            host.run(f"kill -9 {int(started.stdout)}")


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class InventoryLab(Lab):
    """The first hosts of an inventory, as nodes n1, n2, ...

    `capabilities` is what the inventory promises; after `open`, what the hosts actually support.
    """

    name = "inventory"
    has_own_processors: ClassVar[bool] = True
    capabilities: frozenset[str] = injectable(("power", "network", "netem", "stall", "freeze", "clock"))
    needs_sandbox = False

    def __init__(self, spec: LabSpec) -> None:
        """Raises `UsageError` when the inventory cannot be read, or has too few hosts."""
        self._spec = spec
        self._path, self._chosen = _hosts_of(spec.inventory, spec.node_count, spec.become_password)
        self._offers, self.limits = _promised(self._chosen)
        self.capabilities = injectable(self._offers)
        self.time_scale = _time_scale(self._chosen)
        self._checked: list[CheckedHost] = []
        self._machines: HostMachines | None = None
        self._keep_directory = False

    @classmethod
    def time_scales(cls, spec: LabSpec) -> tuple[float, ...]:
        return (_time_scale(_hosts_of(spec.inventory, spec.node_count, spec.become_password)[1]),)

    @classmethod
    def prepare(cls, spec: LabSpec) -> None:
        _hosts_of(spec.inventory, spec.node_count, spec.become_password)

    def open(self, on_progress: Progress = no_progress) -> None:
        self._spec.directory.mkdir(parents=True, exist_ok=True)
        try:
            on_progress(f"looking at {_named(self._chosen)}")
            self._checked = check_all(self._path, self._chosen, self._spec.directory, self._spec.software)
            for host in self._checked:
                for note in host.access.noted:
                    on_progress(note)
            self._machines = self._assemble(self._checked, on_progress)
            self._machines.claim()
            self._machines.play("provision", on_progress)
            titles = {host.node: host.title for host in self._chosen}
            require_ways(self._machines.hosts, titles, self.time_scale)
            self._keep_promises(self._machines, on_progress)
        except HostError as error:
            # A failed playbook's message says where to read the rest.
            self._keep_directory = isinstance(error, PlaybookError)
            clean_up(self.close, cause=error)
            raise error if isinstance(error, WorldError) else WorldError(described(error)) from error
        except BaseException as error:
            clean_up(self.close, cause=error)
            raise

    def world(self, spec: WorldSpec) -> World:
        if self._machines is None:
            raise WorldError("the hosts of the inventory are not ready: the lab was not opened")
        return RemoteWorld(spec, self.name, self._machines, self.capabilities, self.limits, self.time_scale)

    def close(self) -> None:
        clean_up(self._release, self._remove_directory)

    def _release(self) -> None:
        if self._machines is not None:
            self._machines.release()
            self._machines = None

    def _remove_directory(self) -> None:
        if not self._keep_directory:
            shutil.rmtree(self._spec.directory, ignore_errors=True)

    @property
    def hosts(self) -> Mapping[str, Host]:
        return {} if self._machines is None else self._machines.hosts

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        checked = next((checked for checked in self._checked if checked.host.node == name), None)
        if checked is None:
            raise WorldError(f"unknown node {name}; the nodes are {_named(self._chosen)}")
        script = " ".join(command)
        if checked.host.become:
            sudo = "sudo -n" if checked.host.become_password is None else "sudo"  # it asks at the user's terminal
            script = f"{sudo} sh -c {shlex.quote(script)}" if command else f"{sudo} -i"
        return [
            *("ssh", "-p", str(checked.access.port), "-l", checked.access.user),
            *(("-i", _unexpanded(checked.access.key_file)) if checked.access.key_file else ()),
            *("-o", f"UserKnownHostsFile={_one_file(self._known_hosts)}", "-o", "StrictHostKeyChecking=yes"),
            *proxy_options(checked.access.proxy),
            *(("-t",) if not command or checked.host.become_password is not None else ()),
            checked.access.address,
            *((script,) if script else ()),
        ]

    @property
    def _known_hosts(self) -> Path:
        return self._spec.directory / "known_hosts"

    def _assemble(self, checked: Sequence[CheckedHost], on_progress: Progress) -> HostMachines:
        provisions = playbook_variables.provisions(self._spec.software)
        sites: dict[tuple[str, str], PythonPackages] = {}
        for host in checked:
            kind = (host.python, host.machine)
            if kind not in sites:
                sites[kind] = _site(*kind, on_progress)
        targets = {host.host.node: self._target(host, provisions, sites[host.python, host.machine]) for host in checked}
        return HostMachines(checked, self._offers, targets, self._spec.directory / "ansible", self._known_hosts)

    def _target(self, checked: CheckedHost, provisions: Provisions, site: PythonPackages) -> Target:
        """A host as the playbooks take it, by its name in the inventory."""
        host = checked.host
        # A host whose clock must not be set keeps its time services.
        time_services: dict[str, Any] = {} if host.own_clock else {"brownout_time_services": []}
        return Target(
            host.name,
            checked.access.address,
            user=checked.access.user,
            ssh_port=checked.access.port,
            proxy=checked.access.proxy,
            key_file=checked.access.key_file,
            known_hosts=self._known_hosts,
            become=host.become,
            become_password=host.become_password,
            time_scale=host.time_scale,
            variables={
                "brownout_filesystem": self._spec.filesystem,
                **time_services,
                **host.passed_on,
                **provisions.variables(site.archive, site.key),
                "brownout_address": checked.address,
                "brownout_data_dir": host.data_dir,
                "brownout_data_device": host.data_device,
                "brownout_data_serial": host.data_serial,
            },
        )

    def _keep_promises(self, machines: HostMachines, on_progress: Progress) -> None:
        """Check the hosts again after the installation, and drop capabilities that they do not have."""
        checked_again: dict[str, CheckedHost] = {}

        def look(checked: CheckedHost) -> None:
            facts = examine(machines.hosts[checked.host.node], checked)
            peers = [(other.name, other.address, other.probe_port) for other in machines.hosts.values()]
            reached = ask(machines.hosts[checked.host.node], reach_script(peers))
            facts["unreached"] = sorted(name for name, state in reached.items() if state != "open")
            checked_again[checked.host.node] = replace(checked, facts=facts)

        for_each(self._checked, look)
        self._checked = [checked_again[checked.host.node] for checked in self._checked]
        for need, reasons in _broken_promises(self._checked):
            if need in self._offers and reasons:
                self._offers -= {need}
                self.limits.append(f"no {_kinds_needing(need)}: {'; '.join(reasons)}")
                on_progress(self.limits[-1])
        self.capabilities = injectable(self._offers)
        machines.restrict(self._offers)


@functools.cache
def _hosts_of(path: Path | None, count: int, become_password: str | None) -> tuple[Path, tuple[InventoryHost, ...]]:
    if path is None:
        raise UsageError("the inventory world needs an Ansible inventory: give --inventory FILE")
    inventory = parser.read(path, hosts.ANSIBLE_VARIABLES)
    return path, tuple(hosts.chosen(inventory, count, become_password))


def _time_scale(chosen: Sequence[InventoryHost]) -> float:
    """The slowest host determines the times of all."""
    return max(host.time_scale for host in chosen)


def _one_file(path: Path) -> str:
    """A path as ssh reads it in an option that takes several files."""
    text = _unexpanded(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _unexpanded(path: Path) -> str:
    """A path in which ssh finds no tokens, such as %h."""
    return str(path).replace("%", "%%")


def _promised(chosen: Sequence[InventoryHost]) -> tuple[frozenset[Need], list[str]]:
    """The capabilities that the inventory's variables allow, and limits to report."""
    offers: set[Need] = {"network", "netem"}
    limits = ["partitions are made by the hosts themselves: each drops what comes from the peers that it is cut from"]
    optional: tuple[tuple[Need, list[InventoryHost], str], ...] = (
        ("power", [h for h in chosen if not h.has_power], "brownout_power_off and brownout_power_on"),
        ("stall", [h for h in chosen if h.stall is None], "brownout_suspend_stall"),
        ("freeze", [h for h in chosen if h.freeze is None], "brownout_suspend_freeze"),
        ("clock", [h for h in chosen if not h.own_clock], "brownout_own_clock"),
    )
    for need, without, lack in optional:
        if without:
            limits.append(f"no {_kinds_needing(need)}: the inventory has no {lack} for {_named(without)}")
        else:
            offers.add(need)
    resets = [host for host in chosen if host.sysrq]
    if "power" in offers and resets:
        limits.append(
            f"the power of {_named(resets)} is cut by a reset from inside (sysrq): the kernel cooperates, and what "
            "the disk's own cache holds survives"
        )
    elif "power" in offers:
        limits.append("what a power cut takes from the disks' own caches is up to the disks")
    return frozenset(offers), limits


def _broken_promises(checked: Sequence[CheckedHost]) -> Iterable[tuple[Need, list[str]]]:
    """Promised capabilities, each with the reasons why hosts do not have it."""
    ours = _BOOT_ID.read_text(encoding="ascii").strip()

    def stated(reasons: Mapping[str, str]) -> list[str]:
        return [f"{title}: {reason}" for title, reason in reasons.items() if reason]

    by_title = {host.host.title: host for host in checked}
    here = {
        title: "it is the machine that brownout runs on" if host.facts["boot_id"] == ours else ""
        for title, host in by_title.items()
    }
    self_addressed = {
        title: here[title] or ("it has the address that brownout comes from" if _is_own(host.address) else "")
        for title, host in by_title.items()
    }
    apart = {  # the evidence that a fault of the network has ended is a connection to that port
        title: f"it cannot connect to the SSH port of {', '.join(host.facts['unreached'])}"
        for title, host in by_title.items()
        if host.facts["unreached"]
    }
    yield (
        "network",
        stated({t: self_addressed[t] or host.facts["nft"] or apart.get(t, "") for t, host in by_title.items()}),
    )
    yield "netem", stated({t: host.facts["netem"] or apart.get(t, "") for t, host in by_title.items()})
    shared = {
        title: here[title] or ("" if host.facts["own_kernel"] else "it is a container, whose kernel is shared")
        for title, host in by_title.items()
    }
    yield "power", stated({t: shared[t] if host.host.sysrq else here[t] for t, host in by_title.items()})
    yield (
        "clock",
        stated(
            {t: shared[t] or ("" if host.facts["may_set_clock"] else "not allowed") for t, host in by_title.items()}
        ),
    )


def _kinds_needing(need: Need) -> str:
    """Those that need also what no host has are not named."""
    return ", ".join(sorted(needing(need) & InventoryLab.capabilities))


def _is_own(address: str) -> bool:
    """Whether packets to this address leave from this address: then it is this machine's."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return False
        return bool(probe.getsockname()[0] == address)


def _site(python: str, machine: str, on_progress: Progress) -> PythonPackages:
    try:
        return site_archive(PROJECT_ROOT, python, machine, on_progress)
    except ImageError as error:
        raise WorldError(str(error)) from error


def _named(chosen: Iterable[InventoryHost]) -> str:
    return ", ".join(host.title for host in chosen)


LAB: Final = InventoryLab
