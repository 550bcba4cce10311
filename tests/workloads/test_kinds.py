"""The registry of workload kinds: found automatically, complete or refused, and documented."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from workloads.documentation import table
from workloads.kind import KindError, Load, WorkloadParameter
from workloads.kinds import KINDS, registry
from workloads.kinds import log as log_kind

ROOT = Path(__file__).resolve().parents[2]


def module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = f"/kinds/{name}.py"
    vars(made).update(content)
    return made


def test_every_file_is_a_kind() -> None:
    files = {path.stem for path in (ROOT / "workloads" / "kinds").glob("*.py")} - {"__init__"}
    assert {name.replace("-", "_") for name in KINDS} == files


def test_a_file_without_a_kind_and_a_name_given_twice_are_refused() -> None:
    with pytest.raises(KindError, match=r"/kinds/empty\.py: defines no KIND"):
        registry([module("empty")])
    with pytest.raises(KindError, match=r"/kinds/b\.py: the name 'log' is taken by /kinds/a\.py"):
        registry([module("a", KIND=log_kind.KIND), module("b", KIND=log_kind.KIND)])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "Log"}, "its name must consist of small letters"),
        ({"description": "No sentence"}, "its description is not a sentence"),
        ({"judge": "queue"}, "its judge 'queue' is not one of log, register"),
        ({"probe": "stranger"}, "its probe 'stranger' is not one of its roles"),
        ({"reader": "stranger"}, "its reader 'stranger' is not one of its roles"),
        ({"read_means": ""}, "it does not say what"),
        ({"steps": frozenset({"dance"})}, "no other steps than produce, consume"),
        ({"parameters": (WorkloadParameter("rate", 1, "x"),)}, "rate belongs to every kind"),
        (
            {"parameters": (WorkloadParameter("a", 1, "x"), WorkloadParameter("a", 1, "x"))},
            "a parameter is declared twice",
        ),
        ({"parameters": (WorkloadParameter("a", 1, ""),)}, "a parameter without a meaning"),
        ({"parameters": (WorkloadParameter("a", 1, "x", minimum=2),)}, "the default of a is out of its bounds"),
        ({"problem": lambda _: "never"}, "its defaults contradict each other"),
    ],
)
def test_a_contradictory_kind_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(KindError, match=words):
        replace(log_kind.KIND, **changes)


def test_an_incomplete_kind_is_refused() -> None:
    fields = {name: value for name, value in vars(log_kind.KIND).items() if name != "clients"}
    with pytest.raises(TypeError, match="clients"):
        type(log_kind.KIND)(**fields)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_the_clients_of_a_kind_share_the_whole_rate(kind: Any) -> None:
    defaults = {each.key: each.default for each in kind.parameters}
    planned = kind.clients(Load(60.0, 4, defaults))
    assert sum(each.rate for each in planned) == pytest.approx(60.0)
    assert len({each.name for each in planned}) == len(planned)
    assert {each.role for each in planned} <= set(kind.roles)
    assert any(each.first for each in planned)


def test_consumers_without_producers_have_the_whole_rate() -> None:
    planned = log_kind.KIND.clients(Load(60.0, 4, {"producers": 0, "consumers": 3}))
    assert [(each.name, each.rate, each.first) for each in planned] == [
        (f"consumer-{number}", 20.0, False) for number in (1, 2, 3)
    ]


def test_the_documentation_has_every_kind_of_workload() -> None:
    page = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")
    assert table() in page, "docs/workloads.md is stale: `python -m workloads.documentation` writes it"
