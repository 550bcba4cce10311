"""What an exploration keeps while it goes on: `<campaign>/explorations/<stamp>/`, so that it can be gone on with."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from orchestrator.campaign.plans import stamp_behind
from orchestrator.campaign.store import Store, locked
from orchestrator.errors import UsageError
from orchestrator.running.versions import CHANGES
from orchestrator.search.exploring import GUIDED, RANDOM, ROUND
from orchestrator.search.task import Attempted

DIRECTORY: Final = "explorations"
_HEAD: Final = "exploration.json"
_RUNS: Final = "runs.jsonl"
_SUMMARY: Final = "summary.json"
_Way = Annotated[str, msgspec.Meta(pattern=f"^({GUIDED}|{RANDOM})$")]


class Head(msgspec.Struct, frozen=True):
    """What is explored. `text`: the campaign's. `arms`: the ways of choosing runs, each with the budget of runs, so
    many chosen at a time. `code`: what made its runs, as `versions.code` has it; empty where that was not kept."""

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
    """Of an anomaly, the cheapest run: its seed, the steps that it took, and where it is `kept`, as `campaign/run`."""

    anomaly: str
    seed: int
    steps: int
    kept: str


class Exploration:
    """One exploration in a store: its head, and a line for each run that was made."""

    def __init__(self, path: Path, head: Head) -> None:
        self.path = path
        self.head = head

    @classmethod
    def begin(cls, store: Store, head: Head) -> Exploration:
        """Make the directory of a new one. Raises `UsageError` when that cannot be done, or when another one would seem
        to be newer: that would be gone on with in its place."""
        directory = store.campaign_dir(head.campaign) / DIRECTORY
        now, newest = store.new_stamp(), max((path.parent.name for path in _heads(directory)), default="")
        stamp = stamp_behind(newest, now)
        if stamp is None:
            raise UsageError(
                f"{directory}: by its stamp, the exploration {newest} is newer than one that begins now ({now}), so a "
                "clock is or was wrong, and --resume would go on with that one; set the clock right, or, if it was "
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
        """The newest of a campaign, to go on with. Raises `UsageError` where there is none, or not of this text, or
        what runs now is not for certain the code that made its runs: one result would be that of two brokers."""
        known = _heads(store.campaign_dir(campaign) / DIRECTORY)
        if not known:
            raise UsageError(f"{campaign} was never explored in {store.root}; leave out --resume")
        try:
            head = msgspec.json.decode(known[-1].read_bytes(), type=Head)
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            raise UsageError(f"{known[-1]}: cannot be read: {error}; explore anew, without --resume") from error
        if head.text != text:
            raise UsageError(f"{campaign} has changed since it was explored; explore it anew, without --resume")
        if head.code != code or code.endswith(CHANGES):
            raise UsageError(
                f"{campaign} was explored by commit {head.code or 'unknown'}, and this is {code}: other code may do "
                "otherwise; explore it anew, without --resume"
            )
        return cls(known[-1].parent, head)

    def add(self, attempted: Attempted) -> None:
        """Keep what one run came to. Raises `OSError`."""
        with (self.path / _RUNS).open("ab") as file:
            file.write(msgspec.json.encode(attempted) + b"\n")

    def tell(self, told: Mapping[str, Any]) -> None:
        """Keep what it came to, as `told_of` has it. Raises `OSError`."""
        draft = self.path / f".{_SUMMARY}.tmp"
        draft.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.path / _SUMMARY)

    def told(self) -> dict[str, Any]:
        """What it had come to when it last ended; empty when it was killed before it could tell, or when something else
        is there."""
        try:
            told = json.loads((self.path / _SUMMARY).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) else {}

    def kept(self) -> tuple[KeptRun, ...]:
        """What it had kept when it last ended; nothing where that is not told."""
        try:
            return msgspec.convert(self.told().get("found", ()), tuple[KeptRun, ...])
        except msgspec.ValidationError:
            return ()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold it, for one process at a time goes on with it. Raises `UsageError` when another one holds it."""
        try:
            descriptor = os.open(self.path / _HEAD, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror}; give another --store") from error
        with locked(descriptor, str(self.path)):
            yield

    def runs(self) -> Iterator[Attempted]:
        """What is kept, in order; a last line that was not finished is left out, and so made again. Raises `UsageError`
        for any other line that cannot be read."""
        path = self.path / _RUNS
        if not path.exists():
            return
        decoder = msgspec.json.Decoder(Attempted)
        whole, _, rest = path.read_bytes().rpartition(b"\n")
        if rest:
            os.truncate(path, len(whole) + 1 if whole else 0)
        for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
            try:
                attempted = decoder.decode(line)
                if attempted.arm not in self.head.arms:
                    raise msgspec.ValidationError(f"{attempted.arm!r} is no way in which runs were chosen")
                yield attempted
            except (msgspec.MsgspecError, RecursionError) as error:
                raise UsageError(f"{path}:{number}: is damaged: {error}; explore anew, without --resume") from error


def _heads(directory: Path) -> list[Path]:
    """Of the explorations that are kept there, oldest first."""
    return sorted(directory.glob(f"*/{_HEAD}"))
