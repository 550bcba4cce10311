"""Writes a campaign's documents: summary.json, report.html and junit.xml, with the gate's decision."""

from __future__ import annotations

import json
from pathlib import Path

from history.regular_files import replace_text
from orchestrator.gate.decision import GateResult


def write_documents(result: GateResult) -> Path:
    """Write them into the campaign's directory; returns the report's path. Raises `OSError`."""
    from analysis import junit  # imports the templates, which only this function needs
    from analysis.report import render_campaign

    summary = result.to_json()
    replace_text(result.directory / "summary.json", json.dumps(summary, indent=1) + "\n")
    junit.write(result.directory, summary)
    return render_campaign(result.directory, summary)
