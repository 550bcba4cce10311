"""A campaign's documents: summary.json, report.html and junit.xml, which say what the gate decided."""

from __future__ import annotations

import json
import os
from pathlib import Path

from orchestrator.campaign.gate import GateResult


def write_documents(result: GateResult) -> Path:
    """Write them into the campaign's directory; the report's path. Raises `OSError`."""
    from analysis import junit  # with the templates, only for those who write
    from analysis.report import render_campaign

    summary = result.to_json()
    draft = result.directory / "summary.json.tmp"
    draft.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, result.directory / "summary.json")
    junit.write(result.directory, summary)
    return render_campaign(result.directory, summary)
