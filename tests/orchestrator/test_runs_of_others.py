"""Runs of other versions and names with any bytes: report, list, compare, gate and serve name unreadable ones."""

import json
import os
import shutil
import tomllib
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from history.checksummed_lines import text_of
from orchestrator.campaign import toml_text
from tests.mutations.stored import checked
from tests.orchestrator.served_store import Server, served
from tests.orchestrator.stored_campaign import NAME, StoredCampaign, ask

Change = Callable[[Path], None]
"""Changes a run's directory."""

NAMES: Final = (
    b"n\xff\xfe",
    b"<script>alert(1)<_script>",
    b"a\nb",
    b"\x1b[31mred",
    b"a b#c?d%20&\"'",
    "\u202eleft".encode(),
    b"-rf",
)


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> StoredCampaign:
    """One run that passes, and its decision."""
    made = StoredCampaign(tmp_path_factory.mktemp("others") / "store", "[seeds]\ncount = 1\n")
    made.made()
    assert ask("gate", made.path).code == 0
    return made


def run_in(campaign: Path) -> Path:
    """The newest run of a campaign's directory."""
    return max(path.parent for path in campaign.glob("*/run.toml") if not path.parent.is_symlink())


def _json(name: str, change: Callable[[dict[str, Any]], object]) -> Change:
    def changed(run: Path) -> None:
        content = json.loads((run / name).read_text())
        change(content)
        (run / name).write_text(json.dumps(content))

    return changed


def _toml(change: Callable[[dict[str, Any]], object]) -> Change:
    def changed(run: Path) -> None:
        content = tomllib.loads((run / "run.toml").read_text())
        change(content)
        (run / "run.toml").write_text(toml_text.dump(content))

    return changed


def _journal(change: Callable[[list[dict[str, Any]]], object]) -> Change:
    def changed(run: Path) -> None:
        path = run / "history" / "journal.jsonl"
        lines = checked(path)
        change(lines)
        path.write_bytes(text_of(lines))

    return changed


def _other_columns(run: Path) -> None:
    for path in (run / "tables").rglob("*.parquet"):
        pq.write_table(pa.table({"of_another_version": [1]}), path)


def _written(name: str, content: bytes) -> Change:
    def changed(run: Path) -> None:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(content)

    return changed


def _without_tables_and_nodes(run: Path) -> None:
    for name in ("tables", "nodes"):
        shutil.rmtree(run / name)


OTHER_VERSIONS: Final[dict[str, Change]] = {
    "a newer form of the verdict": _json("verdict.json", lambda content: content.update(form=99, later={"x": [1]})),
    "an older verdict without figures": _json("verdict.json", lambda content: content.pop("stats")),
    "a verdict with another word": _json("verdict.json", lambda content: content.update(verdict="perhaps")),
    "checks of another form": _json("verdict.json", lambda content: content.update(checks={"record": "pass"})),
    "anomalies of another form": _json("verdict.json", lambda content: content.update(anomalies=["stale-read"])),
    "a newer run.toml": _toml(lambda content: content.update(later={"x": [1]}, form=99)),
    "an older run.toml without a plan": _toml(lambda content: content.pop("plan")),
    "an older run.toml without versions": _toml(lambda content: content.pop("versions")),
    "an expectation of another form": _toml(lambda content: content.update(expect=["pass"])),
    "an event of a newer version": _journal(lambda lines: lines.append({"event": "teleported", "t": 1, "wall": 1.0})),
    "an older journal without clocks": _journal(lambda lines: [line.pop("wall", None) for line in lines]),
    "a journal whose phases have other names": _journal(
        lambda lines: [line.update(name="stage") for line in lines if line["event"] == "phase"]
    ),
    "a note with endpoints of another form": _journal(
        lambda lines: lines.append({"event": "note", "t": 1, "wall": 1.0, "text": "up", "endpoints": ["n1:9"]})
    ),
    "tables of other columns": _other_columns,
    "a seal of another form": _written("history/seal.json", b'{"form": 99}'),
    "another list of absent plots": _written("plots/left_out.json", b'{"partitions": 7}'),
    "events of another form": _written("nodes/n1/events.jsonl", b'{"event": 7}\n[1]\n{"at": "noon"}\n'),
    "no tables and nodes": _without_tables_and_nodes,
}
"""What a run of an older or a newer version may have otherwise."""


def all_are_answered(campaign: Path, decided: StoredCampaign, *commands: str) -> None:
    """Each command about the campaign's page, its store and a comparison ends with 0."""
    words: dict[str, tuple[str | Path, ...]] = {
        "report": ("report", campaign),
        "list": ("list", "--store", campaign.parent),
        "compare": ("compare", campaign.parent, decided.store),
    }
    for command in commands or words:
        answer = ask(*words[command])
        assert (answer.code, "Traceback" in answer.err) == (0, False), answer.err


DERIVED: Final = frozenset({"tables of other columns", "another list of absent plots"})
"""Of these, the files that an analysis writes and no decision rests on."""


@pytest.mark.parametrize(
    ("change", "is_derived"), [(change, name in DERIVED) for name, change in OTHER_VERSIONS.items()], ids=OTHER_VERSIONS
)
def test_pages_of_a_run_of_another_version_name_missing_parts(
    change: Change, is_derived: bool, decided: StoredCampaign, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(decided.store, store, symlinks=True)
    run = run_in(store / NAME)
    before = (run / "report.html").read_bytes() if (run / "report.html").exists() else b""
    change(run)
    drawn = ask("report", run)
    assert drawn.code in (0, 64)
    if drawn.code == 0:
        page = (run / "report.html").read_text()
        assert page.encode() != before
        assert "Missing from this page" in page or "unknown" in page
    else:
        assert str(run) in drawn.err
        assert "analyze" in drawn.err
    decision = ask("gate", run.parent)
    assert decision.code == (0 if is_derived else 2), "a run that cannot be understood proves nothing"
    all_are_answered(run.parent, decided)
    assert is_derived or "unknown" in (run.parent / "report.html").read_text()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(form=99, later={"x": 1}),
        lambda content: content.pop("reason"),
        lambda content: content.update(runs={"a": 1}),
        lambda content: content["runs"][0].pop("verdict"),
        lambda content: content["runs"][0].update(verdict=["pass"]),
        lambda content: content["runs"][0].update(later=[1]),
    ],
)
def test_a_summary_of_another_version_is_listed_compared_and_served(
    change: Callable[[dict[str, Any]], object], decided: StoredCampaign, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(decided.store, store, symlinks=True)
    _json("summary.json", change)(store / NAME)
    all_are_answered(store / NAME, decided, "list", "compare")
    assert ask("gate", store / NAME).code == 0, "the decision rests on the runs"


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(runs="all"),
        lambda content: content.pop("runs"),
        lambda content: content.update(settled=[1]),
        lambda content: content.pop("campaign"),
    ],
)
def test_a_plan_of_another_version_is_undecided_and_named(
    change: Callable[[dict[str, Any]], object], decided: StoredCampaign, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(decided.store, store, symlinks=True)
    (plan,) = (store / NAME / "plans").glob("*.toml")
    content = tomllib.loads(plan.read_text())
    change(content)
    plan.write_text(toml_text.dump(content))
    answer = ask("gate", store / NAME)
    assert answer.code == 2
    assert plan.stem in answer.out + answer.err
    all_are_answered(store / NAME, decided)


@pytest.fixture(scope="module")
def hostile(decided: StoredCampaign, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which a campaign, a run and files of nodes have each of the names."""
    store = tmp_path_factory.mktemp("hostile") / "store"
    for name in map(os.fsdecode, NAMES):
        campaign = store / name
        shutil.copytree(decided.path, campaign, symlinks=True)
        run = run_in(campaign)
        shutil.copytree(run, campaign / f"20260102T030405{name}-main-1")
        (run / "nodes" / name).mkdir()
        for place in ("nodes/n1", "history/operations", "clients", "plots", "."):
            (run / place).mkdir(exist_ok=True)
            (run / place / f"{name}.html").write_bytes(b"<script>alert(1)</script>\xff")
    return store


@pytest.fixture(scope="module")
def server(hostile: Path) -> Iterator[Server]:
    with served(hostile) as made:
        yield made


def is_clean(text: str) -> bool:
    return "<script>alert" not in text and not set(text) & {"\x1b", "\x00", "\u202e"}


def visible_markup(text: str) -> str:
    """The text of a terminal, to which markup means nothing."""
    return text.replace("<", "&lt;")


def test_names_with_any_bytes_are_listed_and_compared(hostile: Path, tmp_path: Path) -> None:
    listed = ask("list", "--store", hostile)
    assert (listed.code, is_clean(visible_markup(listed.out + listed.err))) == (0, True)
    assert is_clean((hostile / "index.html").read_text(encoding="utf-8"))
    compared = ask("compare", hostile, hostile, "--markdown", "--page", tmp_path / "page.html")
    assert (compared.code, is_clean((tmp_path / "page.html").read_text(encoding="utf-8"))) == (0, True)
    assert "\x1b" not in compared.out + compared.err


@pytest.mark.parametrize("name", NAMES)
def test_a_campaign_and_a_run_of_any_name_are_decided_reported_and_served(
    name: bytes, hostile: Path, server: Server
) -> None:
    campaign = hostile / os.fsdecode(name)
    decision = ask("gate", campaign)
    assert (decision.code, is_clean(visible_markup(decision.out + decision.err))) == (2, True)
    run = run_in(campaign)
    for directory in (run, campaign / f"20260102T030405{campaign.name}-main-1", campaign):
        drawn = ask("report", directory)
        assert drawn.code == 0
        assert not set(drawn.out + drawn.err) & {"\x1b", "\u202e"}
        assert is_clean((directory / "report.html").read_text(encoding="utf-8"))
        below = urllib.parse.quote(os.fsencode(directory.relative_to(hostile)))
        page = server.get(f"/{below}/report.html")
        assert page.code == 200
        assert page.text == (directory / "report.html").read_text(encoding="utf-8")
    evidence = f"/{urllib.parse.quote(os.fsencode(run.relative_to(hostile)))}/nodes/n1/{urllib.parse.quote(name)}.html"
    assert server.get_bytes(evidence) == b"<script>alert(1)</script>\xff"


def test_the_served_index_of_hostile_names_is_clean(server: Server) -> None:
    for path in ("/", "/live"):
        page = server.get(path)
        assert (page.code, is_clean(page.text)) == (200, True)
