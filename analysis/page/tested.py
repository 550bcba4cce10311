"""What a run tested, for its page: the system with its version, its settings, the cluster, the load, the campaign."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from history import strict_toml
from history.regular_files import open_regular, read_text
from history.time_scale import ORDINARY
from installation.sanitize import brief, plain

_LOAD: Final = (
    "kind", "topic", "partitions", "keys", "producers", "consumers", "rate", "duration_s", "operations", "record_bytes",
    "idempotent", "compression", "group", "members",
)  # fmt: skip
_LABELS: Final = {"duration_s": "duration", "record_bytes": "record size"}
_UNITS: Final = {"duration_s": " s", "rate": " / s", "record_bytes": " bytes"}
_LOG_START: Final = 1 << 20
_CONFIG_VALUES: Final = re.compile(r"Config values: *\n(?P<lines>(?:[ \t]+[\w.]+ = [^\n]*\n)+)")
_CLUSTER: Final = ("nodes", "filesystem", "replication_factor")


@dataclass(frozen=True)
class Tested:
    """`system`: its title and version. `description`: the campaign's. `cluster`, `load`: key and value. `settings`: the
    table (a role, a node of it, or the topic), key, value, in the order of the file. `node_files`: the configuration
    files of each node, by `node/file`, as lines with `*` for parts that differ from run to run. `defaults`: all
    settings of the system with the values that apply where the campaign sets nothing, as role, key, value. `logged`:
    the settings that a node's program wrote to its log, as node, key, value. `cells`: the keys that differ between
    the campaign's cells, with the value in this cell and those in the others. `nodes`: by run.toml."""

    system: str = ""
    description: str = ""
    started: str = ""
    cluster: tuple[tuple[str, str], ...] = ()
    load: tuple[tuple[str, str], ...] = ()
    cells: tuple[tuple[str, str, str], ...] = ()
    settings: tuple[tuple[str, str, str], ...] = ()
    node_files: tuple[tuple[str, tuple[str, ...]], ...] = ()
    defaults: tuple[tuple[str, str, str], ...] = ()
    logged: tuple[tuple[str, str, str], ...] = ()
    nodes: tuple[str, ...] = ()


def tested(run_dir: Path) -> Tested:
    """From run.toml and campaign.toml. Raises `OSError` and `ValueError` for a run.toml that cannot be read; a
    campaign.toml that cannot be read has no description."""
    said = strict_toml.decode(read_text(run_dir / "run.toml"))
    system, workload = _table(said, "system"), _table(said, "workload")
    name = str(system.get("title") or system.get("name") or "")
    version = str(system.get("version") or "")
    if not version and system.get("name") == "brownout":
        version = str(_table(said, "versions").get("brownout", ""))
    return Tested(
        system=f"{name} {version or '(version not recorded)'}" if name else "",
        description=_description(run_dir / "campaign.toml"),
        started=str(said.get("started", "")),
        cluster=(*_pairs(_table(said, "topology"), _CLUSTER), *_roles(system), *_slower(said)),
        load=(*_pairs(workload, (*_LOAD, *sorted(workload.keys() - set(_LOAD)))), *_clients(_table(said, "plan"))),
        cells=tuple(_cells(run_dir / "campaign.toml", str(said.get("cell", "")))),
        settings=(
            *_settings("", _table(said, "settings")),
            *(("topic", key, plain(value)) for key, value in _table(workload, "topic_settings").items()),
        ),
        node_files=tuple(_node_files(_table(said, "configuration"))),
        defaults=tuple(_settings("", _table(said, "defaults"))),
        logged=tuple(_logged(run_dir)),
        nodes=tuple(map(str, _table(system, "roles"))),
    )


def _logged(run_dir: Path) -> Iterator[tuple[str, str, str]]:
    """The first block `...Config values:` of the first node's log that has one: Apache Kafka writes all its settings,
    defaults included, when it starts."""
    for log in sorted(run_dir.glob("nodes/*/service.log")):
        try:
            with open_regular(log) as file:
                start = file.read(_LOG_START).decode(errors="replace")
        except OSError:
            continue
        if block := _CONFIG_VALUES.search(start):
            for line in block["lines"].splitlines():
                key, _, value = line.strip().partition(" = ")
                yield log.parent.name, key, value
            return


def _table(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def _pairs(table: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for key in keys:
        if key in table and not isinstance(table[key], dict):
            yield _LABELS.get(key, key.replace("_", " ")), _value(key, table[key])


def _value(key: str, value: Any) -> str:
    """A value with its unit."""
    return plain(value) + _UNITS.get(key, "")


def _slower(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The time scale of a world that is slower than the machine of the orchestrator."""
    if (scale := said.get("time_scale", ORDINARY)) != ORDINARY:
        yield "time scale", f"{scale}: the times in the settings are multiplied by it"


def _roles(system: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    by_role: dict[str, list[str]] = {}
    for node, role in _table(system, "roles").items():
        by_role.setdefault(str(role), []).append(node)
    for role, nodes in by_role.items():
        yield role, ", ".join(nodes)


def _settings(where: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _settings(f"{where} {key}".strip(), value)
        else:
            yield where, key, plain(value)


def _node_files(configuration: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node, files in configuration.items():
        for file, lines in files.items() if isinstance(files, dict) else ():
            yield f"{node}/{file}", tuple(str(line) for line in lines if isinstance(lines, list) and line)


def _clients(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    names = plan.get("clients")
    if isinstance(names, list):
        yield "clients", f"{len(names)} ({brief(plain(names), 200)})"


def _cells(path: Path, cell: str) -> Iterator[tuple[str, str, str]]:
    """The keys that differ between the campaign's cells: each with its value in this cell, and in the others."""
    try:
        found = strict_toml.decode(read_text(path)).get("cell", [])
    except (OSError, ValueError):
        return
    cells = {str(each.get("name", "")): dict(_flat("", each)) for each in found if isinstance(each, dict)}
    keys = dict.fromkeys(key for values in cells.values() for key in values if key != "name")
    for key in keys:
        values = {name: values.get(key, "as the campaign") for name, values in cells.items()}
        if cell in cells and len(set(values.values())) > 1:
            others = [f"{name}: {value}" for name, value in values.items() if name != cell]
            yield key, values[cell], "; ".join(others)


def _flat(where: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of a table and of the tables in it, with dots, and their values."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{where}{key}.", value)
        else:
            yield f"{where}{key}", plain(value)


def _description(path: Path) -> str:
    try:
        said = strict_toml.decode(read_text(path)).get("description", "")
    except (OSError, ValueError):
        return ""
    return said if isinstance(said, str) else ""
