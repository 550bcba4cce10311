"""The archive of Spark's classes is written by the first JVM and used by the next."""

import os
from pathlib import Path

import pytest

from analysis.engines.spark import ClassArchive


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A directory with a Java, two jars and the scratch directory of a session."""
    for folder in ("jars", "scratch"):
        (tmp_path / folder).mkdir()
    for name in ("java", "jars/one.jar", "jars/two.jar"):
        (tmp_path / name).touch()
    return tmp_path


def archive_on(machine: Path, options: str = "-Xshare:auto", cache: str = "a cache: ours") -> ClassArchive:
    return ClassArchive(machine / "java", options, machine / "jars", cache=machine / cache)


def test_the_first_jvm_writes_the_archive_that_the_next_uses(machine: Path) -> None:
    scratch = machine / "scratch"
    with archive_on(machine).option(str(scratch)) as option:
        assert option == f"-XX:ArchiveClassesAtExit={scratch}/classes.jsa"
    (scratch / "classes.jsa").write_text("classes")
    archive_on(machine).keep(scratch)
    with archive_on(machine).option(str(scratch)) as option:
        name, _, path = option.partition("=")
        assert (name, Path(path).read_text()) == ("-XX:SharedArchiveFile", "classes")
        assert not {" ", ":"} & set(path), "Spark splits options at spaces, Java archives at colons"


@pytest.mark.parametrize("change", ["java", "jar", "options"])
def test_another_java_jar_or_option_has_another_archive(machine: Path, change: str) -> None:
    before = archive_on(machine)
    (machine / "scratch/classes.jsa").touch()
    before.keep(machine / "scratch")
    if change == "java":
        os.utime(machine / "java", ns=(1, 1))
    if change == "jar":
        (machine / "jars/three.jar").touch()
    after = archive_on(machine, "-Xint" if change == "options" else "-Xshare:auto")
    assert after.path != before.path
    after.keep(machine / "scratch")
    assert list(before.path.parent.iterdir()) == [after.path], "the earlier one is removed"


def test_a_jvm_that_was_killed_leaves_no_archive(machine: Path) -> None:
    archive = archive_on(machine)
    archive.keep(machine / "scratch")
    assert not archive.path.parent.exists()


def test_a_cache_that_cannot_be_written_costs_time_only(machine: Path) -> None:
    (machine / "file").touch()
    archive = archive_on(machine, cache="file")
    (machine / "scratch/classes.jsa").touch()
    archive.keep(machine / "scratch")
    with archive.option(str(machine / "scratch")) as option:
        assert option.startswith("-XX:ArchiveClassesAtExit=")
