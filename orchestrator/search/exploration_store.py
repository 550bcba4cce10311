"""Stores an exploration while it runs, in `<campaign>/explorations/<stamp>/`, so that it can be resumed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from history import strict_json
from history.regular_files import read_bytes, read_text, replace_text
from orchestrator.errors import UsageError
from orchestrator.running.versions import CHANGES
from orchestrator.search.exploring import GUIDED, RANDOM, ROUND
from orchestrator.search.task import Attempted
from orchestrator.store.directories import Store, locked
from orchestrator.store.plans import stamp_behind

DIRECTORY: Final = "explorations"
_HEAD: Final = "exploration.json"
_RUNS: Final = "runs.jsonl"
_SUMMARY: Final = "summary.json"
_Way = Annotated[str, msgspec.Meta(pattern=rf"^({GUIDED}|{RANDOM})\Z")]


class Head(msgspec.Struct, frozen=True):
    """The parameters of an exploration. `text`: the campaign's. `arms`: the ways of choosing runs, each with the budget
    of runs, `round_runs` chosen at a time. `code`: the version that made its runs, as `versions.code`; empty if
    unknown."""

    campaign: str
    text: str
    cell: str
    first: Annotated[int, msgspec.Meta(ge=0)]
    budget: Annotated[int, msgspec.Meta(ge=1)]
    arms: Annotated[tuple[_Way, ...], msgspec.Meta(min_length=1)]
    keep_going: bool
    round_runs: Annotated[int, msgspec.Meta(ge=1)] = ROUND
    code: str = ""


class KeptRun(msgspec.Struct, frozen=True):
    """The cheapest run of an anomaly: its seed, its steps, and where it is `kept`, as `campaign/run`."""

    anomaly: str
    seed: int
    steps: int
    kept: str


class Exploration:
    """One exploration in a store: its head, and a line for each run."""

    def __init__(self, path: Path, head: Head) -> None:
        self.path = path
        self.head = head

    @classmethod
    def begin(cls, store: Store, head: Head) -> Exploration:
        """Make the directory of a new exploration. Raises `UsageError` when that is impossible, or when an existing one
        has a newer stamp: --resume would continue that one instead."""
        directory = store.campaign_dir(head.campaign) / DIRECTORY
        now, newest = store.new_stamp(), max((path.parent.name for path in _heads(directory)), default="")
        stamp = stamp_behind(newest, now)
        if stamp is None:
            raise UsageError(
                f"{directory}: by its stamp, the exploration {newest} is newer than one that starts now ({now}), so a "
                "clock is or was wrong, and --resume would continue that one; set the clock right, or, if it was "
                f"wrong then, move {newest} away from there"
            )
        path = directory / stamp
        try:
            path.mkdir(parents=True)
            (path / _HEAD).write_bytes(msgspec.json.format(msgspec.json.encode(head)) + b"\n")
        except OSError as error:
            raise UsageError(f"{path}: cannot be made: {error.strerror}; give another --store") from error
        return cls(path, head)

    @classmethod
    def last(cls, store: Store, campaign: str, text: str, code: str) -> Exploration:
        """The newest exploration of a campaign, to resume. Raises `UsageError` if it is missing, or if its text or
        code differs: its runs would not be comparable."""
        heads = _heads(store.campaign_dir(campaign) / DIRECTORY)
        if not heads:
            raise UsageError(f"{campaign} was never explored in {store.root}; leave out --resume")
        try:
            head = msgspec.json.decode(read_bytes(heads[-1]), type=Head)
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            raise UsageError(f"{heads[-1]}: cannot be read: {error}; explore again without --resume") from error
        if head.text != text:
            raise UsageError(f"{campaign} has changed since it was explored; explore it again without --resume")
        if head.code != code or code.endswith(CHANGES):
            raise UsageError(
                f"{campaign} was explored by commit {head.code or 'unknown'}, and this is {code}: results of different "
                "code are not comparable; explore it again without --resume"
            )
        return cls(heads[-1].parent, head)

    def add(self, attempted: Attempted) -> None:
        """Store the result of one run. Raises `OSError`."""
        with (self.path / _RUNS).open("ab") as file:
            file.write(msgspec.json.encode(attempted) + b"\n")

    def store_report(self, content: Mapping[str, Any]) -> None:
        """Store the report's data, as returned by `report_content`. Raises `OSError`."""
        replace_text(self.path / _SUMMARY, json.dumps(content, indent=1) + "\n")

    def stored_report(self) -> dict[str, Any]:
        """The report's data of the time when it last ended; empty if it was killed before, or the file has other
        content."""
        try:
            content = strict_json.decode(read_text(self.path / _SUMMARY))
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def kept(self) -> tuple[KeptRun, ...]:
        """The runs that it had kept when it last ended; empty if unknown."""
        try:
            return msgspec.convert(self.stored_report().get("found", ()), tuple[KeptRun, ...])
        except msgspec.ValidationError:
            return ()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the exploration: one process at a time continues it. Raises `UsageError` when another one holds it."""
        try:
            descriptor = os.open(self.path / _HEAD, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror}; give another --store") from error
        with locked(descriptor, str(self.path)):
            yield

    def runs(self) -> Iterator[Attempted]:
        """The stored results, in order. An incomplete last line is ignored, so that its run is made again. Raises
        `UsageError` for any other line that cannot be read."""
        path = self.path / _RUNS
        if not path.exists():
            return
        decoder = msgspec.json.Decoder(Attempted)
        complete, _, incomplete = read_bytes(path).rpartition(b"\n")
        if incomplete:
            os.truncate(path, len(complete) + 1 if complete else 0)
        for number, line in enumerate(complete.split(b"\n") if complete else [], 1):
            try:
                attempted = decoder.decode(line)
                if attempted.arm not in self.head.arms:
                    raise msgspec.ValidationError(f"{attempted.arm!r} is not an arm of this exploration")
                yield attempted
            except (msgspec.MsgspecError, RecursionError) as error:
                raise UsageError(f"{path}:{number}: is damaged: {error}; explore again without --resume") from error


def _heads(directory: Path) -> list[Path]:
    """The heads of all explorations in the directory, oldest first."""
    return sorted(directory.glob(f"*/{_HEAD}"))
