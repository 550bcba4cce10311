"""Archives of packages and brokers: the same content gives the same bytes, and pins agree with the content."""

import os
import tarfile
from pathlib import Path

import pytest

import nodeimage
from nodeimage import archives
from nodeimage.python_packages import DEPENDENCIES, pinned
from tests.nodeimage.support import LOCK, ROOT, archive_of, small_project


def test_an_archive_depends_on_content_only(tmp_path: Path) -> None:
    for name, order in (("one", ("a", "b/c")), ("two", ("b/c", "a"))):
        for file in order:
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"content of {file}\n")
            path.chmod(0o600 if name == "one" else 0o664)
        os.utime(tmp_path / name / "a", (1, 1))
        archive_of(tmp_path / name, tmp_path / f"{name}.tar.gz")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        entries = {entry.name: (entry.mode, entry.uid, entry.uname) for entry in archive}
    assert entries == {"a": (0o644, 0, ""), "b": (0o755, 0, ""), "b/c": (0o644, 0, "")}


def test_a_file_is_downloaded_whole_or_absent(tmp_path: Path) -> None:
    missing = {"a": tmp_path / "not there"}
    with pytest.raises(FileNotFoundError):
        archives.write(missing, tmp_path / "whole")
    assert list(tmp_path.iterdir()) == []


def test_the_broker_travels_as_sources_and_compiled(tmp_path: Path) -> None:
    project = small_project(tmp_path)
    (project / "broker" / "notes.txt").write_text("not needed on a node\n")
    app = nodeimage.app_archive(project)
    assert nodeimage.app_archive(project) == app
    with tarfile.open(app.archive) as archive:
        names = {name for name in archive.getnames() if "__pycache__" not in name}
        compiled = {name.partition(".")[0] for name in archive.getnames() if name.endswith(".pyc")}
    assert names == {"broker", "broker/__init__.py", "broker/log", "broker/log/segment.py"}
    assert compiled == {"broker/__pycache__/__init__", "broker/log/__pycache__/segment"}
    (project / "broker" / "log" / "segment.py").write_text("SEGMENT = 2\n")
    assert nodeimage.app_archive(project).key != app.key


def test_pins_have_hashes_and_dependencies() -> None:
    assert pinned(LOCK) == (
        "cramjam==2.14.0 \\\n    --hash=sha256:a1\n"
        "crc32c==2.9 \\\n    --hash=sha256:c1 \\\n    --hash=sha256:c2\n"
        "msgspec==0.22.0 \\\n    --hash=sha256:d1\n"
        "needed==1.0 \\\n    --hash=sha256:e1\n"
        "needed-too==2.0 \\\n    --hash=sha256:f1\n"
        "uvloop==0.23.0 \\\n    --hash=sha256:b1\n"
    )


def test_the_projects_lock_pins_the_imports_of_the_broker() -> None:
    requirements = pinned((ROOT / "requirements.lock").read_text())
    assert all(f"\n{name}==" in f"\n{requirements}" for name in DEPENDENCIES)
    assert "pyspark" not in requirements


def test_a_pin_that_is_missing_is_named() -> None:
    with pytest.raises(nodeimage.ImageError, match="does not pin msgspec"):
        pinned(LOCK.replace("msgspec==", "other=="))


def test_packages_are_kept_by_pins_python_and_machine(tmp_path: Path) -> None:
    project = small_project(tmp_path)
    keys = {
        nodeimage.site_key(project, python, machine) for python in ("3.11", "3.13") for machine in ("x86_64", "arm")
    }
    assert len(keys) == 4
    kept = project / ".cache" / "sites" / f"{nodeimage.site_key(project)}.tar.gz"
    archives.write({"msgspec/__init__.py": ROOT / "broker" / "__init__.py"}, kept)
    # What is there is taken: pip is not asked, and could not answer, for these hashes are made up.
    assert nodeimage.site_archive(project).archive == kept


def test_packages_for_other_pythons_and_machines_are_refused() -> None:
    with pytest.raises(nodeimage.ImageError, match=r"not for Python 2\.7 on x86_64"):
        nodeimage.site_archive(ROOT, python="2.7")
    with pytest.raises(nodeimage.ImageError, match=r"not for Python 3\.11 on vax"):
        nodeimage.site_archive(ROOT, machine="vax")


def test_files_are_kept_by_content_and_not_compressed(tmp_path: Path) -> None:
    project = small_project(tmp_path)
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"a" * 100_000)
    first = nodeimage.files_archive(project, {"lib/a.jar": jar})
    assert nodeimage.files_archive(project, {"lib/a.jar": jar}) == first
    assert first.archive.stat().st_size > 100_000
    with tarfile.open(first.archive) as content:
        assert content.getnames() == ["lib", "lib/a.jar"]
    jar.write_bytes(b"b" * 100_000)
    assert nodeimage.files_archive(project, {"lib/a.jar": jar}).key != first.key
    assert nodeimage.files_archive(project, {"a.jar": jar}).key != first.key
