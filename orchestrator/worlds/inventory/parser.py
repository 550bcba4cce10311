"""Reads an Ansible inventory through Ansible itself: hosts in order, with their variables.

So INI, YAML, directories, group variables and dynamic inventories all work.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from installation.commands import command
from installation.counted import counted
from installation.programs import run_program
from orchestrator.errors import UsageError

GROUP = "brownout"
_DEADLINE_S = 120.0
_TEMPLATE_MARKS = ("{{", "{%")


@dataclass(frozen=True)
class Listed:
    """One host: its name in the inventory, and the requested variables with templates filled in."""

    name: str
    variables: Mapping[str, Any]


@dataclass(frozen=True)
class Inventory:
    """The hosts that can become nodes, in the inventory's order; `group`: the group that they are from."""

    path: Path
    group: str
    hosts: tuple[Listed, ...]

    def take(self, count: int) -> tuple[Listed, ...]:
        """The first `count` hosts, one per node. Raises `UsageError` if there are fewer."""
        if count > len(self.hosts):
            names = ", ".join(host.name for host in self.hosts)
            raise UsageError(
                f"{self.path}: {counted(count, 'node')} wanted, and the group {self.group} has "
                f"{counted(len(self.hosts), 'host')} ({names}); add hosts to it, or set a smaller `nodes` in [topology]"
            )
        return self.hosts[:count]


def read(path: Path, variable_names: Sequence[str]) -> Inventory:
    """The hosts of the group `brownout`, or of the whole inventory if that group does not exist.

    Contains the variables in `variable_names`, and all that start with `brownout_` (to find misspelt ones). Raises
    `UsageError` when the inventory cannot be read or has no host.
    """
    if not path.exists():
        raise UsageError(f"{path}: there is no such inventory; give an Ansible inventory with --inventory")
    if not (path.is_file() or path.is_dir()):  # Ansible would wait for a pipe, and read a device without end
        raise UsageError(f"{path}: is neither a file nor a directory; give an Ansible inventory with --inventory")
    listed = _list(path)
    # An empty group appears only as a child name. It must not count as missing, or all hosts would become nodes.
    named = {child for entry in listed.values() for child in entry.get("children", [])} | set(listed)
    group = GROUP if GROUP in named else "all"
    names = list(dict.fromkeys(_members(listed, group)))
    if not names:
        raise UsageError(f"{path}: the group {group} has no hosts; name at least one there")
    hostvars = listed.get("_meta", {}).get("hostvars", {})
    variables = {
        name: {k: v for k, v in hostvars.get(name, {}).items() if k in variable_names or k.startswith("brownout_")}
        for name in names
    }
    _fill_in(path, variables)
    return Inventory(path, group, tuple(Listed(name, variables[name]) for name in names))


def _list(path: Path) -> dict[str, Any]:
    output = _ansible("ansible-inventory", path, "--list")
    try:
        listed: dict[str, Any] = json.loads(output)
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}: ansible-inventory does not answer with JSON: {output[:200]!r}") from error
    return listed


def _members(listed: Mapping[str, Any], group: str, visited: frozenset[str] = frozenset()) -> Iterator[str]:
    """The hosts of a group, then those of its children."""
    entry = listed.get(group, {})
    yield from entry.get("hosts", [])
    for child in entry.get("children", []):
        if child not in visited:
            yield from _members(listed, child, visited | {group})


def _fill_in(path: Path, variables: dict[str, dict[str, Any]]) -> None:
    """Replace templates by their values: `ansible-inventory` prints them unevaluated."""
    templated = {
        name: [key for key, value in settings.items() if isinstance(value, str) and _is_template(value)]
        for name, settings in variables.items()
    }
    keys = sorted({key for keys_of_host in templated.values() for key in keys_of_host})
    if not keys:
        return
    expressions = ", ".join(f"'{key}': {key} | default(none)" for key in keys)
    message = json.dumps({"msg": f"{{{{ {{ {expressions} }} }}}}"})
    hosts = [name for name, keys_of_host in templated.items() if keys_of_host]
    output = _ansible("ansible", path, ",".join(hosts), "-m", "ansible.builtin.debug", "-a", message)
    decoder = json.JSONDecoder()
    for name in hosts:
        start = output.find(f"{name} | SUCCESS => ")
        if start < 0:
            failures = re.sub(
                r"^\S+ \| SUCCESS => \{.*?^\}\n?", "", output, flags=re.M | re.S
            )  # others may have passwords
            raise UsageError(f"{path}: the templates of {name} cannot be filled in: {failures.strip()[:500]}")
        answer, _ = decoder.raw_decode(output, output.index("{", start))
        variables[name] |= {key: answer["msg"][key] for key in templated[name]}


def _is_template(value: str) -> bool:
    return any(mark in value for mark in _TEMPLATE_MARKS)


def _ansible(program: str, path: Path, *arguments: str) -> str:
    """The output of an Ansible program. Raises `UsageError` with its error message."""
    with tempfile.TemporaryDirectory(prefix="brownout-ansible-") as scratch:
        environment = {
            **os.environ,
            "ANSIBLE_LOCAL_TEMP": scratch,  # not ~/.ansible/tmp
            "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
            "ANSIBLE_STDOUT_CALLBACK": "minimal",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_DEPRECATION_WARNINGS": "0",
        }
        if not Path("~/.ansible").expanduser().exists():
            environment["ANSIBLE_HOME"] = scratch  # otherwise ~/.ansible would be created
        # The program of this environment, whatever PATH is.
        argv = [str(Path(sys.executable).with_name(program)), "-i", str(path), *arguments]
        try:
            done = run_program(argv, env=environment, timeout=_DEADLINE_S)
        except OSError as error:
            raise UsageError(
                f"{program} cannot be run: {error.strerror}; {command('doctor')} lists what is missing"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"{path}: {program} did not answer within {_DEADLINE_S:g} s; try it by hand") from error
    if done.returncode and program == "ansible-inventory":
        raise UsageError(f"{path} is not understood by Ansible: {_complaint(done.stderr)}")
    return done.stdout + (done.stderr if done.returncode else "")


def _complaint(stderr: str) -> str:
    """The lines with the problem, without Ansible's repetitions."""
    lines = [line.strip() for line in stderr.splitlines()]
    reasons = [line for line in lines if line and not line.startswith(("(source", "<<<", "Origin: <", "Pseudo-"))]
    return "\n  ".join(dict.fromkeys(reasons[-8:])) or "it gives no reason"
