"""Apache Kafka's own command-line tools, where Java and the jars are."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.broker.clients.harness import ROOT

VERSION = "4.1.1"
JARS = ROOT / ".cache/systems/apache-kafka" / VERSION
TIMEOUT_S = 120


def jars(version: str) -> Path:
    """The directory of a version's jars."""
    return JARS.parent / version


def needed(version: str = VERSION) -> None:
    """Skip the test, with the reason, where the tools of this version cannot run."""
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    if not list(jars(version).glob("kafka_2.13-*.jar")):
        pytest.skip(f"there are no jars in {jars(version)}: run `./brownout system fetch apache-kafka {version}`")


def run_tool(main_class: str, *arguments: str, version: str = VERSION) -> str:
    """What a tool prints. It must end with 0."""
    result = subprocess.run(
        ["java", "-Xmx128m", "-cp", f"{jars(version)}/*", main_class, *arguments],
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
