"""A session of a Spark Connect server, whose workers get this project by Spark's own means.

Theory of operation. The client sends the project's modules as an archive. Spark unpacks it for the session in the
working directory of each task. The function of a task is sent by value: it makes the archive importable, and then loads
the function of a check, which is sent by name (`analysis.engines.task_map.portable`).
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from analysis.engines.spark_errors import SparkUnavailableError
from installation.files import PROJECT_ARCHIVE, PROJECT_ROOT

_NOT_SENT: Final = {"tests", "benchmarks"}
_RETRIES: Final = 5
"""With Spark's growing pauses 17 s for a call. Its default is ten minutes, which a server that died needs not."""


def connect(url: str, settings: Mapping[str, str]) -> Any:
    """A session of the server at `url`, which has the project. Raises `SparkUnavailableError` when this Python lacks
    the client's packages or the server is of another major version, and PySpark's errors."""
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        raise SparkUnavailableError(
            f"a client of Spark Connect needs more Python packages ({error}); install them: pip install "
            "'pyspark[connect]'"
        ) from error
    from pyspark import __version__

    session = SparkSession.builder.remote(url).create()
    session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
    if session.version.split(".")[0] != __version__.split(".")[0]:
        raise SparkUnavailableError(f"the server is Spark {session.version}, and this client is Spark {__version__}")
    for name, value in settings.items():
        session.conf.set(name, value)
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / f"{PROJECT_ARCHIVE}.zip"
        _write_archive(archive)
        session.addArtifacts(f"{archive}#{PROJECT_ARCHIVE}", archive=True)
    return session


def _write_archive(path: Path) -> None:
    """The project's packages, without bytecode."""
    rooms = [made.parent for made in sorted(PROJECT_ROOT.glob("*/__init__.py")) if made.parent.name not in _NOT_SENT]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in (file for room in rooms for file in sorted(room.rglob("*")) if file.is_file()):
            if "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(PROJECT_ROOT))
