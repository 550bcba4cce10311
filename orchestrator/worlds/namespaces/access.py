"""Access to nodes: keys, sshd's configuration, and the files in /etc that differ between nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from orchestrator.errors import WorldError
from orchestrator.worlds.base import Node

_SSHD_CONFIG = """\
Port 22
ListenAddress {address}
HostKey /etc/brownout/host_key
AuthorizedKeysFile /etc/brownout/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PidFile none
PrintMotd no
MaxStartups 200:30:400
MaxSessions 200
Subsystem sftp internal-sftp
"""
# `*` allows no password; `!`, which some images have, would also lock out keys.
_SHADOW = "root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n"


class Access:
    """The keys of one run, in a directory that only this sandbox sees."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key_file = directory / "id_ed25519"
        self.known_hosts = directory / "known_hosts"

    def create(self) -> None:
        """Make the key for all nodes. Raises `WorldError`."""
        self.directory.mkdir(parents=True, mode=0o700)
        _make_key(self.key_file, "brownout")

    def write_files(self, node: Node, etc: Path, hosts: str) -> None:
        """Write a node's own files into its /etc. Raises `WorldError`."""
        own = etc / "brownout"
        own.mkdir(exist_ok=True)
        _make_key(own / "host_key", node.name)
        (own / "sshd_config").write_text(_SSHD_CONFIG.format(address=node.address), encoding="utf-8")
        (own / "authorized_keys").write_text(
            self.key_file.with_suffix(".pub").read_text(encoding="utf-8"), encoding="utf-8"
        )
        (etc / "hostname").write_text(f"{node.name}\n", encoding="utf-8")
        (etc / "hosts").write_text(hosts, encoding="utf-8")
        shadow = etc / "shadow"
        shadow.touch(mode=0o600)
        shadow.write_text(_SHADOW, encoding="utf-8")

    def trust(self, nodes: Iterable[tuple[Node, Path]]) -> None:
        """Write the host keys of all nodes, and an `ssh -F` configuration for logins by hand."""
        known, config = [], []
        for node, etc in nodes:
            kind, key = (etc / "brownout" / "host_key.pub").read_text(encoding="utf-8").split()[:2]
            known.append(f"{node.address} {kind} {key}\n")
            config.append(
                f"Host {node.name}\n  HostName {node.address}\n  User root\n  IdentityFile {self.key_file}\n"
                f"  UserKnownHostsFile {self.known_hosts}\n"
            )
        self.known_hosts.write_text("".join(known), encoding="utf-8")
        (self.directory / "config").write_text("".join(config), encoding="utf-8")


def hosts_file(nodes: Iterable[Node]) -> str:
    return "127.0.0.1 localhost\n" + "".join(f"{node.address} {node.name}\n" for node in nodes)


def _make_key(path: Path, comment: str) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    try:
        made = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise WorldError(f"ssh-keygen cannot be run: {error.strerror}; install openssh-client") from error
    if made.returncode:
        raise WorldError(f"ssh-keygen: {made.stderr.strip()}")
