"""The rows of a store's runs (`analysis.run_row`), read from documents that were written before.

Theory of operation. A campaign's summary.json has the rows over which the gate decided. No evidence is examined, so
what is read here is not a decision. A row is unknown when its run's verdict is missing or does not have the digest that
the row names. Times of files do not count, because copies do not keep them. Runs that the summary does not list
(superseded, unfinished, or made since) show their stored verdict and say why they do not count.

`brownout list` with its trends, the page, comparisons, the tables and the live server read the rows through
`read_index`, or `read_campaign` for one campaign.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from analysis.run_row import RunRow, unknown_row, with_findings
from analysis.verdict import UNKNOWN, VERDICT_FILE, Verdict
from history import strict_toml
from history.known_digests import digest_of
from history.regular_files import read_bytes, read_text
from installation.commands import command
from orchestrator.campaign.plan import invocation_of
from orchestrator.store.directories import LATEST, RunDirectory
from orchestrator.store.matrix import is_run
from orchestrator.store.plans import stamps

SUMMARY: Final = "summary.json"
UNDECIDED: Final = "no verdict"
"""In place of the verdict of an analysis that has not finished."""
_DESCRIPTION: Final = "run.toml"
_OF_ONE_RUN: Final = frozenset(
    ("run", "invocation", "seed", "started", "replay", "versions", "limits", "campaign", "cell", "world_reason")
)
"""Keys of run.toml that differ between any two runs, or that another part of a comparison shows."""
_Document = TypeVar("_Document")
_LONGEST_NAME: Final = 255  # bytes, on Linux's filesystems
_SHOWN: Final = 80  # characters of a name in a message


class IndexedCampaign(msgspec.Struct, frozen=True):
    """One campaign of a store: the part of its summary.json that is shown."""

    name: str = msgspec.field(name="campaign")
    verdict: str
    """Of the last decision; unknown without a readable summary.json."""
    reason: str
    runs: tuple[RunRow, ...]
    superseded: tuple[str, ...] = ()
    """The stamps of invocations that a later one supersedes."""


def read_index(store: Path) -> tuple[IndexedCampaign, ...]:
    """The campaigns of a store, by name. Damaged documents become unknown with their reason. Raises `OSError` when the
    store's directory cannot be listed."""
    return tuple(campaign for path in campaign_directories(store) for campaign in read_campaign(path))


def campaign_directories(store: Path) -> list[Path]:
    """The directories of a store that may be a campaign's, by name. Raises `OSError`."""
    visible = [path for path in sorted(store.iterdir()) if not path.name.startswith(".") and path.name != LATEST]
    return [path for path in visible if path.is_dir()]


def _names_of_directories(path: Path) -> list[str]:
    """The names of the directories in a directory, sorted; also links to directories, but no link that leads to itself.
    Raises `OSError`."""
    with os.scandir(path) as entries:
        return sorted(
            entry.name for entry in entries if (os.path.isdir(entry) if entry.is_symlink() else entry.is_dir())
        )


def ordered(campaigns: Sequence[IndexedCampaign]) -> list[RunRow]:
    """All runs: unexpected ones first, then the newest first, then by name."""
    rows = [run for campaign in campaigns for run in campaign.runs]
    rows.sort(key=lambda row: (row.campaign, row.run))
    rows.sort(key=lambda row: row.made, reverse=True)
    return sorted(rows, key=lambda row: not row.is_unexpected)


def _read_summary(campaign_dir: Path) -> IndexedCampaign:
    """A campaign's summary.json. Raises `OSError`, and `ValueError` for a damaged one."""
    summary = _document(campaign_dir / SUMMARY, IndexedCampaign)
    for run in summary.runs:
        if not _is_name_of_directory(run.run):
            raise ValueError(f"{run.run[:_SHOWN]!r} is not the name of a run's directory")
    return summary


def _is_name_of_directory(text: str) -> bool:
    is_one_name = "/" not in text and "\0" not in text and text not in ("", ".", "..")
    return is_one_name and len(os.fsencode(text)) <= _LONGEST_NAME


def read_campaign(directory: Path) -> Iterator[IndexedCampaign]:
    """The campaign in a directory; nothing for a directory of something else, such as a run. Raises `OSError` when the
    directory cannot be listed."""
    if (directory / _DESCRIPTION).exists():
        return
    has_summary, remedy = True, f"make it with: {command('gate', str(directory))}"
    try:
        campaign = _read_summary(directory)
    except (OSError, ValueError) as error:
        problem = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
        has_summary, campaign = False, IndexedCampaign("", UNKNOWN, f"{SUMMARY} {problem}; {remedy}", ())
    counted = {row.run: row for row in campaign.runs}
    others = [name for name in _names_of_directories(directory) if name not in counted and name != LATEST]
    uncounted = [directory / name for name in others if is_run(directory / name)]
    if not has_summary and not uncounted and not stamps(directory):
        return
    rows = [_counted(directory, row) for row in counted.values()]
    rows += [_uncounted(path, campaign.superseded) for path in uncounted]
    yield replace(campaign, name=directory.name, runs=tuple(rows))


def _counted(campaign_dir: Path, row: RunRow) -> RunRow:
    path = campaign_dir / row.run
    try:
        is_changed = digest_of(f"{path}/{VERDICT_FILE}") != row.verdict_sha256
        doubt = "the run was analyzed after the summary was written" if is_changed else ""
    except FileNotFoundError:
        doubt = "" if row.verdict == UNKNOWN else f"{VERDICT_FILE} is missing"
    except OSError as error:
        doubt = f"{VERDICT_FILE} cannot be read ({error.strerror})"
    if doubt:
        remedy = f"{doubt}; decide again with: {command('gate', str(campaign_dir))}"
        row = replace(row, verdict=UNKNOWN, met=False, reasons=(remedy, *row.reasons))
    return _placed(path, row, counts=True)


def _uncounted(path: Path, superseded: tuple[str, ...]) -> RunRow:
    is_superseded = invocation_of(path.name) in superseded
    reason = "a later invocation supersedes it" if is_superseded else "the summary does not list it"
    row = unknown_row(path.name)
    try:
        row = stored_row(path)
        if row.verdict == UNDECIDED:
            row = replace(row, verdict=UNKNOWN)
    except FileNotFoundError:
        reason = "it is under way" if RunDirectory(path).is_held() else f"it has no {VERDICT_FILE}"
    except (OSError, ValueError) as error:
        reason = f"{VERDICT_FILE} cannot be read: {error}; make it again with: {command('analyze', str(path))}"
    return _placed(path, replace(row, reasons=(reason,)), counts=False)


def stored_row(path: Path) -> RunRow:
    """The row of a run by its verdict.json alone, without reasons. Raises `OSError`, and `ValueError` for a damaged
    one."""
    verdict = _document(path / VERDICT_FILE, Verdict)
    blank = unknown_row(path.name, verdict.cell, verdict.seed, str(verdict.expected), verdict.mutants)
    decision = {"verdict": verdict.verdict, "met": verdict.met} if verdict.finished else {"verdict": UNDECIDED}
    return msgspec.convert(asdict(with_findings(blank, verdict)) | decision, RunRow)


def _document(path: Path, kind: type[_Document]) -> _Document:
    """A document as the index reads it, without the checks of the gate. Raises `OSError`, and `ValueError` for a
    damaged one."""
    try:
        return msgspec.json.decode(read_bytes(path), type=kind)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def with_settings(store: Path, row: RunRow) -> RunRow:
    """The row with the settings in its run.toml, or why that cannot be read."""
    try:
        content = strict_toml.decode(read_text(store / row.campaign / row.run / _DESCRIPTION))
        return replace(row, settings=json.dumps(dict(_flat(content)), default=str, allow_nan=False))
    except (OSError, ValueError) as error:
        return replace(row, settings_unread=str(error))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if not prefix and key in _OF_ONE_RUN:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _placed(path: Path, row: RunRow, *, counts: bool) -> RunRow:
    """The row with what the place of its run in the store says."""
    page = f"{path.parent.name}/{path.name}/report.html"
    return replace(
        row,
        campaign=path.parent.name,
        counts=counts,
        made=_moment(invocation_of(row.run)),
        report=page if (path / "report.html").is_file() else "",
    )


@cache
def _moment(stamp: str) -> str:
    """The time in an invocation's stamp."""
    try:
        return datetime.strptime(stamp[:15], "%Y%m%dT%H%M%S").isoformat() + "Z"
    except ValueError:
        return ""
