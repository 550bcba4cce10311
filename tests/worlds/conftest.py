import pytest

from orchestrator.worlds.namespaces import requirements


@pytest.fixture(scope="session")
def lacking() -> str:
    """What this machine lacks for the namespace world; empty when nothing."""
    return " / ".join(map(str, requirements.missing("ext4") + requirements.missing("xfs")))


@pytest.fixture(autouse=True)
def _skip_where_the_machine_cannot(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("root") is not None and (lacks := request.getfixturevalue("lacking")):
        pytest.skip(lacks)
