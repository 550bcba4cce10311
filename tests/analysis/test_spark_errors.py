"""Spark's messages of many lines become one sentence with the cause."""

from __future__ import annotations

import pytest

from analysis.engines.spark_errors import cause_of

TRACEBACK = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  in work\n{}"
OF_JAVA = "An error occurred while calling o99.getResult.\n: org.apache.spark.SparkException: {}\n\tat org.apache.spark"
ENDED = "Spark's Java virtual machine has ended; this machine may lack memory"
CAUSES = {
    TRACEBACK.format("MemoryError"): "MemoryError",
    TRACEBACK.format("MemoryError\n\n\tat org.apache.spark.api"): "MemoryError",
    TRACEBACK.format("MemoryError\n SQLSTATE: 38000"): "MemoryError",
    TRACEBACK.format("ValueError: two\n"): "ValueError: two",
    TRACEBACK.format("pyarrow.lib.ArrowMemoryError: malloc of size 64 failed"): "pyarrow.lib.ArrowMemoryError: "
    "malloc of size 64 failed",
    "[Errno 111] Connection refused": ENDED,
    "py4j.reflection does not exist in the JVM": ENDED,
    OF_JAVA.format("Exception thrown in awaitResult: "): ENDED,
    OF_JAVA.format("Job aborted: Failed to connect to host: Connection refused"): "Job aborted: Failed to connect to "
    "host: Connection refused",
}


@pytest.mark.parametrize(("text", "cause"), CAUSES.items())
def test_the_cause_of_an_error_is_one_line(text: str, cause: str) -> None:
    assert cause_of(RuntimeError(text)) == cause
