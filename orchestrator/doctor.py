"""What this machine can run, checked by trying, and what to do about what it cannot."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib import metadata

from orchestrator.errors import EXIT_PASS, EXIT_UNKNOWN
from orchestrator.store import DEFAULT_STORE

_LIBRARIES = (
    "confluent-kafka",
    "pyarrow",
    "numpy",
    "numba",
    "pyspark",
    "uvloop",
    "msgspec",
    "crc32c",
    "fabric",
    "rich",
)
_FREE_BYTES = 2 << 30


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `part`: what it is needed for; `remedy` is empty where it is `met`."""

    part: str
    name: str
    met: bool
    detail: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Everything, in the order in which to remedy it."""
    return [*_python(), _java(), _disk(), *_namespaces()]


def main(*, clean: bool, as_json: bool) -> int:
    """Print the findings; exit 0 when a campaign can run in some world, else 2."""
    if clean:
        _clean()
    findings = examine()
    can_run = all(finding.met for finding in findings if finding.part == "every world")
    namespaces = can_run and all(finding.met for finding in findings if finding.part == "namespace world")
    if as_json:
        content = {"can_run": can_run, "namespaces": namespaces, "findings": [asdict(each) for each in findings]}
        print(json.dumps(content, indent=1))
    else:
        _print(findings, can_run, namespaces)
    return EXIT_PASS if can_run else EXIT_UNKNOWN


def _print(findings: list[Finding], can_run: bool, namespaces: bool) -> None:
    from orchestrator.commands.tables import show, verdict_line

    rows = [
        {
            "": "ok" if each.met else "MISSING",
            "for": each.part,
            "what": each.name,
            "found": each.detail,
            "remedy": each.remedy,
        }
        for each in findings
    ]
    show("doctor", rows, ("", "for", "what", "found", "remedy"))
    if namespaces:
        verdict_line("pass", "campaigns run in the namespace world: kill, pause, power loss and partitions")
    elif can_run:
        verdict_line("unknown", "campaigns run in the process world only: kill and pause, no power loss, no partitions")
    else:
        verdict_line("fail", "campaigns cannot run here until the remedies for every world are applied")


def _python() -> list[Finding]:
    version = platform.python_version()
    met = sys.version_info >= (3, 11)
    findings = [Finding("every world", "python", met, version, "" if met else "install Python 3.11 or later")]
    absent = [name for name in _LIBRARIES if not _installed(name)]
    detail = f"{len(_LIBRARIES) - len(absent)} of {len(_LIBRARIES)}" + (
        f", without {', '.join(absent)}" if absent else ""
    )
    remedy = "remove .venv and run ./brownout again" if absent else ""
    return [*findings, Finding("every world", "libraries", not absent, detail, remedy)]


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _java() -> Finding:
    from analysis.spark import OLDEST_JAVA, java_version

    version = java_version()
    met = version is not None and version >= OLDEST_JAVA
    remedy = "" if met else f"apt-get install openjdk-{OLDEST_JAVA}-jre-headless (or any later one)"
    return Finding("every world", "java", met, "none" if version is None else str(version), remedy)


def _disk() -> Finding:
    where = DEFAULT_STORE if DEFAULT_STORE.exists() else DEFAULT_STORE.parent
    free = shutil.disk_usage(where).free
    met = free >= _FREE_BYTES and os.access(where, os.W_OK)
    remedy = "" if met else f"free some space, or give another place: --store DIR (at least {_FREE_BYTES >> 30} GiB)"
    return Finding("every world", "store", met, f"{free / (1 << 30):.1f} GiB free at {where}", remedy)


def _namespaces() -> list[Finding]:
    from orchestrator.worlds.namespaces import requirements

    return [
        Finding("namespace world", need.name, need.met, need.detail, "" if need.met else need.remedy)
        for need in requirements.check()
    ]


def _clean() -> None:
    """Remove what killed runs may have left: everything but empty control groups ends with the sandbox by itself."""
    from orchestrator.worlds.namespaces import cgroups

    cgroups.reap_leftovers()
    sparks = DEFAULT_STORE / ".spark"
    if sparks.is_dir():
        shutil.rmtree(sparks, ignore_errors=True)
