"""Runs Ansible playbooks through ansible-runner: events become progress, failures name task, host and output.

The user's own Ansible (configuration, collections, `~/.ansible`, environment) has no effect. Connections go through
mitogen, which keeps one Python process on each host and sends it the tasks: under emulation that takes a quarter of the
time. `BROWNOUT_ANSIBLE_STRATEGY=linear` runs without mitogen.
"""

import contextlib
import importlib.util
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from installation.files import PROJECT_ROOT
from nemeses.scheduling import for_each
from orchestrator.cleanup import always
from orchestrator.errors import UsageError, WorldError
from orchestrator.machine.sandbox import PRIVATE_ROOT, current_sandbox
from orchestrator.machine.ssh_proxy import proxy_options

PLAYBOOKS = PROJECT_ROOT / "playbooks"
STRATEGY_VARIABLE = "BROWNOUT_ANSIBLE_STRATEGY"
_MITOGEN, _LINEAR = "mitogen_linear", "linear"
# The next two are multiplied by the time scale of the slowest host.
_CONNECT_TIMEOUT_S = 20
_ALIVE_SILENCES = 3
_ALIVE_INTERVAL_S = 10
# How often ansible-runner checks whether to stop.
_LOOK_S = 0.2
_LAST_LINES = 15
_PROMPT = r"BECOME password:\s*$"
# Tasks that only include others.
_SILENT = (
    "include_role",
    "ansible.builtin.include_role",
    "validate_argument_spec",
    "ansible.builtin.validate_argument_spec",
)
# The user's environment variables that ssh and Ansible need to find programs, agents and a language.
_PASSED_ON = ("HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "SSH_AUTH_SOCK", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Target:
    """A host and how to reach it. `variables` are its own, in addition to those of the play.

    `proxy`: the shell command of the way to it, if it is not direct. `known_hosts` has its host key; None: the first
    key seen is stored in the play's directory and must stay the same. With `become`, tasks run as root through sudo,
    with its password if sudo wants one; all targets that need one have the same. `time_scale`: how many times slower it
    is than an ordinary machine; it multiplies timeouts."""

    name: str
    address: str
    user: str = "root"
    ssh_port: int = 22
    proxy: str | None = None
    key_file: Path | None = None
    known_hosts: Path | None = None
    become: bool = False
    become_password: str | None = field(default=None, repr=False)
    time_scale: float = 1.0
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Played:
    """The result of a playbook: tasks that changed something and tasks that succeeded, by host."""

    changed: Mapping[str, int]
    ok: Mapping[str, int]
    seconds: float


class PlaybookError(WorldError):
    """A playbook failed. The message names the task, the hosts, their output, and the next step for the user."""

    def __init__(self, message: str, *, unreachable: Sequence[str] = (), failed: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.unreachable = tuple(unreachable)
        self.failed = tuple(failed)


def play(
    playbook: str,
    targets: Sequence[Target],
    directory: Path,
    *,
    variables: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
    check: bool = False,
    on_progress: Callable[[str], None],
    inventory: Path | None = None,
) -> Played:
    """Run `playbooks/<playbook>.yml` on all targets at the same time.

    `directory` is the play's own; Ansible's output and each event are kept in its `artifacts/<playbook>-<n>/`.
    `variables` override those of targets and inventory. With `inventory` (a file of the user) hosts are reached as it
    says, including the user's SSH configuration, and targets provide names and variables only.

    Raises `PlaybookError`, and `UsageError` for an unknown strategy. An interrupt ends Ansible and its children before
    it is raised.
    """
    strategy = _strategy()
    directory.mkdir(parents=True, exist_ok=True)
    directory = directory.resolve()
    identity = _next_identity(directory, playbook)
    artifacts = directory / "artifacts" / identity
    artifacts.mkdir(parents=True, mode=0o700)
    listener = _Listener(playbook, on_progress)
    started = time.monotonic()
    # Socket paths have at most 108 characters, so they are not in the play's directory, which can be anywhere. In a
    # sandbox they are removed together with it.
    place = PRIVATE_ROOT if current_sandbox() else Path("/tmp")
    with tempfile.TemporaryDirectory(prefix="brownout-", dir=place) as short:
        scratch = Path(short)
        (artifacts / "variables.json").write_text(json.dumps(dict(variables or {})), encoding="utf-8")
        (artifacts / "hosts.json").write_text(_inventory(targets, inventory is None), encoding="utf-8")
        known_hosts = _known_hosts(targets, directory, scratch)
        command = _command(playbook, targets, artifacts, tags, check, inventory)
        scale = max((target.time_scale for target in targets), default=1.0)
        ssh = ssh_arguments(known_hosts, strategy, inventory, scale)
        environment = _environment(directory, scratch, strategy, ssh, scale)
        with always(lambda: _end_kept_connections(scratch)):
            password = next((target.become_password for target in targets if target.become_password is not None), None)
            code = _run(directory, identity, command, environment, password, listener.heard)
    listener.finish()
    if code != 0 or listener.failures:
        raise listener.error(artifacts)
    return Played(listener.changed, listener.ok, time.monotonic() - started)


def ssh_arguments(known_hosts: Path, strategy: str, inventory: Path | None, time_scale: float = 1.0) -> str:
    """Options of ssh for every host."""
    files = [str(known_hosts)]
    silences = math.ceil(_ALIVE_SILENCES * time_scale)
    options = ["-o", "PasswordAuthentication=no", "-o", f"ServerAliveInterval={_ALIVE_INTERVAL_S}"]
    options += ["-o", f"ServerAliveCountMax={silences}"]
    if inventory is None:
        options = ["-F", "/dev/null", "-o", "GlobalKnownHostsFile=/dev/null", *options]
    else:
        files.append("~/.ssh/known_hosts")
    if strategy == _LINEAR:
        options += ["-o", "ControlMaster=auto", "-o", "ControlPersist=30"]
    return shlex.join([*options, "-o", f"UserKnownHostsFile={' '.join(files)}"])


def _strategy() -> str:
    strategy = os.environ.get(STRATEGY_VARIABLE) or _MITOGEN
    if strategy not in (_MITOGEN, _LINEAR):
        raise UsageError(f"{STRATEGY_VARIABLE}={strategy} is not known: use {_MITOGEN} (the default) or {_LINEAR}")
    return strategy


def _next_identity(directory: Path, playbook: str) -> str:
    number = 1
    while (directory / "artifacts" / f"{playbook}-{number}").exists():
        number += 1
    return f"{playbook}-{number}"


def _inventory(targets: Iterable[Target], with_connections: bool) -> str:
    hosts = {}
    for target in targets:
        hosts[target.name] = {
            **(_connection(target) if with_connections else {}),
            "brownout_time_scale": target.time_scale,
            **target.variables,
        }
    return json.dumps({"all": {"hosts": hosts, "vars": {"mitogen_ssh_compression": False}}}, default=str, indent=1)


def _connection(target: Target) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "ansible_host": target.address,
        "ansible_port": target.ssh_port,
        "ansible_user": target.user,
        "ansible_become": target.become,
    }
    if target.proxy is not None:
        settings["ansible_ssh_common_args"] = shlex.join(proxy_options(target.proxy))
    if target.key_file is not None:
        settings["ansible_ssh_private_key_file"] = str(target.key_file)
    return settings


def _known_hosts(targets: Sequence[Target], directory: Path, scratch: Path) -> Path:
    """One file with the keys of all hosts. Unknown keys are queried once and stored."""
    ours = directory / "known_hosts"
    lines = ours.read_text(encoding="utf-8") if ours.exists() else ""
    hosts = {line.split()[0] for line in lines.splitlines() if line}
    strangers = [target for target in targets if target.known_hosts is None and _host_pattern(target) not in hosts]
    if strangers:
        lines += "".join(for_each(strangers, lambda target: first_key(target, scratch)))
        ours.write_text(lines, encoding="utf-8")
    files = {target.known_hosts for target in targets if target.known_hosts is not None}
    merged = scratch / "known_hosts"
    try:
        merged.write_text(
            "".join([lines, *(f"{path.read_text(encoding='utf-8')}\n" for path in files)]), encoding="utf-8"
        )
    except OSError as error:
        raise PlaybookError(f"the file of host keys cannot be read: {error}") from error
    return merged


def _host_pattern(target: Target) -> str:
    return target.address if target.ssh_port == 22 else f"[{target.address}]:{target.ssh_port}"


def first_key(target: Target, scratch: Path) -> str:
    """A host's key as a line of known_hosts; empty if it does not answer, which Ansible then reports.

    Does not use ssh-keyscan, which connects once per type of key: under emulation that takes seconds."""
    written = scratch / f"key-of-{target.name}"
    patience_s = math.ceil(_CONNECT_TIMEOUT_S * target.time_scale)
    options = ("StrictHostKeyChecking=accept-new", "HashKnownHosts=no", "BatchMode=yes", "PubkeyAuthentication=no")
    command = ["ssh", "-F", "/dev/null", "-p", str(target.ssh_port), "-l", target.user]
    command += [f"-o{option}" for option in (*options, f"ConnectTimeout={patience_s}")]
    command += [
        *proxy_options(target.proxy),
        f"-oUserKnownHostsFile={written}",
        "-oGlobalKnownHostsFile=/dev/null",
        target.address,
        "true",
    ]
    try:
        subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise PlaybookError(f"ssh cannot be run: {error.strerror}; install openssh-client") from error
    return written.read_text(encoding="utf-8") if written.exists() else ""


def _command(
    playbook: str, targets: Sequence[Target], artifacts: Path, tags: Sequence[str], check: bool, inventory: Path | None
) -> list[str]:
    command = [str(Path(sys.executable).with_name("ansible-playbook"))]
    if setpriv := shutil.which("setpriv"):
        # If this process is killed, Ansible ends too.
        command = [setpriv, "--pdeathsig", "TERM", *command]
    if inventory is not None:
        command += ["-i", str(inventory.resolve())]
    command += ["-i", str(artifacts / "hosts.json"), "-e", f"@{artifacts / 'variables.json'}"]
    command += ["--limit", ",".join(target.name for target in targets), "--forks", str(max(1, len(targets)))]
    if tags:
        command += ["--tags", ",".join(tags)]
    if check:
        command += ["--check", "--diff"]
    return [*command, str(PLAYBOOKS / f"{playbook}.yml")]


def _environment(directory: Path, scratch: Path, strategy: str, ssh: str, time_scale: float) -> dict[str, str]:
    mitogen = importlib.util.find_spec("ansible_mitogen")
    plugins = [f"{place}/plugins/strategy" for place in (mitogen and mitogen.submodule_search_locations) or ()]
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        **passed_on,
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(scratch),
        "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
        "ANSIBLE_HOME": str(directory / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(scratch),
        "ANSIBLE_STRATEGY": strategy,
        "ANSIBLE_STRATEGY_PLUGINS": ":".join(plugins),
        "ANSIBLE_TIMEOUT": str(math.ceil(_CONNECT_TIMEOUT_S * time_scale)),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_SSH_ARGS": ssh,
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(scratch),
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
    }


def _run(
    directory: Path,
    identity: str,
    command: list[str],
    environment: dict[str, str],
    password: str | None,
    heard: Callable[[dict[str, Any]], bool],
) -> int:
    """Run one command under ansible-runner in a separate thread, so that an interrupt reaches the waiting main
    thread. A password is typed at Ansible's prompt: files, environment and command lines do not contain it."""
    from ansible_runner.config.runner import RunnerConfig
    from ansible_runner.runner import Runner

    config = RunnerConfig(
        str(directory),
        ident=identity,
        playbook=command[-1],
        project_dir=str(PLAYBOOKS),
        inventory=[],
        quiet=True,
        suppress_env_files=True,
        settings={},
        envvars=environment,
        passwords=None if password is None else {_PROMPT: password},
    )
    config.prepare()
    config.command = command if password is None else [*command, "--ask-become-pass"]
    config.pexpect_timeout = _LOOK_S
    # ansible-runner starts from the user's whole environment and records it: both are unwanted.
    variables = ("AWX_ISOLATED_DATA_DIR", "ANSIBLE_CALLBACK_PLUGINS", "ANSIBLE_STDOUT_CALLBACK", "RUNNER_OMIT_EVENTS")
    config.env = {**{name: config.env[name] for name in variables}, **environment}
    stop, done, problems = threading.Event(), threading.Event(), list[BaseException]()
    runner = Runner(config, cancel_callback=stop.is_set, event_handler=heard)

    def work() -> None:
        try:
            runner.run()
        except BaseException as error:
            problems.append(error)
        finally:
            done.set()

    # Not joined: in this Python, a thread whose `join` was interrupted counts as ended.
    threading.Thread(target=work, name="ansible", daemon=True).start()
    try:
        done.wait()
    finally:
        if not done.is_set():
            stop.set()
            _kill_all(f"{config.artifact_dir}/", f"{environment['TMPDIR']}/")
            done.wait()
    if problems:
        raise PlaybookError(f"Ansible could not be run: {problems[0]!r}") from problems[0]
    return int(runner.rc or 0)


def _kill_all(*directories: str) -> None:
    """Kill every process of a play: Ansible's workers and its ssh have their own sessions, which ansible-runner does
    not know. They are found by the play's directories, which their command lines contain."""
    marks = [directory.encode() for directory in directories]
    while running := [pid for pid, command in _commands() if any(mark in command for mark in marks)]:
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _commands() -> Iterator[tuple[int, bytes]]:
    """All processes with their command lines; empty for zombies."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield int(path.parent.name), path.read_bytes()


def _end_kept_connections(scratch: Path) -> None:
    """End the persistent connections of ssh (strategy `linear`)."""
    for path in scratch.iterdir():
        if path.is_socket() and re.fullmatch(r"[0-9a-f]{10}", path.name):
            command = ["ssh", "-F", "/dev/null", "-o", f"ControlPath={path}", "-O", "exit", "any"]
            subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)


@dataclass(frozen=True)
class _Failure:
    task: str
    host: str
    said: str
    unreachable: bool


class _Listener:
    """Receives Ansible's events: reports each finished task and collects failures."""

    def __init__(self, playbook: str, on_progress: Callable[[str], None]) -> None:
        self.changed: dict[str, int] = {}
        self.ok: dict[str, int] = {}
        self.failures: list[_Failure] = []
        self._playbook = playbook
        self._on_progress = on_progress
        self._task = ""
        self._task_started_s = 0.0
        self._outcomes: dict[str, list[str]] = {}

    def heard(self, event: dict[str, Any]) -> bool:
        """ansible-runner's event handler; True keeps the event in the artifacts."""
        kind, data = event.get("event", ""), event.get("event_data", {})
        if kind == "playbook_on_task_start":
            self.finish()
            self._task, self._task_started_s = data.get("task", ""), time.monotonic()
        elif kind == "runner_on_ok" and data.get("task_action") not in _SILENT:
            self._note("changed" if data.get("res", {}).get("changed") else "ok", data["host"])
        elif kind == "runner_on_failed" and not data.get("ignore_errors"):
            self._fail(data, unreachable=False)
        elif kind == "runner_on_unreachable":
            self._fail(data, unreachable=True)
        elif kind == "playbook_on_stats":
            self.finish()
            for host in data.get("processed", {}):
                self.changed[host] = data.get("changed", {}).get(host, 0)
                self.ok[host] = data.get("ok", {}).get(host, 0)
        return True

    def finish(self) -> None:
        """The end of a task: report its outcomes by host; tasks without effect on any host are not reported."""
        if self._outcomes:
            parts = [f"{outcome} on {', '.join(sorted(hosts))}" for outcome, hosts in sorted(self._outcomes.items())]
            took = time.monotonic() - self._task_started_s
            self._on_progress(f"{self._playbook}: {self._task}: {'; '.join(parts)} ({took:.1f} s)")
            self._outcomes = {}

    def error(self, artifacts: Path) -> PlaybookError:
        """The error message for the user; `artifacts` has the complete output."""
        more = f"Ansible's complete output: {artifacts / 'stdout'}"
        if not self.failures:
            return PlaybookError(f"the playbook {self._playbook} could not be run:\n{_last_words(artifacts)}\n{more}")
        paragraphs = []
        for (task, unreachable, said), hosts in _grouped(self.failures).items():
            where = ", ".join(sorted(hosts))
            head = f"{where} cannot be reached" if unreachable else f"task {task!r} failed on {where}"
            paragraphs.append(f"{head}:\n{_indented(said)}")
        unreached = sorted(failure.host for failure in self.failures if failure.unreachable)
        failed = sorted(failure.host for failure in self.failures if not failure.unreachable)
        advice = "Check address, user and key, and that sshd runs there" if unreached and not failed else "Repair it"
        return PlaybookError(
            f"{self._playbook}: " + "\n".join(paragraphs) + f"\n{advice}, then try again: finished tasks are not "
            "repeated "
            f"twice. {more}",
            unreachable=unreached,
            failed=failed,
        )

    def _note(self, outcome: str, host: str) -> None:
        self._outcomes.setdefault(outcome, []).append(host)

    def _fail(self, data: dict[str, Any], *, unreachable: bool) -> None:
        self._note("no connection" if unreachable else "FAILED", data["host"])
        output = "\n".join(_said(data.get("res", {})))
        self.failures.append(_Failure(data.get("task", self._task), data["host"], output, unreachable))


def _grouped(failures: Iterable[_Failure]) -> dict[tuple[str, bool, str], list[str]]:
    """Hosts by failure, so that equal messages are printed once."""
    groups: dict[tuple[str, bool, str], list[str]] = {}
    for failure in failures:
        groups.setdefault((failure.task, failure.unreachable, failure.said), []).append(failure.host)
    return groups


def _said(result: Mapping[str, Any]) -> Iterator[str]:
    """The distinct messages in a task's result, the last lines of each."""
    places: set[str] = set()
    for part in (result, *(item for item in result.get("results", ()) if item.get("failed"))):
        for key in ("msg", "stderr", "module_stderr", "stdout", "module_stdout", "exception"):
            text = str(part.get(key) or "").strip()
            if text and not any(text in other for other in places) and (key != "exception" or not places):
                places.add(text)
                yield "\n".join(text.splitlines()[-_LAST_LINES:])


def _last_words(artifacts: Path) -> str:
    try:
        lines = (artifacts / "stdout").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return f"  no output ({error.strerror})"
    return _indented("\n".join([line for line in lines if line.strip()][-_LAST_LINES:]))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
