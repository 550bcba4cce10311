"""`brownout doctor`, `mutants`, `test` and `install-packages`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from installation.files import PROJECT_ROOT, is_installed
from orchestrator.errors import UsageError
from orchestrator.machine import packages as system_packages


def main(options: argparse.Namespace) -> int:
    """Dispatch to the command."""
    if options.command == "mutants":
        return _mutants(as_json=options.json)
    if options.command == "test":
        return _test(options.arguments)
    if options.command == "install-packages":
        return system_packages.install(options.names)
    from orchestrator.command import doctor

    return doctor.main(clean=options.clean, as_json=options.json)


def _mutants(*, as_json: bool) -> int:
    from systems.brownout.broker import Brownout

    rows = [
        {"name": m.name, "rule": m.rule, "anomaly": m.anomaly, "schedule": m.schedule}
        for m in Brownout.mutants.values()
    ]
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        from orchestrator.command.printing import show

        show("mutants", rows, ("name", "rule", "anomaly", "schedule"))
    return 0


def _test(arguments: list[str]) -> int:
    """Run pytest on the project; its exit code becomes 0 or 1. Raises `UsageError` where there are no tests."""
    if is_installed():
        raise UsageError("the tests come with a checkout, not with the installed package: run ./brownout test there")
    given = arguments[1:] if arguments[:1] == ["--"] else arguments
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    result = subprocess.run([sys.executable, "-m", "pytest", *given], cwd=PROJECT_ROOT, env=environment, check=False)
    return min(result.returncode, 1)
