"""System packages: missing ones are named with the install command; the front door and an installed package install
them by the same script."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.errors import UsageError
from orchestrator.machine import packages as system_packages

THERE = {"sh": "dash", "/etc": "base-files"}


def test_packages_of_missing_programs_are_named_once() -> None:
    wanted = {**THERE, "no-such-program": "none", "/no/such/file": "none", "no-such-other": "other"}
    assert system_packages.missing(wanted) == ["none", "other"]
    system_packages.ensure(THERE, "this test")


def test_a_forbidden_installation_reports_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWNOUT_SETUP", "skip")
    with pytest.raises(UsageError) as caught:
        system_packages.ensure({"no-such-program": "some-package"}, "building the nodes' image")
    message = str(caught.value)
    assert message.startswith(
        "building the nodes' image needs packages that are not installed: some-package; run: sudo "
    )
    assert message.splitlines()[0].endswith("/brownout install-packages some-package")


def test_missing_packages_are_named_as_this_system_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {"java": "echo 'openjdk version \"11.0.1\"' >&2", "apt-cache": '[ "$2" = openjdk-21-jre-headless ]'}
    for name, script in programs.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    named = system_packages.missing_for_campaigns()
    assert named[0] == "openjdk-21-jre-headless"
    assert named[0] in system_packages.how_to_install(named)
    (tmp_path / "java").write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    assert system_packages.missing_for_campaigns() == named[1:]


def enter(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call a front door of its own, with an apt-get that only notes what it is asked."""
    programs = directory / "programs"
    programs.mkdir(exist_ok=True)
    apt = programs / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "$*" >> {directory}/asked\necho cannot do that\nexit ${{APT_CODE:-0}}\n')
    apt.chmod(0o755)
    (directory / "installation").mkdir(exist_ok=True)
    for name in ("brownout", "installation/system-packages"):
        shutil.copy(PROJECT_ROOT / name, directory / name)
    return subprocess.run(
        [directory / "brownout", "install-packages", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    )


@pytest.mark.parametrize("arguments", [(), ("-o=Bad",), ("Capital",), ("fine", "not fine")])
def test_only_names_of_packages_are_taken(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = enter(tmp_path, *arguments)
    assert done.returncode == 64
    assert (
        f"usage: {tmp_path}/brownout install-packages" in done.stderr
        or "is not the name of a Debian package" in done.stderr
    )
    assert not (tmp_path / "asked").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not Path("/etc/debian_version").exists(), reason="needs root on Debian")
def test_packages_are_installed_without_recommended_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path("/usr/sbin/policy-rc.d").exists()
    done = enter(tmp_path, "one", "g++-12")
    assert done.returncode == 0, done.stderr
    update, install = (tmp_path / "asked").read_text().splitlines()
    assert update == "update -q"
    assert install.startswith("install -y -q --no-install-recommends")
    assert install.endswith(" one g++-12")
    monkeypatch.setenv("APT_CODE", "100")
    done = enter(tmp_path, "one")
    assert done.returncode == 70
    assert "cannot do that" in done.stderr
    assert "apt-get could not install: one" in done.stderr
    assert Path("/usr/sbin/policy-rc.d").exists() == before
