"""Collects from machines: their services' data, kernel logs and journals."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import WorldError
from orchestrator.machine import playbooks
from orchestrator.worlds.base import no_progress

Collected = tuple[str, tuple[str, ...]]
"""A directory below a node's data directory, and globs of the files in it."""

_COLLECTED = ("data", "kernel.log", "journal.log")


def collect(
    targets: Mapping[str, playbooks.Target],
    destinations: Mapping[str, Path],
    collected: Collected,
    directory: Path,
) -> None:
    """Collect from the nodes named in `destinations`, each into its own directory, by playbook. `collected`: the
    directory below a node's data directory, and globs of the files in it.

    `targets`: the nodes as playbooks take them; `directory`: for Ansible's output. Raises `WorldError`; what was
    collected from other nodes is kept."""
    chosen = {name: targets[name] for name in destinations}
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix="collect-") as scratch:
        source, patterns = collected
        variables = {
            "brownout_collect_to": scratch,
            "brownout_collect_directory": source,
            "brownout_collect_files": list(patterns),
        }
        try:
            playbooks.play("collect", list(chosen.values()), directory, variables=variables, on_progress=no_progress)
        finally:
            for name, target in chosen.items():
                _move(Path(scratch, target.name), destinations[name])


def _move(source: Path, destination: Path) -> None:
    try:
        destination.mkdir(parents=True, exist_ok=True)
        for name in _COLLECTED:
            if not (source / name).exists():
                continue
            target = destination / name
            if target.is_dir():
                shutil.rmtree(target)
            # Via a temporary name if it is another filesystem: a partial replica must not look complete.
            draft = destination / f"{name}.partial"
            shutil.move(source / name, draft)
            draft.replace(target)
    except OSError as error:
        raise WorldError(f"what was collected cannot be kept in {destination}: {error}") from error
