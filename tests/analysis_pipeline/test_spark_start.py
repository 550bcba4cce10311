"""What can keep Spark from starting, and what must not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from analysis import spark
from analysis.spark import SparkHandle, SparkUnavailableError


def test_a_user_who_is_nicer_already_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without privileges the kernel refuses to lower a niceness; that is no reason to go without a verdict."""

    def refuse(*_: int) -> None:
        raise PermissionError

    def no_java() -> None:
        raise SparkUnavailableError(spark.NO_JAVA)

    monkeypatch.setattr(os, "getpriority", lambda *_: 10)
    monkeypatch.setattr(os, "setpriority", refuse)
    monkeypatch.setattr(spark, "require_java", no_java)
    handle = SparkHandle.start_in_background(tmp_path)
    with pytest.raises(SparkUnavailableError, match=r"no Java runtime found: .*--engine in-process does without it"):
        handle.session()
