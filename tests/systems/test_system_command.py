"""`brownout system`: messages about systems and their files."""

import hashlib
import json
from pathlib import Path

import pytest

from orchestrator.command import line as cli
from orchestrator.command import system as command
from orchestrator.errors import EXIT_PASS, EXIT_USAGE
from tests.systems.fake_maven import FakeMaven, maven

__all__ = ["maven"]

JAR = "org.example:log:1.0"


@pytest.fixture
def systems(tmp_path: Path, maven: FakeMaven, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One system, `some-log` 1.0, locked by the command itself."""
    maven.put(JAR, b"a log")
    root = tmp_path / "systems"
    root.mkdir()
    monkeypatch.setattr(command, "SYSTEMS", root)
    monkeypatch.setattr(command, "CACHE", tmp_path / "cache")
    assert cli.main(["system", "lock", "some-log", "1.0", JAR]) == EXIT_PASS
    return root


def test_a_lock_names_the_command_that_made_it(systems: Path) -> None:
    assert (systems / "some_log" / "versions" / "1.0.lock").read_text() == (
        f"# Made by: brownout system lock some-log 1.0 {JAR}\n{JAR} {hashlib.sha256(b'a log').hexdigest()} 5\n"
    )


@pytest.mark.usefixtures("systems")
def test_a_system_is_listed_shown_and_fetched(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    capsys.readouterr()
    assert cli.main(["system", "show", "some-log"]) == EXIT_PASS
    assert "files:   1,   0.0 MB   not fetched" in capsys.readouterr().out
    assert cli.main(["system", "show", "some-log", "1.0"]) == EXIT_PASS
    assert "not fetched; run: brownout system fetch some-log 1.0" in capsys.readouterr().out
    assert cli.main(["system", "fetch", "some-log", "1.0"]) == EXIT_PASS
    assert "some-log 1.0 is fetched: " in capsys.readouterr().out
    assert cli.main(["system", "fetch", "some-log", "1.0", "--json"]) == EXIT_PASS
    fetched = json.loads(capsys.readouterr().out)
    assert fetched == {
        "name": "some-log",
        "version": "1.0",
        "directory": str(tmp_path / "cache" / "some-log" / "1.0"),
        "was_there": True,
    }
    assert cli.main(["system", "list"]) == EXIT_PASS
    assert "some-log" in capsys.readouterr().out
    assert cli.main(["system", "list", "--json"]) == EXIT_PASS
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["versions"]) == ("some-log", [{"version": "1.0", "fetched": True}])
    assert cli.main(["system", "show", "some-log", "1.0", "--json"]) == EXIT_PASS
    shown = json.loads(capsys.readouterr().out)
    assert (shown["fetched"], [each["file"] for each in shown["files"]]) == (True, ["log-1.0.jar"])
    assert cli.main(["system", "show", "some-log", "--json"]) == EXIT_PASS
    assert json.loads(capsys.readouterr().out)["versions"][0]["bytes"] == 5


@pytest.mark.usefixtures("systems")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fetch", "some-lag", "1.0"], "unknown system 'some-lag'; did you mean 'some-log'?"),
        (["fetch", "some-log", "1.1"], "some-log has no version '1.1'; did you mean '1.0'?"),
        (["show", "kafka"], "unknown system 'kafka'; known: some-log"),
        (["lock", "some-log", "2.0", "log:2.0"], "'log:2.0' is not a coordinate"),
        (["fetch", "some-log"], "the following arguments are required: VERSION"),
    ],
)
def test_an_unknown_system_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert cli.main(["system", *arguments]) == EXIT_USAGE
    assert complaint in capsys.readouterr().err


@pytest.mark.usefixtures("systems")
def test_a_failed_fetch_is_wrong_usage_with_a_remedy(
    capsys: pytest.CaptureFixture[str], maven: FakeMaven, tmp_path: Path
) -> None:
    maven.fail("Unknown host")
    assert cli.main(["system", "fetch", "some-log", "1.0"]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert "Unknown host" in said
    assert f"put these files into\n  {tmp_path / 'cache' / 'some-log' / 'by-hand'}" in said
