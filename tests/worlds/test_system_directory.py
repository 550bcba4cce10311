"""The directory of a user's own system, as machines of their own get it."""

import tarfile
from pathlib import Path

import pytest

from orchestrator.worlds.remote.playbook_variables import directory_archive


def test_every_file_is_sent_except_hidden_derived_and_run_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = ["lib/store/x.py", "node_modules/a/b.js", "store", "system.toml", "tool/store/plans/y"]
    kept = [".git/config", "lib/.env", "lib/__pycache__/x.pyc", "runs/chaos/plans/20260101.campaign", "runs/latest"]
    kept += ["store.old/chaos/chaos-1/run.toml", "store.old/notes"]
    for name in (*sent, *kept):
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.setattr("orchestrator.worlds.remote.playbook_variables.PROJECT_ROOT", tmp_path / "project")
    with tarfile.open(directory_archive(tmp_path / "mine").archive) as archive:
        assert sorted(each.name for each in archive if each.isfile()) == sent
