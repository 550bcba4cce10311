"""The directory that all nodes of a run share."""

from pathlib import Path

from orchestrator.worlds.base import make_shared
from systems import Service


def test_the_shared_directory_is_made_only_for_services_that_name_it(tmp_path: Path) -> None:
    plain = Service("broker", ("broker", "--config", "/etc/x"), {"/etc/x": "log.dir=/data\n"})
    assert make_shared(tmp_path, [plain], "/shared") is None
    assert not (tmp_path / "shared").exists()
    named = Service("broker", ("broker",), {"/etc/x": "objects=/shared/objects\n"})
    assert make_shared(tmp_path, [plain, named], "/shared") == tmp_path / "shared"
    assert (tmp_path / "shared").is_dir()


def test_a_command_an_environment_and_a_preparation_can_name_it(tmp_path: Path) -> None:
    services = (
        Service("broker", ("broker", "--objects", "/shared")),
        Service("broker", ("broker",), environment={"OBJECTS": "/shared/o"}),
        Service("broker", ("broker",), prepare=(("mkdir", "/shared/o"),)),
    )
    for number, service in enumerate(services):
        assert make_shared(tmp_path / str(number), [service], "/shared") is not None
