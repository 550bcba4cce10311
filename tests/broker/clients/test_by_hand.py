"""The commands of docs/by-hand.md, run in a shell unchanged: their ports are in a network namespace."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.clients.harness import ROOT

TIMEOUT_S = 240


def blocks() -> list[str]:
    page = (ROOT / "docs" / "by-hand.md").read_text(encoding="utf-8")
    return re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.mark.rotating(3, among="real brokers")
def test_the_commands_of_the_page_print_the_documented_output(tmp_path: Path) -> None:
    if os.geteuid() or not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("the ports of the page need a network namespace: run as root, with unshare and ip")
    interpreters = tmp_path / "bin"
    interpreters.mkdir()
    (interpreters / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (interpreters / "python").chmod(0o755)
    environment = os.environ | {
        "PATH": f"{interpreters}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    commands = "ip link set lo up\nset -e\n" + "".join(blocks())
    try:
        done = subprocess.run(
            ["unshare", "--net", "--pid", "--fork", "--kill-child", "bash", "-c", commands],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    finally:
        logs = "".join(f"--- {path}\n{path.read_text()}" for path in sorted(tmp_path.glob("*/out")))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    assert done.stdout.splitlines().count("hello") == 2
    assert sum("is ready" in line for line in done.stdout.splitlines()) == 5
