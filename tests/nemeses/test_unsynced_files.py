"""The files whose unsynced data a power cut must lose."""

import os
import subprocess
from pathlib import Path

from nemeses.mechanisms.power import digest_files_script


def test_only_regular_files_are_at_stake(tmp_path: Path) -> None:
    """A pipe would block the question, and a link may lead to a file that is on another disk."""
    (tmp_path / "data.log").write_text("unsynced")
    (tmp_path / "empty.log").touch()
    (tmp_path / "directory.log").mkdir()
    (tmp_path / "linked.log").symlink_to("/etc/passwd")
    (tmp_path / "dangling.log").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.log")
    script = digest_files_script(str(tmp_path), "*.log")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=10, check=True)
    assert [line.split("=")[0] for line in done.stdout.splitlines()] == ["data.log", "noted"]
