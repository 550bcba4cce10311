"""The requirements of a system for this machine are checked before any action."""

from pathlib import Path

import pytest

from orchestrator.command.line import main
from orchestrator.errors import EXIT_PASS, EXIT_USAGE

SYSTEM = """
name = "wanting"
class = "wanting.py:Wanting"
workloads = ["log"]
[versions.old]
[versions.new]
[roles.server]
ports = { client = 1 }
command = ["true"]
"""

CLASS = """
from systems import InputError, System

class Wanting(System):
    def prepare(self, on_progress):
        on_progress(f"looking for the files of {self.version}")
        raise InputError(f"there are no files of {self.version}; put them there")
"""

CAMPAIGN = """
name = "x"
[system]
path = "wanting"
[topology]
nodes = 1
world = "process"
[[cell]]
name = "first"
[[cell]]
name = "second"
version = "new"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "wanting").mkdir()
    (tmp_path / "wanting" / "system.toml").write_text(SYSTEM)
    (tmp_path / "wanting" / "wanting.py").write_text(CLASS)
    path = tmp_path / "x.toml"
    path.write_text(CAMPAIGN)
    return path


@pytest.mark.parametrize(("cell", "version"), [("first", "old"), ("second", "new")])
def test_only_the_versions_that_will_run_are_prepared(
    file: Path, tmp_path: Path, cell: str, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    arguments = ["run", str(file), "--store", str(store), "--engine", "in-process", "--cell", cell]
    assert main(arguments) == EXIT_USAGE
    said = capsys.readouterr().err
    assert f"looking for the files of {version}" in said
    assert f"there are no files of {version}; put them there" in said
    assert not store.exists()


def test_a_dry_run_needs_no_preparation(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(file), "--dry-run"]) == EXIT_PASS
    assert "second" in capsys.readouterr().out


def test_a_program_that_may_not_be_installed_is_named_with_its_package(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWNOUT_SETUP", "skip")
    programs = '[machine]\nprograms = { no-such-program = "some-package" }\n'
    (tmp_path / "wanting" / "system.toml").write_text(SYSTEM + programs)
    assert main(["run", str(file), "--store", str(tmp_path / "store")]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert "x.toml tests needs packages that are not installed: some-package; run: sudo" in said
    assert "there are no files" not in said
