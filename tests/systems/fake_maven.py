"""A stand-in for Maven: a program `mvn` that copies jars from a directory, and records its calls."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

_PROGRAM = """#!{python} -SE
import pathlib, sys
sys.path.insert(0, {project!r})
from tests.systems.fake_maven_program import answer
answer(pathlib.Path({shelf!r}), sys.argv[1:])
"""


@dataclass
class FakeMaven:
    """`shelf` is its repository. A file named `fails` in it holds what it complains of; with `hangs` it brings what it
    has, says so in the file `hanging`, and never ends; `also` lists coordinates that everything depends on."""

    shelf: Path

    def put(self, coordinate: str, content: bytes) -> None:
        group, artifact, version, *classifier = coordinate.split(":")
        directory = self.shelf / "jars" / group.replace(".", "/") / artifact / version
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{'-'.join([artifact, version, *classifier])}.jar").write_bytes(content)

    def fail(self, message: str) -> None:
        (self.shelf / "fails").write_text(message)

    def hang(self) -> Path:
        """The fifo that it opens, and holds open, when it has brought what it has."""
        os.mkfifo(self.shelf / "hangs")
        return self.shelf / "hangs"

    def depend_on(self, coordinate: str) -> None:
        (self.shelf / "also").write_text(coordinate)

    @property
    def asked(self) -> list[str]:
        """The coordinates that it was asked for, in order."""
        path = self.shelf / "asked"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMaven:
    """The only `mvn` on the search path."""
    shelf, programs = tmp_path / "shelf", tmp_path / "programs"
    shelf.mkdir()
    programs.mkdir()
    project = Path(__file__).resolve().parents[2]
    program = programs / "mvn"
    program.write_text(_PROGRAM.format(python=sys.executable, project=str(project), shelf=str(shelf)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return FakeMaven(shelf)
