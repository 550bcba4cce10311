"""Runs the analysis of a run, in Spark or in this process, and handles its failures.

The workers of a Spark session can analyze many runs: one task for each run, in process inside the task. The driver has
one thread for each core of the session. A thread takes the next run and submits a job of one task, so a task that
fails, or whose worker dies, concerns its run only; Spark repeats a task whose worker was lost, where the master is a
cluster. A task reads and writes files in the run's directory, which all workers see under the same path, and sends
nothing back. The driver holds the locks of the runs meanwhile.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.engines.spark_address import without_secrets
from analysis.engines.spark_errors import SparkUnavailableError, is_local, is_remote
from analysis.engines.task_map import tagged
from installation import extras
from installation.commands import command
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from analysis.engines.spark import SparkHandle
    from analysis.engines.task_map import SparkTasks
    from analysis.verdict import Verdict

IN_PROCESS: Final = "in-process"
LOCAL: Final = "local[2]"
"""The Spark master of this machine."""


def engine_asked(engine: str | None, master: str | None) -> str | None:
    """The engine that the options ask for. Raises `UsageError` for a master of the engine that has none."""
    if master is not None and engine == IN_PROCESS:
        raise UsageError(
            f"--master {without_secrets(master)}: --engine {engine} has no master; leave out one of the two"
        )
    return engine or (None if master is None else "spark")


def choose_engine(choice: str | None, *, simulated: bool = False, master: str | None = None) -> tuple[str, str]:
    """The engine and the reason for it. `choice`: the user's choice or None. `simulated`: the runs are small, and
    starting a Spark session would take longer than they do. A `master` that is a Connect server needs no Java here.

    Raises `UsageError` before any run is made, if the runs could not be analyzed."""
    from analysis.engines.spark import NO_JAVA, find_java

    if choice == IN_PROCESS or (choice is None and simulated):
        return IN_PROCESS, "it was asked for" if choice else "simulated runs are small"
    remote = is_remote(master or LOCAL)
    if set(extras.missing(extras.SPARK)) - ({extras.OF_JAVA} if remote else set()):
        if choice is None:
            return IN_PROCESS, f"Spark is not installed: {extras.how_to_install(extras.SPARK)}"
        missing = extras.what_is_missing(extras.SPARK, "the engine spark")
        raise UsageError(f"{missing}; or analyze without it: --engine in-process")
    if not remote and find_java() is None:
        raise UsageError(f"{NO_JAVA}; or analyze without Spark: --engine in-process")
    return "spark", "it was asked for" if choice else "Spark is installed"


class Engine:
    """Runs the analyses of one invocation: `spark` (one session, started in the background) or `in-process`. Without
    `plots` there are no plots; `brownout analyze` can make them later."""

    def __init__(self, kind: str, master: str = LOCAL, *, plots: bool = True) -> None:
        self.kind = kind
        self.plots = plots
        self._master = master
        self._handle: SparkHandle | None = None

    def start(self) -> None:
        """Start the session in the background, unless it was started before."""
        if self.kind == "spark" and self._handle is None:
            from analysis.engines.spark import SparkHandle

            self._handle = SparkHandle.start_in_background(master=self._master)

    @property
    def handle(self) -> SparkHandle | None:
        """The session, started now if necessary; None for `in-process`."""
        self.start()
        return self._handle

    def tasks(self) -> SparkTasks:
        """The map over the session's workers, once it has started. Raises `UsageError` if it cannot start."""
        handle = self.handle
        assert handle is not None, "only the engine spark has workers"
        try:
            return handle.tasks()
        except SparkUnavailableError as error:
            raise self._refused(error) from error

    def require_visible(self, paths: Sequence[Path]) -> None:
        """Each worker of a cluster must see these directories. Raises `UsageError`."""
        from analysis.engines.spark_cluster import require_visible

        tasks = self.tasks()
        if is_local(self._master):
            return
        try:
            require_visible(tasks, paths)
        except SparkUnavailableError as error:
            raise self._refused(error) from error

    def _refused(self, error: SparkUnavailableError) -> UsageError:
        return UsageError(
            str(error) if is_local(self._master) else f"--master {without_secrets(self._master)}: {error}"
        )

    def abandon(self) -> None:
        """Abandon the session: it ends with this process. Does not wait for a session that is still starting."""
        if self._handle is not None:
            self._handle.abandon()

    def stop(self) -> None:
        """End the session, if there is one."""
        if self._handle is not None:
            self._handle.stop()
            self._handle = None


BROKEN = "analysis-error.txt"


def judge(run_dir: Path, engine: Engine) -> Verdict:
    """Analyze a run and render its report. A damaged record and an analysis that raises make the verdict unknown, with
    the reason; the traceback is in `BROKEN`. Raises `OSError` if even that cannot be written."""
    from analysis.doubt import RECORD_UNREADABLE
    from analysis.evidence.run_directory import RunDirectoryError
    from analysis.pipeline import analyze
    from analysis.placeholder_verdict import undecided
    from analysis.report import render_run
    from history.errors import HistoryError
    from history.regular_files import remove

    remove(run_dir / BROKEN)  # of an earlier attempt
    try:
        verdict = analyze(run_dir, session=engine.handle, engine=engine.kind, plots=engine.plots)
    except (HistoryError, RunDirectoryError) as error:
        verdict = undecided(run_dir, f"the run's record is damaged: {error}", RECORD_UNREADABLE)
    except Exception as error:
        verdict = _broken(run_dir, error)
    try:
        render_run(run_dir)
    except Exception:  # the verdict stands; commands that show the report say that it is missing
        _note(run_dir)
    return verdict


def _broken(run_dir: Path, error: Exception) -> Verdict:
    """The verdict after the analysis raised: the one it had written by then, or unknown."""
    from analysis.doubt import ANALYSIS_BROKEN
    from analysis.placeholder_verdict import undecided
    from analysis.verdict import VERDICT_FILE, Verdict

    _note(run_dir)
    with contextlib.suppress(OSError, ValueError):
        stored = Verdict.read(run_dir / VERDICT_FILE)
        if stored.finished:
            return stored
    remedy = command("analyze", str(run_dir))
    description = f"{type(error).__name__}: {error}"
    return undecided(
        run_dir,
        f"the analysis broke: {description} (traceback: {run_dir / BROKEN}); once that is repaired: {remedy}",
        ANALYSIS_BROKEN,
    )


def _note(run_dir: Path) -> None:
    with contextlib.suppress(OSError):  # a full disk may be the cause of the failure
        (run_dir / BROKEN).write_text(traceback.format_exc(), encoding="utf-8", errors="backslashreplace")


_POLL_S: Final = 0.2
"""A wait without a limit cannot be interrupted."""


def judge_here(run: str) -> None:
    """Analyze a run in this process, a worker's."""
    path = Path(run)
    judge(path, Engine(IN_PROCESS))


def judge_each(
    runs: Sequence[Path], tasks: SparkTasks, work: Callable[[str], None] = judge_here
) -> Generator[tuple[Path, str], None, None]:
    """Analyzes the runs concurrently. Yields each when it is done, with the reason if its task failed, else an empty
    text. `work` is called in the workers; closing the iterator cancels what is under way."""
    waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Path, str]] = queue.SimpleQueue()
    for run in runs:
        waiting.put(run)

    def work_through() -> None:
        while True:
            try:
                run = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                with tagged(tasks.session, f"{run.parent.name}/{run.name}"):  # the threads share a description
                    tasks(work, [str(run)])
                done.put((run, ""))
            except Exception as error:  # also of a session that was stopped
                done.put((run, str(error)))

    for _ in range(min(len(runs), tasks.cores)):
        threading.Thread(target=work_through, daemon=True).start()
    count = 0
    try:
        while count < len(runs):
            try:
                verdict = done.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            count += 1
            yield verdict
    finally:
        if count < len(runs):
            while not waiting.empty():
                waiting.get()
            tasks.cancel()
