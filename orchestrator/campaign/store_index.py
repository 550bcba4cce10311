"""The index of a store: one row for each run of each campaign, read from documents that were written before.

Theory of operation. A campaign's summary.json has the gate's decision about each run that counts, with the digest of
the verdict that the decision is made from. No evidence is examined, so the index is not a decision. A row is unknown
when its run's verdict is missing or has another digest. Times of files do not count, because copies do not keep them.
Runs that the summary does not list (superseded, unfinished, or made since) show their stored verdict and say why they
do not count.

`brownout list`, the page and the live server read the index, since they show the present state. Trends on the command
line and comparisons read the table that repeats it (`table_of_runs`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from analysis.summary import Int64, RunSummary, figures
from analysis.verdict import UNKNOWN, VERDICT_FILE, Expectation
from history.known_digests import digest_of
from history.regular_files import read_bytes
from installation.commands import command
from orchestrator.campaign.matrix import is_run
from orchestrator.campaign.plan import invocation_of
from orchestrator.campaign.plans import stamps
from orchestrator.campaign.store import LATEST, RunDirectory

SUMMARY: Final = "summary.json"
_LONGEST_NAME: Final = 255  # bytes, on Linux's filesystems
_SHOWN: Final = 80  # characters of a name in a message


class CampaignSummary(msgspec.Struct):
    """The part of a summary.json that the index reads."""

    campaign: str
    verdict: str
    reason: str
    runs: tuple[RunSummary, ...]
    superseded: tuple[str, ...] = ()
    versions: Mapping[str, tuple[str, ...]] = {}


class _StoredVerdict(msgspec.Struct):
    """The part of a verdict.json that the index reads of a run that its campaign's summary does not list."""

    verdict: str
    met: bool = False
    finished: bool = False
    expected: Expectation | None = None
    cell: str = ""
    seed: Int64 = -1
    world: str = ""
    anomalies: tuple[Mapping[str, Any], ...] = ()
    stats: Mapping[str, Any] = {}
    versions: Mapping[str, str] = {}
    mutants: tuple[str, ...] = ()


@dataclass(frozen=True)
class IndexedRun:
    """One run of a store. `counts`: the last decision over its campaign rests on it. `made`: the start of its
    invocation in ISO 8601, UTC; empty if the name of the run's directory has no time. `report`: the path of its page,
    relative to the store; empty without one."""

    campaign: str
    summary: RunSummary
    counts: bool
    made: str
    report: str

    @property
    def is_unexpected(self) -> bool:
        """Whether the run counts and did not meet its expectation."""
        return self.counts and not self.summary.met

    def to_json(self) -> dict[str, Any]:
        """The row of `brownout list --json`."""
        run = self.summary
        return {
            "campaign": self.campaign,
            "run": run.run,
            "made": self.made,
            "duration_s": run.duration_s,
            "world": run.world,
            "system": run.system,
            "cell": run.cell,
            "seed": run.seed,
            "verdict": run.verdict,
            "expected": run.expected,
            "met": run.met,
            "counts": self.counts,
            "anomalies": list(run.anomalies),
            "acknowledged": run.acknowledged,
            "reasons": list(run.reasons),
            "cause": run.cause,
            "report": self.report,
        }


@dataclass(frozen=True)
class IndexedCampaign:
    """One campaign of a store with the decision in its summary.json; unknown without a readable one."""

    name: str
    verdict: str
    reason: str
    runs: tuple[IndexedRun, ...]


def read_index(store: Path) -> tuple[IndexedCampaign, ...]:
    """The campaigns of a store, by name. Damaged documents become unknown with their reason. Raises `OSError` when the
    store's directory cannot be listed."""
    return tuple(found for path in campaign_directories(store) for found in read_campaign(path))


def campaign_directories(store: Path) -> list[Path]:
    """The directories of a store that may be a campaign's, by name. Raises `OSError`."""
    visible = [path for path in sorted(store.iterdir()) if not path.name.startswith(".") and path.name != LATEST]
    return [path for path in visible if path.is_dir()]


def names_of_directories(path: Path) -> list[str]:
    """The names of the directories in a directory, sorted; also links to directories, but no link that leads to itself.
    Raises `OSError`."""
    with os.scandir(path) as entries:
        return sorted(
            entry.name for entry in entries if (os.path.isdir(entry) if entry.is_symlink() else entry.is_dir())
        )


def ordered(campaigns: tuple[IndexedCampaign, ...]) -> list[IndexedRun]:
    """All runs: unexpected ones first, then the newest first, then by name."""
    rows = [run for campaign in campaigns for run in campaign.runs]
    rows.sort(key=lambda row: (row.campaign, row.summary.run))
    rows.sort(key=lambda row: row.made, reverse=True)
    return sorted(rows, key=lambda row: not row.is_unexpected)


def read_summary(campaign_dir: Path) -> CampaignSummary:
    """A campaign's summary.json. Raises `OSError`, and `ValueError` for a damaged one."""
    summary = msgspec.json.decode(read_bytes(campaign_dir / SUMMARY), type=CampaignSummary)
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
    if (directory / "run.toml").exists():
        return
    try:
        summary = read_summary(directory)
        decision = (summary.verdict, summary.reason)
    except FileNotFoundError:
        summary = None
        decision = (UNKNOWN, f"{SUMMARY} is missing; make it with: {command('gate', str(directory))}")
    except (OSError, ValueError) as error:
        summary = None
        decision = (UNKNOWN, f"{SUMMARY} cannot be read ({error}); make it with: {command('gate', str(directory))}")
    counted = {} if summary is None else {run.run: run for run in summary.runs}
    others = [name for name in names_of_directories(directory) if name not in counted and name != LATEST]
    uncounted = [directory / name for name in others if is_run(directory / name)]
    if summary is None and not uncounted and not stamps(directory):
        return
    rows = [_counted(directory, run) for run in counted.values()]
    superseded = () if summary is None else summary.superseded
    rows += [_uncounted(path, superseded) for path in uncounted]
    yield IndexedCampaign(directory.name, *decision, tuple(rows))


def _counted(campaign_dir: Path, run: RunSummary) -> IndexedRun:
    path = campaign_dir / run.run
    try:
        is_changed = digest_of(f"{path}/{VERDICT_FILE}") != run.verdict_sha256
        doubt = "the run was analyzed after the summary was written" if is_changed else ""
    except FileNotFoundError:
        doubt = "" if run.verdict == UNKNOWN else f"{VERDICT_FILE} is missing"
    except OSError as error:
        doubt = f"{VERDICT_FILE} cannot be read ({error.strerror})"
    if doubt:
        remedy = f"{doubt}; decide again with: {command('gate', str(campaign_dir))}"
        run = replace(run, verdict=UNKNOWN, met=False, reasons=(remedy, *run.reasons))
    return _row(path, run, counts=True)


def _uncounted(path: Path, superseded: tuple[str, ...]) -> IndexedRun:
    name = path.name
    blank = RunSummary(name, "", -1, UNKNOWN, "", met=False, reasons=())
    why = "a later invocation supersedes it" if invocation_of(name) in superseded else "the summary does not list it"
    try:
        stored = msgspec.json.decode(read_bytes(path / VERDICT_FILE), type=_StoredVerdict)
    except FileNotFoundError:
        state = "it is under way" if RunDirectory(path).is_held() else f"it has no {VERDICT_FILE}"
        return _row(path, replace(blank, reasons=(state,)), counts=False)
    except (OSError, ValueError) as error:
        return _row(path, replace(blank, reasons=(f"{VERDICT_FILE} cannot be read: {error}",)), counts=False)
    stats = figures(stored.stats)
    known = replace(
        blank,
        cell=stored.cell,
        seed=stored.seed,
        verdict=stored.verdict if stored.finished else UNKNOWN,
        expected=str(stored.expected or ""),
        met=stored.met and stored.finished,
        reasons=(why,),
        anomalies=tuple(sorted({str(each.get("name", "?")) for each in stored.anomalies})),
        duration_s=float(stats.get("duration_s", 0.0)),
        stats=stats,
        world=stored.world,
        versions=stored.versions,
        mutants=stored.mutants,
    )
    return _row(path, known, counts=False)


def _row(path: Path, run: RunSummary, *, counts: bool) -> IndexedRun:
    page = path / "report.html"
    report = f"{path.parent.name}/{path.name}/report.html" if page.is_file() else ""
    return IndexedRun(path.parent.name, run, counts, _moment(invocation_of(run.run)), report)


@cache
def _moment(stamp: str) -> str:
    """The time in an invocation's stamp."""
    try:
        return datetime.strptime(stamp[:15], "%Y%m%dT%H%M%S").isoformat() + "Z"
    except ValueError:
        return ""
