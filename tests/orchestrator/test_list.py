"""`brownout list` and the page `index.html`: every run of a store, without examining evidence."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.run_row import RunRow
from orchestrator.store.index import IndexedCampaign, ordered
from tests.orchestrator.stored_campaign import NAME, StoredCampaign, ask

DEEP = '{"stats": {"a": ' + "[" * 100_000
"""JSON that is nested too deep."""


def summarized(store: Path, name: str = NAME, **changes: Any) -> Path:
    """A campaign of one run with a summary, as the gate leaves it."""
    run = "20260102T030405aa-main-1"
    directory = store / name / run
    directory.mkdir(parents=True)
    (directory / "run.toml").touch()
    (directory / "verdict.json").write_text("{}")
    entry = {
        "run": run,
        "cell": "main",
        "seed": 1,
        "verdict": "pass",
        "expected": "pass",
        "met": True,
        "reasons": [],
        "verdict_sha256": hashlib.sha256(b"{}").hexdigest(),
        "world": "simulation",
        "system": "paper",
    }
    content = {"campaign": name, "verdict": "pass", "reason": "as expected", "runs": [entry | changes]}
    (store / name / "summary.json").write_text(json.dumps(content))
    return directory


def judged(run: Path, **changes: Any) -> Path:
    """A run's directory with a finished verdict that no summary names."""
    run.mkdir()
    (run / "run.toml").touch()
    content: dict[str, Any] = {"cell": "main", "seed": 1, "verdict": "fail", "met": False, "finished": True}
    content |= dict.fromkeys(("run", "campaign", "upper_bound", "world", "replay"), "")
    content |= {key: [] for key in ("reasons", "anomalies", "checks", "faults", "never_seen", "limits")}
    (run / "verdict.json").write_text(json.dumps(content | {"expected": {}, "stats": {}} | changes))
    return run


def rows(store: Path, *options: str) -> list[dict[str, Any]]:
    answer = ask("list", "--store", store, "--json", *options)
    assert answer.code == 0, answer.err
    return list(answer.json)


def test_a_run_that_was_made_and_decided_is_listed_with_its_verdict(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store")
    campaign.made(seeds=[1])
    assert ask("gate", campaign.path).code == 0
    row = rows(campaign.store)[0]
    assert (row["campaign"], row["verdict"], row["met"], row["counts"]) == (NAME, "pass", True, True)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["made"])
    shutil.rmtree(campaign.path / row["run"])
    assert rows(campaign.store)[0]["verdict"] == "unknown", "its verdict is gone"


def test_a_verdict_that_differs_from_that_of_the_summary_is_unknown(tmp_path: Path) -> None:
    directory = summarized(tmp_path)
    assert rows(tmp_path)[0]["verdict"] == "pass"
    (directory / "verdict.json").write_text("[]")
    row = rows(tmp_path)[0]
    assert (row["verdict"], row["met"]) == ("unknown", False)
    assert "analyzed after the summary was written; decide again with: ./brownout gate" in row["reasons"][0]


def test_a_summary_that_names_no_digest_of_a_verdict_is_unknown(tmp_path: Path) -> None:
    summarized(tmp_path, verdict_sha256="")
    assert rows(tmp_path)[0]["verdict"] == "unknown"


def test_list_compare_and_gate_answer_alike_for_a_copy_without_times(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store")
    campaign.made(seeds=[1, 2])
    assert ask("gate", campaign.path).code == 0
    copy = tmp_path / "copy"
    shutil.copytree(campaign.store, copy, symlinks=True)
    for number, path in enumerate(sorted(copy.rglob("*"), reverse=True)):
        if not path.is_symlink():
            os.utime(path, (number, number))
    assert rows(copy) == rows(campaign.store)
    assert {row["verdict"] for row in rows(copy)} == {"pass"}
    assert ask("gate", copy / NAME).code == 0
    sides = ask("compare", copy, campaign.store, "--json").json
    assert sides["before"]["verdicts"] == sides["after"]["verdicts"] == {"pass": 2}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"campaign": 1}',
        '{"campaign": "x", "verdict": "pass", "reason": "", "runs": [{}]}',
        pytest.param(DEEP, id="deep"),
    ],
)
def test_a_damaged_summary_is_unknown_and_names_the_remedy(tmp_path: Path, text: str) -> None:
    directory = summarized(tmp_path)
    (directory.parent / "summary.json").write_text(text)
    answer = ask("list", "--store", tmp_path)
    assert answer.code == 0
    assert "unknown (does not count)" in answer.out
    assert "./brownout gate" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize("name", ["a\0b", "../elsewhere", "", ".", "x" * 256])
def test_a_summary_is_damaged_by_a_run_without_a_directory_name(tmp_path: Path, name: str) -> None:
    summarized(tmp_path, run=name)
    answer = ask("list", "--store", tmp_path, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert [(row["verdict"], row["counts"]) for row in answer.json] == [("unknown", False)]


def test_a_link_that_leads_to_itself_is_not_a_run(tmp_path: Path) -> None:
    directory = summarized(tmp_path)
    for place in (tmp_path, directory.parent):
        (place / "loop").symlink_to("loop")
    assert [row["run"] for row in rows(tmp_path)] == [directory.name]
    answer = ask("compare", tmp_path, directory.parent)
    assert answer.code == 0, answer.err


def test_a_run_without_summary_shows_its_stored_verdict_and_does_not_count(tmp_path: Path) -> None:
    directory = summarized(tmp_path)
    other = judged(directory.parent / "20260101T000000aa-main-1", stats={"acknowledged": 7})
    unfinished = directory.parent / "20260103T000000aa-main-1"
    unfinished.mkdir()
    (unfinished / "run.toml").touch()
    interrupted = judged(directory.parent / "20260104T000000aa-main-1", verdict="pass", met=True, finished=False)
    found = {row["run"]: (row["verdict"], row["counts"], row["reasons"]) for row in rows(tmp_path)}
    assert found[other.name] == ("fail", False, ["the summary does not list it"])
    assert found[interrupted.name] == ("unknown", False, ["the summary does not list it"])
    assert found[unfinished.name] == ("unknown", False, ["it has no verdict.json"])


def test_a_row_without_summary_has_the_findings_of_its_verdict(tmp_path: Path) -> None:
    directory = summarized(tmp_path)
    other = judged(directory.parent / "20260101T000000aa-main-1", stats={"acknowledged": 7, "duration_s": 2.5})
    (found,) = (row for row in rows(tmp_path) if row["run"] == other.name)
    assert (found["acknowledged"], found["duration_s"], found["expected"]) == (7, 2.5, "pass")


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"verdict": "pass", "met": true, "finished": true}', pytest.param(DEEP, id="deep")]
)
def test_a_verdict_that_lacks_fields_is_unknown_and_names_the_remedy(tmp_path: Path, content: str) -> None:
    directory = summarized(tmp_path)
    other = judged(directory.parent / "20260101T000000aa-main-1")
    (other / "verdict.json").write_text(content)
    (found,) = (row for row in rows(tmp_path) if row["run"] == other.name)
    assert (found["verdict"], found["met"], found["counts"]) == ("unknown", False, False)
    assert "verdict.json cannot be read" in found["reasons"][0]
    assert f"./brownout analyze {other}" in found["reasons"][0]


def test_rows_are_filtered_by_campaign_verdict_and_words(tmp_path: Path) -> None:
    summarized(tmp_path, "one")
    summarized(tmp_path, "two", verdict="fail", met=False, anomalies=["stale-read"])
    assert [row["campaign"] for row in rows(tmp_path)] == ["two", "one"], "unexpected ones come first"
    assert [row["campaign"] for row in rows(tmp_path, "--unexpected")] == ["two"]
    assert [row["campaign"] for row in rows(tmp_path, "--verdict", "pass")] == ["one"]
    assert [row["campaign"] for row in rows(tmp_path, "--search", "Stale paper")] == ["two"]
    answer = ask("list", "--store", tmp_path, "--campaign", "thre")
    assert (answer.code, "has no such campaign; known: one, two" in answer.err) == (64, True), answer.err
    assert ask("list", "--store", tmp_path, "--campaign", "three", "--trends").code == 64


def test_order_is_unexpected_first_then_newest_first() -> None:
    def row(run: str, made: str, *, met: bool, counts: bool = True) -> RunRow:
        return RunRow(run, "main", 1, "pass", "pass", met, (), counts=counts, made=made)

    given = (
        row("a", "1", met=True),
        row("b", "2", met=True),
        row("c", "0", met=False),
        row("d", "3", met=False, counts=False),
    )
    assert [each.run for each in ordered((IndexedCampaign("c", "fail", "", given),))] == ["c", "d", "b", "a"]


def test_text_of_a_run_is_escaped_in_the_page(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script>\x00\x1b[31m&"
    summarized(tmp_path, reasons=[hostile], met=False, verdict="unknown", cell=hostile, world=hostile)
    ask("list", "--store", tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert page.count("<script") == page.count("</script>") == 3
    assert not set(page) & {"\x00", "\x1b"}
    embedded = re.search(r'<script type="application/json" id="rows">(.*?)</script>', page, re.DOTALL)
    assert embedded is not None
    assert json.loads(embedded[1])[0]["reasons"] == [hostile]


def test_trends_have_a_row_for_each_invocation_also_of_superseded_ones(tmp_path: Path) -> None:
    stats = {"latency_p99_ms": 12.5, "longest_outage_s": 1.5}
    versions = {"brownout": "abc", "python": "3"}
    directory = summarized(tmp_path, stats=stats, versions=versions)
    versions = {"brownout": "ab"}
    judged(directory.parent / "20260101T000000aa-main-1", world="process", stats=stats, versions=versions)
    first, second = rows(tmp_path, "--trends")
    assert (first["version"], first["met"], first["latency_p99_ms"]) == ("brownout ab", 0, None)
    assert (second["version"], second["met"], second["latency_p99_ms"]) == ("brownout abc", 1, 12.5)
    assert "1/1" in ask("list", "--store", tmp_path, "--trends").out
    assert ask("list", "--store", tmp_path, "--trends", "--campaign", "other").code == 64


def test_a_store_that_is_missing_is_wrong_usage(tmp_path: Path) -> None:
    answer = ask("list", "--store", tmp_path / "absent")
    assert answer.code == 64
    assert "give the directory of runs with --store" in answer.err


def test_a_store_that_cannot_be_written_is_listed(tmp_path: Path) -> None:
    summarized(tmp_path)
    (tmp_path / "index.html").mkdir()
    answer = ask("list", "--store", tmp_path)
    assert answer.code == 0
    assert "the page was not written" in answer.err


def test_a_campaign_name_outside_utf8_is_listed_and_linked(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\xfe#b")
    summarized(tmp_path, name=name)
    assert ask("list", "--store", tmp_path).code == 0
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'href="a%FE%23b/report.html"' in page
