"""The module that prepares data disks never destroys foreign data. Run directly, as Ansible would on a node."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.worlds.namespaces import requirements
from orchestrator.worlds.namespaces.filesystems import DataDisk

pytestmark = pytest.mark.root

MODULE = PROJECT_ROOT / "playbooks/library/data_disk.py"
ENVIRONMENT = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """A disk with an ext4 filesystem that is not ours."""
    if missing := requirements.missing("ext4"):
        pytest.skip(" / ".join(map(str, missing)))
    disk = DataDisk("disk", tmp_path, 320 << 20, "ext4")
    disk.create()
    attached = disk.attach()
    yield attached.device
    attached.release()
    disk.close()


def run(tmp_path: Path, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
    """Call the module; its result."""
    given = {"directory": str(tmp_path / "data"), "note": str(tmp_path / "note"), **arguments}
    given["_ansible_check_mode"] = check
    path = tmp_path / "arguments.json"
    path.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": given}))
    done = subprocess.run(
        [sys.executable, str(MODULE), str(path)], capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def erase(device: str) -> None:
    with open(device, "r+b") as raw:
        raw.write(bytes(2 << 20))
        raw.flush()
        os.fsync(raw.fileno())


def kind(device: str) -> str:
    command = ["blkid", "--probe", "--output", "value", "--match-tag", "TYPE", device]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT).stdout.strip()


@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
def test_a_filesystem_is_made_on_an_empty_disk_only_once(tmp_path: Path, device: str, filesystem: str) -> None:
    if missing := requirements.missing(filesystem):
        pytest.skip(" / ".join(map(str, missing)))
    erase(device)
    would = run(tmp_path, device=device, filesystem=filesystem, check=True)
    assert (would["changed"], kind(device)) == (True, "")
    made = run(tmp_path, device=device, filesystem=filesystem)
    assert (made["changed"], made["made"], kind(device)) == (True, True, filesystem)
    again = run(tmp_path, device=device, filesystem=filesystem)
    assert (again["changed"], again["uuid"]) == (False, made["uuid"])


def test_a_disk_with_foreign_data_is_refused(tmp_path: Path, device: str) -> None:
    refused = run(tmp_path, device=device)
    assert f"{device} holds something other than Brownout's ext4: TYPE=ext4. Nothing was changed" in refused["msg"]
    assert f"wipefs --all {device}" in refused["msg"], "the message names the command"
    erase(device)
    with open(device, "r+b") as raw:
        raw.write(b"not a filesystem, but foreign data")
    assert "is not empty, although it has no known filesystem" in run(tmp_path, device=device)["msg"]
    erase(device)
    assert run(tmp_path, device=device)["made"]
    other = run(tmp_path, device=device, filesystem="xfs")
    assert "holds something other than Brownout's xfs: TYPE=ext4 LABEL=brownout" in other["msg"]
    assert kind(device) == "ext4"


def test_a_directory_must_be_empty_or_ours(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "thesis.tex").touch()
    assert "has files that are not Brownout's: thesis.tex" in run(tmp_path)["msg"]
    (data / "thesis.tex").unlink()
    assert run(tmp_path)["changed"]
    (data / "log").mkdir()
    assert not run(tmp_path)["changed"]
    assert "is not Brownout's alone" in run(tmp_path, directory="/var/")["msg"]


def test_a_missing_disk_is_named(tmp_path: Path) -> None:
    assert "the node has no /dev/nope (brownout_data_device); it has" in run(tmp_path, device="/dev/nope")["msg"]
    assert "no disk has the serial 'nope'" in run(tmp_path, serial="nope")["msg"]
