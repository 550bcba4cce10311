"""Reasons for which Spark does not start, and conditions in which it still starts."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from analysis.engines import spark
from analysis.engines.spark import SparkHandle
from analysis.engines.spark_errors import SparkUnavailableError


def test_a_higher_niceness_of_the_user_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without privileges the kernel refuses to lower a niceness. The analysis continues and reaches a verdict."""

    def refuse(*_: int) -> None:
        raise PermissionError

    def no_java() -> None:
        raise SparkUnavailableError(spark.NO_JAVA)

    monkeypatch.setattr(os, "getpriority", lambda *_: 10)
    monkeypatch.setattr(os, "setpriority", refuse)
    monkeypatch.setattr(spark, "require_java", no_java)
    handle = SparkHandle.start_in_background(tmp_path)
    with pytest.raises(SparkUnavailableError, match=r"no Java runtime found: .*--engine in-process works without it"):
        handle.context()


def test_a_failed_start_of_a_session_is_reported_with_the_last_lines_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over = threading.Event(), threading.Event()

    def build(_: SparkHandle) -> None:
        (tmp_path / "driver.log").write_text("one\nall masters are unresponsive\n\n")
        begun.set()
        over.wait(180)

    monkeypatch.setattr(spark, "require_java", lambda: None)
    monkeypatch.setattr(SparkHandle, "_build", build)
    handle = SparkHandle.start_in_background(tmp_path)
    assert begun.wait(180)
    with pytest.raises(SparkUnavailableError, match="within 0 s; the end of its log: all masters are unresponsive"):
        handle.context(0.01)
    over.set()


def test_a_jvm_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gateway:
        def __init__(self) -> None:
            self.proc = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)

        def shutdown(self) -> None:
            """As Py4J's."""

    class Context:
        _gateway: Gateway | None = None
        _jvm = None

        def stop(self) -> None:
            """As Spark's."""

    context, gateway = Context(), Gateway()
    context._gateway = gateway
    monkeypatch.setattr(spark, "require_java", lambda: None)
    monkeypatch.setattr(spark, "warm", lambda _: None)
    monkeypatch.setattr(spark, "EXIT_S", 0.1)
    monkeypatch.setattr(SparkHandle, "_build", lambda _: context)
    handle = SparkHandle.start_in_background(tmp_path)
    handle.context()
    handle.stop()
    assert gateway.proc.returncode == -signal.SIGKILL
