"""`brownout serve` in a real browser: a run in progress, the token, and another site's name for this machine."""

import json
import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.analysis_pipeline.browser import REBOUND, BrowserPage, browser, program
from tests.orchestrator.live_run import LiveRun
from tests.orchestrator.served_store import Server, served

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(program() is None, reason="Chromium is not installed (Debian: chromium)"),
]
BUSY = {
    "run": "random-1",
    "seconds": 40,
    "phase": "load",
    "total": 4_000_000,
    "acknowledged": [123_456] * 40,
    "failed": [7] * 40,
    "latency_ms": [3.5] * 40,
    "lines": [["n1", "ready"]],
    "first_second": 0,
    "faults": [
        {"kind": kind, "targets": ["n1"], "since": since, "until": until, "status": "healed"}
        for kind, since, until in (
            ("kill", 0.0, 20.0),
            ("pause", 1.0, 30.0),
            ("disk-full", 2.0, None),
            ("clock-skew", 3.0, None),
            ("partition", 4.0, None),
            ("kill", 22.0, 22.1),
            ("kill", 25.0, None),
        )
    ],
}
"""A run at its highest rate in every second, with overlapping faults: each bar has the full height of the plot."""
KILLS = """
[nemesis]
kind = "random"
faults = ["kill"]
interval_s = [1.0, 1.0]
duration_s = [7.0, 7.0]
[checks]
min_ok = 1
min_share = 0.01
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserPage]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened.page()


def port_of(server: Server) -> str:
    return server.base.rpartition(":")[2]


def text_of(tab: BrowserPage, name: str) -> str:
    return str(tab.evaluate(f"document.getElementById('{name}').textContent"))


def test_faults_appear_while_they_are_in_force_and_the_verdict_at_the_end(tmp_path: Path, tab: BrowserPage) -> None:
    run = LiveRun(tmp_path, "process", more=KILLS, duration_s=9.0)
    run.store.mkdir(exist_ok=True)
    try:
        with served(run.store) as server:
            tab.go(f"{server.base}/live", width=1280)
            assert re.match(r"kill n\d since \d", tab.until("document.getElementById('force').textContent", 240))
            assert not list(run.store.glob("live/*/verdict.json")), "the run is under way"
            assert "running" in text_of(tab, "matrix")
            seen = tab.measure()
            assert (seen.errors, seen.contrast, seen.overlaps) == ([], [], [])
            assert {urllib.parse.urlsplit(each).path for each in seen.requests} == {"/live.json"}
            assert seen.drawn >= 3, "the rate is drawn"
            state = tab.until("/^ended/.test(document.getElementById('state').textContent) && state.textContent", 240)
            assert state == "ended: 1 of 1 run met its expectation"
            assert run.process.wait(60) == 0
            report = tab.evaluate("document.querySelector('#matrix a').href")
            tab.go(report, width=400, dark=True)
            assert tab.evaluate("document.querySelector('.badge').textContent") == "pass"
            assert (tab.errors, tab.requests) == ([], [])
            assert server.get("/").code == 200, "the server is there after the run"
    finally:
        run.process.kill()
        run.process.wait()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 400])
def test_names_of_faults_are_readable_above_full_bars(tmp_path: Path, tab: BrowserPage, width: int, dark: bool) -> None:
    invocation = {"campaign": "busy", "stamp": "20260101T000000Z", "running": BUSY, "matrix": [
        {"run": "random-1", "cell": "random", "seed": 1, "verdict": "running", "met": False}]}  # fmt: skip
    with served(tmp_path) as server:
        tab.go(f"{server.base}/live", width=width, dark=dark)
        tab.until("document.getElementById('title').textContent === 'The store has no invocation'")
        tab.evaluate("window.fetch = () => new Promise(() => {}), null")
        tab.evaluate(f"show([{json.dumps(invocation)}])")
        seen = tab.measure()
        assert (seen.errors, seen.contrast, seen.overlaps) == ([], [], [])
        assert seen.drawn >= 5, "names and scales are drawn"


def test_the_token_opens_the_pages_and_is_removed_from_the_address(tmp_path: Path, tab: BrowserPage) -> None:
    with served(tmp_path, "--address", "0.0.0.0") as server:
        place, token = f"http://127.0.0.1:{port_of(server)}", server.address.partition("token=")[2]
        asked = "fetch('/live.json').then(answer => answer.status)"
        tab.go(f"{place}/live", width=400)
        assert tab.evaluate(asked) == 403
        tab.go(f"{place}/live?token={token}", width=400)
        assert tab.evaluate("location.href") == f"{place}/live"
        assert tab.evaluate(asked) == 200
        assert tab.evaluate("document.cookie") == "", "no script reads the token"
        assert not [each for each in tab.requests if token in each]


def test_a_request_with_another_host_name_is_refused(tmp_path: Path, tab: BrowserPage) -> None:
    (tmp_path / "secret").mkdir()
    with served(tmp_path) as server:
        for path in ("", "live.json", "secret/run.toml"):
            tab.go(f"http://{REBOUND}:{port_of(server)}/{path}", width=400)
            assert "403" in tab.evaluate("document.body.textContent")
            assert tab.evaluate("fetch(location.href).then(answer => answer.status)") == 403
