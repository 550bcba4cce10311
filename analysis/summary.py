"""A campaign as one document: what each of its runs came to, and whether that is what was expected."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from analysis.verdict import FAIL, PASS, UNKNOWN, Verdict
from installation.commands import command


def summarize(campaign_dir: Path) -> dict[str, Any]:
    """Read every run's verdict below a campaign's directory, write `summary.json`, and return it.

    `verdict` is `pass` when every run met its expectation, `unknown` when all that did not are unknown or
    have no verdict, else `fail`; a campaign without runs is unknown.
    """
    runs = [_entry(path) for path in sorted(campaign_dir.iterdir()) if (path / "run.toml").exists()]
    unmet = [run for run in runs if not run["met"]]
    wrong = any(run["verdict"] != UNKNOWN for run in unmet)
    verdict = FAIL if wrong else UNKNOWN if unmet or not runs else PASS
    summary = {"campaign": campaign_dir.name, "verdict": verdict, "met": len(runs) - len(unmet), "runs": runs}
    draft = campaign_dir / "summary.json.tmp"
    draft.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, campaign_dir / "summary.json")
    return summary


def _entry(run_dir: Path) -> dict[str, Any]:
    path = run_dir / "verdict.json"
    if not path.exists():
        reason = f"no verdict yet; make it with: {command('analyze', str(run_dir))}"
        blank = {"cell": "", "seed": -1, "verdict": UNKNOWN, "expected": PASS, "met": False, "anomalies": []}
        nothing = {"faults": 0, "faults_confirmed": 0, "acknowledged": 0, "duration_s": 0.0}
        return {"run": run_dir.name, "reasons": [reason], **blank, **nothing}
    verdict = Verdict.read(path)
    return {
        "run": run_dir.name,
        "cell": verdict.cell,
        "seed": verdict.seed,
        "verdict": verdict.verdict,
        "expected": str(verdict.expected),
        "met": verdict.met,
        "anomalies": sorted({anomaly.name for anomaly in verdict.anomalies}),
        "reasons": list(verdict.reasons),
        "faults": len(verdict.faults),
        "faults_confirmed": sum(fault.get("status") == "confirmed" for fault in verdict.faults),
        "acknowledged": verdict.stats.get("acknowledged", 0),
        "duration_s": verdict.stats.get("duration_s", 0.0),
    }
