"""The pages in a real browser: no scroll to the side, no error, no request, no overlapping or faint text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.analysis.python_literals import literals_in
from tests.analysis_pipeline.browser import BrowserPage, browser, program
from tests.analysis_pipeline.page_runs import PageRuns

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(program() is None, reason="Chromium is not installed (Debian: chromium)"),
]
MOST_BYTES: Final = 3 << 20
RUNS: Final = (
    "demo",
    "scenario",
    "64 partitions",
    "50 faults",
    "swarm",
    "registers",
    "etcd",
    "group",
    "tiered",
    "unknown",
    "lost",
    "hostile",
)
ACROSS: Final = ("campaign", "compared", "index")
READ: Final = """(() => {
  const body = document.body.cloneNode(true);
  body.querySelectorAll('pre, script, #lines').forEach(each => each.remove());
  body.querySelectorAll('td, th, p, li, tr, div').forEach(each => each.append('\\n'));
  return body.textContent + [...document.querySelectorAll('[title]')].map(each => each.title).join('\\n');
})()"""
"""The text of a page with its tooltips, without files that it cites."""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserPage]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened.page()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> PageRuns:
    return PageRuns(tmp_path_factory.mktemp("pages") / "store")


def test_every_page_is_read_below(runs: PageRuns) -> None:
    assert set(runs.names) == {*RUNS, *ACROSS}


@pytest.mark.parametrize("name", [*RUNS, *ACROSS])
def test_a_page_can_be_read(runs: PageRuns, tab: BrowserPage, tmp_path: Path, name: str) -> None:
    page = runs.of(name)
    assert page.stat().st_size <= MOST_BYTES
    for width in (1280, 400):
        for dark in (False, True):
            tab.go(page.as_uri(), width=width, dark=dark)
            tab.probe("reading_probe.js")
            seen = tab.measure()
            which = f"{name}, {width} px, {'dark' if dark else 'light'}"
            assert (seen.window, seen.dark) == (width, dark)
            assert (seen.errors, seen.requests) == ([], []), which
            assert seen.width <= width, f"{which}: the page scrolls to the side"
            assert seen.contrast == [], which
            assert seen.overlaps == [], which
            assert seen.texts > 20
            assert literals_in(tab.evaluate(READ).splitlines()) == [], which
            assert "system-ui" in seen.font
            assert (seen.timeline, seen.drawn > 4) == (("drawn", True) if name in RUNS else ("", False)), which
            assert seen.narrowest_proof >= 150
            assert len(tab.screenshot(tmp_path / f"{width}-{dark}.png")) > 10_000


BROKEN: Final = """<!doctype html><html><head><script>console.error('wrong'); absent();</script></head>
<body style="background: #fff"><p style="color: #bbb">faint text</p><img src="absent.png">
<p style="position: absolute; top: 200px; left: 0">one text</p>
<p style="position: absolute; top: 202px; left: 5px">another</p>
<p style="white-space: nowrap; width: 3000px">wide</p><canvas id="c" width="300" height="60"></canvas><script>
var ctx = document.getElementById('c').getContext('2d'); ctx.fillStyle = '#000'; ctx.fillRect(0, 0, 300, 60);
ctx.fillStyle = '#222'; ctx.fillText('dark on dark', 5, 20); ctx.fillStyle = '#fff'; ctx.fillText('over it', 8, 22);
</script></body></html>"""


def test_the_measurements_find_defects_of_a_page(tab: BrowserPage, tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text(BROKEN)
    tab.go(page.as_uri(), width=400)
    seen = tab.measure()
    assert any("wrong" in each for each in seen.errors)
    assert any("absent is not defined" in each for each in seen.errors)
    assert [each.rpartition("/")[2] for each in seen.requests] == ["absent.png"]
    assert seen.width > 400
    assert {text for text, _ in seen.contrast} == {"faint text", "dark on dark"}
    assert sorted(map(sorted, seen.overlaps)) == [["another", "one text"], ["dark on dark", "over it"]]


def test_every_link_of_a_campaign_is_in_a_narrow_window(runs: PageRuns, tab: BrowserPage) -> None:
    tab.go(runs.of("campaign").as_uri(), width=400)
    assert 0 < tab.measure().rightmost_link <= 400


def test_the_timeline_zooms_filters_and_names_an_operation(runs: PageRuns, tab: BrowserPage) -> None:
    tab.go(runs.of("lost").as_uri(), width=1280)
    found = tab.probe("zoom_probe.js")
    assert found["ink"] > 1_000
    assert found["zooms"]
    assert found["returns"]
    assert found["filters"]
    assert "append on log-0" in found["said"]


def test_the_story_is_filtered_by_kind(runs: PageRuns, tab: BrowserPage) -> None:
    tab.go(runs.of("scenario").as_uri(), width=1280)
    before, after = tab.probe("filter_probe.js")
    assert 0 < after < before
