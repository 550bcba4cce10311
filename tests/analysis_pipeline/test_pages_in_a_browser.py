"""The pages in a real browser: no scroll to the side, no error, no request, no overlapping or faint text."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.pipeline import analyze
from analysis.report import render_run
from orchestrator.command.line import main
from tests.analysis_pipeline.browser import browser, measure, screenshot
from tests.analysis_pipeline.stored_registers import StoredRegisters
from tests.analysis_pipeline.stored_run import StoredRun

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(browser() is None, reason="Chromium is not installed (Debian: chromium)"),
]
HOSTILE = "</pre></script><script>document.title='broken'</script>\x00\x1b[31m" + "long" * 60
PAGES = ("scenario", "campaign", "registers", "lost", "hostile", "group")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind by name."""
    store = tmp_path_factory.mktemp("store")
    command = ["run", "kip101-scenario1", "--cell", "mutated", "--world", "simulation", "--quiet"]
    assert main([*command, "--store", str(store)]) == 0
    (scenario,) = store.glob("kip101-scenario1/*-mutated-1")
    assert main(["analyze", str(scenario), "--engine", "in-process"]) == 1
    exits, lines = (("n3", 1, None, HOSTILE),), (("n2", "x", HOSTILE),)
    made: dict[str, StoredRun | StoredRegisters] = {
        "registers": StoredRegisters(store / "registers", stale=True, keys=("a", "</script><b>" + "k" * 80)),
        "group": StoredRun(store / "group", has_group=True),
        "lost": StoredRun(store / "lost", lost=7),
        "hostile": StoredRun(store / "hostile", lost=7, exits=exits, fatal_lines=lines),
    }
    found = {"scenario": scenario / "report.html", "campaign": store / "kip101-scenario1" / "report.html"}
    for name, run in made.items():
        analyze(run.write(), engine="in-process")
        found[name] = render_run(store / name)
    return found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read(pages: dict[str, Path], tmp_path: Path, name: str, width: int, dark: bool) -> None:
    seen = measure(pages[name], width=width, dark=dark)
    assert (seen.window, seen.dark) == (width, dark)
    assert pages[name].stat().st_size <= 3 << 20
    assert seen.errors == []
    assert seen.requests == []
    assert seen.width <= width, "the page scrolls to the side"
    assert seen.contrast == []
    assert seen.overlaps == []
    assert seen.texts > 20
    assert "system-ui" in seen.font
    assert seen.timeline == ("" if name == "campaign" else "drawn")
    assert seen.narrowest_proof >= 150
    assert len(screenshot(pages[name], tmp_path / "page.png", width=width, dark=dark)) > 10_000


def test_every_link_of_a_campaign_is_in_a_narrow_window(pages: dict[str, Path]) -> None:
    assert 0 < measure(pages["campaign"], width=400).rightmost_link <= 400


def test_the_timeline_zooms_filters_and_names_an_operation(pages: dict[str, Path]) -> None:
    extra = measure(pages["lost"], width=1280, probe="zoom_probe.js").extra
    assert extra["ink"] > 1_000
    assert extra["zooms"]
    assert extra["returns"]
    assert extra["filters"]
    assert "append on log-0" in extra["said"]


def test_the_story_is_filtered_by_kind(pages: dict[str, Path]) -> None:
    before, after = measure(pages["scenario"], width=1280, probe="filter_probe.js").extra
    assert 0 < after < before
