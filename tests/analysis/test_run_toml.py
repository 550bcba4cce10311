"""run.toml: a wrong or missing key is a defect of the run, and costs no other key its value."""

import copy
import math
from typing import Any

import pytest

from analysis.evidence.run_toml import RunToml, layers, read, settings_of
from history.strict_toml import written

CONTENT: dict[str, Any] = {
    "run": "story-main-1",
    "campaign": "story",
    "cell": "main",
    "seed": 1,
    "world": "namespaces",
    "time_scale": 2,
    "mutants": ["late_vote"],
    "limits": [],
    "replay": "./brownout run story",
    "versions": {"python": "3.11"},
    "started": "2026-01-01T00:00:00+00:00",
    "expect": {"verdict": "pass"},
    "checks": {"upper_bound": "session", "min_ok": 7, "min_queries": 3, "required_faults": ["kill"]},
    "topology": {"nodes": 3, "filesystem": "xfs"},
    "system": {"name": "brownout", "roles": {"n1": "broker", "n2": "broker", "n3": "broker"}},
    "replicas": {"format": "kafka", "records": "derived"},
    "metadata": {"format": "kraft"},
    "plan": {"clients": ["producer-0"], "changes": 50, "queries": 5},
    "workload": {"judge": "log", "topic": "log", "partitions": 1, "placement": "assigned", "assignment": [[1, 2, 3]]},
    "nemesis": {"kind": "steps", "steps": ["kill n1"]},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The content with one key changed or added. `path`: the table and the key, joined by a dot."""
    content = copy.deepcopy(CONTENT)
    *tables, key = path.split(".")
    table = content
    for name in tables:
        table = table.setdefault(name, {})
    table[key] = value
    return content


def without(path: str) -> dict[str, Any]:
    content = copy.deepcopy(CONTENT)
    *tables, key = path.split(".")
    del (content[tables[0]] if tables else content)[key]
    return content


def defects(content: dict[str, Any]) -> tuple[str, ...]:
    return read(content)[1]


def test_a_complete_run_toml_has_no_defects_and_keys_for_others_are_ignored() -> None:
    found, none = read(CONTENT)
    assert not none
    assert (found.time_scale, found.checks.min_ok, found.workload.assignment) == (2.0, 7, ((1, 2, 3),))
    assert list(found.system.roles) == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("path", "value", "defect"),
    [
        ("seed", -1, "seed is -1: expected int >= 0"),
        ("seed", "1", 'seed is "1": expected int, got str'),
        ("seed", True, "seed is true: expected int, got bool"),
        ("run", 3, "run is 3: expected str, got int"),
        ("time_scale", 0, "time_scale is 0: expected float > 0.0"),
        ("time_scale", math.inf, "time_scale is inf: expected float <= 1.7976931348623157e+308"),
        ("mutants", ["a", 3], 'mutants is ["a", 3]: expected str, got int'),
        ("versions", {"a.b": 3}, 'versions is { "a.b" = 3 }: expected str, got int'),
        ("expect.verdict", "good", '[expect] verdict is "good": expected one of pass, fail, unknown'),
        ("checks.min_share", math.nan, "[checks] min_share is nan: expected float >= 0.0"),
        ("checks.converge_s", 0, "[checks] converge_s is 0: expected int >= 1"),
        ("checks.min_okay", 1, "[checks] min_okay is 1: the key is not known"),
        ("checks.a\x1b\n", 1, "[checks] a\\x1b\\n is 1: the key is not known"),
        ("checks.x` - at `$", 1, "[checks] x` - at `$ is 1: the key is not known"),
        ("checks.a.b", 1, "[checks] a is { b = 1 }: the key is not known"),
        ("topology.nodes", 0, "[topology] nodes is 0: expected int >= 1"),
        ("topology", 3, "topology is 3: expected object, got int"),
        ("replicas.records", "any", '[replicas] records is "any": expected one of '),
        ("metadata.traced", 1, "[metadata] traced is 1: expected bool, got int"),
        ("workload.assignment", [[1, "2"]], '[workload] assignment is [[1, "2"]]: expected int, got str'),
        ("nemesis.kind", "wild", '[nemesis] kind is "wild": expected one of none, random, schedule, steps'),
        ("configuration", {"n1": {"f": [1]}}, "configuration is { n1 = { f = [1] } }: expected str, got int"),
        ("settings", 3, "settings is 3: expected object, got int"),
    ],
)
def test_a_wrong_key_is_named_with_its_value(path: str, value: Any, defect: str) -> None:
    assert any(found.startswith(f"run.toml: {defect}") for found in defects(changed(path, value)))


@pytest.mark.parametrize("path", ["expect.verdict", "checks.upper_bound", "replicas.records", "nemesis.kind"])
def test_a_choice_with_a_line_feed_behind_it_is_refused(path: str) -> None:
    table, key = path.split(".")
    value = f"{CONTENT[table][key]}\n"
    assert any(
        f"[{table}] {key} is {written(value)}: expected one of" in found for found in defects(changed(path, value))
    )


@pytest.mark.parametrize(
    "path",
    [
        *("run", "campaign", "cell", "seed", "world", "mutants", "limits", "replay", "versions", "plan.queries"),
        *("expect.verdict", "checks.upper_bound", "checks.min_ok", "checks.min_queries", "checks.required_faults"),
        *("topology.nodes", "system.roles", "replicas.format", "metadata.format", "plan.clients", "plan.changes"),
        *("workload.judge", "workload.topic", "workload.partitions", "workload.placement", "workload.assignment"),
        *("nemesis.kind", "nemesis.steps", "replicas.records"),
    ],
)
def test_a_missing_key_is_named(path: str) -> None:
    *tables, key = path.split(".")
    assert f"run.toml: {f'[{tables[0]}] ' if tables else ''}{key} is missing" in defects(without(path))


def test_each_wrong_key_is_a_defect_and_the_other_keys_keep_their_values() -> None:
    content = changed("checks.min_ok", "many")
    content["checks"]["lenient"] = True
    content["seed"] = []
    content["workload"]["keys"] = -1
    found, wrong = read(content)
    assert len(wrong) == 4
    assert (found.checks.min_ok, found.checks.min_queries, found.checks.required_faults) == (1, 3, ("kill",))
    assert (found.seed, found.workload.keys, found.workload.partitions, found.cell) == (0, 0, 1, "main")


def test_an_empty_run_toml_has_only_weakest_values() -> None:
    found, wrong = read({})
    assert found == RunToml()
    assert len(wrong) == len(set(wrong)) > 15
    assert (found.checks.upper_bound, found.checks.min_ok) == ("lower-bound-only", 1)


@pytest.mark.parametrize("placement", ["off-controller", "assigned"])
def test_the_assignment_is_needed_unless_it_is_decided_when_the_topic_is_created(placement: str) -> None:
    content = changed("workload.placement", placement)
    del content["workload"]["assignment"]
    missing = "run.toml: [workload] assignment is missing"
    assert (missing in defects(content)) == (placement == "assigned")


def test_a_run_without_a_topic_needs_no_partitions() -> None:
    content = copy.deepcopy(CONTENT)
    content["workload"] = {"judge": "registers", "keys": 5}
    assert not defects(content)


def test_settings_of_a_node_override_those_of_its_role() -> None:
    settings = {"broker": {"a": 1, "b": 2, "n1": {"b": 3}}, "controller": {"c": True}}
    assert settings_of(settings, "broker", "n1") == {"a": "1", "b": "3"}
    assert settings_of(settings, "broker", "n2") == {"a": "1", "b": "2"}
    assert settings_of({"broker": 3}, "broker", "n1") == {}
    assert layers(settings) == ({"a": "1", "b": "2"}, {"a": "1", "b": "3"}, {"c": "True"})
