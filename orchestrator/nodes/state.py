"""Records the kept nodes of this project: one directory, `nodes/` in the cache, and a lock on it.

plan.json   the options of `nodes up`, and the start time
pid         the process whose end ends all nodes
log         its output
orders      its socket
phase       "up" or "going down"
run         the world's directory
lab         the lab's directory; after a failed start it is kept until the next one
failure     why the nodes could not be made or taken down, until a command has printed it

The kernel releases the lock when the last process of the nodes' sandbox has ended, for any reason. So a plan without a
held lock is a leftover, and nothing in the directory runs.
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from installation.commands import command
from installation.files import cache_directory
from orchestrator.errors import UsageError

DEFAULT_ROOT = cache_directory() / "nodes"

# How long another command may hold the lock: queries hold it briefly, and `up` writes its plan meanwhile.
_MOMENT_S = 2.0
_POLL_S = 0.01


@dataclass(frozen=True)
class NodesPlan:
    """The options of `nodes up`. `id` is unique, `world` is the chosen one, `since` UTC in ISO 8601."""

    id: str
    world: str
    reason: str
    node_count: int
    filesystem: str
    inventory: str | None
    sandboxed: bool
    since: str


class KeptNodes:
    """The kept nodes: at most one set at a time. `removed`: leftovers of a set were found, and were removed."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = DEFAULT_ROOT if directory is None else directory
        self.plan_file, self.pid_file = self.directory / "plan.json", self.directory / "pid"
        self.log, self.orders, self.phase_file = (self.directory / name for name in ("log", "orders", "phase"))
        self.run, self.lab, self.failure = (self.directory / name for name in ("run", "lab", "failure"))
        self.removed = False

    def plan(self) -> NodesPlan | None:
        """The plan of the recorded nodes; None without."""
        try:
            return NodesPlan(**json.loads(self.plan_file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    @property
    def phase(self) -> str:
        """What the recorded nodes are: "coming up", "up" or "going down"."""
        with contextlib.suppress(FileNotFoundError):
            return self.phase_file.read_text(encoding="ascii")
        return "coming up"

    def record(self, path: Path, text: str) -> None:
        """Write one of the files at once, so that it is never empty. Raises `OSError`."""
        draft = path.with_suffix(".new")
        draft.write_text(text, encoding="utf-8")
        draft.rename(path)

    def tail(self) -> TextIO:
        """The log from here on. Raises `OSError`."""
        log = self.log.open(encoding="utf-8", errors="replace")
        log.seek(0, os.SEEK_END)
        return log

    def find(self) -> NodesPlan | None:
        """The plan of the nodes whose process lives; None without one, when leftovers were removed. Raises
        `UsageError`."""
        deadline = time.monotonic() + _MOMENT_S
        while self.is_held():
            if (plan := self.plan()) is not None and self.pid_file.exists():
                return plan
            if time.monotonic() > deadline:
                raise UsageError("another `nodes` command is under way; wait until it ends, then try again")
            time.sleep(_POLL_S)
        return None

    def refuse_second(self) -> None:
        """Raise `UsageError` when nodes are up."""
        if (plan := self.find()) is not None:
            raise UsageError(
                f"nodes are up already ({plan.node_count} in the {plan.world} world, since {plan.since}); "
                f"take them down first: {command('nodes', 'down')}"
            )

    @contextlib.contextmanager
    def claimed(self, plan: NodesPlan) -> Iterator[int]:
        """Hold the lock, whose descriptor a process may inherit, and record the plan. Raises `UsageError` when nodes
        are up, and when they cannot be recorded."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            descriptor = self._open()
        except OSError as error:
            raise self._unusable(error) from error
        try:
            self._take(descriptor)
            try:
                self.clear()
                self.log.touch()
                self.record(self.plan_file, json.dumps(asdict(plan), indent=1))
            except OSError as error:
                raise self._unusable(error) from error
            yield descriptor
        finally:
            os.close(descriptor)

    def is_held(self) -> bool:
        """Whether a process holds the lock; otherwise leftovers are removed. Raises `UsageError`."""
        try:
            descriptor = self._open()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unusable(error) from error
        try:
            # Shared, so that concurrent queries do not block each other.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if self.plan_file.exists():
                self.remove(with_lab=True)
                self.removed = not self.plan_file.exists()  # those of another user are kept
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def remove(self, *, with_lab: bool = False) -> None:
        """Remove the records, the plan first. `with_lab`: also the lab's directory, which a killed lab has not
        removed."""
        for path in (self.plan_file, self.pid_file, self.log, self.orders, self.phase_file):
            with contextlib.suppress(OSError):
                path.unlink()
        for directory in (self.run, *([self.lab] if with_lab else [])):
            shutil.rmtree(directory, ignore_errors=True)

    def clear(self) -> None:
        """Remove everything, including what was kept for the user. The caller knows that no process holds the lock."""
        self.remove(with_lab=True)
        self.failure.unlink(missing_ok=True)

    def _open(self) -> int:
        return os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _take(self, descriptor: int) -> None:
        while True:
            self.refuse_second()
            with contextlib.suppress(BlockingIOError):  # a query holds it
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            time.sleep(_POLL_S)

    def _unusable(self, error: OSError) -> UsageError:
        return UsageError(f"{self.directory} cannot be used: {error.strerror}; run this as the project's owner")
