"""What the source must not call."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_syncs_the_whole_machine() -> None:
    """What other runs, and other nodes of the same run, have at stake in memory must stay there: `sync -f`, or
    `orchestrator.machine.syscalls.sync_filesystem`, is for one filesystem."""
    tracked = subprocess.run(["git", "ls-files", "*.py", "*.j2", "*.sh", "brownout"], cwd=ROOT, capture_output=True)
    names = tracked.stdout.decode().splitlines()
    assert names
    whole = re.compile(r"\bos\.sync\(|^\s*sync\s*$", re.MULTILINE)
    assert [name for name in names if whole.search((ROOT / name).read_text(encoding="utf-8"))] == []
