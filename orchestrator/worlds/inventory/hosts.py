"""Reads and checks the inventory's variables of each host: all that Brownout uses, with their meaning."""

import difflib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from history.time_scale import MOST, ORDINARY, is_scale
from orchestrator.errors import UsageError
from orchestrator.worlds.inventory.parser import Inventory, Listed

# The names of the sudo password, in Ansible's order.
PASSWORDS = ("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass")
# Ansible's own variables that Brownout supports.
ANSIBLE_VARIABLES = (
    *PASSWORDS,
    "ansible_host",
    "ansible_port",
    "ansible_user",
    "ansible_ssh_private_key_file",
    "ansible_private_key_file",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_become",
    "ansible_become_method",
    "ansible_connection",
    "ansible_host_key_checking",
    "ansible_ssh_host_key_checking",
)
VARIABLES: dict[str, str] = {
    "brownout_address": "IP address or name by which the other hosts and the clients reach it (ansible_host)",
    "brownout_port": "the port where its clients reach the system under test (the system's own)",
    "brownout_data_device": "the data disk, such as /dev/sdb: formatted when blank, refused with anything else on it",
    "brownout_data_serial": "the data disk's serial number instead of its name",
    "brownout_data_dir": "where the data disk is mounted; without a disk, a directory of the root filesystem (/data)",
    "brownout_time_scale": "how much slower than an ordinary server it is: timeouts are multiplied by it (1)",
    "brownout_own_clock": "true: the host's clock is its own and may be set, so clocks can jump (false)",
    "brownout_power": "sysrq: cut the power by a reset from inside, without syncing (none)",
    "brownout_power_off": "command, run here, that cuts the power at once",
    "brownout_power_on": "command, run here, that gives the power back",
    "brownout_power_status": "command, run here, that prints on or off, or exits with 0 or 1",
    "brownout_suspend_stall": "command, run here, that stops the machine while its clocks go on",
    "brownout_suspend_freeze": "command, run here, that stops the machine and its clocks",
    "brownout_suspend_resume": "command, run here, that lets a stalled or frozen machine go on",
}
# Variables that the playbooks define and this package passes on; see the argument_specs.yml of their roles.
PASSED_ON = (
    "brownout_filesystem",
    "brownout_kernel_settings",
    "brownout_ntp_servers",
    "brownout_open_files",
    "brownout_programs",
    "brownout_start_deadline_s",
    "brownout_stop_deadline_s",
    "brownout_system",
    "brownout_time_services",
)
# Not the shell's ${name}, nor braces with more than one word.
_PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)\}")
_TRUE, _FALSE = ("true", "yes", "on", "1", "y", "t"), ("false", "no", "off", "0", "n", "f", "")


@dataclass(frozen=True)
class InventoryHost:
    """One host that is a node. `ssh_address` and `data_address` may be names; `key_file` None: the agent's or the
    user's default keys. Commands are for the shell of the orchestrator's machine, with placeholders filled in."""

    node: str
    name: str
    ssh_address: str
    data_address: str
    ssh_port: int | None
    user: str | None
    key_file: Path | None
    ssh_arguments: tuple[str, ...]
    check_host_key: bool | None
    become: bool
    port: int | None
    data_dir: str
    data_device: str
    data_serial: str
    passed_on: Mapping[str, Any]
    time_scale: float
    own_clock: bool
    sysrq: bool
    power_off: str | None
    power_on: str | None
    power_status: str | None
    stall: str | None
    freeze: str | None
    resume: str | None
    become_password: str | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """The host's name in messages."""
        return self.node if self.name == self.node else f"{self.node} ({self.name})"

    @property
    def has_power(self) -> bool:
        return self.sysrq or self.power_off is not None


def chosen(inventory: Inventory, count: int, become_password: str | None = None) -> list[InventoryHost]:
    """The first `count` hosts as nodes n1, n2, ... `become_password`: of hosts whose variables have none. Raises
    `UsageError` naming inventory, host and variable."""
    hosts = [
        _Variables(inventory.path, listed).host(f"n{number}", become_password)
        for number, listed in enumerate(inventory.take(count), 1)
    ]
    if become_password is not None and not any(host.become for host in hosts):
        raise UsageError(
            f"{inventory.path}: no host becomes root by sudo; set ansible_become=true, or give no password"
        )
    first, *others = [host for host in hosts if host.become_password is not None] or hosts[:1]
    for other in others:
        if other.become_password != first.become_password:
            raise UsageError(
                f"{inventory.path}: {first.name} and {other.name} have different sudo passwords "
                "(ansible_become_password), and a playbook has one for all hosts; set the same one, or allow sudo "
                "without a password on one of them (NOPASSWD: ALL)"
            )
    names: dict[str, str] = {}
    for host in hosts:
        twin = names.setdefault(host.data_address, host.name)
        if twin != host.name:
            raise UsageError(
                f"{inventory.path}: {twin} and {host.name} have the same address, {host.data_address}; each node "
                "needs one of its own (brownout_address)"
            )
    return hosts


class _Variables:
    """The variables of one host, strictly checked."""

    def __init__(self, path: Path, listed: Listed) -> None:
        self._path = path
        self._name = listed.name
        self._data: Mapping[str, Any] = listed.variables

    def host(self, node: str, become_password: str | None) -> InventoryHost:
        self._refuse_unknown()
        self._only("ansible_connection", ("", "ssh", "smart", "paramiko"), "hosts are reached by SSH only")
        self._only("ansible_become_method", ("", "sudo"), "commands become root by sudo only")
        ssh_address = self._text("ansible_host") or self._name
        data_address = self._text("brownout_address") or ssh_address
        terms = {"name": self._name, "node": node, "host": ssh_address, "address": data_address}
        power = self._text("brownout_power")
        if power not in ("", "none", "sysrq", "command"):
            raise self._error("brownout_power", f'{power!r} is not "sysrq"; or give brownout_power_off and _on')
        off, on = self._command("brownout_power_off", terms), self._command("brownout_power_on", terms)
        if (off is None) != (on is None) or (power == "command" and off is None):
            missing = "brownout_power_on" if off is not None else "brownout_power_off"
            raise self._error(missing, "is missing: power faults need a command to cut the power and one to restore it")
        if power == "sysrq" and off is not None:
            raise self._error("brownout_power", 'is "sysrq", and there is brownout_power_off as well; keep one of them')
        stall, freeze = self._command("brownout_suspend_stall", terms), self._command("brownout_suspend_freeze", terms)
        resume = self._command("brownout_suspend_resume", terms)
        become = self._flag("ansible_become") or False
        if (stall is not None or freeze is not None) and resume is None:
            raise self._error("brownout_suspend_resume", "is missing: a suspended machine must be able to go on")
        return InventoryHost(
            node=node,
            name=self._name,
            ssh_address=ssh_address,
            data_address=data_address,
            ssh_port=self._port("ansible_port"),
            user=self._text("ansible_user") or None,
            key_file=self._key_file(),
            ssh_arguments=(*self._words("ansible_ssh_common_args"), *self._words("ansible_ssh_extra_args")),
            check_host_key=self._host_key_checking(),
            become=become,
            port=self._port("brownout_port"),
            data_dir=self._data_dir(),
            data_device=self._text("brownout_data_device"),
            data_serial=self._text("brownout_data_serial"),
            passed_on={key: value for key, value in self._data.items() if key in PASSED_ON},
            time_scale=self._scale(),
            own_clock=self._flag("brownout_own_clock") or False,
            sysrq=power == "sysrq",
            power_off=off,
            power_on=on,
            power_status=self._command("brownout_power_status", terms),
            stall=stall,
            freeze=freeze,
            resume=resume,
            become_password=self._password(become_password) if become else None,
        )

    def _error(self, key: str, message: str) -> UsageError:
        return UsageError(f"{self._path}: host {self._name}: {key} {message}")

    def _refuse_unknown(self) -> None:
        for key in self._data:
            names = (*VARIABLES, *PASSED_ON)
            if key.startswith("brownout_") and key not in names:
                close = difflib.get_close_matches(key, names, 1)
                remedy = f"did you mean {close[0]}?" if close else f"known are: {', '.join(names)}"
                raise self._error(key, f"is not a variable of Brownout; {remedy}")

    def _only(self, key: str, choices: tuple[str, ...], reason: str) -> None:
        text = self._text(key)
        if text.rpartition(".")[2] not in choices:
            raise self._error(key, f"is {text!r}: {reason}; leave it out")

    def _text(self, key: str) -> str:
        value = self._data.get(key)
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._error(key, f"is {value!r}, not a text")
        return str(value).strip()

    def _words(self, key: str) -> list[str]:
        try:
            return shlex.split(self._text(key))
        except ValueError as error:
            raise self._error(key, f"cannot be split into words: {error}") from None

    def _flag(self, key: str) -> bool | None:
        value = self._data.get(key)
        if value is None or isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        if text not in _TRUE + _FALSE:
            raise self._error(key, f"is {value!r}; write true or false")
        return text in _TRUE

    def _port(self, key: str) -> int | None:
        text = self._text(key)
        if not text:
            return None
        if not text.isdecimal() or not 1 <= int(text) <= 65_535:
            raise self._error(key, f"is {text!r}, which is not a port; write a number from 1 to 65535")
        return int(text)

    def _scale(self) -> float:
        text = self._text("brownout_time_scale") or "1"
        try:
            scale = float(text)
        except ValueError:
            scale = 0.0
        if not is_scale(scale):
            raise self._error("brownout_time_scale", f"is {text!r}; write a number from {ORDINARY:g} to {MOST:g}")
        return scale

    def _data_dir(self) -> str:
        text = self._text("brownout_data_dir") or "/data"
        parts = Path(text).parts
        if not text.startswith("/") or ".." in parts or len(parts) < 2:
            raise self._error("brownout_data_dir", f"is {text!r}; write the absolute path of a directory of its own")
        return str(Path(text))

    def _host_key_checking(self) -> bool | None:
        first = self._flag("ansible_ssh_host_key_checking")
        return self._flag("ansible_host_key_checking") if first is None else first

    def _key_file(self) -> Path | None:
        """Relative to the current directory, as for Ansible, or else to the inventory."""
        text = self._text("ansible_ssh_private_key_file") or self._text("ansible_private_key_file")
        if not text:
            return None
        path_given = Path(text).expanduser()
        beside = (self._path if self._path.is_dir() else self._path.parent) / path_given
        key_file = next((path for path in (path_given, beside) if path.is_file()), None)
        if key_file is None:
            raise self._error("ansible_ssh_private_key_file", f"is {text}, and there is no such file")
        return key_file.resolve()

    def _password(self, otherwise: str | None) -> str | None:
        """The sudo password. Raises `UsageError` for one that cannot be typed."""
        for key in PASSWORDS:
            value = self._data.get(key)
            if isinstance(value, str | int) and "\n" not in str(value):
                return str(value)
            if value is not None and otherwise is None:
                raise self._error(key, "is not one line of readable text; give the password with --ask-become-pass")
        return otherwise

    def _command(self, key: str, terms: Mapping[str, str]) -> str | None:
        def fill(match: re.Match[str]) -> str:
            if match[1] not in terms:
                names = ", ".join(f"{{{name}}}" for name in terms)
                raise self._error(key, f"has the placeholder {match[0]}, which is unknown; known are: {names}")
            return shlex.quote(terms[match[1]])

        return _PLACEHOLDER.sub(fill, self._text(key)) or None
