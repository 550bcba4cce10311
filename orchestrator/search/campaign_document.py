"""A campaign as a document that can be changed and written down again as an ordinary campaign."""

from __future__ import annotations

import copy
import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nemeses import BEGINS
from orchestrator.campaign import toml_text
from orchestrator.campaign.model import Campaign, Cell
from orchestrator.campaign.parser import parse
from orchestrator.campaign.plan import PlannedRun, run_id
from orchestrator.campaign.swarm import ROLE, draw
from orchestrator.search.run_maker import WHERE
from orchestrator.search.steps_of_run import StepTable
from systems.toml_tables import TomlSource

_MOST_OF_A_NAME: Final = 64
_DIGITS: Final = 8
"""Of the digest in a document's name."""


@dataclass(frozen=True)
class Document:
    """A campaign of steps with one cell, as TOML has it; every change makes another one. The name in `data` is what its
    own name begins with."""

    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its own: with a digest of all that its runs follow from. A store tells campaigns apart by their names, and
        what one schedule comes to says nothing of another one."""
        content = toml_text.dump({key: value for key, value in self.data.items() if key not in _SAYS_NOTHING})
        return f"{self.data['name']}-{hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]}"

    @property
    def steps(self) -> list[StepTable]:
        steps: list[StepTable] = self.data["nemesis"]["step"]
        return steps

    @property
    def workload(self) -> Mapping[str, Any]:
        workload: Mapping[str, Any] = self.data.get("workload", {})
        return workload

    @property
    def faults(self) -> int:
        """How many faults its script begins."""
        return sum(step["do"] in BEGINS for step in self.steps)

    @property
    def nodes(self) -> int:
        return int(self.data["topology"].get("nodes", 3))

    def with_steps(self, steps: Sequence[StepTable]) -> Document:
        return self.having("nemesis", {"kind": "steps", "step": list(steps)})

    def having(self, table: str, content: Mapping[str, Any]) -> Document:
        """With another content of one table."""
        return Document({**self.data, table: dict(content)})

    def text(self, comment: str = "") -> str:
        """The campaign's file; each line of the comment above it."""
        remarks = "".join(f"# {line}\n" for line in comment.splitlines())
        return remarks + toml_text.dump({**self.data, "name": self.name})

    def campaign(self, path: Path, comment: str = "") -> Campaign:
        """As if it had been read from a file. Raises `InputError` when it is no campaign."""
        return parse(TomlSource(str(path), self.text(comment)), path)


def document_of(
    campaign: Campaign, cell: Cell, seed: int, steps: Sequence[StepTable], *, suffix: str, description: str
) -> Document:
    """A campaign of these steps, of what is tested and loaded as in one cell of another; what that leaves open is as
    this seed draws it. It demands nothing of its runs but what the cell expects of them, and recovery in time."""
    drawn = draw(campaign, seed)
    data = copy.deepcopy(tomllib.loads(campaign.text))
    if data.pop("swarm", None) is not None:
        data |= _drawn_tables(drawn, data)
    before = next((it for it in data.pop("cell", []) if it["name"] == cell.name), {"name": cell.name})
    checks = data.get("checks", {})
    stem = campaign.name[: _MOST_OF_A_NAME - len(suffix) - 1 - _DIGITS]
    head = {"name": f"{stem}{suffix}", "description": description}
    topology = {key: value for key, value in data.get("topology", {}).items() if key not in ("inventory", "node_root")}
    topology["nodes"] = drawn.topology.nodes
    demands = {"upper_bound": checks.get("upper_bound", "strict"), "min_ok": 1, "min_queries": 0}
    demands |= {key: checks[key] for key in ("converge_s", "progress_s") if key in checks}
    return Document(
        {
            **head,
            "topology": topology,
            **{key: value for key, value in data.items() if key not in (*head, *_REWRITTEN)},
            "workload": {key: value for key, value in data.get("workload", {}).items() if key != "operations"},
            "nemesis": {"kind": "steps", "step": list(steps)},
            "checks": demands,
            "seeds": {"first": seed, "count": 1},
            "cell": [{**before, "expect": cell.expect.to_toml()}],
        }
    )


def _drawn_tables(drawn: Campaign, data: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a campaign's file that have what a seed drew; `data` is what the file gives."""
    workload, given = drawn.workload, data.get(ROLE, {})
    shape = {key: getattr(workload, key) for key in ("partitions", "replication_factor", "rate", "duration_s")}
    settings: dict[str, Any] = {
        key: int(value) for key, value in drawn.settings[ROLE].common.items() if key not in given
    }
    for node, of_node in drawn.settings[ROLE].per_node.items():
        if node not in given:
            settings[node] = {key: int(value) for key, value in of_node.items()}
    return {
        "topology": {**data.get("topology", {}), "filesystem": drawn.topology.filesystem},
        "workload": {**data.get("workload", {}), **shape, **workload.parameters},
        ROLE: {**settings, **given},
    }


_REWRITTEN: Final = ("topology", "workload", "nemesis", "checks", "seeds", "cell")
_SAYS_NOTHING: Final = ("name", "description")


def planned(campaign: Campaign, stamp: str, seed: int) -> PlannedRun:
    """A run of the only cell of a campaign, in the simulated world."""
    (cell,) = campaign.cells
    return PlannedRun(run_id(stamp, cell.name, seed), campaign, cell, seed, WHERE)
