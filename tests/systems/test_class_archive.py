"""Class archives: whole or not at all, whatever becomes of the program that is to write one."""

import sys
from pathlib import Path

import pytest

from systems import java_system
from systems.java_system import ArchiveError, ProgramRoot
from systems.service import Place, Service

# Stands in for a Java: listens on its port until SIGTERM, and then writes the archive, if it is to.
PROGRAM = """
import signal, socket, sys
how, port, option = sys.argv[1:]
if how == "ends":
    sys.exit("no such class")
def end(*_):
    if how == "writes":
        open(option.removeprefix("-XX:ArchiveClassesAtExit="), "w").write("classes")
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
listener = socket.create_server(("127.0.0.1", int(port)))
signal.pause()
"""


class OneNode:
    """A deployment of one such program. `how`: writes, forgets, ends; `prepares`: the exit code of the preparing
    command."""

    collected = (".", ())
    files_dir = ""
    files_name = "one"

    def __init__(self, how: str, prepares: int = 0) -> None:
        self._how = how
        self._prepares = prepares

    def ports(self, number: int) -> dict[str, int]:
        return {"client": 1000 + number, "other": 2000 + number}

    def service(self, node: Place, nodes: object, time_scale: float = 1.0) -> Service:
        del nodes, time_scale
        port, other = node.ports["client"], node.ports["other"]
        assert port != other
        config = f"{node.etc_dir}/config"
        check = f"import sys; assert open({config!r}).read() == 'text'; sys.exit({self._prepares})"
        command = (sys.executable, "-c", PROGRAM, self._how, str(port), "-XX:SharedArchiveFile=given")
        return Service("r", command, {config: "text"}, prepare=((sys.executable, "-c", check),))


def test_an_archive_exists_when_the_program_has_written_it(tmp_path: Path) -> None:
    (tmp_path / "classes-old.jsa").write_text("of another Java")
    java_system.make_class_archive(OneNode("writes"), tmp_path / "classes-new.jsa")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"classes-new.jsa": "classes"}


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (OneNode("forgets"), "the program ended without an archive; its last output: empty"),
        (OneNode("ends"), "the program ended with exit code 1; its last output: no such class"),
        (OneNode("writes", prepares=3), "failed: "),
    ],
)
def test_a_failed_class_archive_leaves_no_file(node: OneNode, words: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=words):
        java_system.make_class_archive(node, tmp_path / "classes-new.jsa")
    assert list(tmp_path.iterdir()) == []


def test_programs_of_another_root_see_their_own_paths(tmp_path: Path) -> None:
    root = ProgramRoot(tmp_path)
    assert root.seen(str(tmp_path / "tmp" / "x")) == "/tmp/x"
    assert root.own("/tmp/x") == tmp_path / "tmp" / "x"
    assert root.command(["java", "-version"]) == ["chroot", str(tmp_path), "java", "-version"]
    assert (ProgramRoot().seen("/a"), ProgramRoot().own("/a"), ProgramRoot().command(["b"])) == (
        "/a",
        Path("/a"),
        ["b"],
    )
