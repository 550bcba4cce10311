"""A campaign as `junit.xml`, for the build servers that gate a release on it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from analysis.verdict import UNKNOWN


def write(campaign_dir: Path, summary: Mapping[str, Any]) -> Path:
    """One test case per run: an expectation that was not met is a failure, a run that could not be judged an error."""
    runs = summary["runs"]
    unmet = [run for run in runs if not run["met"]]
    errors = [run for run in unmet if run["verdict"] == UNKNOWN]
    suite = ElementTree.Element(
        "testsuite",
        name=str(summary["campaign"]),
        tests=str(len(runs)),
        failures=str(len(unmet) - len(errors)),
        errors=str(len(errors)),
        time=f"{sum(run['duration_s'] for run in runs):.3f}",
    )
    for run in runs:
        _add_case(suite, str(summary["campaign"]), run)
    draft = campaign_dir / "junit.xml.tmp"
    ElementTree.ElementTree(suite).write(draft, encoding="utf-8", xml_declaration=True)
    target = campaign_dir / "junit.xml"
    os.replace(draft, target)
    return target


def _add_case(suite: ElementTree.Element, campaign: str, run: Mapping[str, Any]) -> None:
    name = f"{run['cell'] or 'default'} seed {run['seed']} expects {run['expected']}"
    case = ElementTree.SubElement(suite, "testcase", classname=campaign, name=name, time=f"{run['duration_s']:.3f}")
    text = "\n".join(run["reasons"])
    if not run["met"]:
        tag = "error" if run["verdict"] == UNKNOWN else "failure"
        message = f"{run['verdict']}, expected {run['expected']}"
        ElementTree.SubElement(case, tag, message=message).text = text
    elif text:
        ElementTree.SubElement(case, "system-out").text = text
