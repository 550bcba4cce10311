"""Renders the HTML reports of runs, campaigns and explorations: self-contained, with the verdict first."""

import base64
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from analysis.core.anomaly import Anomaly
from analysis.core.explain import name_of
from analysis.core.register_witness import value_text
from analysis.page.run_facts import STATES as SEGMENT_STATES
from analysis.page.run_page import RunPage, gather
from analysis.page.timeline_parts import script_text
from analysis.run_row import sample_of
from analysis.stored_verdict import StoredVerdict
from analysis.verdict import BESIDES, FAIL, NOT_APPLICABLE, Verdict
from history.journal.timeline import RunClock
from history.record.schemas import INF
from history.regular_files import read_bytes, replace_text
from installation.counted import counted
from installation.sanitize import brief, plain, visible

COLUMNS: Final = {
    "node": ("node", "the node whose files or events hold the record"),
    "leader": ("leader", "the node that led the partition when the operation ended, by the nodes' own events"),
    "endpoint": ("node", "the node that the client asked; it answered if the outcome is ok or a mismatch"),
    "op": ("operation", "what the client asked for"),
    "type": ("outcome", "ok: it happened; fail: it did not; info: it may have happened"),
    "phase": ("phase", "main: under load and faults; final: after every fault was healed"),
    "lo": ("log at least", "the answer shows that the log had at least this many records"),
    "hi": ("log at most", "the answer shows that the log had at most this many records"),
    "inv": ("invoked", "when the client sent the operation, in seconds since the start"),
    "ret": ("returned", "when the client had the answer, in seconds since the start"),
    "high_watermark": ("high watermark", "the offset below which all in-sync replicas hold the records"),
    "epoch": ("epoch", "the leader epoch: each election of a partition's leader raises it"),
    "wall": ("reported", "when the node reported it, in seconds since the start"),
    "digest": ("digest", "checksum of the record's bytes"),
    "crc": ("checksum", "CRC-32C of the batch"),
}
"""A witness's column -> its heading and explanation."""

_LOG, _REGISTER, _REPLICAS = "log", "register", "replicas"
_TERMS: Final = (
    ("acknowledged", "", "The system answered that the change happened. An acknowledged change must persist."),
    ("indeterminate", "", "The client has no answer: the change may have happened, or may still happen."),
    ("info", "", "The outcome of an indeterminate operation."),
    ("offset", _LOG, "The position of a record in its partition, from 0."),
    ("record 1.2.3", _LOG, "Record 3, from 0, of producer 2 in session 1."),
    ("value 2.3", _REGISTER, "Write 3 of client 2."),
    ("leader", _REPLICAS, "The replica that takes the writes of a partition."),
    ("leader epoch", _REPLICAS, "A number that each election of a partition's leader raises."),
    (
        "high watermark",
        _REPLICAS,
        "The offset below which all in-sync replicas hold the records; consumers read only below it.",
    ),
    ("log end offset", _REPLICAS, "The offset of the next record in a replica's log."),
    (
        "in-sync set (ISR)",
        _REPLICAS,
        "The replicas that hold every committed record. A new leader is elected from them.",
    ),
    ("truncation", _REPLICAS, "A replica removes the end of its log to match its leader's."),
    ("fenced", _REPLICAS, "The controller does not count the broker as alive."),
    ("controller", _REPLICAS, "The node that elects leaders and keeps the cluster's metadata."),
    ("witness", "", "The smallest set of operations or records that contradict each other."),
    ("confirmed", "", "Evidence shows that the fault took effect."),
    ("prevented", "", "Another fault in force left nothing to act on: nothing was done."),
    ("inconclusive", "", "No evidence shows that the fault took effect."),
)
"""Terms, each with the pages that have it: all, those of logs, of registers, or of replicas that are read."""


def heading(column: str) -> tuple[str, str]:
    """A column's heading and its explanation, which may be empty."""
    return COLUMNS.get(column, (column.replace("_", " "), ""))


TEMPLATES = Path(__file__).with_name("templates")
MOST_WITNESS_ROWS = 12
MOST_PAGE_BYTES = 8 << 20
# The columns of a witness that come first, in this order, and the columns that only verdict.json shows.
WITNESS_COLUMNS = (
    "node", "leader", "endpoint", "client", "op", "type", "phase", "key", "expected", "new", "value", "offset",
    "records", "epoch", "source", "lo", "hi", "inv", "ret", "high_watermark", "digest", "error", "at",
)  # fmt: skip
UNSHOWN_COLUMNS = frozenset({"topic", "partition", "process", "acks", "record_count"})


@dataclass(frozen=True)
class AnomalyCard:
    """An anomaly as the report shows it: its plot (a data URL or empty), the columns of its witness
    as heading and explanation, the rows, the broken promise in words, and how many rows are not shown."""

    anomaly: Anomaly
    image: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    promise: str
    unshown: int


def render_run(run_dir: Path, standing: StoredVerdict | None = None) -> Path:
    """Write `report.html` next to the `verdict.json` and `plots/` of a run; returns its path. `standing`: what is known
    about a stored verdict."""
    stored = Verdict.read(run_dir / "verdict.json")
    verdict = stored if standing is None else standing.believed(stored)
    is_analyzed = stored.finished and (standing is None or not standing.doubts)
    page = gather(run_dir, verdict, is_analyzed=is_analyzed)
    images = _images(run_dir, page)
    text = (
        _environment()
        .get_template("run.html")
        .render(
            v=verdict,
            page=page,
            reasons=[reason for reason in verdict.reasons if not reason.startswith(BESIDES)],
            besides=verdict.doubts if verdict.verdict == FAIL else (),
            css=_css(),
            worth=worth_of_run(verdict),
            checks=[check for check in verdict.checks if page.has_replicas or check.verdict != NOT_APPLICABLE],
            figures=_figures(verdict.stats),
            fault_names={span.id: span.name for span in page.facts.faults},
            fault_rows=[_fault_row(fault) for fault in verdict.faults],
            anomaly_cards=[_card(index, anomaly, images, page) for index, anomaly in enumerate(verdict.anomalies)],
            plots=[{"name": name, "image": image} for name, image in images.items() if not name.startswith("anomaly-")],
            link=lambda file: _link(run_dir, file),
            terms=_terms(page),
            segment_states=SEGMENT_STATES,
            timeline_json=script_text(page.timeline or {}),
            timeline_js=_asset("timeline.js"),
        )
    )
    return _write(run_dir / "report.html", text)


def _terms(page: RunPage) -> dict[str, str]:
    """The terms that the page of this run can have."""
    subjects = {"", page.tested.judge, *([_REPLICAS] if page.has_replicas else [])}
    return {term: meaning for term, subject, meaning in _TERMS if subject in subjects}


def _images(run_dir: Path, page: RunPage) -> dict[str, str]:
    """The plots as data URLs by name, as many as fit into the page; those that do not fit are named in
    `page.missing`."""
    room = MOST_PAGE_BYTES
    images: dict[str, str] = {}
    for plot in sorted((run_dir / "plots").glob("*.png")):
        size = plot.stat().st_size if plot.is_file() else 0
        if size > room:
            page.missing.append(f"plots/{plot.name} is not on this page, which would be too large: open the file")
        elif size and (image := page.part(f"plots/{plot.name}", lambda p=plot: data_url(p), "")):  # type: ignore[misc]
            room -= size
            images[plot.stem] = image
    return images


def _link(run_dir: Path, file: str) -> str:
    """The relative address of a file of the run; empty if it is not there."""
    return quote(file) if file and (run_dir / file).is_file() else ""


def render_campaign(campaign_dir: Path, summary: Mapping[str, Any]) -> Path:
    """Write `report.html` of a campaign from its summary (the content of summary.json); returns its path."""
    page = (
        _environment()
        .get_template("campaign.html")
        .render(name=campaign_dir.name, summary=summary, css=_css(), worth=worth_of_campaign(summary["runs"]))
    )
    return _write(campaign_dir / "report.html", page)


def render_exploration(directory: Path, exploration: Mapping[str, Any], plot: bytes) -> Path:
    """Write `report.html` of an exploration into its directory; returns its path. `plot`: its coverage plot, PNG."""
    image = "data:image/png;base64," + base64.b64encode(plot).decode()
    page = _environment().get_template("exploration.html").render(e=exploration, css=_css(), image=image)
    return _write(directory / "report.html", page)


def page_of(template: str, *, data: Mapping[str, Any], **content: Any) -> str:
    """A page from one of the templates. `data`: values for the page's scripts, which the template puts into elements
    `<script type="application/json">`."""
    embedded = {name: Markup(_embedded(value)) for name, value in data.items()}
    return _environment().get_template(template).render(css=_css(), data=embedded, **content)


def worth_of_run(verdict: Verdict) -> str:
    """What the evidence of one run shows, in a sentence."""
    acknowledged = verdict.stats.get("acknowledged", 0)
    confirmed = sum(fault.get("status") == "confirmed" for fault in verdict.faults)
    extent = f"{counted(acknowledged, 'acknowledged change')} under {counted(confirmed, 'confirmed fault')}"
    if verdict.verdict == "pass":
        return f"{extent}: no violation in this schedule. One seed is one sample: run more seeds to say more."
    if verdict.verdict == "fail":
        return f"{extent}: the contradiction below is a proof, whatever else happened in this run."
    return f"{extent}: not enough for a verdict; the reasons say what was missing."


def worth_of_campaign(runs: Sequence[Mapping[str, Any]]) -> str:
    """The rule of three over the runs that were expected to pass: an upper bound of the failure rate at 95 %."""
    candidates = [run for run in runs if run["expected"].startswith("pass") and run["verdict"] != "unknown"]
    if not candidates:
        return "No run that was expected to pass could be decided."
    judged = len(set(map(sample_of, candidates)))
    failed = len({sample_of(run) for run in candidates if run["verdict"] == "fail"})
    expected = f"that {'was' if judged == 1 else 'were'} expected to pass"
    extent = f"{counted(failed, 'violation')} in {counted(judged, 'decided run')} {expected}"
    undecided = len(candidates) - judged
    extent += f", without {undecided} that repeated a simulated seed" if undecided else ""
    if failed:
        return f"{extent}."
    bound = 1 - math.pow(0.05, 1 / judged)
    return f"{extent}: failure rate below {bound:.1%} at 95 %."


def data_url(plot: Path) -> str:
    """A plot as a `data:` URL, so that the page needs no other file."""
    return "data:image/png;base64," + base64.b64encode(read_bytes(plot)).decode()


def _embedded(value: Any) -> str:
    """A value as JSON in which no text can close the page's script element."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _environment() -> Environment:
    """One for all pages of a process: compiling the templates takes as long as analyzing a small run."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_printable
    )
    environment.filters["urlencode"] = link_to
    return environment


def link_to(path: str) -> str:
    """A relative link to a file. The bytes of its name need not be text."""
    return quote(os.fsencode(path))


def _printable(value: Any) -> Any:
    """Every text that a template prints has its control characters as escapes. Markup is the project's own."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _css() -> Markup:
    return _asset("style.css")


def _asset(name: str) -> Markup:
    """A style sheet or script, unescaped: browsers take the text of <style> and <script> literally."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def _write(path: Path, page: str) -> Path:
    replace_text(path, page)
    return path


def _figures(stats: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = (
        ("acknowledged", "acknowledged changes"),
        ("acknowledged_weak", "acknowledged by less than all in-sync replicas, which no rule protects"),
        ("failed", "failed changes"),
        ("failed_queries", "failed queries"),
        ("indeterminate", "indeterminate changes"),
        ("records_read", "records read"),
        ("achieved_share", "achieved of the planned changes, share"),
        ("longest_outage_s", "longest outage, s"),
        ("latency_p50_ms", "change p50, ms"),
        ("latency_p99_ms", "change p99, ms"),
        ("duration_s", "length, s"),
    )
    nothing = {"acknowledged", "achieved_share"} if stats.get("appends") == 0 else set[str]()
    shown = [(name, label, None if name in nothing else stats[name]) for name, label in names if name in stats]
    absent = {"acknowledged_weak": (0, None), "records_read": (None,)}  # figures of logs
    return [(label, _number(value)) for name, label, value in shown if value not in absent.get(name, ())]


def _number(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _fault_row(fault: Mapping[str, Any]) -> dict[str, str]:
    start, end = fault.get("start_s"), fault.get("end_s")
    return {
        "at": "–" if start is None else f"{start:.1f} s",
        "length": "–" if start is None or end is None else f"{end - start:.1f} s",
        "kind": str(fault.get("kind", "?")),
        "targets": ", ".join(fault.get("targets", ())),
        "status": str(fault.get("status", "inconclusive")),
        "sentence": str(fault.get("sentence", "")),
        "proof": str(fault.get("proof", "")),
        "evidence": _evidence_text(fault.get("evidence"), 4_000),
    }


def _evidence_text(evidence: Any, most: int = 320) -> str:
    return brief(plain(evidence) if evidence else "", most)


def _card(index: int, anomaly: Anomaly, images: Mapping[str, str], page: RunPage) -> AnomalyCard:
    rows = [_with_leader(row, anomaly, page) for row in anomaly.witness[:MOST_WITNESS_ROWS]]
    present = {key for row in rows for key, value in row.items() if value not in (None, -1, [], "")}
    others = dict.fromkeys(key for row in rows for key in row if key not in WITNESS_COLUMNS)
    columns = tuple(key for key in (*WITNESS_COLUMNS, *others) if key in present - UNSHOWN_COLUMNS)
    return AnomalyCard(
        anomaly=anomaly,
        image=images.get(f"anomaly-{index}", ""),
        columns=tuple(map(heading, columns)),
        rows=tuple(tuple(_cell(column, row, page.clock) for column in columns) for row in rows),
        promise=_promises().get(anomaly.promise, ""),
        unshown=len(anomaly.witness) - len(rows),
    )


def _with_leader(row: Mapping[str, Any], anomaly: Anomaly, page: RunPage) -> Mapping[str, Any]:
    """A row with the node that answered, or that was asked for a register."""
    if row.get("endpoint"):
        return {**row, "endpoint": page.node_at(row["endpoint"])}
    leader = page.answered_by({"topic": anomaly.topic, "partition": anomaly.partition, **row})
    return {**row, "leader": leader} if leader else row


@cache
def _promises() -> Mapping[str, str]:
    """The text of each promise by its code."""
    from analysis.checker_registry import CHECKERS  # all checkers, which only a page with an anomaly needs

    return {kind.breaks.code: kind.breaks.text for checker in CHECKERS for kind in checker.anomalies}


def _cell(column: str, row: Mapping[str, Any], clock: RunClock) -> str:
    """A witness's field for people: values by their producer's count, times in seconds since the start."""
    value = row.get(column, "")
    if "key" in row and column in ("value", "expected", "new") and column in row:
        return value_text(value) if value is None or isinstance(value, int | str) else plain(value)
    if value in ("", None, -1):
        return ""
    if column == "value":
        return name_of(value) if isinstance(value, int) else plain(value)
    if column == "records":
        return ", ".join(f"{at}: {name_of(value_there)}" for at, value_there in value)
    if column in ("inv", "ret", "at"):
        return "never" if value >= INF else f"{clock.of_monotonic(value):.3f} s"
    if column == "wall":
        return f"{clock.of_wall(value):.3f} s"
    return _evidence_text(value, 90)
