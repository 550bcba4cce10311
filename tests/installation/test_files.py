"""The directories that a checkout and an installed package write to, and the command that their messages name."""

import json
import os
import sys
from pathlib import Path

import pytest

from installation import commands
from installation.commands import command, command_anywhere
from installation.files import PROJECT_ROOT, build_record, cache_directory, default_store, is_installed
from orchestrator.campaign import lookup
from orchestrator.errors import UsageError


def package(directory: Path) -> Path:
    """A directory that looks like the rooms of an installed package."""
    (directory / "installed.json").write_text(json.dumps({"version": "9.9.9", "commit": "abc"}))
    return directory


def test_a_checkout_has_its_cache_inside_the_checkout(tmp_path: Path) -> None:
    assert not is_installed()
    assert cache_directory() == PROJECT_ROOT / ".cache"
    assert cache_directory(tmp_path) == tmp_path / ".cache"


def test_a_checkout_of_another_user_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory(tmp_path) == Path("/somewhere/brownout")


def test_an_installed_package_writes_into_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path)
    assert is_installed(tmp_path)
    assert build_record(tmp_path)["version"] == "9.9.9"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory(tmp_path) == Path("/somewhere/brownout")
    monkeypatch.setenv("HOME", "/home/somebody")
    for not_absolute in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", not_absolute)
        assert cache_directory(tmp_path) == Path("/home/somebody/.cache/brownout")


def test_the_store_is_where_the_command_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_store() == tmp_path / "store"


def test_a_checkouts_command_depends_on_where_the_user_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT_ROOT)
    assert command("run", "my file.toml") == "./brownout run 'my file.toml'"
    assert command_anywhere("doctor") == f"{PROJECT_ROOT}/brownout doctor"
    monkeypatch.chdir(tmp_path)
    assert command("doctor") == command_anywhere("doctor")


def test_an_installed_command_is_named_shortly_only_if_path_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs, links = (tmp_path / name for name in ("ours", "theirs", "links"))
    for directory in (ours, theirs, links):
        directory.mkdir()
    monkeypatch.setattr(commands, "is_installed", lambda: True)
    monkeypatch.setattr(sys, "executable", str(ours / "python"))
    assert command("doctor") == f"{ours}/python -m brownout doctor"
    for directory in (ours, theirs):
        (directory / "brownout").touch(mode=0o755)
    (links / "brownout").symlink_to(ours / "brownout")
    monkeypatch.setenv("PATH", str(links))
    assert command("doctor") == "brownout doctor"
    assert command_anywhere("doctor") == f"{ours}/brownout doctor"
    monkeypatch.setenv("PATH", str(theirs))
    assert command("doctor") == f"{ours}/brownout doctor"


def test_a_campaigns_name_means_the_users_own_before_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert lookup.find("demo") == PROJECT_ROOT / "campaigns" / "demo.toml"
    assert lookup.find("lease") == PROJECT_ROOT / "campaigns" / "mutants" / "lease.toml"
    (tmp_path / "campaigns").mkdir()
    for name in ("demo", "mine"):
        (tmp_path / "campaigns" / f"{name}.toml").touch()
    assert lookup.find("demo") == Path("campaigns/demo.toml")
    assert lookup.find("campaigns/mine.toml") == lookup.find("mine") == Path("campaigns/mine.toml")
    with pytest.raises(UsageError, match=r"unknown campaign.*demo.*kip101-scenario1.*mine"):
        lookup.find("none")
    with pytest.raises(UsageError, match="is a directory"):
        lookup.find("campaigns")


def test_an_installed_campaign_is_shown_by_its_name_unless_that_means_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ours = PROJECT_ROOT / "campaigns" / "demo.toml"
    assert lookup.shown(ours) == str(ours)
    monkeypatch.setattr(lookup, "is_installed", lambda: True)
    assert lookup.shown(ours) == "demo"
    assert lookup.shown(Path("campaigns/demo.toml")) == "campaigns/demo.toml"
    (tmp_path / "campaigns").mkdir()
    (tmp_path / "campaigns" / "demo.toml").touch()
    assert lookup.shown(ours) == str(ours)
