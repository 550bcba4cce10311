"""Finding a Java: the right one of several, and the message without any."""

from pathlib import Path

import pytest

from systems.errors import InputError
from systems.java_system import Java, find_java, java_version


def java(home: Path, version: str, *, code: int = 0) -> Path:
    """A program that says what a Java of this version says."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {code}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("said", "version"), [("17.0.15", 17), ("1.8.0_412", 8), ("11", 11), ("21-ea", 21)])
def test_version_outputs_of_java_are_parsed(tmp_path: Path, said: str, version: int) -> None:
    assert java_version(java(tmp_path, said)) == version


def test_java_home_precedes_the_path_and_the_path_precedes_usual_homes(tmp_path: Path) -> None:
    named, usual = java(tmp_path / "named", "17.0.1"), java(tmp_path / "usual" / "j17", "17.0.3")
    listed = java(tmp_path / "listed", "17.0.2")
    homes = [f"{tmp_path}/usual/*"]
    path = {"PATH": str(listed.parent)}
    assert find_java(17, {**path, "JAVA_HOME": str(tmp_path / "named")}, homes).program == named
    assert find_java(17, path, homes).program == listed
    assert find_java(17, {}, homes).program == usual


def test_a_too_old_java_is_skipped(tmp_path: Path) -> None:
    old = java(tmp_path / "old", "11.0.2")
    found = find_java(17, {"JAVA_HOME": str(tmp_path / "old")}, [str(java(tmp_path / "new", "21.0.1").parent.parent)])
    assert (found.program.parent.parent.name, found.version) == ("new", 21)
    assert find_java(11, {"JAVA_HOME": str(tmp_path / "old")}, []).program == old


def test_without_a_suitable_java_the_error_lists_the_found_ones_and_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Java 17 or later is needed, but there is none in JAVA_HOME.*set JAVA_HOME"):
        find_java(17, {"PATH": str(tmp_path)}, [])
    old, broken = java(tmp_path / "old", "11.0.2"), java(tmp_path / "broken", "17", code=1)
    with pytest.raises(InputError) as caught:
        find_java(17, {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(broken.parent)}, [])
    assert f"there is only {old} (Java 11), {broken} (does not say its version); install one" in str(caught.value)


def test_the_files_of_a_java_are_its_home_and_its_linked_configuration(tmp_path: Path) -> None:
    program = java(tmp_path / "j17", "17.0.1")
    (tmp_path / "link").symlink_to(tmp_path / "j17")
    elsewhere = next(path for path in sorted(Path("/etc").iterdir()) if path.is_dir() and not path.is_symlink())
    (tmp_path / "j17" / "conf").symlink_to(elsewhere)
    (tmp_path / "j17" / "inside").symlink_to(program)
    (tmp_path / "j17" / "broken").symlink_to("/etc/there-is-no/such-file")
    (tmp_path / "j17" / "directly").symlink_to("/etc/passwd")
    found = Java(tmp_path / "link" / "bin" / "java", 17)
    assert found.home == tmp_path / "j17"
    assert found.directories == (tmp_path / "j17", elsewhere)
