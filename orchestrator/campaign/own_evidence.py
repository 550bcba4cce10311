"""Checks from a run's evidence that it has the name and the seed of its plan.

A copy of another run can be renamed, in `run.toml` too. What was drawn from a seed cannot: the faults of a random
schedule, the seeds of clients, the seed of a simulated world. Nor can the cluster's name on the nodes' disks, which is
the run's name in every world where one run could leave something for the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from history import strict_json
from history.checksummed_lines import read_lines
from history.regular_files import read_bytes, read_text, sha256_of
from nemeses import Schedule, plan_schedule
from orchestrator.campaign.model import SIMULATION
from orchestrator.campaign.plan import derived_seed
from orchestrator.campaign.plans import StoredRun

_SIMULATED: Final = ("simulation.json", "history/oracles.json")
_IDENTITIES: Final = ("data/meta.properties", "earlier/meta.properties")

Content = Mapping[str, Any]


def foreign(run: StoredRun, description: Content, run_dir: Path, identity: str | None) -> Iterator[str]:
    """Sentences: evidence that belongs to another run. `description`: the required content of its `run.toml`;
    `identity`: the cluster id that its nodes must have, None if it is unknown."""
    try:
        journal = [line for _, line in read_lines(run_dir / "history" / "journal.jsonl").contents]
    except OSError as error:
        yield f"history/journal.jsonl cannot be read: {error.strerror}"
        return
    yield from _start_defects(description, journal, sha256_of(run_dir / "run.toml"))
    yield from _clients(run.seed, journal)
    yield from _words(journal, run_dir)
    # An unfinished run lacks later evidence; its own verdict reports that.
    finished = any((line.get("event"), line.get("name")) == ("phase", "done") for line in journal)
    if description["nemesis"]["kind"] == "random":
        yield from _faults(_schedule(run.seed, description), journal, finished=finished)
    if description["world"] == SIMULATION and finished:
        yield from _simulated(run, run_dir)
    if identity is not None:
        yield from _identities(identity, description["system"]["roles"], run_dir)


def was_configured(run_dir: Path) -> bool:
    """Whether a run got as far as configuring its nodes: one of them was started."""
    try:
        lines = [line for _, line in read_lines(run_dir / "history" / "journal.jsonl").contents]
    except OSError:
        return True
    return any((line.get("event"), line.get("what")) == ("node", "started") for line in lines)


def schedule_of(
    seed: int,
    kinds: Sequence[str],
    *,
    total_s: float,
    interval_s: tuple[float, float],
    duration_s: tuple[float, float],
    overlap: bool,
    quiet_s: Sequence[tuple[float, float]],
) -> Schedule:
    """The faults of a run of this seed. Raises `ScheduleError`, as `plan_schedule` does."""
    drawn = plan_schedule(
        derived_seed(seed, "nemesis"),
        kinds,
        total_s=total_s,
        interval_s=interval_s,
        duration_s=duration_s,
        overlap=overlap,
    )
    return drawn.without(quiet_s)


def _schedule(seed: int, description: Content) -> Schedule:
    nemesis = description["nemesis"]
    low, high = nemesis["interval_s"]
    shortest, longest = nemesis["duration_s"]
    return schedule_of(
        seed,
        nemesis["faults"],
        total_s=description["workload"]["duration_s"],
        interval_s=(low, high),
        duration_s=(shortest, longest),
        overlap=nemesis["overlap"],
        quiet_s=[(start, end) for start, end in nemesis["quiet_s"]],
    )


def _start_defects(description: Content, journal: Sequence[Content], digest: str) -> Iterator[str]:
    """`digest`: of `run.toml` as it is now."""
    started = [line for line in journal if line.get("event") == "run_started"]
    for line in started:
        for key in ("run", "cell", "seed", "world", "started", "versions"):
            said, due = line.get(key), description.get(key)
            if said != due:
                yield f"the journal is that of another run: its {key} is {said!r}, not {due!r}"
        if line.get("plan") != digest:
            yield "the journal does not have the digest of run.toml: the run started with another plan"
    if not started:
        yield "the journal does not say with which plan the run started"


def _clients(seed: int, journal: Sequence[Content]) -> Iterator[str]:
    for line in journal:
        if line.get("event") == "client" and line.get("seed") != derived_seed(seed, f"client/{line.get('client')}"):
            yield f"the client {line.get('client')} used seed {line.get('seed')!r}, not derived from {seed}"


def _words(journal: Sequence[Content], run_dir: Path) -> Iterator[str]:
    """Each client that was started has a file with its output, possibly empty."""
    for name in dict.fromkeys(str(line.get("client")) for line in journal if line.get("event") == "client"):
        if not (run_dir / "clients" / f"{name}.log").is_file():
            yield f"clients/{name}.log is missing: it would have that client's output"


def _faults(schedule: Schedule, journal: Sequence[Content], *, finished: bool) -> Iterator[str]:
    """Faults are in the order of the schedule. Some are skipped for lack of time, but never the first of a kind."""
    remaining = list(schedule)
    due = dict.fromkeys(plan.kind for plan in remaining)
    for line in journal:
        if line.get("event") != "fault_invoked":
            continue
        kind, parameters = str(line.get("kind")), line.get("parameters")
        drawn = [{"duration_s": plan.duration_s, "aim": plan.aim, **plan.parameters} for plan in remaining]
        at = next((n for n, plan in enumerate(remaining) if plan.kind == kind and drawn[n] == parameters), None)
        if at is None:
            yield f"the fault {line.get('id')} ({kind}) is not the one that the seed has drawn at that place"
            return
        due.pop(kind, None)
        remaining = remaining[at + 1 :]
    if due and finished:
        yield f"faults that the seed has drawn are not in the journal: {', '.join(due)}"


def _simulated(run: StoredRun, run_dir: Path) -> Iterator[str]:
    seed = derived_seed(run.seed, "world")
    for name in _SIMULATED:
        try:
            content = strict_json.decode(read_bytes(run_dir / name))
        except (OSError, ValueError) as error:
            yield f"{name}, which shows the seed of a simulated run, cannot be read: {error}"
            continue
        said = content if isinstance(content, dict) else {}
        if said.get("run") != run.id:
            yield f"{name} is of another run: {said.get('run')!r}"
        if said.get("seed") != seed:
            yield f"{name} is of a world with the seed {said.get('seed')!r}; the seed {run.seed} results in {seed}"


def _identities(identity: str, nodes: Content, run_dir: Path) -> Iterator[str]:
    for node in nodes:
        for name in _IDENTITIES:
            path = run_dir / "nodes" / node / name
            try:
                lines = read_text(path).splitlines()
            except FileNotFoundError:
                continue  # a disk may be wiped, and a node may be off while the others are dumped
            except (OSError, UnicodeDecodeError) as error:
                yield f"nodes/{node}/{name} cannot be read: {error}"
                continue
            said = [line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id=")]
            if [each for each in said if each != identity]:
                yield f"nodes/{node}/{name} is of the cluster {', '.join(said)}, not of {identity}"
