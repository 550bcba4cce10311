"""Each kind of fault has its own look in plots: the colour of its group and the shape of its mark."""

import itertools
import json
import re
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.colors import to_rgb

from analysis import report
from analysis.plots.colors import GROUP_COLORS, NODE_COLORS, OTHER_FAULT
from analysis.plots.style import MARKERS, OTHER_MARKER, fault_color, fault_marker
from history.damage import Damage
from history.fault_looks import FaultGroup, FaultMark
from history.journal.timeline import PROCESS_STATES, FaultSpan
from history.journal.writer import Journal
from history.reader import read_run
from nemeses import KINDS

Matrix = npt.NDArray[np.float64]
# Machado, Oliveira and Fernandes (2009), severity 1.0, for linear RGB.
VISIONS: dict[str, Matrix] = {
    "full": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])
LEAST_DISTANCE = 12.0
"""In CIELAB; 2.3 is the least that people notice side by side."""


def lab(color: str, vision: Matrix) -> npt.NDArray[np.float64]:
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    ratio = TO_XYZ @ np.clip(vision @ linear, 0, 1) / WHITE
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_no_two_kinds_have_the_same_look() -> None:
    looks = {name: (kind.group, kind.mark) for name, kind in KINDS.items()}
    assert len(set(looks.values())) == len(looks), looks


def test_every_group_has_a_colour_and_every_mark_a_shape() -> None:
    assert set(GROUP_COLORS) == set(FaultGroup)
    assert set(MARKERS) == set(FaultMark)
    assert len({*MARKERS.values(), OTHER_MARKER}) == len(FaultMark) + 1


@pytest.mark.parametrize("vision", VISIONS)
def test_colours_of_groups_are_distinct_for_every_vision(vision: str) -> None:
    colors = {**{str(group): color for group, color in GROUP_COLORS.items()}, "other": OTHER_FAULT}
    seen = {name: lab(color, VISIONS[vision]) for name, color in colors.items()}
    close = {
        pair: round(distance, 1)
        for pair in itertools.combinations(seen, 2)
        if (distance := float(np.linalg.norm(seen[pair[0]] - seen[pair[1]]))) < LEAST_DISTANCE
    }
    assert close == {}


STYLE: Final = Path(report.__file__).with_name("templates") / "style.css"
ON_THE_TIMELINE: Final = ("ink", "line", "ok", "fail", "unknown", "up")
"""The variables of style.css in which the page draws faults, outcomes and states of processes."""


def test_no_colour_of_a_node_is_also_that_of_an_outcome_or_a_state() -> None:
    pairs = re.findall(r"--(\w+): (#[0-9a-f]{6})\b", STYLE.read_text())
    others = {color for name, color in pairs if name in ON_THE_TIMELINE}
    assert len(others) >= 2 * len(ON_THE_TIMELINE) - 2, "light and dark"
    full = VISIONS["full"]
    alike = [*itertools.combinations(NODE_COLORS, 2), *itertools.product(NODE_COLORS, others)]
    assert [pair for pair in alike if np.linalg.norm(lab(pair[0], full) - lab(pair[1], full)) < LEAST_DISTANCE] == []


def test_the_look_of_a_fault_is_from_the_journal(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.fault_invoked("f1", "kill", ["n1"], look=(FaultGroup.PROCESS, FaultMark.CROSS))
        journal.fault_invoked("f2", "quake", ["n1"], look=(FaultGroup.MACHINE, FaultMark.STAR))
        journal.fault_invoked("f3", "kill", ["n1"])
    lines = [json.loads(line) for line in (tmp_path / "history" / "journal.jsonl").read_text().splitlines()]
    assert [(line.get("group"), line.get("mark")) for line in lines] == [
        ("process", "cross"),
        ("machine", "star"),
        (None, None),
    ]
    known, new, old = read_run(tmp_path).faults
    assert [(each.group, each.mark) for each in (known, new, old)] == [
        ("process", "cross"),
        ("machine", "star"),
        ("", ""),
    ]


def test_a_fault_without_a_known_look_has_the_default() -> None:
    for band in (
        FaultSpan("kill", ("n1",), 0.0, 1.0, "confirmed"),
        FaultSpan("x", (), 0.0, 1.0, "confirmed", "moon", "cheese"),
    ):
        assert (fault_color(band), fault_marker(band)) == (OTHER_FAULT, OTHER_MARKER)
    band = FaultSpan("kill", ("n1",), 0.0, 1.0, "confirmed", "process", "cross")
    assert (fault_color(band), fault_marker(band)) == (GROUP_COLORS[FaultGroup.PROCESS], MARKERS[FaultMark.CROSS])


def test_an_own_fault_that_ends_services_has_their_state(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        for number, damage in enumerate(([Damage.PROGRESS, Damage.MEMORY], [Damage.SYNCED], [])):
            look = (FaultGroup.OWN, FaultMark.CIRCLE)
            journal.fault_invoked(f"f{number}", "flip-bit", ["n1"], look=look, may_destroy=damage)
        journal.fault_invoked("f3", "pause", ["n1"])
    assert [each.process_state for each in read_run(tmp_path).faults] == ["down", "", "", "suspended"]


def test_each_kind_that_stops_processes_has_their_state() -> None:
    assert PROCESS_STATES.keys() == {name for name, kind in KINDS.items() if Damage.PROGRESS in kind.destroys}
