"""Reasons for which Spark does not start, and conditions in which it still starts."""

import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from analysis.engines import spark
from analysis.engines.spark import SparkHandle
from analysis.engines.spark_errors import SparkUnavailableError


def test_a_higher_niceness_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without privileges the kernel refuses to lower a niceness. The analysis continues and reaches a verdict."""

    def refuse(*_: int) -> None:
        raise PermissionError

    def no_java() -> None:
        raise SparkUnavailableError(spark.NO_JAVA)

    monkeypatch.setattr(os, "getpriority", lambda *_: 10)
    monkeypatch.setattr(os, "setpriority", refuse)
    monkeypatch.setattr(spark, "_java", no_java)
    handle = SparkHandle.start_in_background()
    with pytest.raises(SparkUnavailableError, match=r"no Java runtime found: .*--engine in-process works without it"):
        handle.tasks()


class Machine:
    """As PySpark's gateway to a Java virtual machine that runs until its input closes."""

    def __init__(self, program: str, words: str = "") -> None:
        self.proc = subprocess.Popen(["sh", "-c", program], stdin=subprocess.PIPE)
        self.gateway_parameters = SimpleNamespace(port=1, auth_token="secret")
        self.words = words

    def close(self) -> None:
        """As Py4J's."""

    def launched(self, _: None, streams: dict[str, BinaryIO]) -> "Machine":
        streams["stdout"].write(self.words.encode())
        return self


@pytest.fixture
def java_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Machine], None]]:
    """Makes a machine the one of this process, whatever sessions of other tests have started."""
    machines: list[Machine] = []

    def use(machine: Machine) -> None:
        machines.append(machine)
        monkeypatch.setattr("pyspark.java_gateway.launch_gateway", machine.launched)
        monkeypatch.setattr(spark, "_java", functools.cache(spark._Java))
        monkeypatch.setattr(spark, "require_java", lambda: Path(sys.executable))

    yield use
    for machine in machines:
        machine.proc.kill()
        machine.proc.wait()


def test_a_failed_start_of_a_session_is_reported_with_the_last_lines_of_spark(
    java_of: Callable[[Machine], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over = threading.Event(), threading.Event()

    def session(*_: object) -> None:
        begun.set()
        over.wait(180)

    java_of(Machine("cat", "one\nall masters are unresponsive\n\n"))
    monkeypatch.setattr(spark._Java, "session", session)
    handle = SparkHandle.start_in_background()
    assert begun.wait(180)
    with pytest.raises(SparkUnavailableError, match="within 0 s; the end of its log: all masters are unresponsive"):
        handle.tasks(0.01)
    over.set()


def test_a_jvm_that_does_not_end_is_killed(java_of: Callable[[Machine], None], monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("exec sleep 600")
    java_of(machine)
    monkeypatch.setattr(spark, "EXIT_S", 0.1)
    java = spark._java()
    java.end()
    assert machine.proc.returncode == -signal.SIGKILL
    assert not java.directory.exists()


def test_an_interrupt_at_the_end_of_a_process_kills_its_jvm(
    java_of: Callable[[Machine], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine("exec sleep 600")
    java_of(machine)
    java = spark._java()
    wait = machine.proc.wait

    def interrupted(timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait()

    monkeypatch.setattr(machine.proc, "wait", interrupted)
    java.end()
    assert machine.proc.returncode == -signal.SIGKILL
    assert not java.directory.exists()


def test_a_jvm_that_has_ended_is_named_to_the_next_session(java_of: Callable[[Machine], None]) -> None:
    machine = Machine("exit 137", "out of memory\n")
    java_of(machine)
    machine.proc.wait()
    with pytest.raises(SparkUnavailableError, match="ended with exit code 137; the end of its log: out of memory"):
        SparkHandle.start_in_background().tasks()
