"""The content of `run.toml` as structs. A missing or wrong key is a defect, and the key's default replaces it.

Theory of operation. `read` converts the whole content. When a key is refused, `read` records the key, removes it and
converts the rest again, so that a wrong key costs its own value only. A default is the weakest value: what is found
with it is an anomaly for any value. A run with defects proves nothing.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from analysis.verdict import Expectation
from history.field_types import Count, Positive, Share, WholeSeconds, one_of
from history.record.values import ANY_SEQUENCE, RECORD_FORMS
from history.strict_toml import written
from history.upper_bounds import UPPER_BOUNDS
from installation.sanitize import brief, visible_line

LEAST_SHARE: Final = 0.5
"""The share of planned changes that must be acknowledged under load if the campaign does not state one."""
SIMULATION: Final = "simulation"
"""The world in which everything follows from the seed."""
RANDOM, SCHEDULE, STEPS = "random", "schedule", "steps"
SETTLED_LATE: Final = "off-controller"
"""The placement of partitions that is decided when the topic is created."""
NO_FORMAT: Final = "none"
KAFKA_FORMAT: Final = "kafka"

_Factor = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
_UpperBound = Annotated[str, one_of(UPPER_BOUNDS)]
OWN_CLASS: Final = r"^.+\.py:[A-Za-z_]\w*$"
_OwnChecker = Annotated[str, Meta(pattern=OWN_CLASS, title='of the form "parser.py:Class"')]


class Checks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[checks] of a campaign, and of run.toml: what must have happened for a pass to be meaningful. An unknown key may
    strengthen or weaken a requirement, so it is an error in a campaign, and a defect in run.toml."""

    upper_bound: _UpperBound | None = None
    """How strictly queries bound the log's length from above (docs/architecture.md). Default: as the system
    promises."""
    min_ok: Count | None = None
    """Fewer acknowledged changes (appends, or writes) are *unknown*. Only those count that the system promises to keep:
    of appends those with acks = `"all"`. Default: half of the planned ones."""
    min_queries: Count | None = None
    """Fewer answered queries under load (of logs' ends, or reads of registers) are *unknown*. Default: a quarter of the
    planned ones, or less in proportion to `min_ok`."""
    min_share: Share = LEAST_SHARE
    """A smaller share of the planned changes acknowledged under load is *unknown*, whatever `min_ok` is. Less than the
    default is for load that is throttled on purpose, and the verdict says so."""
    required_faults: tuple[str, ...] = ()
    """Kinds of fault that must have been confirmed at least once; none of `optional_faults`."""
    converge_s: WholeSeconds | None = None
    """After the last heal the cluster must be whole and take writes within this time; a longer time is the anomaly
    `not-converged`. Default: 90 s, which are an anomaly only if all heals are confirmed, every service runs, this
    machine reaches every node, and the system's timeouts need less."""
    progress_s: WholeSeconds | None = None
    """During faults, writes must be acknowledged within this time wherever a majority of the nodes and enough in-sync
    replicas are untouched; a longer time is the anomaly `no-acknowledgement`. Default: 10 s and twice the session
    timeout and the longest lag of a replica, at least 20 s."""
    min_remote_segments: Count | None = None
    """Of a topic with tiered storage: fewer complete remote segments are *unknown*. Default: 1, and 0 in the runs of a
    swarm, where faults may prevent that a segment is complete."""
    use: tuple[_OwnChecker, ...] = ()
    """[Checkers of your own](own-checkers.md): `"parser.py:Class"`, each file relative to the campaign's."""
    model: str = ""
    """The model that judges a [workload of your own](own-workloads.md#models), such as `set` or `fifo-queue`: those
    of `brownout check --model`."""
    initial: str = ""
    """What each object of the model has before the load, as EDN: `"0"`, `'#{"a" "b"}'`; of a bank its total, `"400"`.
    Default: nothing, and of a bank the total of its first read."""
    allow: tuple[str, ...] = ()
    """[Anomalies of the model](foreign.md) that do not fail a run, such as `"duplicate-element"` of a queue with
    at-least-once delivery."""
    prohibit: tuple[str, ...] = ()
    """Anomalies of the model that fail a run, though the model leaves them to the user, such as `"stale-read"`."""
    consistency_model: str = ""
    """What transactions (models `list-append`, `rw-register`) must obey: a
    [consistency model](foreign.md#transactions), such as `"serializable"`. Default: `"strict-serializable"`."""


class Requirements(Checks, frozen=True, forbid_unknown_fields=True):
    """The checks of a run, whose plan has settled what a campaign may leave open. The defaults are the weakest."""

    upper_bound: _UpperBound = UPPER_BOUNDS[-1]
    min_ok: Count = 1
    min_queries: Count = 0
    min_remote_segments: Count = 1


class TopologyTable(msgspec.Struct, frozen=True):
    nodes: Positive = 0


class SystemTable(msgspec.Struct, frozen=True):
    """`roles`: by node name, in the order of the nodes' numbers."""

    roles: dict[str, str] = {}


class WorkloadTable(msgspec.Struct, frozen=True):
    """`duration_s`: how long the load lasts at least, unless a script decides it. `idempotent`, `compression`,
    `batch_records`, `deletes_every_s`: of the producers; None, empty or 0 for a kind of workload without such a
    setting. `own`: the parameters of a workload of the user's own."""

    kind: str = ""
    judge: str = ""
    """What the clients' operations act on; it selects the checker."""
    topic: str = ""
    """Empty if the data is in no topic."""
    partitions: Positive = 0
    placement: str = ""
    assignment: tuple[tuple[int, ...], ...] = ()
    topic_settings: dict[str, str] = {}
    record_bytes: Count = 0
    """The size of each record, 0 if unknown."""
    keys: Count = 0
    """The number of registers, 0 without registers."""
    duration_s: Annotated[float, Meta(ge=0)] = 0.0
    idempotent: bool | None = None
    compression: str = ""
    batch_records: Count = 0
    deletes_every_s: Annotated[float, Meta(ge=0)] = 0.0
    own: dict[str, Any] = {}


class ReplicasTable(msgspec.Struct, frozen=True):
    """The nodes' files: `format` is `KAFKA_FORMAT` or `NO_FORMAT`; `sequences` one of `FIRST_SEQUENCES`."""

    format: str = NO_FORMAT
    sequences: str = ANY_SEQUENCE
    records: Annotated[str, one_of(RECORD_FORMS)] = ""


class MetadataTable(msgspec.Struct, frozen=True):
    format: str = ""
    traced: bool = True


class PlanTable(msgspec.Struct, frozen=True):
    """The clients that every run of the plan starts, and the number of operations that the load issues at full rate."""

    clients: tuple[str, ...] = ()
    changes: Count = 0
    queries: Count = 0


class NemesisTable(msgspec.Struct, frozen=True):
    kind: Annotated[str, one_of(("none", RANDOM, SCHEDULE, STEPS))] = ""
    faults: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


class RunToml(msgspec.Struct, frozen=True):
    """The keys of `run.toml` that the analysis reads; it has more."""

    run: str = ""
    campaign: str = ""
    cell: str = ""
    seed: Count = 0
    world: str = "unknown"
    time_scale: _Factor = 1.0
    """How much slower than others the world was; every time bound is multiplied by it."""
    mutants: tuple[str, ...] = ()
    profile: str = ""
    timeouts_s: dict[str, float] = {}
    """Drawn from the seed as the `profile`, else empty."""
    limits: tuple[str, ...] = ()
    replay: str = ""
    versions: dict[str, str] = {}
    expect: Expectation = Expectation()
    checks: Requirements = Requirements()
    topology: TopologyTable = TopologyTable()
    system: SystemTable = SystemTable()
    replicas: ReplicasTable = ReplicasTable()
    metadata: MetadataTable = MetadataTable()
    plan: PlanTable = PlanTable()
    workload: WorkloadTable = WorkloadTable()
    nemesis: NemesisTable = NemesisTable()
    checkers: dict[str, str] = {}
    """By file, the texts of the campaign's own checkers."""
    settings: dict[str, Any] = {}
    configuration: dict[str, dict[str, tuple[str, ...]]] = {}
    """Of each node with configuration files, their lines as glob patterns, by the file's name below `nodes/<node>/`."""


_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("run", "campaign", "cell", "seed", "world", "mutants", "limits", "replay", "versions"),
    "expect": ("verdict",),
    "checks": ("upper_bound", "min_ok", "min_queries", "required_faults"),
    "topology": ("nodes",),
    "system": ("roles",),
    "replicas": ("format",),
    "metadata": ("format",),
    "plan": ("clients", "changes", "queries"),
    "workload": ("judge",),
    "nemesis": ("kind",),
}
"""The keys that every run.toml has, by table."""
_REFUSED: Final = re.compile(r"(?P<what>.*?)(?: - at `\$\.(?P<path>[^`\[]*)[^`]*`)?", re.DOTALL)
_CHOICES: Final = re.compile(r"Expected `str` matching regex '\^\((.*)\)\\\\Z'")
_NOT_KNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def read(content: Mapping[str, Any]) -> tuple[RunToml, tuple[str, ...]]:
    """The content of a run.toml, and its defects as sentences."""
    defects = [f"run.toml: {_name(table, key)} is missing" for table, key in _missing(content)]
    while True:
        try:
            return msgspec.convert(content, RunToml), tuple(defects)
        except msgspec.ValidationError as error:
            message, path = _refusal(error)
            value, content = _value_at(content, path), _without(content, path)
            defects.append(f"run.toml: {_name(*_table_and_key(path))} is {brief(written(value), 60)}: {_why(message)}")


def _missing(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The missing keys, each with its table. Some keys are needed only beside others."""
    workload, nemesis, replicas = (_table(content, name) for name in ("workload", "nemesis", "replicas"))
    needed = [(table, key) for table, keys in _NEEDED.items() for key in keys]
    if "topic" in workload or "partitions" in workload:
        needed += [("workload", key) for key in ("topic", "partitions", "placement")]
        needed += [("workload", "assignment")] if workload.get("placement") != SETTLED_LATE else []
    if replicas.get("format", NO_FORMAT) != NO_FORMAT:
        needed.append(("replicas", "records"))
    listed = {RANDOM: "faults", SCHEDULE: "faults", STEPS: "steps"}
    needed += [("nemesis", key) for kind, key in listed.items() if nemesis.get("kind") == kind]
    return ((table, key) for table, key in needed if key not in (_table(content, table) if table else content))


def _refusal(error: msgspec.ValidationError) -> tuple[str, tuple[str, ...]]:
    """What is wrong, and the path of the key that must be removed. A wrong element removes its whole list or table."""
    match = _REFUSED.fullmatch(str(error))
    assert match is not None
    path = tuple(match["path"].split(".")) if match["path"] else ()
    if unknown := _NOT_KNOWN.fullmatch(match["what"]):
        path = (*path, unknown[1])
    return match["what"], path


def _why(message: str) -> str:
    """A message of msgspec in the words of this module."""
    if _NOT_KNOWN.fullmatch(message):
        return "the key is not known"
    if choices := _CHOICES.fullmatch(message):
        return f"expected one of {choices[1].replace('|', ', ')}"
    return f"{message[0].lower()}{message[1:]}".replace("`", "")


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = content.get(name)
    return table if isinstance(table, dict) else {}


def _value_at(content: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        content = content[key]
    return content


def _without(content: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    """The content without this key."""
    key, *inner = path
    remainder = {name: value for name, value in content.items() if name != key}
    return remainder | ({key: _without(content[key], tuple(inner))} if inner else {})


def _table_and_key(path: tuple[str, ...]) -> tuple[str, str]:
    *tables, key = path
    return ".".join(tables), key


def _name(table: str, key: str) -> str:
    return visible_line(f"[{table}] {key}" if table else key)


def layers(content: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
    """The values of a table as texts, and for each table in it those values overlaid with its own. Empty tables are
    left out."""
    common = {key: str(value) for key, value in content.items() if not isinstance(value, dict)}
    inside = [layer for value in content.values() if isinstance(value, dict) for layer in layers(value)]
    return (*([common] if common else []), *({**common, **layer} for layer in inside))


def settings_of(settings: Mapping[str, Any], role: str, node: str) -> Mapping[str, str]:
    """The settings of a node: those of its role, overridden by those of the node itself, as texts."""
    common = _table(settings, role)
    tables = (common, _table(common, node))
    return {key: str(value) for table in tables for key, value in table.items() if not isinstance(value, dict)}
