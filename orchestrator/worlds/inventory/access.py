"""Determines how to log in to a host, as ssh itself would, and which host keys are trusted.

`ssh -G` evaluates the inventory's arguments and the user's ~/.ssh/config, so that every host which `ssh` and Ansible
can reach is reachable here, too.
"""

import os
import shlex
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from installation.programs import run_program
from nemeses.ports import HostUnreachableError
from orchestrator.machine.playbooks import Target, first_key
from orchestrator.machine.ssh_proxy import proxy_command, proxy_options, why_no_way
from orchestrator.worlds.base import accepts
from orchestrator.worlds.inventory.hosts import InventoryHost

_CONNECT_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 0.5
_CHECK_BY_HAND = "check the address, that it is on, and the firewalls between here and there"


class AccessError(Exception):
    """Login to a host is impossible; the message has the reason and what to check, without the host's name."""


class InventoryMistakeError(AccessError):
    """The inventory's variables of a host are wrong, whatever the host's state."""


@dataclass(frozen=True)
class HostAccess:
    """Everything that a login needs. `host_keys` are lines for a known_hosts file. `proxy`: see `proxy_command`."""

    address: str
    port: int
    user: str
    key_file: Path | None
    host_keys: tuple[str, ...]
    proxy: str | None = None
    noted: tuple[str, ...] = ()
    """A remark for the user, such as a host key that was trusted without verification."""

    def is_reachable(self) -> bool:
        """Whether the host's SSH port currently accepts connections."""
        if self.proxy is not None:
            return not why_no_way(self.proxy, _CONNECT_TIMEOUT_S)
        return accepts(self.address, self.port, _ANSWER_TIMEOUT_S)

    def command_line(self) -> str:
        """The command for a login by hand."""
        key = f" -i {self.key_file}" if self.key_file else ""
        port = f" -p {self.port}" if self.port != 22 else ""
        proxy = "".join(f" {shlex.quote(word)}" for word in proxy_options(self.proxy))
        return f"ssh{key}{port}{proxy} {self.user}@{self.address}"


def find_access(host: InventoryHost) -> HostAccess:
    """How to log in to a host whose SSH port answers. Raises `AccessError`."""
    settings = _effective(host)
    address, port = settings["hostname"][0], int(settings["port"][0])
    proxy = proxy_command(settings, host.ssh_arguments)
    key_file = _key_file(host, settings)
    if proxy is None:
        _require_port(address, port)
    elif reason := why_no_way(proxy, 2 * _CONNECT_TIMEOUT_S * host.time_scale):
        raise AccessError(f"{address} port {port} cannot be reached through its proxy: {reason}; try: {proxy}")
    name = address if port == 22 else f"[{address}]:{port}"
    access = HostAccess(address, port, settings["user"][0], key_file, (), proxy)
    keys, noted = _host_keys(host, settings, access, name)
    return replace(access, host_keys=tuple(keys), noted=noted)


def data_address(host: InventoryHost) -> str:
    """The address at which the other hosts reach it: an IPv4 address if it has one. Raises `AccessError`."""
    try:
        addresses = socket.getaddrinfo(host.data_address, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InventoryMistakeError(
            f"its data address {host.data_address!r} is not an IP address, and cannot be resolved to one: {error}; "
            "set brownout_address"
        ) from None
    address = str(min(addresses, key=lambda entry: entry[0] != socket.AF_INET)[4][0])
    if address.startswith("fe80:"):
        raise InventoryMistakeError(f"its data address {address} is valid on one link only; set brownout_address")
    return address


def why_unreachable(error: HostUnreachableError, access: HostAccess) -> str:
    """The meaning of a failed login, and what to check."""
    from paramiko import AuthenticationException, BadHostKeyException, SSHException

    cause = error.__cause__
    by_hand = f"try: {access.command_line()}"
    if isinstance(cause, BadHostKeyException):
        return f"its host key differs from known_hosts; if the host was reinstalled, remove the old key: {by_hand}"
    if isinstance(cause, AuthenticationException):
        key = f"the key {access.key_file}" if access.key_file else "any key of the agent or of ~/.ssh"
        return (
            f"it does not let {access.user} in by {key}; check ansible_user and ansible_ssh_private_key_file; {by_hand}"
        )
    if isinstance(cause, SSHException | OSError | ValueError):
        return f"logging in failed: {cause}; {by_hand}"
    return f"{error}; {by_hand}"


def _effective(host: InventoryHost) -> dict[str, list[str]]:
    """ssh's effective options: each name (lower case) with its values. Raises `AccessError`."""
    command = ["ssh", "-G", *host.ssh_arguments]
    if host.ssh_port is not None:
        command += ["-p", str(host.ssh_port)]
    if host.user is not None:
        command += ["-l", host.user]
    try:
        done = run_program([*command, host.ssh_address])
    except OSError as error:
        raise AccessError(f"ssh cannot be run: {error.strerror}; install openssh-client") from error
    if done.returncode:
        raise InventoryMistakeError(
            f"ssh does not understand its settings: {done.stderr.strip()}; correct ansible_ssh_common_args and "
            "ansible_ssh_extra_args, or ~/.ssh/config"
        )
    settings: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        settings.setdefault(key, []).append(value)
    return settings


def _require_port(address: str, port: int) -> None:
    try:
        socket.create_connection((address, port), timeout=_CONNECT_TIMEOUT_S).close()
    except socket.gaierror as error:
        raise InventoryMistakeError(f"the name {address} is not known: {error.strerror}; set ansible_host") from None
    except ConnectionRefusedError:
        raise AccessError(
            f"nothing listens at {address} port {port}; check that sshd runs there, and ansible_port"
        ) from None
    except TimeoutError:
        raise AccessError(
            f"{address} port {port} does not answer within {_CONNECT_TIMEOUT_S:g} s; {_CHECK_BY_HAND}"
        ) from None
    except OSError as error:
        raise AccessError(f"{address} port {port} cannot be reached: {error.strerror}; {_CHECK_BY_HAND}") from None


def _key_file(host: InventoryHost, settings: dict[str, list[str]]) -> Path | None:
    """The inventory's key, or one that ~/.ssh/config names; ssh finds the default keys automatically. A key with a
    passphrase is left to the agent. Raises `InventoryMistakeError`."""
    named = (Path(value).expanduser() for value in settings.get("identityfile", []) if "/.ssh/id_" not in value)
    key = host.key_file or next((path for path in named if path.is_file()), None)
    return None if key is None or _has_passphrase(key) else key


def _has_passphrase(key: Path) -> bool:
    """Whether a key needs a passphrase. Raises `InventoryMistakeError` for a file that is not a key."""
    if not os.access(key, os.R_OK):
        raise InventoryMistakeError(f"its key {key} cannot be read; run this as its owner, or name another one")
    tried = run_program(["ssh-keygen", "-y", "-P", "", "-f", str(key)])
    if tried.returncode == 0:
        return False
    if "passphrase" in tried.stderr:
        return True
    if "UNPROTECTED" in tried.stderr:
        raise InventoryMistakeError(f"its key {key} is readable by others, so ssh rejects it; run: chmod 600 {key}")
    last_line = tried.stderr.strip().splitlines()[-1:]
    raise InventoryMistakeError(
        f"its key {key} is not a private key ({' '.join(last_line)}); correct ansible_ssh_private_key_file, or "
        "IdentityFile in "
        "~/.ssh/config"
    )


def _host_keys(
    host: InventoryHost, settings: dict[str, list[str]], access: HostAccess, name: str
) -> tuple[list[str], tuple[str, ...]]:
    strictness = settings.get("stricthostkeychecking", ["ask"])[0]
    if host.check_host_key is False or os.environ.get("ANSIBLE_HOST_KEY_CHECKING", "").lower() in ("false", "0", "no"):
        strictness = "false"
    keys = [] if strictness == "false" else list(_known(settings, name))
    if keys:
        return keys, ()
    if strictness in ("false", "accept-new"):
        scanned = _shown(access, host.time_scale)
        return scanned, (f"the host key of {host.title} was not known, and is trusted without verification",)
    raise AccessError(
        f"its host key is not in known_hosts; log in once by hand and compare it ({access.command_line()}), or trust "
        "it unverified: ansible_ssh_common_args='-o StrictHostKeyChecking=accept-new'"
    )


def _known(settings: dict[str, list[str]], name: str) -> Iterator[str]:
    """A host's lines in the user's and the machine's known_hosts files."""
    for key in ("userknownhostsfile", "globalknownhostsfile"):
        for file in settings.get(key, [""])[0].split():
            path = Path(file).expanduser()
            if path.is_file():
                lookup = run_program(["ssh-keygen", "-F", name, "-f", str(path)])
                yield from (line for line in lookup.stdout.splitlines() if line and not line.startswith("#"))


def _shown(access: HostAccess, time_scale: float) -> list[str]:
    """The key that a host shows, as lines of known_hosts. Raises `AccessError`."""
    with tempfile.TemporaryDirectory(prefix="brownout-") as scratch:
        target = Target("host", access.address, access.user, access.port, access.proxy, time_scale=time_scale)
        lines = first_key(target, Path(scratch)).splitlines()
    if not lines:
        raise AccessError(f"it shows no host key at {access.address} port {access.port}; try: {access.command_line()}")
    return lines
