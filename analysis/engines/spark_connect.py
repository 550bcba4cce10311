"""A session of a Spark Connect server, whose workers get this project by Spark's own means.

Theory of operation. The client sends the project's modules as an archive. Spark unpacks it for the session in the
working directory of each task. The function of a task is sent by value: it makes the archive importable, and then loads
the function of a check, which is sent by name (`analysis.engines.task_map.portable`).
"""

from __future__ import annotations

import os
import tempfile
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from analysis.engines.spark_errors import SparkUnavailableError
from installation import extras
from installation.files import PROJECT_ARCHIVE, PROJECT_ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
