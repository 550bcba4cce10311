"""Systems that are jars of a locked version, run by a Java: the machine's own on nodes that are part of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import systems.class_archive as class_archive
from systems.catalog import lock_path
from systems.description import Description
from systems.errors import InputError
from systems.files import CACHE, FileCache
from systems.java import Java, find_java
from systems.lock_file import Lock
from systems.service import Place
from systems.system import Deployed, System


class JavaSystem(System):
    """Templates can use `java`, the program, and `class_archive`, the file of the classes that the version loads at its
    start: one who gives it to Java (`-XX:SharedArchiveFile`) starts in half the time. It may be missing, which Java
    does not mind.

    `least_java`: the oldest feature release that runs it; `archived_role`: the role whose start is archived, if any.
    """

    least_java = 17
    archived_role: str | None = None

    def __init__(
        self,
        description: Description,
        version: str | None = None,
        *,
        cache: Path = CACHE,
        find: Callable[[int], Java] = find_java,
    ) -> None:
        super().__init__(description, version)
        self._cache = FileCache(cache)
        self._find = find

    @cached_property
    def lock(self) -> Lock:
        """Raises `InputError` when it is not there or not understood."""
        return Lock.read(lock_path(self.description.directory, self.version), self.name, self.version)

    @cached_property
    def java(self) -> Java:
        """Raises `InputError` when this machine has none that is new enough."""
        return self._find(self.least_java)

    @property
    def files_dir(self) -> str:
        return str(self._cache.directory(self.lock))

    def files(self) -> dict[str, Path]:
        """The jars: a class archive beside them is of this machine's Java."""
        return {each.name: Path(self.files_dir) / each.name for each in self.lock.files}

    @property
    def class_archive(self) -> Path:
        """Valid for these jars with this Java and these options only, so its name is made of them. It lies with the
        jars, and goes when they are fetched anew."""
        program = self.java.program.resolve()
        roles = self.description.roles.values()
        options = [word for role in roles for word in role.command]
        templates = [
            (self.description.directory / name).read_text(encoding="utf-8")
            for role in roles
            for name in role.files.values()
        ]
        key = [str(program), str(program.stat().st_mtime_ns), *options, *templates]
        digest = hashlib.sha256("\0".join(key).encode()).hexdigest()
        return Path(self.files_dir) / f"classes-{digest[:16]}.jsa"

    def prepare(self, on_progress: Callable[[str], None]) -> None:
        """Jars and Java must be there. The class archive is made if it can be: without it nodes only start slower."""
        try:
            self._cache.use(self.lock)
            java = self.java
        except InputError as error:
            raise InputError(f"{self.description.title} {self.version}: {error}") from error
        if self.archived_role is None or self.class_archive.exists():
            return
        on_progress(f"archiving the classes of {self.name} {self.version} for Java {java.version}, once")
        deployed = Deployed(self, (self.archived_role,), cluster_id="class-archive")
        try:
            class_archive.make(deployed, self.class_archive)
        except (class_archive.ArchiveError, OSError) as error:
            on_progress(f"without a class archive, nodes start slower: {error}")

    def shown(self) -> tuple[str, ...]:
        return (*super().shown(), *map(str, self.java.directories))

    def variables(self, node: Place, cluster_id: str) -> dict[str, Any]:
        del cluster_id
        if not node.is_local:
            return {"java": "java", "class_archive": f"{node.files_dir}/classes.jsa"}
        return {"java": str(self.java.program.resolve()), "class_archive": str(self.class_archive)}
