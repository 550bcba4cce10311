"""One Spark session per campaign, started and warmed while the workload runs.

Theory of operation. The JVM takes seconds to its first result. So it starts in the background as soon as the first
record is acknowledged, and is ready when the load ends. All traffic is on loopback: the session also works in a network
namespace that has no other interface. The start uses the processors of the nodes under test, so its classes come from
an archive. PySpark keeps to the first JVM of a process, so sessions of a process share it, and it ends with the
process.

The JVM maps the archive of the classes that a start of Spark loads, instead of reading and verifying jars. A JVM that
has no archive writes one when it exits (`-XX:ArchiveClassesAtExit`), once for a Java, its options and the jars. The
file is written into the session's scratch directory and gets its place when it is whole. A JVM ignores an archive that
does not fit, so a wrong one costs time and nothing else. It is valid for the order in which the directory lists the
jars, which changes when a jar does; the name depends on both.

The workers of a Spark Connect server get this project by Spark's own means. The client sends the project's modules as
an archive. Spark unpacks it for the session in the working directory of each task. The function of a task is sent by
value: it makes the archive importable, and then loads the function of a check, which is sent by name
(`analysis.engines.task_map.portable`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from analysis.engines.processor_time import cpu_of_tree_s
from analysis.engines.spark_address import reach, without_secrets
from analysis.engines.spark_cluster import OF_OTHER_MANAGERS, SETTINGS, require_workers
from analysis.engines.spark_errors import SparkUnavailableError, cause_of, is_local, is_remote
from analysis.engines.task_map import SparkTasks, default_parallelism
from installation import extras
from installation.files import PROJECT_ARCHIVE, PROJECT_ROOT, SPARK_FILES, cache_directory
from installation.plain_paths import PlainPath
from installation.programs import run_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# ---- Sessions of a Spark Connect server.

_NOT_SENT: Final = {"tests", "benchmarks"}
_RETRIES: Final = 5
"""With Spark's growing pauses 17 s for a call. Its default is ten minutes, which a server that died needs not."""


def connect(url: str, settings: Mapping[str, str]) -> SparkSession:
    """A session of the server at `url`, which has the project. Raises `SparkUnavailableError` when this Python lacks
    the client's packages or the server is of another major version, and PySpark's errors."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its errors are raised, too
    try:
        # The builder of `pyspark.sql` would make later sessions of this process those of Spark Connect.
        from pyspark.sql.connect.session import SparkSession as RemoteSession
    except ImportError as error:
        raise SparkUnavailableError(
            f"a client of Spark Connect needs more Python packages ({error}); install them: "
            f"{extras.how_to_install(extras.SPARK)}"
        ) from error
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # the error follows
    session = cast("SparkSession", RemoteSession.builder.remote(url).create())
    try:
        _retry(session, _RETRIES)
        _require_version(session)
        for name, value in settings.items():
            session.conf.set(name, value)
        _send_project(session)
    except BaseException:
        disconnect(session)
        raise
    return session


def disconnect(session: SparkSession) -> None:
    """End the session. A server that does not answer ends it later."""
    _retry(session, 0)
    session.stop()


def _retry(session: SparkSession, times: int) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=times)])


def _require_version(session: SparkSession) -> None:
    import pyspark

    server, client = session.version, pyspark.__version__
    if server.split(".")[0] != client.split(".")[0]:
        raise SparkUnavailableError(
            f"the server is Spark {server}, and this client is Spark {client}: both need the same major version"
        )


def _send_project(session: SparkSession) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / f"{PROJECT_ARCHIVE}.zip"
        _write_archive(archive)
        session.addArtifacts(f"{archive}#{PROJECT_ARCHIVE}", archive=True)


def _write_archive(path: Path) -> None:
    """The project's packages, without bytecode."""
    rooms = [init.parent for init in sorted(PROJECT_ROOT.glob("*/__init__.py")) if init.parent.name not in _NOT_SENT]
    # An installation may have dates before 1980, which an archive cannot state.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive:
        for file in (file for room in rooms for file in sorted(room.rglob("*")) if file.is_file()):
            if "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(PROJECT_ROOT))


# ---- The archive of classes, and the session.

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
_CONNECT_VARIABLES: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE")
"""With one of these PySpark makes a session of Spark Connect, whatever the master is."""
SMALL_PLANS: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "false"}
"""A plan maps rows that are few and opaque, so compiling it or changing it on the way only costs."""


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
    text = run_program([java, "-version"]).stderr
    match = re.search(r'"(\d+)', text)
    return int(match.group(1)) if match else None


def require_java() -> Path:
    """The Java program. Raises `SparkUnavailableError` with the remedy unless it is of version 17 or later."""
    java, version = find_java(), java_version()
    if java is None or version is None:
        raise SparkUnavailableError(NO_JAVA)
    if version < OLDEST_JAVA:
        raise SparkUnavailableError(
            f"Java {version} is too old for Spark: install version 17 or later and set JAVA_HOME to it"
        )
    return Path(java)


class _Java:
    """The Java virtual machine of this process. `directory` has its log and its temporary files."""

    def __init__(self) -> None:
        """Raises `SparkUnavailableError` without a Java runtime, and what PySpark raises when it does not start."""
        java = require_java()
        self.directory = Path(tempfile.mkdtemp(prefix=SPARK_FILES))
        self._counted_cpu_s = 0.0
        self._place = PlainPath(self.directory)
        scratch = self._place.path
        os.environ["SPARK_LOCAL_DIRS"] = scratch
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["PYTHONPATH"] = _python_path()  # workers import this package too
        import pyspark
        from pyspark.java_gateway import launch_gateway

        jars = Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0]) / "jars"
        self._archive = ClassArchive(java, DRIVER_JAVA_OPTIONS, jars)
        with open(self.directory / _LOG, "ab") as log, self._archive.option(scratch) as archived:
            os.environ["PYSPARK_SUBMIT_ARGS"] = (
                f"--driver-memory 1g --driver-java-options '{DRIVER_JAVA_OPTIONS} {archived} "
                f"-Djava.io.tmpdir={scratch}' pyspark-shell"
            )
            gateway = launch_gateway(None, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        self._process: subprocess.Popen[bytes] = gateway.proc
        # By these names PySpark finds a virtual machine that was started for it.
        self._address = {
            "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
            "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
        }
        gateway.close()
        atexit.register(self.end)

    def session(self, settings: Mapping[str, str]) -> SparkSession:
        """A session in this virtual machine. Raises `SparkUnavailableError` when it has ended."""
        if self._process.poll() is not None:
            raise SparkUnavailableError(
                f"its Java virtual machine has ended with exit code {self._process.returncode}; the end of its log: "
                f"{self.last_words()}"
            )
        from pyspark.sql import SparkSession

        os.environ |= self._address
        try:
            return SparkSession.builder.config(map=dict(settings)).getOrCreate()
        finally:
            for name in self._address:  # programs that this process starts have no part in it
                del os.environ[name]

    def new_cpu_s(self) -> float:
        """Processor time of the virtual machine and its workers since the last call, in seconds."""
        before, self._counted_cpu_s = self._counted_cpu_s, cpu_of_tree_s(self._process.pid)
        return max(0.0, self._counted_cpu_s - before)

    def last_words(self) -> str:
        """The last line of the log."""
        try:
            lines = (self.directory / _LOG).read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            lines = []
        return next((line.strip() for line in reversed(lines) if line.strip()), "none")

    def end(self) -> None:
        """End the virtual machine, by force if it does not end in time. It writes its class archive then."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # it ends when this pipe closes
        try:
            self._process.wait(EXIT_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # the process ends, whoever interrupts it
            self._process.kill()
            self._process.wait()
        self._archive.keep(self.directory)
        self.remove_directory()

    def remove_directory(self) -> None:
        """Remove the log and the temporary files."""
        self._place.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def _python_path() -> str:
    """PYTHONPATH with this project in it."""
    paths = [str(PROJECT_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))


@functools.cache
def _java() -> _Java:
    """PySpark keeps to the first virtual machine of a process: sessions share it."""
    return _Java()


class SparkHandle:
    """A session that may still be starting. `tasks()` waits for it."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._java: _Java | None = None
        self._session: SparkSession | None = None
        self._tasks: SparkTasks | None = None
        self._error: BaseException | None = None
        self.ready_after_s: float | None = None
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)

    @classmethod
    def start_in_background(cls, *, master: str = "local[2]") -> SparkHandle:
        """Start a session in the background; returns at once."""
        handle = cls(master)
        handle._thread.start()
        return handle

    def tasks(self, timeout_s: float = PATIENCE_S) -> SparkTasks:
        """The map of the warmed session. Raises `SparkUnavailableError` when it could not start, or not within the
        time."""
        self._thread.join(timeout_s)
        if self._error is not None:
            raise SparkUnavailableError(
                f"Spark did not start: {self._reason()}; --engine in-process works without it"
            ) from self._error
        if self._tasks is None:
            last = "none" if self._java is None else self._java.last_words()
            raise SparkUnavailableError(f"Spark did not start within {timeout_s:.0f} s; the end of its log: {last}")
        return self._tasks

    def new_cpu_s(self) -> float:
        """Processor time of Spark's processes on this machine since the last call, in seconds; their start is in the
        first. 0 without a session."""
        return 0.0 if self._java is None else self._java.new_cpu_s()

    def _reason(self) -> str:
        error = self._error
        if isinstance(error, Exception) and not isinstance(error, SparkUnavailableError):
            return cause_of(error, self._master)
        return str(error)

    def stop(self) -> None:
        """End the session and its workers; safe to call twice, and while it is starting."""
        self._thread.join(60)
        session, self._session, self._tasks = self._session, None, None
        if session is not None:
            with contextlib.suppress(Exception):  # of a virtual machine that has ended
                disconnect(session) if is_remote(self._master) else session.stop()

    def abandon(self) -> None:
        """Leave no file behind; the processes end with this one."""
        if self._java is not None:
            self._java.remove_directory()

    def _start(self) -> None:
        began = time.monotonic()
        try:
            # Niceness is a thread's own on Linux and inherited by its children: the JVM yields to the nodes under test.
            thread = threading.get_native_id()
            if os.getpriority(os.PRIO_PROCESS, thread) < NICENESS:  # only root may lower it again
                os.setpriority(os.PRIO_PROCESS, thread, NICENESS)
            if is_remote(self._master):
                reach(self._master)
                self._session = connect(self._master, SMALL_PLANS)
            else:
                self._session = self._build()
            # The job forks the workers, which load what every task needs.
            session, master = self._session, without_secrets(self._master)
            cores = default_parallelism(session) if is_local(master) else require_workers(session, master)
            self._tasks = SparkTasks.over(session, master, cores)
        except BaseException as error:  # raised again by `tasks`
            self._error = error
        self.ready_after_s = time.monotonic() - began

    def _build(self) -> SparkSession:
        for name in _CONNECT_VARIABLES:
            os.environ.pop(name, None)
        # Workers of a cluster do not inherit the driver's environment.
        settings = {"spark.master": self._master, "spark.app.name": "brownout", **SILENT, **SMALL_PLANS}
        settings["spark.api.mode"] = "classic"
        settings["spark.executorEnv.PYTHONPATH"] = _python_path()
        if is_local(self._master):
            os.environ["SPARK_LOCAL_IP"] = LOOPBACK
            address: str | None = LOOPBACK
        else:
            settings |= SETTINGS
            # The address under which workers find the driver, if this is a standalone cluster; else Spark chooses it.
            address = None if self._master.startswith(OF_OTHER_MANAGERS) else reach(self._master)
        if address is not None:
            settings |= {"spark.driver.bindAddress": address, "spark.driver.host": address}
        self._java = _java()
        return self._java.session(settings)
