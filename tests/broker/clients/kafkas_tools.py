"""Apache Kafka's own command-line tools, where Java and the jars are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.broker.clients.harness import ROOT

VERSION = "4.1.1"
JARS = ROOT / ".cache/systems/apache-kafka" / VERSION
TIMEOUT_S = 120


def needed() -> None:
    """Skip the test, with the reason, where the tools cannot run."""
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    if not list(JARS.glob("kafka_2.13-*.jar")):
        pytest.skip(f"there are no jars in {JARS}: run `./brownout system fetch apache-kafka {VERSION}`")


def run_tool(main_class: str, *arguments: str) -> str:
    """What a tool prints. It must end with 0."""
    result = subprocess.run(
        ["java", "-Xmx128m", "-cp", f"{JARS}/*", main_class, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def dump(file: Path, *options: str) -> str:
    """kafka-dump-log of one file."""
    return run_tool("kafka.tools.DumpLogSegments", "--files", str(file), "--deep-iteration", *options)
