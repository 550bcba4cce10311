"""By what it is known that two explorations were of the same code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.running.versions import CHANGES, code, commit


def test_code_is_the_same_when_commit_and_changes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.running.versions.is_installed", lambda: False)
    monkeypatch.setattr("orchestrator.running.versions.PROJECT_ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    def with_content(text: str) -> str:
        (tmp_path / "file").write_text(text)
        return code()

    def git(*words: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=n@localhost")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    assert with_content("a") == "unknown", "nobody can tell, and so it is gone on with"
    git("init")
    git("add", "file")
    git("commit", "--no-gpg-sign", "-m", "a")
    said = [with_content(text) for text in ("a", "b", "c", "b", "a")]
    assert said[0] == said[4] == commit()
    assert said[1] == said[3] != said[2]
    assert all(each.startswith(f"{said[0]}{CHANGES}-") for each in said[1:4])
