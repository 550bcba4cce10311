"""One Spark context per campaign, started and warmed while the workload runs.

Theory of operation. The JVM takes seconds to its first result. So it starts in the background as soon as the first
record is acknowledged, and is ready when the load ends. All traffic is on loopback: the context also works in a network
namespace that has no other interface.

The start uses the processors of the nodes under test, so it loads little. The SQL session is not started, since
tasks and results are Python objects (`analysis.engines.task_map`): it would double the classes that the JVM loads and
start a second set of Python workers. Classes come from an archive (`analysis.engines.spark`).

The archive of the classes that a start of Spark loads: the JVM maps it instead of reading and verifying jars.

Theory of operation. A JVM that has no archive writes one when it exits (`-XX:ArchiveClassesAtExit`), once for a Java,
its options and the jars. The file is written into the session's scratch directory and gets its place when it is whole.
A JVM ignores an archive that does not fit, so a wrong one costs time and nothing else. It is valid for the order in
which the directory lists the jars, which changes when a jar does; the name depends on both.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.engines.processor_time import cpu_of_tree_s
from analysis.engines.spark_cluster import OF_OTHER_MANAGERS, SETTINGS, reach, require_workers
from analysis.engines.spark_errors import SparkUnavailableError, cause_of, is_local
from installation.files import PROJECT_ROOT, cache_directory
from installation.plain_paths import PlainPath

if TYPE_CHECKING:
    from pyspark import SparkContext


_DRAFT: Final = "classes.jsa"
_KIND: Final = "spark-classes-"


class ClassArchive:
    """The archive for a Java, its options and the directory of Spark's jars; `path` exists after the first session."""

    def __init__(self, java: Path, options: str, jars: Path, *, cache: Path | None = None) -> None:
        parts = [options]
        for path in (java.resolve(), jars.resolve()):
            parts += [str(path), str(path.stat().st_mtime_ns)]
        parts += [jar.name for jar in os.scandir(jars)]
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", errors="surrogateescape")).hexdigest()
        self.path = (cache or cache_directory()) / "spark" / f"{_KIND}{digest[:16]}.jsa"

    @contextmanager
    def option(self, scratch: str) -> Iterator[str]:
        """The option of Java that uses the archive, or that writes one below `scratch`, a plain path."""
        if not self.path.is_file():
            yield f"-XX:ArchiveClassesAtExit={scratch}/{_DRAFT}"
            return
        place = PlainPath(self.path.parent)
        try:
            yield f"-XX:SharedArchiveFile={place.path}/{self.path.name}"
        finally:
            place.close()

    def keep(self, scratch: Path) -> None:
        """Take the archive that a JVM has written below `scratch`, if it has. Where nothing can be written, the next
        start is slow too."""
        written, draft = scratch / _DRAFT, self.path.with_name(f".{os.getpid()}-{self.path.name}")
        if not written.is_file():
            return
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for earlier in self.path.parent.glob(f"{_KIND}*"):
                earlier.unlink(missing_ok=True)  # of another Java or another Spark
            shutil.copyfile(written, draft)
            draft.rename(self.path)
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


OLDEST_JAVA = 17
NICENESS = 5
PATIENCE_S = 600.0
"""A start takes ten seconds on an idle machine. It yields to other processes, and takes minutes on a busy one."""
EXIT_S: Final = 120.0
"""The JVM of the first start writes its class archive as it exits."""
_LOG = "driver.log"
NO_JAVA = "no Java runtime found: install one of version 17 or later (Debian: openjdk-17-jre-headless)"
# C1 only and the serial collector: the driver plans small jobs, the rows stay in the Python workers.
DRIVER_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Dlog4j2.level=ERROR"
LOOPBACK: Final = "127.0.0.1"
SILENT: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def find_java() -> str | None:
    """The Java program that Spark would use, or None without one."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return java if java is not None and Path(java).exists() else None


def java_version() -> int | None:
    """The major version of the Java runtime that Spark would use, or None without one."""
    java = find_java()
    if java is None:
        return None
    text = subprocess.run(
        [java, "-version"], capture_output=True, encoding="utf-8", errors="backslashreplace", check=False
    ).stderr
    match = re.search(r'"(\d+)', text)
    return int(match.group(1)) if match else None


def require_java() -> None:
    """Raise `SparkUnavailableError` with the remedy unless a Java runtime of version 17 or later is installed."""
    version = java_version()
    if version is None:
        raise SparkUnavailableError(NO_JAVA)
    if version < OLDEST_JAVA:
        raise SparkUnavailableError(
            f"Java {version} is too old for Spark: install version 17 or later and set JAVA_HOME to it"
        )


class SparkHandle:
    """A context that may still be starting. `context()` waits for it; `stop()` leaves no process behind."""

    def __init__(self, master: str, scratch: Path) -> None:
        self._master = master
        self._scratch = scratch
        self._context: SparkContext | None = None
        self._archive: ClassArchive | None = None
        self._counted_cpu_s = 0.0
        self._error: BaseException | None = None
        self._plain_scratch: PlainPath | None = None
        self.ready_after_s: float | None = None
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)

    @classmethod
    def start_in_background(cls, scratch: Path, *, master: str = "local[2]") -> SparkHandle:
        """Start a context in the background; returns at once. `scratch`: directory for Spark's temporary files."""
        handle = cls(master, scratch)
        handle._thread.start()
        return handle

    def context(self, timeout_s: float = PATIENCE_S) -> SparkContext:
        """The warmed context. Raises `SparkUnavailableError` when it could not start, or not within the time."""
        self._thread.join(timeout_s)
        if self._error is not None:
            raise SparkUnavailableError(
                f"Spark did not start: {self._reason()}; --engine in-process works without it"
            ) from self._error
        if self._context is None:
            raise SparkUnavailableError(
                f"Spark did not start within {timeout_s:.0f} s; the end of its log: {self._last_words()}"
            )
        return self._context

    def new_cpu_s(self) -> float:
        """Processor time of Spark's processes on this machine since the last call, in seconds; their start is in the
        first. 0 without a context."""
        process = None if self._context is None else getattr(self._context._gateway, "proc", None)
        if process is None:
            return 0.0
        before, self._counted_cpu_s = self._counted_cpu_s, cpu_of_tree_s(process.pid)
        return max(0.0, self._counted_cpu_s - before)

    def _reason(self) -> str:
        error = self._error
        if isinstance(error, Exception) and not isinstance(error, SparkUnavailableError):
            return cause_of(error, self._master)
        return str(error)

    def _last_words(self) -> str:
        """The end of the driver's log, which is deleted with the context."""
        try:
            lines = (self._scratch / _LOG).read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            lines = []
        return next((line.strip() for line in reversed(lines) if line.strip()), "none")

    def stop(self) -> None:
        """End the context and its JVM; safe to call twice, and while it is starting."""
        self._thread.join(60)
        context, self._context = self._context, None
        if context is not None:
            _end(context)
            if self._archive is not None:
                self._archive.keep(self._scratch)
        if self._plain_scratch is not None:
            self._plain_scratch.close()

    def _start(self) -> None:
        began = time.monotonic()
        try:
            # Niceness is a thread's own on Linux and inherited by its children: the JVM yields to the nodes under test.
            thread = threading.get_native_id()
            if os.getpriority(os.PRIO_PROCESS, thread) < NICENESS:  # only root may lower it again
                os.setpriority(os.PRIO_PROCESS, thread, NICENESS)
            require_java()
            self._context = self._build()
            if is_local(self._master):
                warm(self._context)
            else:
                require_workers(self._context)
        except BaseException as error:  # raised again by `context`
            self._error = error
        self.ready_after_s = time.monotonic() - began

    def _build(self) -> SparkContext:
        address = LOOPBACK if is_local(self._master) else self._own_address()
        self._scratch.mkdir(parents=True, exist_ok=True)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        # The workers import this package too.
        paths = [
            str(PROJECT_ROOT),
            *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
        ]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
        if is_local(self._master):
            os.environ["SPARK_LOCAL_IP"] = LOOPBACK
        self._plain_scratch = PlainPath(self._scratch)
        scratch = self._plain_scratch.path
        os.environ["SPARK_LOCAL_DIRS"] = scratch
        from pyspark import SparkConf, SparkContext
        from pyspark.find_spark_home import _find_spark_home
        from pyspark.java_gateway import launch_gateway

        # Workers of a cluster do not inherit the driver's environment.
        settings = SILENT | {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
        if address is not None:
            settings |= {"spark.driver.bindAddress": address, "spark.driver.host": address}
        if not is_local(self._master):
            settings |= SETTINGS
        conf = SparkConf().setMaster(self._master).setAppName("brownout").setAll(list(settings.items()))
        java = find_java()
        assert java is not None, "required above"
        self._archive = ClassArchive(Path(java), DRIVER_JAVA_OPTIONS, Path(_find_spark_home()) / "jars")
        with open(self._scratch / _LOG, "ab") as log, self._archive.option(scratch) as archived:
            os.environ["PYSPARK_SUBMIT_ARGS"] = (
                f"--driver-memory 1g --driver-java-options '{DRIVER_JAVA_OPTIONS} {archived} "
                f"-Djava.io.tmpdir={scratch}' pyspark-shell"
            )
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        return SparkContext(conf=conf, gateway=gateway)

    def _own_address(self) -> str | None:
        """The address under which workers find the driver, if this is a standalone cluster; else Spark chooses it."""
        return None if self._master.startswith(OF_OTHER_MANAGERS) else reach(self._master)


def _end(context: SparkContext) -> None:
    """End a context and its JVM."""
    gateway = context._gateway
    context.stop()
    process = getattr(gateway, "proc", None)
    if gateway is not None:
        gateway.shutdown()
    if process is not None:
        process.stdin.close()  # the JVM ends when the pipe from its driver closes
        try:
            process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    # The class remembers the gateway of the ended JVM; a later context must launch its own.
    type(context)._gateway = None
    type(context)._jvm = None


def warm(context: SparkContext) -> None:
    """Run a task on each core, so that the workers have forked and loaded what every later task needs."""
    cores = context.defaultParallelism
    context.parallelize(range(cores), cores).map(_same).collect()


def _same(number: int) -> int:
    return number
