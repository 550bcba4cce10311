"""Mutations of the nodes' configuration files."""

from collections.abc import Callable
from typing import Final

from tests.mutations.mutation import Catalog, unknown
from tests.mutations.stored import Stored

FILE: Final = "nodes/n2/server.properties"
UNLIKE: Final = unknown("server.properties", "n2")

_OF_FILES: Final[dict[str, Callable[[Stored], None]]] = {
    "missing": lambda run: run.remove(FILE),
    "missing everywhere": lambda run: run.remove("nodes/*/server.properties"),
    "empty": lambda run: run.empty(FILE),
    "that of another node": lambda run: run.copy("nodes/n1/server.properties", FILE),
    "with another value": lambda run: run.text(FILE, "^min.insync.replicas=2$", "min.insync.replicas=1"),
    "with a setting fewer": lambda run: run.text(FILE, "^min.insync.replicas=2\n", ""),
    "with a setting more": lambda run: run.edit(FILE, lambda data: data + b"log.retention.ms=9\n"),
    "with a setting that is repeated": lambda run: run.edit(FILE, lambda data: data + b"min.insync.replicas=1\n"),
    "with bytes that are not UTF-8": lambda run: run.edit(FILE, lambda data: b"\xff" + data),
}

mutation = Catalog("configuration files")
for name, change in _OF_FILES.items():
    mutation.add(name, change, UNLIKE)
