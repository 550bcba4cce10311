"""The quorum-state file: a written state reads back, and other content is refused."""

import json
import random

import pytest

from broker.errors import StartupError
from broker.quorum.election_state import ElectionFile, ElectionState
from simulator.disk import FileSystem, SimulatedDisk, Tear
from simulator.loop import new_loop


@pytest.mark.conforms("K595-5")
@pytest.mark.parametrize("state", [ElectionState(), ElectionState(7, 2, 3, (1, 2, 3)), ElectionState(7, None, 1, (1,))])
def test_a_written_election_state_reads_back(state: ElectionState) -> None:
    assert ElectionState.decode(state.encode(), "quorum-state") == state


@pytest.mark.conforms("K595-5")
def test_the_fields_are_kafkas() -> None:
    assert json.loads(ElectionState(7, None, 3, (1, 3)).encode()) == {
        "clusterId": "",
        "leaderId": -1,
        "leaderEpoch": 7,
        "votedId": 3,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}, {"voterId": 3}],
        "data_version": 0,
    }


@pytest.mark.conforms("K595-5")
@pytest.mark.parametrize(
    "broken",
    [
        "",
        "\0" * 90,
        "[]",
        "{}",
        '{"leaderEpoch": 1}',
        ElectionState(7).encode()[:-1],
        ElectionState(7).encode().replace("7", "-7"),
        ElectionState(7).encode().replace("7", "7.5"),
        ElectionState(7).encode().replace("7", "true"),
        ElectionState(7).encode().replace('"votedId":-1', '"votedId":null'),
        ElectionState(7).encode().replace('"currentVoters":[]', '"currentVoters":[1]'),
    ],
)
def test_a_damaged_file_is_named_and_never_read_as_empty(broken: str) -> None:
    with pytest.raises(StartupError, match="dir/quorum-state: is not a quorum-state file"):
        ElectionState.decode(broken, "dir/quorum-state")


@pytest.mark.conforms("K595-5")
@pytest.mark.parametrize("file_system", list(FileSystem))
def test_a_power_cut_leaves_the_last_state_that_was_written(file_system: FileSystem) -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=file_system)
    for epoch in (6, 7):
        state = ElectionState(epoch, 2, 3, (1, 2, 3))
        loop.run_until_complete(ElectionFile(disk, "quorum-state").write_durably(state))
        disk.power_loss(random.Random(0), commit=False, tear=Tear.LOST)
        assert disk.durable("quorum-state") == state.encode().encode()
        assert ElectionFile(disk, "quorum-state").read((1, 2, 3)) == state


def test_another_version_is_refused() -> None:
    newer = ElectionState(7).encode().replace('"data_version":0', '"data_version":1')
    with pytest.raises(StartupError, match="data_version 1"):
        ElectionState.decode(newer, "quorum-state")
