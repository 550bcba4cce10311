"""An image's key changes exactly with the content of the image."""

from pathlib import Path

import pytest

import nodeimage
from tests.nodeimage.support import pretend_built, small_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return small_project(tmp_path)


def test_an_image_of_another_architecture_is_not_taken(project: Path) -> None:
    image = pretend_built(project)
    assert nodeimage.find(project) == image
    image.write_record({**image.record, "architecture": "arm64"})
    with pytest.raises(nodeimage.ImageStaleError, match=r"is for arm64, not amd64; remove that directory; build it: "):
        nodeimage.find(project)


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nodeimage/guest/etc/ssh/sshd_config", "Port 23\n"),
        ("nodeimage/recipe.py", 'PACKAGES = (*PACKAGES, "strace")\n'),
        ("nodeimage/initrd/init", "# one more\n"),
        ("nodeimage/box/Vagrantfile", "# one more\n"),
        ("nodeimage/contents.py", "# one more\n"),
    ],
)
def test_the_key_changes_with_the_recipe(project: Path, name: str, text: str) -> None:
    before = nodeimage.wanted_key(project)
    append(project / name, text)
    assert nodeimage.wanted_key(project) != before


def test_the_key_changes_with_a_new_guest_file_and_with_an_executable_bit(project: Path) -> None:
    keys = [nodeimage.wanted_key(project)]
    (project / "nodeimage/guest/etc/issue").write_text("hello\n")
    keys.append(nodeimage.wanted_key(project))
    (project / "nodeimage/guest/etc/issue").chmod(0o755)
    keys.append(nodeimage.wanted_key(project))
    assert len(set(keys)) == 3


def test_the_key_changes_with_the_pins_of_the_brokers_imports(project: Path) -> None:
    before = nodeimage.wanted_key(project)
    lock = project / "requirements.lock"
    lock.write_text(lock.read_text().replace("uvloop==0.23.0", "uvloop==0.23.1"))
    assert nodeimage.wanted_key(project) != before


def test_the_key_is_independent_of_other_files(project: Path) -> None:
    before = nodeimage.wanted_key(project)
    append(project / "requirements.lock", "zzz==1.0 \\\n    --hash=sha256:00\n    # via something else\n")
    append(project / "broker/log/segment.py", "OTHER = 2\n")
    append(project / "nodeimage/image.py", "# how an image is found is not what is in it\n")
    compiled = project / "nodeimage/initrd/__pycache__"
    compiled.mkdir()
    (compiled / "x.pyc").write_bytes(b"x")
    assert nodeimage.wanted_key(project) == before


def test_the_key_is_independent_of_the_projects_directory(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    keys = {nodeimage.wanted_key(small_project(directory)) for directory in (tmp_path, tmp_path / "elsewhere")}
    assert len(keys) == 1


def test_missing_stale_and_damaged_images_have_separate_errors_with_a_remedy(project: Path) -> None:
    with pytest.raises(nodeimage.ImageMissingError, match=r"has not been built; build it: ./brownout image build"):
        nodeimage.find(project)
    image = pretend_built(project)
    assert nodeimage.find(project) == image
    assert image.record["key"] == image.key
    image.kernel.unlink()
    with pytest.raises(nodeimage.ImageMissingError, match=r"incomplete \(vmlinuz missing\); build it"):
        nodeimage.find(project)
    append(project / "nodeimage/recipe.py", "\n")
    with pytest.raises(nodeimage.ImageStaleError, match=r"older recipe than this project's; build it"):
        nodeimage.find(project)


def test_an_image_with_java_has_another_key_and_serves_systems_without_java(project: Path) -> None:
    assert nodeimage.wanted_key(project, ("java",)) != nodeimage.wanted_key(project)
    image = pretend_built(project, ("java",))
    assert nodeimage.find(project) == nodeimage.find(project, ("java",)) == image
    lean = pretend_built(project)
    assert nodeimage.find(project) == lean, "the smallest that serves"
    assert nodeimage.find(project, ("java",)) == image
    assert sorted(nodeimage.current(project)) == sorted((image.directory, lean.directory))


def test_an_image_without_java_is_refused_for_systems_that_need_java(project: Path) -> None:
    pretend_built(project)
    remedy = r"image with java has not been built; build it: \S*brownout image build --with java$"
    with pytest.raises(nodeimage.ImageMissingError, match=remedy):
        nodeimage.find(project, ("java",))
    append(project / "nodeimage/recipe.py", "\n")
    with pytest.raises(
        nodeimage.ImageStaleError, match=r"older recipe .*; build it: \S*brownout image build --with java$"
    ):
        nodeimage.find(project, ("java",))
    assert nodeimage.current(project) == []


def test_removing_takes_all_images_and_archives(project: Path) -> None:
    assert nodeimage.remove_all(project) == 0
    pretend_built(project)
    app = nodeimage.app_archive(project)
    append(project / "nodeimage/recipe.py", "\n")
    pretend_built(project)
    assert nodeimage.remove_all(project) == 2
    assert nodeimage.built(project) == []
    assert not app.archive.exists()
