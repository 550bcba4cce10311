"""Records kept nodes: `nodes/<id>/` in the cache, and a lock that their daemon holds while it lives.

<id>/plan.json   the options of `nodes up`, and the start time
<id>/pid         the process whose end ends all nodes
<id>/orders      the socket for orders to the daemon
<id>/log         the daemon's output
<id>/run         the world's directory
labs/<id>        the lab's directory; after a failed start it is kept until the next start

The kernel releases the lock when the last process of the daemon's sandbox has ended, for any reason. So a directory
without a held lock is a leftover, and nothing in it runs.
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

from installation.commands import command
from installation.files import cache_directory
from orchestrator.errors import UsageError

DEFAULT_ROOT = cache_directory() / "nodes"

_LABS = "labs"

# How long another command may hold the lock: queries hold it briefly, and `up` writes its plan meanwhile.
_MOMENT_S = 2.0
_POLL_S = 0.01


@dataclass(frozen=True)
class NodesPlan:
    """The options of `nodes up`. `world` is the chosen one, `since` UTC in ISO 8601."""

    world: str
    reason: str
    node_count: int
    filesystem: str
    inventory: str | None
    sandboxed: bool
    since: str


@dataclass(frozen=True)
class KeptNodes:
    """One set of nodes, by its directory."""

    directory: Path

    @property
    def id(self) -> str:
        return self.directory.name

    @property
    def plan(self) -> NodesPlan:
        return NodesPlan(**json.loads((self.directory / "plan.json").read_text(encoding="utf-8")))

    @property
    def pid(self) -> int:
        return int((self.directory / "pid").read_text(encoding="ascii"))

    @property
    def lab(self) -> Path:
        return self.directory.parent / _LABS / self.id

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def last_words(self, lines: int = 5) -> str:
        """The end of the daemon's log."""
        try:
            said = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            said = []
        return "\n".join(said[-lines:]) or "it printed nothing"

    def remove(self, *, with_lab: bool = False) -> None:
        """Remove the directory. `with_lab`: also the lab's, which a killed lab has not removed."""
        if with_lab:
            shutil.rmtree(self.lab, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)


class Registry:
    """The kept nodes of this project: at most one set at a time.

    `removed` lists the sets of killed daemons that were found and removed."""

    def __init__(self, root: Path | None = None) -> None:
        self.removed: list[str] = []
        self.root = DEFAULT_ROOT if root is None else root

    @contextlib.contextmanager
    def claimed(self) -> Iterator[int]:
        """Hold the lock, whose descriptor a daemon may inherit. Raises `UsageError` when nodes are up."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            descriptor = self._open()
        except OSError as error:
            raise UsageError(
                f"{self.root} cannot be used: {error.strerror}; run this as the project's owner"
            ) from error
        try:
            self._take(descriptor)
            self._remove_leftovers()
            shutil.rmtree(self.root / _LABS, ignore_errors=True)
            yield descriptor
        finally:
            os.close(descriptor)

    def refuse_second(self) -> None:
        """Raise `UsageError` when nodes are up, before anything is prepared for new ones."""
        if (kept := self.find()) is not None:
            raise _up_already(kept)

    def create(self, plan: NodesPlan) -> KeptNodes:
        """Record a new set of nodes; the caller holds the lock. Raises `OSError`."""
        directory = self.root / os.urandom(3).hex()
        draft = directory.with_suffix(".new")
        draft.mkdir()
        (draft / "plan.json").write_text(json.dumps(asdict(plan), indent=1), encoding="utf-8")
        draft.rename(directory)  # atomic, so that a directory always has its plan
        return KeptNodes(directory)

    def find(self) -> KeptNodes | None:
        """The nodes that are up or starting; None otherwise, after leftovers were removed."""
        deadline = time.monotonic() + _MOMENT_S
        while True:
            if not self.held():
                return None
            if (kept := self._recorded()) is not None:
                return kept
            if time.monotonic() > deadline:
                raise UsageError("another `nodes` command is under way; wait until it ends, then try again")
            time.sleep(_POLL_S)

    def clean(self) -> None:
        """Remove everything of nodes that no longer exist, including logs that were kept for the user."""
        if not self.held():
            shutil.rmtree(self.root / _LABS, ignore_errors=True)

    def holds(self, kept: KeptNodes) -> bool:
        """Whether any process of this set lives."""
        return self.held() and self._recorded() in (None, kept)

    def held(self) -> bool:
        """Whether a process holds the lock; otherwise leftovers are removed."""
        try:
            descriptor = self._open()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise UsageError(
                f"{self.root} cannot be read: {error.strerror}; run this as the project's owner"
            ) from error
        try:
            # Shared, so that concurrent queries do not block each other.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._remove_leftovers()
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _open(self) -> int:
        path = self.root / "lock"
        if self.root.is_dir() and os.access(self.root, os.W_OK):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _take(self, descriptor: int) -> None:
        deadline = time.monotonic() + _MOMENT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                kept = self._recorded()
            if kept is not None and kept.directory.exists():
                raise _up_already(kept)
            if time.monotonic() > deadline:
                raise UsageError("another `nodes` command is under way; wait until it ends, then try again")
            time.sleep(_POLL_S)

    def _recorded(self) -> KeptNodes | None:
        """The set whose daemon holds the lock: the only directory with a plan."""
        found = [path for path in self._directories() if not path.suffix and (path / "plan.json").exists()]
        return KeptNodes(found[0]) if found else None

    def _directories(self) -> list[Path]:
        return [path for path in self.root.iterdir() if path.is_dir() and path.name != _LABS]

    def _remove_leftovers(self) -> None:
        for path in self._directories():
            KeptNodes(path).remove(with_lab=True)
            if not path.exists():  # directories of other users are kept
                self.removed.append(path.name)


def _up_already(kept: KeptNodes) -> UsageError:
    plan = kept.plan
    return UsageError(
        f"nodes are up already ({plan.node_count} in the {plan.world} world, since {plan.since}); "
        f"take them down first: {command('nodes', 'down')}"
    )
