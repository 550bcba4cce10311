"""Checks all hosts in parallel before anything is changed on them, and reports every problem."""

import base64
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from installation.counted import counted
from nemeses.ports import HostError, HostUnreachableError
from nemeses.scheduling import for_each
from nodeimage.python_packages import MACHINES, PYTHONS
from orchestrator.errors import UsageError, WorldError
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.inventory.access import (
    AccessError,
    HostAccess,
    InventoryMistakeError,
    data_address,
    find_access,
    why_unreachable,
)
from orchestrator.worlds.inventory.hosts import InventoryHost
from orchestrator.worlds.inventory.power import is_on
from orchestrator.worlds.remote import paths, playbook_variables
from systems import Software

_PROBE = Path(__file__).with_name("probe.py")
_PROBE_DEADLINE_S = 60.0
_NEEDED_BYTES = 256 << 20


@dataclass(frozen=True)
class CheckedHost:
    """A host that can be a node. `facts`: the output of `probe`; `address`: its IP address in the data network.

    `ports`: those that its service may listen on, the clients' port first; `software`: what it must run."""

    host: InventoryHost
    access: HostAccess
    address: str
    facts: dict[str, Any]
    ports: tuple[int, ...]
    software: tuple[Software, ...] = ()

    @property
    def python(self) -> str:
        major, minor, _ = self.facts["python"]
        return f"{major}.{minor}"

    @property
    def machine(self) -> str:
        return str(self.facts["machine"])

    def connection(self, known_hosts: Path) -> SshHost:
        """A new, unconnected `SshHost`, with the unit by which this host starts brokers."""
        unit = paths.service_unit(systemd=bool(self.facts.get("systemd")))
        return SshHost(
            self.host.node,
            self.address,
            self.ports[0],
            unit,
            key_file=self.access.key_file,
            known_hosts=known_hosts,
            user=self.access.user,
            ssh_address=self.access.address,
            ssh_port=self.access.port,
            proxy=self.access.proxy,
            become=self.host.become,
            become_password=self.host.become_password,
            data_dir=self.host.data_dir,
            time_scale=self.host.time_scale,
        )


class _UnfitError(Exception):
    """The problems of a host, one per argument."""

    is_mistake = False


class _MistakeError(_UnfitError):
    """The inventory's variables of a host are wrong."""

    is_mistake = True


def check_all(
    inventory: Path, hosts: Sequence[InventoryHost], directory: Path, software: Sequence[Software] = ()
) -> list[CheckedHost]:
    """Check in parallel whether all hosts can run this software, and write their keys to `directory`/known_hosts.

    Raises an error that lists every unusable host with the reasons: `UsageError` if the inventory is wrong about one of
    them, else `WorldError`.
    """
    known_hosts = directory / "known_hosts"
    entered = _apart(for_each(hosts, lambda host: _enter(host, tuple(software))))
    known_hosts.write_text(
        "".join(f"{line}\n" for host in entered if isinstance(host, CheckedHost) for line in host.access.host_keys),
        encoding="utf-8",
    )
    looked = for_each(entered, lambda host: _look(host, known_hosts))
    problems = [
        f"  {host.title}: {reason}"
        for host, checked in zip(hosts, looked, strict=True)
        if isinstance(checked, _UnfitError)
        for reason in checked.args
    ]
    if problems:
        unfit = [checked for checked in looked if isinstance(checked, _UnfitError)]
        kind = UsageError if any(problem.is_mistake for problem in unfit) else WorldError
        raise kind(
            f"{len(unfit)} of {counted(len(hosts), 'host')} of {inventory} cannot be used; nothing was changed:\n"
            + "\n".join(problems)
        )
    return [checked for checked in looked if isinstance(checked, CheckedHost)]


def _apart(entered: Sequence[CheckedHost | _UnfitError]) -> list[CheckedHost | _UnfitError]:
    """The same list, with an error in place of each host that has the address of an earlier one: two names can be one
    machine."""
    first_hosts: dict[str, InventoryHost] = {}
    hosts_apart: list[CheckedHost | _UnfitError] = []
    for host in entered:
        if isinstance(host, _UnfitError):
            hosts_apart.append(host)
            continue
        twin = first_hosts.setdefault(host.address, host.host)
        same = f"it has the same address as {twin.title}, {host.address}; give it another one (brownout_address)"
        hosts_apart.append(host if twin is host.host else _MistakeError(same))
    families = {":" in host.address for host in hosts_apart if isinstance(host, CheckedHost)}
    if len(families) > 1:
        remedy = "and other nodes have the other kind, IPv4 or IPv6; set brownout_address to addresses of one kind"
        return [
            _MistakeError(f"its address is {host.address}, {remedy}") if isinstance(host, CheckedHost) else host
            for host in hosts_apart
        ]
    return hosts_apart


def _enter(host: InventoryHost, software: tuple[Software, ...]) -> CheckedHost | _UnfitError:
    try:
        ports = playbook_variables.ports(software, int(host.node[1:]), host.port)
        if host.data_address != host.ssh_address:
            data_address(host)  # reports mistakes even if the connection fails
        return CheckedHost(host, find_access(host), data_address(host), {}, ports, software)
    except InventoryMistakeError as error:
        return _MistakeError(str(error))
    except AccessError as error:
        return _UnfitError(str(error) + _power_hint(host))


def _power_hint(host: InventoryHost) -> str:
    """A hint how to switch a host on that a killed run left without power."""
    if host.power_status is None or host.power_on is None:
        return ""
    try:
        off = not is_on(host, host.power_status)
    except WorldError:
        return ""
    return f"; brownout_power_status says that it is off, switch it on: {host.power_on}" if off else ""


def _look(host: CheckedHost | _UnfitError, known_hosts: Path) -> CheckedHost | _UnfitError:
    if isinstance(host, _UnfitError):
        return host
    connection = host.connection(known_hosts)
    try:
        facts = examine(connection, host)
        reasons = list(_reasons(host, facts))
        return _UnfitError(*reasons) if reasons else replace(host, facts=facts)
    except HostUnreachableError as error:
        return _UnfitError(why_unreachable(error, host.access))
    except HostError as error:
        return _UnfitError(str(error))
    except _UnfitError as error:
        return error
    finally:
        connection.disconnect()


def examine(connection: SshHost, checked: CheckedHost) -> dict[str, Any]:
    """Run the probe on the host. Raises `HostError`, or `_UnfitError` when it cannot run there."""
    host = checked.host
    asks_java = "java" if playbook_variables.least_java(checked.software) else ""
    arguments = shlex.join([checked.address, ",".join(map(str, checked.ports)), host.data_dir, asks_java])
    # Encoded, because the program passes through two shells and sudo.
    sent = base64.b64encode(_PROBE.read_bytes()).decode()
    decode = "import base64,sys; exec(base64.b64decode(sys.argv.pop(1)).decode())"
    done = connection.run(
        "command -v python3 >/dev/null || { echo absent; exit 0; }\n"
        f"python3 -c {shlex.quote(decode)} {sent} {arguments}",
        timeout_s=_PROBE_DEADLINE_S,
    )
    output = (done.stderr or done.stdout).strip()
    if done.stdout.strip() == "absent":
        raise _UnfitError("it has no python3; install it")
    if not done.ok and "sudo" in output:
        raise _why_not_root(checked, output.splitlines()[-1])
    try:
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (json.JSONDecodeError, IndexError):
        raise _UnfitError(f"it cannot be examined (exit code {done.exit_code}): {output[-300:]}") from None
    return facts


def _why_not_root(checked: CheckedHost, reply: str) -> _UnfitError:
    """Why sudo failed, with its last line."""
    user, remedy = checked.access.user, "allow it in sudoers (NOPASSWD: ALL), or set ansible_user=root"
    if "password" not in reply:
        return _UnfitError(f"{user} cannot become root by sudo ({reply}); {remedy}")
    if checked.host.become_password is not None:
        return _MistakeError(
            f"the sudo password of {user} is wrong ({reply}); correct ansible_become_password, or what you typed for "
            "--ask-become-pass"
        )
    return _UnfitError(
        f"{user} cannot become root without a password ({reply}); give it with --ask-become-pass or "
        f"ansible_become_password, or {remedy}"
    )


def _reasons(checked: CheckedHost, facts: dict[str, Any]) -> list[str]:
    """Why this host cannot be a node; empty if it can."""
    host, data = checked.host, facts["data"]
    python = ".".join(map(str, facts["python"]))
    reasons = []
    if not facts["root"]:
        reasons.append(f"{checked.access.user} is not root; set ansible_become=true, or ansible_user=root")
    if f"{facts['python'][0]}.{facts['python'][1]}" not in PYTHONS or facts["implementation"] != "CPython":
        reasons.append(
            f"its python3 is {facts['implementation']} {python}, and the broker's packages need CPython "
            f"{', '.join(PYTHONS)}; install one of these"
        )
    if facts["machine"] not in MACHINES or facts["libc"] != "glibc":
        reasons.append(
            f"it is a {facts['machine']} with {facts['libc'] or 'another C library than glibc'}; the broker's "
            f"packages are for {' and '.join(MACHINES)} with glibc"
        )
    absent = [name for name in ("bash", "tar", "flock") if name not in facts["programs"]]
    if absent:
        reasons.append(f"it lacks {', '.join(absent)}; install bash, tar and util-linux")
    if not facts["has_address"]:
        reasons.append(
            f"{checked.address} is not an address of this host, so no broker can listen on it; set brownout_address to "
            "the one by which the other hosts reach it"
        )
    for listener in facts["listeners"]:
        if not listener["ours"]:
            owner = f"process {listener['pid']} ({listener['command'][:80]})" if listener["pid"] else "a process"
            remedy = "stop it, or set brownout_port" if listener["port"] == checked.ports[0] else "stop it"
            reasons.append(f"{owner} listens on port {listener['port']} already; {remedy}")
    reasons += _java_reasons(checked, facts)
    if data["error"]:
        reasons.append(f"{host.data_dir} (brownout_data_dir) cannot be read: {data['error']}")
    if data["names"] and not data["ours"]:
        reasons.append(
            f"{host.data_dir} (brownout_data_dir) contains files that are not Brownout's: "
            f"{', '.join(data['names'])}; each run "
            "empties that directory: name another one, or empty it by hand"
        )
    if facts["free_bytes"] < _NEEDED_BYTES and not (host.data_device or host.data_serial):
        reasons.append(
            f"{host.data_dir} has {facts['free_bytes'] >> 20} MiB free; a run needs {_NEEDED_BYTES >> 20} MiB or more"
        )
    return reasons


def _java_reasons(checked: CheckedHost, facts: dict[str, Any]) -> list[str]:
    """Why its Java is not suitable; empty if it is, or none is needed."""
    oldest, has = playbook_variables.least_java(checked.software), int(facts["java"])
    if has >= oldest:
        return []
    title = next(software.title for software in checked.software if software.least_java == oldest)
    if facts["java_failure"]:
        return [
            f"{title} needs Java {oldest} or later, and `java -version` in the PATH of root failed: "
            f"{facts['java_failure']}; run it there as root, and repair or replace that Java"
        ]
    version = f"Java {has}" if has else "none in the PATH of root"
    return [
        f"{title} needs Java {oldest} or later, and it has {version}; install one, on Debian "
        "for example: apt-get install default-jre-headless"
    ]
