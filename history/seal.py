"""The seal of a finished run: the digest of each file of its evidence when the run ended, which reveals later changes.

Theory of operation. `history/seal.json` has the size and SHA-256 of each file, and the names of the directories,
because an empty directory is evidence too. Evidence is what the run left: its plan, its history, what its nodes and
clients wrote, and the identity of a simulation. What the analysis makes from that (tables, verdict, report) is not
evidence.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from history.known_digests import digest_of
from history.regular_files import draft_of, read_bytes, replace_text
from history.strict_json import decode

FILE_NAME: Final = "seal.json"
EVIDENCE: Final = ("run.toml", "campaign.toml", "simulation.json", "history", "nodes", "shared", "clients")

_DIRECTORY: Final = "directory"
_STRANGE: Final = "neither a file nor a directory"

Content = dict[str, dict[str, Any]]


def seal(run_dir: Path) -> str:
    """Seal a run as it is now, atomically; returns its digest. Raises OSError."""
    content = content_of(run_dir)
    history = run_dir / "history"
    replace_text(history / FILE_NAME, json.dumps({"evidence": content}, indent=1) + "\n")
    return _digest(content)


def digest(run_dir: Path) -> str:
    """The digest of a run's evidence as it is now, sealed or not; equal for equal evidence. Raises OSError."""
    return _digest(content_of(run_dir))


def examined(run_dir: Path) -> tuple[str, tuple[str, ...]]:
    """The digest of a run's evidence, and its differences from the seal. Raises OSError."""
    content = content_of(run_dir)
    return _digest(content), tuple(_complaints(run_dir, content))


def complaints(run_dir: Path) -> Iterator[str]:
    """The differences between the evidence and the seal, as sentences that name the file; empty without any."""
    yield from _complaints(run_dir, content_of(run_dir))


def _complaints(run_dir: Path, content: Content) -> Iterator[str]:
    path = run_dir / "history" / FILE_NAME
    try:
        sealed = _evidence_of(path)
    except FileNotFoundError:
        yield "the run is not sealed: the state of its evidence when it ended is unknown"
        return
    except (OSError, ValueError) as error:
        yield f"history/{FILE_NAME} cannot be read: {error}"
        return
    yield from _changes(sealed, content).values()


def changed(run_dir: Path) -> dict[str, str]:
    """The evidence that differs from the seal, by name, each with a sentence; empty without a readable seal, because
    then no change is known."""
    try:
        sealed = _evidence_of(run_dir / "history" / FILE_NAME)
    except (OSError, ValueError):
        return {}
    return _changes(sealed, content_of(run_dir))


def _changes(sealed: Content, content: Content) -> dict[str, str]:
    sentences = {name: _change(name, sealed, content) for name in sorted(sealed.keys() | content.keys())}
    return {name: sentence for name, sentence in sentences.items() if sentence}


def _change(name: str, sealed: Content, content: Content) -> str:
    """The change of a file or directory, as a sentence; empty without a change."""
    if name not in content:
        return f"{name} is missing: it was there when the run ended"
    if name not in sealed:
        return f"{name} was added after the run had ended"
    if sealed[name] != content[name]:
        return f"{name} was {_how(sealed[name], content[name])} after the run had ended"
    if content[name].get("is", _DIRECTORY) != _DIRECTORY:
        return f"{name} is {content[name]['is']}: what it shows need not be of this run"
    return ""


def content_of(run_dir: Path) -> Content:
    """The state of each file and directory of the evidence, by its path below the run's directory. A file that cannot
    be read counts as changed."""
    content: Content = {}
    for name in EVIDENCE:
        if os.path.lexists(run_dir / name):
            _add(name, str(run_dir / name), content)
    for own_name in (FILE_NAME, draft_of(Path(FILE_NAME)).name):
        content.pop(f"history/{own_name}", None)
    return dict(sorted(content.items()))


def _add(name: str, path: str, content: Content) -> None:
    """`name`: the path below the run's directory. Few system calls for each: a run may have many thousand files."""
    kind = "file"
    try:
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode):
            kind = _DIRECTORY
            content[name] = {"is": _DIRECTORY}
            for inside in sorted(os.listdir(path)):
                _add(f"{name}/{inside}", f"{path}/{inside}", content)
        elif stat.S_ISREG(status.st_mode):
            content[name] = {"bytes": status.st_size, "sha256": digest_of(path)}
        else:
            content[name] = {"is": _STRANGE}
    except OSError as error:
        content[name] = {"is": f"{kind} that cannot be read: {error.strerror}"}


def _evidence_of(path: Path) -> Content:
    """Raises OSError, and ValueError for a file that is not a seal."""
    content = decode(read_bytes(path))
    evidence = content.get("evidence") if isinstance(content, dict) else None
    if not isinstance(evidence, dict):
        raise ValueError("it is not a seal")
    return evidence


def _how(sealed: Any, state: dict[str, Any]) -> str:
    before, now = sealed.get("bytes") if isinstance(sealed, dict) else None, state.get("bytes")
    if not isinstance(before, int) or not isinstance(now, int) or before == now:
        return "changed"
    return f"{'shortened' if now < before else 'lengthened'} from {before} to {now} bytes"


def _digest(content: Content) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
