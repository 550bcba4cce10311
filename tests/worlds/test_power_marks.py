"""Marks on the disks of namespace nodes: a power cut keeps the synced one and takes the other."""

from pathlib import Path

import pytest

from tests.worlds.support import play

pytestmark = pytest.mark.root
MODULE = "tests.worlds.mark_scenarios"


@pytest.mark.rotating(4, among="marks of power cuts")
@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
def test_a_power_cut_keeps_synced_data_and_loses_the_rest(tmp_path: Path, filesystem: str) -> None:
    seen = play("cuts", str(tmp_path), filesystem, module=MODULE)
    assert seen["armed"]["status"] == "confirmed"
    assert {"log", ".brownout", "synced"} <= set(seen["found"])
    for number, cut in enumerate(seen["cuts"]):
        assert [each["status"] for each in cut] == ["confirmed"] * 3
        for detail in cut[1]["detail"].values():
            assert detail["synced_mark"] == "kept"
            # Pages that are written back as the power goes may save the other one.
            assert detail["unsynced_mark"] == "lost" or number >= 4
        assert all("synced_mark" not in detail for detail in cut[2]["detail"].values()), "reported once"


@pytest.mark.rotating(4, among="marks of power cuts")
@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
def test_a_power_cut_on_a_full_disk_keeps_the_synced_mark(tmp_path: Path, filesystem: str) -> None:
    for is_full, cut, healed in play("cuts_of_a_full_disk", str(tmp_path), filesystem, module=MODULE):
        assert is_full
        assert (cut["status"], healed["status"]) == ("confirmed", "confirmed"), healed
        assert healed["detail"]["n1"]["synced_mark"] == "kept"
        assert healed["detail"]["n1"]["unsynced_mark"] in {"kept", "lost"}


@pytest.mark.rotating(4, among="marks of power cuts")
@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
def test_a_tail_written_back_before_the_cut_is_reported(tmp_path: Path, filesystem: str) -> None:
    early, late = play("at_stake", str(tmp_path), filesystem, module=MODULE)
    assert [each["status"] for each in early] == ["confirmed", "mismatch"]
    assert early[1]["detail"]["n1"]["at_stake"] == "kept"
    assert "its disk kept all of log/topic-0/00000000000000000000.log" in early[1]["detail"]["because"][0]
    assert [each["status"] for each in late] == ["confirmed", "confirmed"]
    assert late[1]["detail"]["n1"]["at_stake"] == "lost"
