"""Lock files: the files of one version of a system, one line each, with Maven coordinate, hash and size.

    # comment
    org.apache.kafka:kafka-clients:4.1.1 3b5d...64 hexadecimal digits 9766726

The coordinate is `group:artifact:version[:classifier]`, the hash SHA-256, the size in bytes. All files are jars.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from history.regular_files import read_text
from systems.errors import InputError

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, order=True)
class Coordinate:
    """The Maven coordinate of a jar; without a classifier, `classifier` is empty."""

    group: str
    artifact: str
    version: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> "Coordinate":
        """Raises `InputError` when the text is not `group:artifact:version[:classifier]`."""
        parts = text.split(":")
        if len(parts) not in (3, 4) or not all(_PART.fullmatch(part) for part in parts):
            raise InputError(f"{text!r} is not a coordinate of the form group:artifact:version[:classifier]")
        return cls(*parts)

    def __str__(self) -> str:
        return ":".join([self.group, self.artifact, self.version, *([self.classifier] if self.classifier else [])])

    @property
    def file_name(self) -> str:
        """The file's name in Maven's repositories."""
        return f"{'-'.join(filter(None, (self.artifact, self.version, self.classifier)))}.jar"


@dataclass(frozen=True, order=True)
class LockedFile:
    """One file: `sha256` in hexadecimal digits, `size` in bytes."""

    coordinate: Coordinate
    sha256: str
    size: int

    @property
    def name(self) -> str:
        return self.coordinate.file_name

    def __str__(self) -> str:
        return f"{self.coordinate} {self.sha256} {self.size}"


@dataclass(frozen=True)
class Lock:
    """All files of one version of a system; their names differ."""

    system: str
    version: str
    files: tuple[LockedFile, ...]

    @classmethod
    def read(cls, path: Path, system: str, version: str) -> "Lock":
        """Raises `InputError` with file and line."""
        try:
            text = read_text(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InputError(f"{path}: is not UTF-8 text; make it again: brownout system lock --help") from None
        files: dict[str, LockedFile] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            file = _parse(f"{path}:{number}", line)
            if file.name in files:
                raise InputError(f"{path}:{number}: {file.name} is listed twice; remove one of the lines")
            files[file.name] = file
        if not files:
            raise InputError(f"{path}: lists no file; make it again: brownout system lock --help")
        return cls(system, version, tuple(files.values()))

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        return sum(file.size for file in self.files)


def write(path: Path, files: Iterable[LockedFile], comment: str) -> None:
    """Write a lock file, its lines sorted; `comment` may have several lines."""
    lines = [*(f"# {line}" for line in comment.splitlines()), *(str(file) for file in sorted(files))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _parse(place: str, line: str) -> LockedFile:
    parts = line.split()
    if len(parts) != 3:
        raise InputError(f"{place}: {line.strip()!r} is not of the form `coordinate sha256 size`")
    coordinate, sha256, size = parts
    if not _SHA256.fullmatch(sha256):
        raise InputError(f"{place}: {sha256!r} is not a SHA-256 hash of 64 hexadecimal digits")
    if not (size.isascii() and size.isdigit()):
        raise InputError(f"{place}: the size {size!r} is not a number of bytes")
    try:
        return LockedFile(Coordinate.parse(coordinate), sha256, int(size))
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
