"""Writes what was found of a foreign history into a directory: all of it or nothing.

    result.json            the verdict, its scope, anomalies and doubts
    operations.parquet     the operations as they were judged, values renumbered; the reader of the history writes it
    values.parquet         the text of each renumbered value; the reader writes it, too
    certificate/           of a pass: the order that explains the operations
    anomaly-N.png          of a fail: the operations that contradict each other

The files are made in a draft directory beside the final one, which then takes its place.
"""

import contextlib
import fcntl
import glob
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from analysis.foreign.judgement import SCOPE, ForeignJudgement, in_texts, shown
from analysis.page.witness_text import operation_text
from analysis.plots.witness_operations import operations_of
from history.foreign.history import ForeignHistory
from history.journal.timeline import RunClock
from history.regular_files import read_bytes, sha256_of
from history.strict_json import decode

RESULT: Final = "result.json"
FORMAT: Final = 1
MOST_PLOTS: Final = 6


class PlaceError(Exception):
    """A directory cannot be replaced; the message names it and the remedy."""


@contextmanager
def replaced(place: Path) -> Iterator[Path]:
    """A draft directory that becomes `place` at the end, and is removed if the block raises.

    Raises PlaceError if `place` exists and is not the result of an earlier check.
    """
    if (place.exists() or place.is_symlink()) and not _is_result(place):
        raise PlaceError(f"{place} exists and is not the result of a check: name another directory with --out")
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    for abandoned in place.parent.glob(f".{glob.escape(place.name)}.[0-9]*"):
        if not abandoned.suffix[1:].isdecimal():
            continue
        with contextlib.suppress(OSError), _locked(abandoned):  # a check that runs holds the lock of its draft
            shutil.rmtree(abandoned)
    draft.mkdir()
    try:
        with _locked(draft):
            yield draft
        if place.is_dir():
            shutil.rmtree(place)
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory. Raises `BlockingIOError` when another process holds it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _is_result(place: Path) -> bool:
    """Whether a check wrote this directory: other programs write a result.json too."""
    try:
        content = decode(read_bytes(place / RESULT).decode())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("scope") == SCOPE and "file_format" in content


def write(paths: Sequence[Path], form: str, history: ForeignHistory, judgement: ForeignJudgement) -> dict[str, Any]:
    """Writes the plots and the result, beside the operations, and returns the result. `form`: the name of the files'
    format."""
    plots = list(_plots(history, judgement))
    anomalies = [asdict(shown(anomaly, history.names)) for anomaly in judgement.anomalies]
    content: dict[str, Any] = {
        "format": FORMAT,
        "verdict": judgement.verdict,
        "sentence": judgement.sentence,
        "scope": SCOPE,
        "not_judged": list(history.not_judged),
        "files": {str(path): sha256_of(path) for path in paths},
        "file_format": form,
        "model": history.model,
        "certified": judgement.certified,
        "anomalies": anomalies,
        "doubts": list(judgement.doubts),
        "plots": plots,
    }
    text = json.dumps(content, indent=1) + "\n"
    (history.directory / RESULT).write_text(text, encoding="utf-8")
    stored: dict[str, Any] = decode(text)
    return stored


def _plots(history: ForeignHistory, judgement: ForeignJudgement) -> Iterator[str]:
    for index, anomaly in enumerate(judgement.anomalies[:MOST_PLOTS]):
        plot = operations_of(
            anomaly, RunClock(history.start), (), lambda row: in_texts(operation_text(row), history.names)
        )
        if plot is not None:
            (history.directory / f"anomaly-{index}.png").write_bytes(plot)
            yield f"anomaly-{index}.png"
