"""Compares a run with its plan: builds `run.toml` again from the plan and compares every key.

The plan does not determine the keys in `FREE`, each with its reason; only their form is checked. A campaign may refer
to files of its user (a system, a client) that are absent where the gate runs: the plan stores the settings that follow
from them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from history import strict_toml
from history.regular_files import read_text
from history.time_scale import ORDINARY, is_scale
from installation.commands import joined
from orchestrator.campaign import toml_text
from orchestrator.campaign.configuration import misconfigured
from orchestrator.campaign.description import RunWorld, chosen, described, settled
from orchestrator.campaign.model import SIMULATION, Campaign
from orchestrator.campaign.own_evidence import foreign, was_configured
from orchestrator.campaign.parser import parse
from orchestrator.campaign.plan import PlannedRun
from orchestrator.campaign.plans import StoredPlan, StoredRun
from orchestrator.campaign.swarm import draw
from orchestrator.campaign.systems import deploy, deployed_as
from orchestrator.world_kinds import WORLDS
from systems import Deployed
from systems.errors import InputError
from systems.toml_tables import TomlSource

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00")
_OTHER_SCALES: Final = "configuration_at"
"""In a plan's `settled`: the configuration files of nodes in worlds with another time scale, by that scale."""

Content = Mapping[str, Any]


class PlannedDescriptions:
    """What the runs of a stored plan must be."""

    def __init__(self, plan: StoredPlan) -> None:
        self._plan = plan
        self._settled: dict[tuple[str, int | None, float], Content] = {}

    def differences(self, run: StoredRun, run_dir: Path) -> Iterator[str]:
        """Sentences: how the run's `run.toml`, which must be readable, differs from the plan."""
        content = strict_toml.decode(read_text(run_dir / "run.toml"))
        try:
            common = self._common(run, _time_scale(content))
        except (InputError, RecursionError) as error:
            yield f"the plan's campaign cannot be read, so nothing can be compared with it: {error}"
            return
        for what in self._strange(run, content):
            yield f"run.toml is not as planned: {what}"
        expected = described(
            common, run=run.id, seed=run.seed, replay=_text(content, "replay"), around=self._around(content, common)
        )
        given = {key: content[key] for key in FREE if key in content}
        written = tomllib.loads(toml_text.dump(expected)) | given
        others = list(differing(written, content))
        yield from (f"run.toml is not as planned: {what}" for what in others)
        if not others:
            deployed = self._deployed(run)
            yield from foreign(run, written, run_dir, None if deployed is None else deployed.identity)
            if deployed is not None and was_configured(run_dir):
                yield from misconfigured(deployed, _time_scale(content), run_dir)

    def _common(self, run: StoredRun, time_scale: float) -> Content:
        """The part of `run.toml` that the plan determines in a world of this scale. Raises `InputError`."""
        kept = self._plan.settled.get(run.cell.name)
        if kept is not None:
            return _at_scale(kept, time_scale)
        drawn = run.seed if self._campaign.swarm else None
        key = run.cell.name, drawn, time_scale
        if key not in self._settled:
            self._settled[key] = settled_of(self._campaign, run.cell.name, run.seed, time_scale)
        return self._settled[key]

    def _deployed(self, run: StoredRun) -> Deployed | None:
        """The nodes' deployment; None if it depends on files of the user."""
        if run.cell.name in self._plan.settled:
            return None
        cell = next(cell for cell in self._campaign.cells if cell.name == run.cell.name)
        planned = PlannedRun(run.id, draw(self._campaign, run.seed), cell, run.seed)
        return deploy(planned, repeatable=self._plan.world == SIMULATION)

    @cached_property
    def _campaign(self) -> Campaign:
        path = Path(self._plan.path)
        return parse(TomlSource(str(path), self._plan.text), path)

    def _around(self, content: Content, common: Content) -> RunWorld:
        """The run's world, with the properties that only the run itself records."""
        limits, left_out = _texts(content, "limits"), self._left_out(content)
        around = RunWorld(
            world=self._plan.world or _text(content, "world"),
            reason=_text(content, "world_reason"),
            time_scale=_time_scale(content),
            left_out=left_out,
        )
        own = len(limits) - len(chosen(around)) - len(common["limits"])
        return RunWorld(around.world, around.reason, around.time_scale, tuple(limits[: max(0, own)]), left_out)

    def _left_out(self, content: Content) -> tuple[str, ...]:
        """The optional faults that the world lacked. Hosts of an inventory may lack more than was known at planning."""
        nemesis = content.get("nemesis")
        said = _texts(nemesis, "left_out") if isinstance(nemesis, dict) else []
        known = self._plan.left_out
        if known is not None and self._plan.world != "inventory":
            return known
        return tuple(kind for kind in self._plan.optional_faults if kind in said or kind in (known or ()))

    def _strange(self, run: StoredRun, content: Content) -> Iterator[str]:
        """Sentences: keys that only the run records and that do not have their required form."""
        for key, (_, is_right) in FREE.items():
            if not is_right(content.get(key)):
                yield f"its {key} is {content[key]!r}" if key in content else f"{key} is missing"
        world, limits = self._plan.world or _text(content, "world"), _texts(content, "limits")
        required = WORLDS[world].limits if world in WORLDS else ()
        if missing := [limit for limit in required if limit not in limits]:
            yield f"its limits lack {missing[0]!r}"
        scale, scales = content.get("time_scale"), self._plan.time_scales
        if not is_scale(scale) or scale not in scales:
            yield f"its time_scale is {scale!r}, and {' or '.join(map(str, scales))} was planned"
        if not _text(content, "world_reason"):
            yield "world_reason is missing"
        tail = joined(["--cell", run.cell.name, "--seed", str(run.seed), *self._plan.where])
        if not _text(content, "replay").endswith(f" {tail}"):
            yield f"its replay is {content.get('replay')!r}, which does not end with {tail}"


def settled_of(campaign: Campaign, cell_name: str, seed: int, time_scale: float) -> dict[str, Any]:
    """The part of `run.toml` that a campaign determines for a cell, a seed and a world. Raises `InputError`."""
    cell = next(cell for cell in campaign.cells if cell.name == cell_name)
    drawn = draw(campaign, seed)
    return settled(drawn, cell, deployed_as(drawn, cell, cluster_id=""), time_scale)


def settled_by_files(
    campaign: Campaign, cells: Collection[str] = (), time_scales: Collection[float] = (ORDINARY,)
) -> dict[str, dict[str, Any]]:
    """By cell (default: all): the part of its runs' `run.toml` that depends on files of the user, in a world of each
    scale. These files may be absent or changed when the runs are compared with the plan. Raises `InputError`."""
    if campaign.system.directory is None and not campaign.client.is_given:
        return {}
    found = {}
    for name in (cell.name for cell in campaign.cells if not cells or cell.name in cells):
        at = {scale: settled_of(campaign, name, campaign.seeds.first, scale) for scale in (ORDINARY, *time_scales)}
        others = {str(float(scale)): content["configuration"] for scale, content in at.items() if scale != ORDINARY}
        found[name] = {**at[ORDINARY], **({_OTHER_SCALES: others} if others else {})}
    return found


def _at_scale(kept: Content, time_scale: float) -> Content:
    """Of a cell in `settled_by_files`, the part for worlds of this scale; without `configuration` if it has none."""
    common = {key: value for key, value in kept.items() if key != _OTHER_SCALES}
    if time_scale == ORDINARY:
        return common
    others = kept.get(_OTHER_SCALES)
    configuration = others.get(str(float(time_scale))) if isinstance(others, dict) else None
    return {**common, "configuration": configuration}


def differing(expected: Any, said: Any, where: str = "") -> Iterator[str]:
    """The differences of two TOML contents, each as a phrase that names the key."""
    if isinstance(expected, dict) and isinstance(said, dict):
        for key in dict.fromkeys((*expected, *said)):
            at = f"{where}.{key}" if where else key
            if key not in said:
                yield f"it has no {at}, which is {expected[key]!r}"
            elif key not in expected:
                yield f"it has {at} = {said[key]!r}, which is not in the plan"
            else:
                yield from differing(expected[key], said[key], at)
    elif not _same(expected, said):
        yield f"its {where} is {said!r}, not {expected!r}"


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same type; int and float are one type, bool is another."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return type(one) is type(other) and one == other


def _text(content: Content, key: str) -> str:
    value = content.get(key)
    return value if isinstance(value, str) else ""


def _texts(content: Content, key: str) -> list[str]:
    value = content.get(key)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _time_scale(content: Content) -> float:
    """That of a run, or the ordinary one if its `run.toml` states none that a world can have."""
    value: Any = content.get("time_scale")
    return value if is_scale(value) else ORDINARY


def _is_moment(value: Any) -> bool:
    return isinstance(value, str) and _MOMENT.fullmatch(value) is not None


def _are_versions(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(each, str) and each for each in value.values())


def _are_defaults(value: Any) -> bool:
    """By role. Runs of earlier versions have none."""
    tables = value.values() if isinstance(value, dict) else [] if value is None else [value]
    return all(isinstance(each, dict) and all(isinstance(text, str) for text in each.values()) for each in tables)


FREE: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "started": ("the time of the run is not known at planning", _is_moment),
    "versions": ("a run may be made later, on another machine, than it was planned", _are_versions),
    "defaults": ("the system's defaults are those of the version that made the run", _are_defaults),
}
"""The keys of `run.toml` that the plan does not determine, each with the reason and a check of its form. In addition,
`world_reason` and the world's own `limits` depend on the machine, `time_scale` on the machines of the world, the start
of `replay` on how Brownout was called, and `nemesis.left_out` on the hosts of an inventory. All else is compared."""
