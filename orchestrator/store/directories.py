"""The store of runs: `store/<campaign>/<run>/`, each directory self-explanatory.

A run's directory is made before the run starts and is locked while its process lives. So a run that is under way, one
that ended and one that was interrupted can always be distinguished.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from history.regular_files import replace_text
from orchestrator.campaign import toml_text
from orchestrator.campaign.plan import PlannedRun
from orchestrator.errors import UsageError

LABS = ".labs"
"""The directory in a store for labs that need a place on disk."""

LATEST = "latest"
"""The link in a store to the newest run."""

_LOCK_NAME = ".lock"


@dataclass(frozen=True)
class RunDirectory:
    """One run in the store."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def description(self) -> Path:
        return self.path / "run.toml"

    @property
    def judged(self) -> bool:
        """Whether it has a complete verdict of a finished analysis."""
        from analysis.verdict import VERDICT_FILE, Verdict  # most commands do not need the analysis

        try:
            return Verdict.read(self.path / VERDICT_FILE).finished
        except (OSError, ValueError):
            return False

    def is_held(self) -> bool:
        """Whether a living process holds the run's lock. It is not taken for that, since a process that wants
        it meanwhile would be refused."""
        try:
            number = os.stat(self.path / _LOCK_NAME).st_ino
            locks = Path("/proc/locks").read_text(encoding="ascii")
        except OSError:
            return False
        # The device is not compared: on overlays and btrfs the kernel lists another one than `stat` shows.
        return any(line.split()[1] == "FLOCK" and f":{number} " in line for line in locks.splitlines())

    def write_description(self, content: Mapping[str, Any]) -> None:
        """Write `run.toml`, atomically."""
        replace_text(self.description, toml_text.dump(content))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the run's lock. Raises `UsageError` when another process holds it, or the directory is not writable."""
        try:
            descriptor = os.open(self.path / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(
                f"{self.path}: cannot be written: {error.strerror}; the verdict is written into the run's directory: "
                "copy the "
                "run to a place where you can write"
            ) from error
        with locked(descriptor, str(self.path)):
            yield


class Store:
    """The directory of all campaigns. `named`: the path as given, which may be a link to `root`."""

    def __init__(self, root: Path) -> None:
        self.root, self.named = root.resolve(), as_named(root)

    @property
    def names(self) -> tuple[Path, ...]:
        """Each path of the store beside which a user may have put a policy."""
        return self.named, self.root

    def new_stamp(self) -> str:
        """A name for one invocation: its time, to the second, and random characters that distinguish concurrent
        ones."""
        return f"{datetime.now(UTC):%Y%m%dT%H%M%S}{os.urandom(1).hex()}"

    def campaign_dir(self, name: str) -> Path:
        return self.root / name

    def create(self, planned: PlannedRun) -> RunDirectory:
        """Make the directory of a run and point `latest` at it. Raises `UsageError` if that is impossible."""
        path = self.campaign_dir(planned.campaign.name) / planned.id
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / "campaign.toml").write_text(planned.campaign.text, encoding="utf-8")
            self._point_latest(path)
        except OSError as error:
            raise UsageError(f"{path}: cannot be made: {error.strerror}; give another --store") from error
        return RunDirectory(path)

    def _point_latest(self, path: Path) -> None:
        draft = self.root / f".latest-{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        draft.symlink_to(path.relative_to(self.root))
        os.replace(draft, self.root / LATEST)

    def remove(self, run: RunDirectory) -> None:
        """Remove a run; `latest` then points at the newest remaining one. Raises `OSError`."""
        if not run.path.exists():
            return
        was_latest = (self.root / LATEST).resolve() == run.path.resolve()
        shutil.rmtree(run.path)
        if was_latest:
            (self.root / LATEST).unlink()
            stay = sorted(self.root.glob("*/*/run.toml"), key=lambda path: path.parent.name)
            if stay:
                self._point_latest(stay[-1].parent)

    def find(self, name: str) -> Path:
        """A run's or campaign's directory, given as a path, as `campaign/run`, as `latest`, or by its unique name.

        Raises `UsageError` if the name is unknown or ambiguous.
        """
        return self.locate(name).resolve()

    def locate(self, name: str) -> Path:
        """As `find`, but without following links."""
        for candidate in (Path(name), self.named / name):
            if candidate.is_dir():
                return as_named(candidate)
        matches = sorted(self.named.glob(f"*/{name}")) if "/" not in name and name else []
        if len(matches) == 1:
            return matches[0]
        problem = "is ambiguous" if matches else "is neither a directory nor a run in the store"
        raise UsageError(f"{name}: {problem}; runs are in {self.root}/<campaign>/<run>, and `latest` is the last one")

    def find_run(self, name: str) -> RunDirectory:
        """As `find`, but it must be a run."""
        path = self.find(name)
        if not (path / "run.toml").exists():
            raise UsageError(f"{path} is not a run: it has no run.toml; runs are in {self.root}/<campaign>/<run>")
        return RunDirectory(path)

    def find_runs(self, name: str) -> list[RunDirectory]:
        """As `find_run`; all runs, oldest first, if it is a campaign or a store."""
        path = self.find(name)
        inside = sorted((*path.glob("*/run.toml"), *path.glob("*/*/run.toml")), key=lambda each: each.parent.name)
        if (path / "run.toml").exists() or not inside:
            return [self.find_run(name)]
        return [RunDirectory(each.parent) for each in inside if not each.parent.is_symlink()]

    def runs(self, campaign_dir: Path) -> list[RunDirectory]:
        """The runs of a campaign, oldest first."""
        return [RunDirectory(path.parent) for path in sorted(campaign_dir.glob("*/run.toml"))]


@contextlib.contextmanager
def locked(descriptor: int, subject: str) -> Iterator[None]:
    """Hold the lock of an open file, which is closed at the end. Raises `UsageError` when another process holds it."""
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{subject} is under way in another process; wait until it ends, or stop it") from None
        yield
    finally:
        os.close(descriptor)


def as_named(path: Path) -> Path:
    """The absolute path as the user named it, relative to the shell's working directory; if that is another place than
    the process's, the real path."""
    shell_path = Path(os.environ.get("PWD", ""))
    here = (
        shell_path
        if shell_path.is_absolute() and shell_path.exists() and shell_path.samefile(Path.cwd())
        else Path.cwd()
    )
    named, target = Path(os.path.normpath(here / path)), path.resolve()
    return named if named.resolve() == target else target


def names_of_store(campaign_dir: Path, named: Path) -> tuple[Path, ...]:
    """Each path of a campaign's store: the parent of its directory, and the parents in the path by which it, or a run
    of it, was `named` (absolute)."""
    store = campaign_dir.resolve().parent
    return (*(path for path in named.parents if path.resolve() == store), store)
