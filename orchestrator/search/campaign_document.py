"""A campaign as a document that can be changed and written as an ordinary campaign file."""

import copy
import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from nemeses import INJECTED_BY
from orchestrator.campaign import toml_text
from orchestrator.campaign.model import Campaign, Cell
from orchestrator.campaign.parser import parse
from orchestrator.campaign.plan import PlannedRun, run_id
from orchestrator.campaign.swarm import FLUSH, ROLE, draw
from orchestrator.search.run_maker import WHERE
from orchestrator.search.steps_of_run import FaultTable, StepTable
from systems.toml_tables import TomlSource

_MOST_OF_A_NAME: Final = 64
_DIGITS: Final = 8
"""Hexadecimal digits of the digest in a document's name."""


@dataclass(frozen=True)
class Document:
    """A campaign of steps or of scheduled faults with one cell, as TOML data. Immutable: every change returns a new
    document. The name in `data` is the prefix of the document's name."""

    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A distinct name per content, by a digest of everything that a run follows from. A store distinguishes
        campaigns by name, and the result of one schedule must not count for another."""
        content = toml_text.dump({key: value for key, value in self.data.items() if key not in _SAYS_NOTHING})
        return f"{self.data['name']}-{hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]}"

    @property
    def steps(self) -> list[StepTable]:
        steps: list[StepTable] = self.data["nemesis"].get("step", [])
        return steps

    @property
    def moments(self) -> list[FaultTable]:
        """Its scheduled faults."""
        moments: list[FaultTable] = self.data["nemesis"].get("fault", [])
        return moments

    @property
    def workload(self) -> Mapping[str, Any]:
        workload: Mapping[str, Any] = self.data.get("workload", {})
        return workload

    @property
    def kinds(self) -> list[str]:
        """The kind of each fault that it starts."""
        scripted = [INJECTED_BY[step["do"]].name for step in self.steps if step["do"] in INJECTED_BY]
        return [moment["fault"] for moment in self.moments] + scripted

    @property
    def faults(self) -> int:
        """The number of faults that it starts."""
        return len(self.kinds)

    @property
    def flushes(self) -> bool:
        """Whether a record is on disk before it counts."""
        return int(self.data.get(ROLE, {}).get(FLUSH, 0)) == 1

    @property
    def nodes(self) -> int:
        return int(self.data["topology"].get("nodes", 3))

    def with_steps(self, steps: Sequence[StepTable]) -> "Document":
        return self.having("nemesis", {"kind": "steps", "step": list(steps)})

    def with_moments(self, moments: Sequence[FaultTable], *, overlap: bool | None = None) -> "Document":
        """With another schedule. `overlap`: as before if it is None."""
        now = self.data["nemesis"].get("overlap", False) if overlap is None else overlap
        return self.having("nemesis", {"kind": "schedule", "overlap": now, "fault": list(moments)})

    def having(self, table: str, content: Mapping[str, Any]) -> "Document":
        """A copy with another content of one table."""
        return Document({**self.data, table: dict(content)})

    def text(self, comment: str = "") -> str:
        """The campaign's file, with each line of the comment at the top."""
        remarks = "".join(f"# {line}\n" for line in comment.splitlines())
        return remarks + toml_text.dump({**self.data, "name": self.name})

    def campaign(self, path: Path, comment: str = "") -> Campaign:
        """The document parsed as a campaign file. Raises `InputError` if it is not a valid campaign."""
        return parse(TomlSource(str(path), self.text(comment)), path)


def document_of(
    campaign: Campaign, cell: Cell, seed: int, steps: Sequence[StepTable], *, suffix: str, description: str
) -> Document:
    """A campaign of these steps, which `with_moments` replaces, with the system and load of one cell of another
    campaign, drawn with this seed if the campaign is a swarm. Its runs must only meet the cell's expectation and
    recover in time."""
    drawn = draw(campaign, seed)
    data = copy.deepcopy(tomllib.loads(campaign.text))
    if data.pop("swarm", None) is not None:
        data |= _drawn_tables(drawn, data)
    cell_before = next((table for table in data.pop("cell", []) if table["name"] == cell.name), {"name": cell.name})
    checks = {key: value for key, value in data.get("checks", {}).items() if key not in _OF_THE_WHOLE_LOAD}
    stem = campaign.name[: _MOST_OF_A_NAME - len(suffix) - 1 - _DIGITS]
    head = {"name": f"{stem}{suffix}", "description": description}
    topology = {key: value for key, value in data.get("topology", {}).items() if key not in ("inventory", "node_root")}
    topology["nodes"] = drawn.topology.nodes
    drawn_cells = {drawn_cell.name: drawn_cell for drawn_cell in drawn.cells}
    expecting = drawn_cells[cell.name] if cell in campaign.cells else cell
    expected = replace(expecting.expect, at_least=None)
    demands = {"upper_bound": "strict", **checks, "min_ok": 1, "min_queries": 0}
    if "use" in checks:  # the document may be written elsewhere
        demands["use"] = [str(campaign.path.parent.absolute() / use) for use in checks["use"]]
    return Document(
        {
            **head,
            "topology": topology,
            **{key: value for key, value in data.items() if key not in (*head, *_REWRITTEN)},
            "workload": {key: value for key, value in data.get("workload", {}).items() if key != "operations"},
            "nemesis": {"kind": "steps", "step": list(steps)},
            "checks": demands,
            "seeds": {"first": seed, "count": 1},
            "cell": [{**cell_before, "expect": expected.to_toml()}],
        }
    )


def _drawn_tables(drawn: Campaign, data: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a campaign's file with the values that a seed drew; `data` is the file's content."""
    workload = drawn.workload
    shape = {key: getattr(workload, key) for key in ("partitions", "replication_factor", "rate", "duration_s")}
    topic = {"topic_settings": dict(workload.topic_settings)} if workload.topic_settings else {}
    tables = {
        role: {key: _toml_value(value) for key, value in settings.common.items()}
        | {node: {key: _toml_value(value) for key, value in own.items()} for node, own in settings.per_node.items()}
        | data.get(role, {})
        for role, settings in drawn.settings.items()
    }
    return {
        "topology": {**data.get("topology", {}), "filesystem": drawn.topology.filesystem},
        "workload": {**data.get("workload", {}), **shape, **workload.parameters, **topic},
        **tables,
    }


def _toml_value(text: str) -> int | bool | str:
    """A setting as its author would write it in a campaign's file."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.removeprefix("-").isdecimal() else text


_OF_THE_WHOLE_LOAD: Final = ("min_share", "required_faults", "min_remote_segments")
_REWRITTEN: Final = ("topology", "workload", "nemesis", "checks", "seeds", "cell")
_SAYS_NOTHING: Final = ("name", "description")


def planned(campaign: Campaign, stamp: str, seed: int) -> PlannedRun:
    """A run of the only cell of a campaign, in the simulation."""
    (cell,) = campaign.cells
    return PlannedRun(run_id(stamp, cell.name, seed), campaign, cell, seed, WHERE)
