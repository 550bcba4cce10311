"""The build of a run: a commit counts only if no other code could have been imported."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.running import versions


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one room, committed as it is."""
    monkeypatch.setattr(versions, "PROJECT_ROOT", tmp_path)
    write(tmp_path, ".gitignore", "store/\n__pycache__/\n*.pyc\n")
    write(tmp_path, "room/module.py")
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "all of it"]):
        identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True)
    return tmp_path


def write(project: Path, name: str, text: str = "x = 1\n") -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text(text)


@pytest.mark.parametrize(
    "name",
    ["store/x/run.py", "room/__pycache__/module.pyc", "room/report.html", "notes.txt", "mine/client.py"],
)
def test_files_that_cannot_be_modules_leave_a_build_clean(project: Path, name: str) -> None:
    write(project, name)
    assert len(versions.commit()) == 12


@pytest.mark.parametrize("name", ["room/module.py", "room/other.py", "room/deep/er.py", "room/fast.so", "json.py"])
def test_a_module_that_is_not_in_the_commit_is_a_change(project: Path, name: str) -> None:
    write(project, name, "x = 2\n")
    assert versions.commit().endswith("+changes")


@pytest.mark.parametrize("unanswered", ["rev-parse", "status", "ls-files", "ls-tree"])
def test_without_an_answer_of_git_the_build_is_unknown(
    project: Path, monkeypatch: pytest.MonkeyPatch, unanswered: str
) -> None:
    assert project.exists()
    asked: Callable[..., str | None] = versions._git
    monkeypatch.setattr(versions, "_git", lambda *words: None if unanswered in words else asked(*words))
    assert versions.commit() == "unknown"


@pytest.mark.parametrize("name", ["room/module.py", "room/other.py"])
def test_code_is_the_same_when_commit_and_changes_are(project: Path, name: str) -> None:
    clean = versions.code()
    said = []
    for text in ("a = 1\n", "b = 1\n", "a = 1\n"):
        write(project, name, text)
        said.append(versions.code())
    assert clean == versions.commit().removesuffix(versions.CHANGES)
    assert said[0] == said[2] != said[1]
    assert all(each.startswith(f"{clean}{versions.CHANGES}-") for each in said)


def test_an_installed_package_ignores_changes_of_a_surrounding_repository(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that were built of one commit, each with other changes, would pass for one where those are the same."""
    write(project, "venv/brownout/home/room/module.py")
    write(project, "room/module.py", "x = 2\n")
    monkeypatch.setattr(versions, "PROJECT_ROOT", project / "venv" / "brownout" / "home")
    monkeypatch.setattr(versions, "is_installed", lambda: True)
    monkeypatch.setattr(versions, "build_record", lambda: {"version": "9.9.9", "commit": "a+changes"})
    assert versions.code() == versions.commit() == "a+changes"
