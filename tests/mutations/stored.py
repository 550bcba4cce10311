"""A copy of a stored run that may be changed: its files, its journal's lines, its plan."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from history.checksummed_lines import read_lines, text_of

Line = dict[str, Any]


@dataclass(frozen=True)
class Stored:
    """The directory of a run, to be changed at will."""

    path: Path

    # ---- files

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def remove(self, *names: str) -> None:
        """Delete files and directories, which must exist; a name may be a pattern."""
        for name in names:
            found = sorted(self.path.glob(name))
            assert found, f"the base run has no {name}"
            for path in found:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def empty(self, name: str) -> None:
        """A directory loses what it holds, a file its content."""
        path = self.path / name
        if path.is_dir():
            shutil.rmtree(path)
            path.mkdir()
        else:
            assert path.stat().st_size, f"{name} is empty already"
            path.write_bytes(b"")

    def copy(self, source: str, target: str) -> None:
        """The target becomes a copy of the source, whatever it was."""
        origin, path = self.path / source, self.path / target
        if path.is_dir():
            shutil.rmtree(path)
        if origin.is_dir():
            shutil.copytree(origin, path)
        else:
            shutil.copyfile(origin, path)

    def swap(self, one: str, other: str) -> None:
        aside = self.path / "aside"
        (self.path / one).rename(aside)
        (self.path / other).rename(self.path / one)
        aside.rename(self.path / other)

    def edit(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Change a file's bytes; the change must be one."""
        path = self.path / name
        before = path.read_bytes()
        after = change(before)
        assert after != before, f"{name} stayed as it was"
        path.write_bytes(after)

    def text(self, name: str, pattern: str, replacement: str, *, count: int = 1) -> None:
        """Replace what a regular expression matches; it must match."""

        def change(data: bytes) -> bytes:
            text, found = re.subn(pattern, replacement, data.decode(), count=count, flags=re.MULTILINE)
            assert found, f"{name} has nothing like {pattern}"
            return text.encode()

        self.edit(name, change)

    # ---- the journal

    @property
    def journal(self) -> Path:
        return self.path / "history" / "journal.jsonl"

    def lines(self) -> list[Line]:
        return checked(self.journal)

    def write_lines(self, lines: list[Line]) -> None:
        """The run wrote these lines: their numbers and checksums are right."""
        self.journal.write_bytes(text_of(lines))

    def drop_lines(self, which: Callable[[Line], bool]) -> None:
        """Take lines out of the journal; there must be some."""
        lines = self.lines()
        kept = [line for line in lines if not which(line)]
        assert len(kept) < len(lines), "the journal has no such line"
        self.write_lines(kept)

    def change_lines(self, which: Callable[[Line], bool], change: Callable[[Line], None]) -> None:
        lines = self.lines()
        chosen = [line for line in lines if which(line)]
        assert chosen, "the journal has no such line"
        for line in chosen:
            change(line)
        self.write_lines(lines)

    def insert_line(self, after: Callable[[Line], bool], **fields: Any) -> None:
        """A line behind the first that is chosen, a microsecond later."""
        lines = self.lines()
        at = next(index for index, line in enumerate(lines) if after(line))
        before = lines[at]
        lines.insert(at + 1, {"t": before["t"] + 1_000, "wall": before["wall"] + 1e-6, **fields})
        self.write_lines(lines)

    # ---- the plan

    def plan(self, pattern: str, replacement: str) -> None:
        """Replace what a regular expression matches in `run.toml`."""
        self.text("run.toml", pattern, replacement)

    # ---- what the run was made with

    def nodes(self) -> list[str]:
        return sorted(path.name for path in (self.path / "nodes").iterdir())

    def logs(self, partition: int = 0) -> list[str]:
        """The segments of a partition on all nodes."""
        return [f"nodes/{node}/data/log-{partition}/{FIRST_SEGMENT}" for node in self.nodes()]


def checked(path: Path) -> list[Line]:
    """What the lines of a file say, without their numbers and checksums."""
    found = read_lines(path)
    assert not found.defects, found.defects
    return [content for _, content in found.contents]


FIRST_SEGMENT = f"{0:020d}.log"


def event(name: str, /, **fields: Any) -> Callable[[Line], bool]:
    """Chooses the journal's lines of one event, with these fields."""
    return lambda line: line.get("event") == name and all(line.get(key) == value for key, value in fields.items())


def phase(name: str) -> Callable[[Line], bool]:
    return event("phase", name=name)
