"""A failed or interrupted build: its messages, and no remaining file that could count as an image.

A program of the test stands in for mmdebstrap.
"""

import fcntl
import os
from pathlib import Path

import pytest

import nodeimage
from nodeimage import contents
from nodeimage.image import images_directory
from tests.nodeimage.support import archive_of, small_project, stand_in

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="images are built by root; run the tests with sudo")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose packages were fetched already: builds need no network."""
    made = small_project(tmp_path)
    archive_of(made / "broker", made / ".cache" / "sites" / f"{nodeimage.site_key(made)}.tar.gz")
    return made


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "programs"
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory


def ignore(_: str) -> None:
    pass


def left(project: Path) -> list[str]:
    return sorted(path.name for path in images_directory(project).iterdir() if path.is_dir())


@pytest.mark.root
@as_root
@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("E: Temporary failure resolving 'mirror'", "Debian's mirror cannot be reached: check the network"),
        ("tar: write error: No space left on device", "the disk is full: free 2 GB"),
        ("E: mount failed: Operation not permitted", "this machine does not let root mount filesystems"),
        ("E: something else", "run the same command again"),
    ],
)
def test_a_failed_build_is_reported_with_its_last_lines_and_a_remedy(
    project: Path, programs: Path, said: str, advice: str
) -> None:
    stand_in(programs, "mmdebstrap", f'echo "I: running apt-get update..."; echo "{said}"; exit 25')
    with pytest.raises(nodeimage.ImageError) as caught:
        nodeimage.build(project, ignore)
    assert f"mmdebstrap failed (exit 25):\n  I: running apt-get update...\n  {said}\n{advice}" in str(caught.value)
    assert "build.log" in str(caught.value)
    assert left(project) == []


@pytest.mark.root
@as_root
def test_an_interrupted_build_leaves_no_file_and_no_process(project: Path, programs: Path, tmp_path: Path) -> None:
    # It starts a root filesystem, holds a lock while any of its processes exists, and prints a line.
    stand_in(
        programs,
        "mmdebstrap",
        f'for word; do case $word in */rootfs) mkdir "$word"; echo x > "$word/file";; esac; done\n'
        f'exec 8>"{tmp_path}/alive"; flock 8; echo "I: installing essential packages..."; sleep 600',
    )
    heard = []

    def interrupt(text: str) -> None:
        heard.append(text)
        if text == "installing the base system":
            assert not is_free(tmp_path / "alive")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nodeimage.build(project, interrupt)
    assert is_free(tmp_path / "alive"), "what was started has ended"
    assert heard[-1] == "removing the unfinished image"
    assert left(project) == []
    with pytest.raises(nodeimage.ImageMissingError, match="has not been built"):
        nodeimage.find(project)


def is_free(lock: Path) -> bool:
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.root
@as_root
def test_files_of_a_killed_build_do_not_count_as_an_image_and_are_removed_by_the_next(
    project: Path, programs: Path
) -> None:
    unfinished = images_directory(project) / f".unfinished-{nodeimage.wanted_key(project)}"
    unfinished.mkdir(parents=True)
    (unfinished / "image.json").write_text("{}")
    assert nodeimage.built(project) == []
    with pytest.raises(nodeimage.ImageMissingError, match="has not been built"):
        nodeimage.find(project)
    stand_in(programs, "mmdebstrap", "exit 1")
    with pytest.raises(nodeimage.ImageError, match=r"it said nothing"):
        nodeimage.build(project, ignore)
    assert left(project) == []


@pytest.mark.root
@as_root
def test_a_second_build_waits_for_the_first(project: Path, programs: Path) -> None:
    stand_in(programs, "mmdebstrap", "exit 1")
    images_directory(project).mkdir(parents=True)
    heard = []
    with open(images_directory(project) / "lock", "w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)

        def first_ends(text: str) -> None:
            heard.append(text)
            fcntl.flock(first, fcntl.LOCK_UN)

        with pytest.raises(nodeimage.ImageError, match="mmdebstrap failed"):
            nodeimage.build(project, first_ends)
    assert heard[0] == "another build is running; waiting for it"


def test_another_architecture_is_refused_with_the_supported_one(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(nodeimage.ImageError, match=r"x86_64 only, and this machine is aarch64"):
        nodeimage.build(project, ignore)


def test_a_debian_host_of_the_same_suite_gives_only_debian_mirrors(programs: Path) -> None:
    index = (
        "https://near.example/debian/ bookworm Debian main",
        "https://near.example/debian/ bookworm Debian contrib",
        "https://near.example/debian/ bookworm-updates Debian main",
        "https://security.example/ bookworm-security Debian main",
        "https://docker.example/linux/debian bookworm Docker stable",
        "https://near.example/debian/ bookworm-backports Debian main",
    )
    stand_in(programs, "apt-get", "\n".join(f"echo '{line}'" for line in index))
    assert contents.package_sources() == [
        "deb https://near.example/debian/ bookworm main",
        "deb https://near.example/debian/ bookworm-updates main",
        "deb https://security.example/ bookworm-security main",
    ]


def test_other_systems_get_mmdebstraps_default(programs: Path) -> None:
    stand_in(programs, "apt-get", "echo 'http://near.example/ubuntu noble Ubuntu main'")
    assert contents.package_sources() == []
    stand_in(programs, "apt-get", "exit 100")
    assert contents.package_sources() == []
