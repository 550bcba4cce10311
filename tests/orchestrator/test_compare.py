"""`brownout compare`: two campaigns or stores side by side."""

import hashlib
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import report
from orchestrator.store import comparison
from orchestrator.store.comparison import interval_of
from tests.analysis_pipeline.page_words import words_of_kafka
from tests.orchestrator.stored_campaign import ask


def campaign(
    store: Path, latencies: Sequence[float], name: str = "demo", settings: str = "nodes = 3\n", **changes: Any
) -> Path:
    """A campaign whose runs have these median latencies, with a summary as the gate leaves it."""
    runs = []
    for seed, latency in enumerate(latencies, 1):
        run = f"20260102T030405aa-main-{seed}"
        directory = store / name / run
        directory.mkdir(parents=True)
        (directory / "run.toml").write_text(f'run = "{run}"\nseed = {seed}\n[topology]\n{settings}')
        (directory / "verdict.json").write_text("{}")
        entry = {
            "run": run,
            "cell": "main",
            "seed": seed,
            "verdict": "pass",
            "expected": "pass",
            "met": True,
            "reasons": [],
            "verdict_sha256": hashlib.sha256(b"{}").hexdigest(),
            "world": "namespaces",
            "versions": {"brownout": store.name},
            "acknowledged": 1000,
            "duration_s": 10.0,
            "stats": {"latency_p50_ms": latency},
        }
        runs.append(entry | changes)
    content = {"campaign": name, "verdict": "pass", "reason": "as expected", "runs": runs}
    (store / name / "summary.json").write_text(json.dumps(content))
    return store / name


def compared(before: Path, after: Path, *options: str) -> Any:
    answer = ask("compare", before, after, "--json", *options)
    assert answer.code == 0, answer.err
    return answer.json


def latency_in(found: Any) -> Any:
    return next(each for each in found["figures"] if each["figure"] == "median latency")


def test_a_slower_side_is_called_worse_and_a_faster_one_is_not(tmp_path: Path) -> None:
    rng = random.Random(1)
    fast = campaign(tmp_path / "a", [rng.uniform(9, 11) for _ in range(8)])
    slow = campaign(tmp_path / "b", [rng.uniform(19, 21) for _ in range(8)])
    worse, better = latency_in(compared(fast, slow)), latency_in(compared(slow, fast))
    assert worse["worse"] is True
    assert worse["low"] < worse["ratio"] < worse["high"]
    assert 1.8 < worse["ratio"] < 2.2
    assert better["worse"] is False
    assert better["ratio"] == pytest.approx(1 / worse["ratio"])


def test_equal_sides_are_not_called_different(tmp_path: Path) -> None:
    rng = random.Random(2)
    before, after = (campaign(tmp_path / name, [rng.uniform(9, 11) for _ in range(8)]) for name in "ab")
    found = compared(before, after)
    assert latency_in(found)["worse"] is False
    assert (found["new"], found["gone"], found["settings"], found["only_before"]) == ([], [], [], [])
    assert "no verdict differs in 1 cell" in ask("compare", before, after).out


def test_few_runs_are_not_decided(tmp_path: Path) -> None:
    before, after = campaign(tmp_path / "a", [10, 11]), campaign(tmp_path / "b", [20, 21])
    assert latency_in(compared(before, after))["worse"] is None
    assert "so few runs cannot show a difference: their smallest p is 0.333" in ask("compare", before, after).out
    single = campaign(tmp_path / "c", [20])
    assert "not tested: one side has a single run" in ask("compare", before, single).out


def test_verdicts_anomalies_versions_and_settings_that_differ(tmp_path: Path) -> None:
    before = campaign(tmp_path / "a", [10, 10])
    after = campaign(
        tmp_path / "b", [10, 10], settings="nodes = 5\n", verdict="fail", met=False, anomalies=["stale-read"]
    )
    found = compared(before, after)
    assert [(each["before"], each["after"]) for each in found["cells"]] == [({"pass": 2}, {"fail": 2})]
    assert [(each["anomaly"], each["runs"]) for each in found["new"]] == [("stale-read", 2)]
    assert [each["anomaly"] for each in compared(after, before)["gone"]] == ["stale-read"]
    assert [(each["key"], each["before"], each["after"]) for each in found["settings"]] == [("topology.nodes", 3, 5)]
    assert (found["before"]["versions"], found["after"]["versions"]) == ({"brownout": ["a"]}, {"brownout": ["b"]})
    assert found["figures"] == [], "runs that did not pass have no figures"


def test_stores_are_compared_campaign_by_campaign(tmp_path: Path) -> None:
    for store, names in (("a", ("one", "two")), ("b", ("two", "three"))):
        for name in names:
            campaign(tmp_path / store, [10, 10], name)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert [each["campaign"] for each in found["cells"]] == ["two"]
    assert (found["only_before"], found["only_after"]) == (["one/main"], ["three/main"])


def test_sides_without_common_runs_are_reported(tmp_path: Path) -> None:
    for store, names in (("a", ("one", "two")), ("b", ("three", "four"))):
        for name in names:
            campaign(tmp_path / store, [10], name)
    assert compared(tmp_path / "a", tmp_path / "b")["notes"] == ["no cell is on both sides: nothing can be compared"]


def test_a_run_without_a_verdict_is_unknown_and_unreadable_settings_are_named(tmp_path: Path) -> None:
    before, after = campaign(tmp_path / "a", [10]), campaign(tmp_path / "b", [10])
    run = next(after.glob("*/verdict.json")).parent
    (run / "verdict.json").unlink()
    (run / "run.toml").write_text("{")
    found = compared(before, after)
    assert found["cells"][0]["after"] == {"unknown": 1}
    assert "settings of demo/main are not compared" in found["notes"][0]


def test_the_page_and_markdown_escape_text_of_runs(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>|"
    before, after = campaign(tmp_path / "a", [10]), campaign(tmp_path / "b", [10], anomalies=[hostile], met=False)
    page = tmp_path / "page.html"
    text = ask("compare", before, after, "--markdown", "--page", page).out
    assert "<script" not in page.read_text()
    assert r"\<script\>" in text
    assert r"\|" in text


@pytest.mark.parametrize("place", ["nothing", "page", "no name"])
def test_a_directory_without_a_campaign_or_store_is_wrong_usage(tmp_path: Path, place: str) -> None:
    before = campaign(tmp_path / "a", [10])
    (tmp_path / "nothing").mkdir()
    other = tmp_path / "nothing" if place == "nothing" else before
    pages = {"page": str(tmp_path / "absent" / "x.html"), "no name": ""}
    options: list[str | Path] = ["--page", pages[place]] if place in pages else []
    answer = ask("compare", before, other, *options)
    assert answer.code == 64
    expected = "is neither a campaign's directory nor a store" if place == "nothing" else "give a file that can be"
    assert expected in answer.err


def test_the_interval_covers_the_true_ratio_at_its_confidence() -> None:
    rng = random.Random(3)
    hits = 0
    for _ in range(40):
        sides = {"main": ([rng.gauss(10, 1) for _ in range(20)], [rng.gauss(20, 2) for _ in range(20)])}
        low, high = interval_of(sides, 0.95)
        hits += low <= 2.0 <= high
    assert hits >= 34


def test_the_size_of_a_block_of_assignments_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = np.random.default_rng(3)
    sides = {
        cell: (drawn.lognormal(0, 0.2, 9).tolist(), drawn.lognormal(0.1, 0.2, 11).tolist()) for cell in ("one", "two")
    }
    whole = comparison.compare(sides, larger_is_worse=True), comparison.interval_of(sides, 0.95)
    assert 0.001 < whole[0].p < 0.9
    monkeypatch.setattr(comparison, "_MOST_AT_ONCE", 21)
    assert (comparison.compare(sides, larger_is_worse=True), comparison.interval_of(sides, 0.95)) == whole


def test_a_figure_that_one_side_has_not_measured_is_named(tmp_path: Path) -> None:
    before = campaign(tmp_path / "a", [10.0, 11.0])
    after = campaign(tmp_path / "b", [10.0, 11.0], stats={"appends": 0}, acknowledged=0)
    figures = {each["figure"]: each for each in compared(before, after)["figures"]}
    assert {name: (each["before"], each["after"]) for name, each in figures.items()} == {
        "median latency": (10.5, None),
        "acknowledged changes": (100.0, None),
    }
    text = ask("compare", before, after, "--markdown").out
    assert text.count("| not measured | not tested: not measured after |") == 2


def test_a_comparison_has_the_words_of_pages_and_none_of_kafka(tmp_path: Path) -> None:
    stats = {"latency_p50_ms": 1.0, "latency_p99_ms": 9.0, "longest_outage_s": 0.5, "acknowledged": 1000}
    sides = [
        campaign(tmp_path / side, [1.0, 1.0], settings="nodes = 3\nworkload = 'own'\n", system="a store", stats=stats)
        for side in "ab"
    ]
    page = tmp_path / "page.html"
    forms = [ask("compare", *sides, *options).out for options in (["--page", page], ["--markdown"], ["--json"])]
    labels = {label for label, _ in report._figures(stats)}
    for form in (*forms, page.read_text()):
        assert words_of_kafka(form) == []
        assert "acknowledged writes" not in form
        assert "acknowledged changes" in labels & set(re.findall("acknowledged [a-z]+", form))


def test_medians_are_averaged_over_cells(tmp_path: Path) -> None:
    """Fast and slow cells with other numbers of runs on each side have not changed."""
    entries = {}
    for side, counts in (("a", (4, 2)), ("b", (2, 4))):
        path = campaign(tmp_path / side, [1.0] * counts[0] + [100.0] * counts[1])
        content = json.loads((path / "summary.json").read_text())
        for number, run in enumerate(content["runs"]):
            run["cell"] = "fast" if number < counts[0] else "slow"
        (path / "summary.json").write_text(json.dumps(content))
        entries[side] = path
    found = latency_in(compared(entries["a"], entries["b"]))
    assert (found["before"], found["after"], found["worse"]) == (pytest.approx(10.0), pytest.approx(10.0), False)
