"""Sizes of pages and the time to draw them: of a run, of the index of a store, and of two stores compared.

    python -m benchmarks.pages [CAMPAIGN ...] [--world simulation] [--runs 10000] [--rounds 5]
    python -m benchmarks.pages --timeline 1e5

One run of each campaign (default: the demo) is made. Its analysis with and without plots and its page are repeated. The
index, the trends and the comparison are those of generated stores of `--runs` runs, in campaigns of 100 runs.
Times are medians of `--rounds` rounds. Where Chromium is installed, `loaded` is the time until it has loaded the page
of a run and drawn its timeline. `--timeline`: only the timeline of a generated run with about this number of
operations, in Chromium: the time to draw a frame while the user zooms and pans.
"""

import argparse
import contextlib
import io
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from analysis.pipeline import analyze
from analysis.report import render_run
from analysis.verdict import Check, Expectation, Verdict
from benchmarks.ingest import record
from history.regular_files import sha256_of
from orchestrator.command.compare import write_page
from orchestrator.command.line import main as brownout
from orchestrator.store.index import read_index
from orchestrator.store.index_page import write_index
from orchestrator.store.side_by_side import side_by_side
from tests.analysis_pipeline.browser import browser, program
from tests.analysis_pipeline.stored_run import StoredRun

_RUNS_OF_A_CAMPAIGN: Final = 100
_WIDTH: Final = 1280
_FRAMES: Final = """
new Promise(done => {
  const taken = [], canvas = document.getElementById('timeline'), pixels = canvas.getContext('2d');
  window.requestAnimationFrame = draw => {
    const start = performance.now(); draw(); pixels.getImageData(0, 0, 1, 1); taken.push(performance.now() - start);
  };
  for (const name of ['zoom-all', ...Array(10).fill('zoom-in'), ...Array(10).fill('pan-right'),
                      ...Array(10).fill('zoom-out'), ...Array(10).fill('pan-left')])
    document.getElementById(name).click();
  done(taken);
})
"""
"""The milliseconds of each frame, rasterization included."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", default=["demo"])
    parser.add_argument("--world", default="simulation")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path, help="a directory on a large disk")
    parser.add_argument(
        "--timeline", type=float, help="only the timeline of a run with about this number of operations"
    )
    options = parser.parse_args()
    if options.timeline:
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            _timeline(int(options.timeline), Path(scratch))
        return
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        for campaign in options.campaigns:
            _run_page(campaign, options.world, Path(scratch), options.rounds)
        _store_pages(Path(scratch), options.runs, options.rounds)


def _run_page(campaign: str, world: str, scratch: Path, rounds: int) -> None:
    store = scratch / "made"
    brownout(["run", campaign, "--seeds", "1", "--world", world, "--store", str(store), "--no-plots", "--quiet"])
    run = max(path.parent for path in store.glob("*/*/run.toml") if not path.parent.is_symlink())
    bare_s = _median_s(lambda: analyze(run, engine="in-process", plots=False), rounds)
    drawn_s = _median_s(lambda: analyze(run, engine="in-process"), rounds)
    page_s = _median_s(lambda: render_run(run), rounds)
    size = _megabytes(run / "report.html")
    loaded = f", loaded in {_loaded_s(run / 'report.html', scratch, rounds):.2f} s" if program() else ""
    print(
        f"{run.parent.name} ({world}): page {size}, drawn in {page_s:.2f} s{loaded}; analysis without / with plots "
        f"{bare_s:.2f} / {drawn_s:.2f} s",
        flush=True,
    )


def _timeline(operations: int, scratch: Path) -> None:
    run = StoredRun(scratch / "run").write()
    shutil.rmtree(run / "history" / "operations")
    (run / "history" / "operations").mkdir()
    record(run / "history" / "operations", operations, 8)
    analyze(run, engine="in-process", plots=False)
    render_run(run)
    with browser(scratch / "profile") as opened:
        tab = opened.page()
        tab.go((run / "report.html").as_uri(), width=_WIDTH)
        ops = "JSON.parse(document.getElementById('timeline-data').textContent).ops"
        count, is_counted = tab.evaluate(f"[{ops}.count, {ops}.window_s > 0]")
        frames_ms = tab.evaluate(_FRAMES)
    print(
        f"timeline of {count:,} operations, {'as counts' if is_counted else 'each drawn'}: page "
        f"{_megabytes(run / 'report.html')}, {len(frames_ms)} frames, "
        f"a frame takes {statistics.median(frames_ms):.1f} ms, at most {max(frames_ms):.1f} ms"
    )


def _store_pages(scratch: Path, runs: int, rounds: int) -> None:
    before, after = scratch / "before", scratch / "after"
    for store, latency_ms in ((before, 10.0), (after, 11.0)):
        _write_store(store, runs, latency_ms)
    trends_s = _cpu_s(lambda: _print_trends(after), rounds)
    print(f"trends of {runs:,} runs: {trends_s:.2f} s CPU", flush=True)
    index_s = _median_s(lambda: write_index(after, read_index(after)), rounds)
    print(f"index of {runs:,} runs: {_megabytes(after / 'index.html')}, made in {index_s:.2f} s", flush=True)
    page = scratch / "compared.html"
    compared_s = _median_s(lambda: write_page(page, side_by_side(before, after)), rounds)
    print(f"two stores of {runs:,} runs each, compared: {_megabytes(page)}, made in {compared_s:.2f} s")
    print(f"the same without a page: {_cpu_s(lambda: side_by_side(before, after), rounds):.1f} s CPU")


def _print_trends(store: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        brownout(["list", "--trends", "--json", "--store", str(store)])


def _cpu_s(do: Callable[[], object], rounds: int) -> float:
    """The median of the CPU time."""
    taken = []
    for _ in range(rounds):
        start_s = time.process_time()
        do()
        taken.append(time.process_time() - start_s)
    return statistics.median(taken)


def _write_store(store: Path, runs: int, latency_ms: float) -> None:
    """Campaigns with a summary each, as the gate leaves them; every tenth run fails."""
    for first in range(0, runs, _RUNS_OF_A_CAMPAIGN):
        campaign = store / f"campaign-{first:06d}"
        entries = [_entry(seed, latency_ms) for seed in range(first, min(first + _RUNS_OF_A_CAMPAIGN, runs))]
        for entry in entries:
            directory = campaign / str(entry["run"])
            directory.mkdir(parents=True)
            (directory / "run.toml").write_text(f'[workload]\nrate = {latency_ms}\nkind = "log"\n', encoding="utf-8")
            _verdict(campaign.name, entry).write(directory / "verdict.json")
            entry["verdict_sha256"] = sha256_of(directory / "verdict.json")
        content = {"campaign": campaign.name, "verdict": "fail", "reason": "as generated", "runs": entries}
        (campaign / "summary.json").write_text(json.dumps(content), encoding="utf-8")


def _verdict(campaign: str, entry: dict[str, Any]) -> Verdict:
    """With ten checks and ten faults, about 7 kB as a file."""
    return Verdict(
        campaign=campaign,
        **{name: entry[name] for name in ("run", "cell", "seed", "verdict", "met", "world", "stats", "versions")},
        expected=Expectation(),
        reasons=tuple(entry["reasons"]),
        anomalies=(),
        checks=tuple(Check(f"check-{number}", "pass", "as generated " * 10, 0.1) for number in range(10)),
        faults=tuple({"id": f"f{number}", "kind": "kill", "note": "as generated " * 20} for number in range(10)),
        never_seen=(),
        upper_bound="strict",
        limits=(),
        replay="",
        finished=True,
        evidence="generated",
        analysis="generated",
    )


def _entry(seed: int, latency_ms: float) -> dict[str, Any]:
    is_pass = seed % 10 != 0
    return {
        "run": f"20260102T030405{seed % 256:02x}-main-{seed}",
        "cell": "main",
        "seed": seed,
        "verdict": "pass" if is_pass else "fail",
        "expected": "pass",
        "met": is_pass,
        "reasons": [] if is_pass else ["a record was lost"],
        "anomalies": [] if is_pass else ["lost-acknowledged-write"],
        "world": "simulation",
        "system": "brownout",
        "acknowledged": 1_000 + seed % 7,
        "duration_s": 60.0,
        "stats": {"latency_p50_ms": latency_ms + seed % 13 / 10, "latency_p99_ms": 3 * latency_ms + seed % 17 / 10},
        "versions": {"brownout": "generated"},
    }


def _loaded_s(page: Path, scratch: Path, rounds: int) -> float:
    """Until the timeline is drawn. A page without a timeline ends the benchmark."""
    with browser(scratch / "profile") as opened:
        tab = opened.page()

        def load() -> None:
            tab.go(page.as_uri(), width=_WIDTH)
            if tab.evaluate("document.documentElement.dataset.timeline") != "drawn":
                raise SystemExit(f"{page} has no timeline: the benchmark measures something else")

        return _median_s(load, rounds)


def _median_s(do: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        start_s = time.monotonic()
        do()
        taken.append(time.monotonic() - start_s)
    return statistics.median(taken)


def _megabytes(page: Path) -> str:
    return f"{page.stat().st_size / 1e6:.2f} MB"


if __name__ == "__main__":
    main()
