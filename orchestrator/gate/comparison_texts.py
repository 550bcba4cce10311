"""A comparison of two campaigns or stores as Markdown and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from history.regular_files import replace_text
from history.strict_toml import written
from orchestrator.gate.markdown import escaped, table
from orchestrator.store.side_by_side import FigureChange, Side, SideBySide, percent

Rows = Sequence[tuple[str, ...]]
Section = tuple[str, tuple[str, ...], Rows]
"""A title, the heads of the columns, and the rows."""


def in_markdown(found: SideBySide) -> str:
    """A heading, the two sides, and a table for each kind of difference."""
    lines = [f"## {escaped(found.before.path)} and {escaped(found.after.path)}", ""]
    for title, heads, rows in sections(found):
        lines += [f"### {title}", "", *table(heads, rows)]
    lines += [f"- {escaped(note)}" for note in found.notes]
    return "\n".join(lines) + "\n"


def write_page(path: Path, found: SideBySide) -> Path:
    """Write the comparison as a page; returns its path. Raises `OSError`."""
    from analysis.report import page_of  # imports the templates, which only this function needs

    replace_text(path, page_of("compare.html", data={}, found=found, sections=list(sections(found))))
    return path


def sections(found: SideBySide) -> Iterator[Section]:
    """What the comparison found, as tables of text; without tables that would be empty."""
    yield (
        "Sides",
        ("", "runs", "as expected", "verdicts", "versions"),
        [_side("before", found.before), _side("after", found.after)],
    )
    changed = [cell for cell in found.cells if cell.has_changed]
    for title, heads, rows in (
        (
            "Verdicts that changed",
            ("campaign", "cell", "before", "after", "as expected before", "as expected after"),
            [
                (
                    cell.campaign,
                    cell.cell,
                    _counts(cell.before),
                    _counts(cell.after),
                    f"{cell.met_before}/{sum(cell.before.values())}",
                    f"{cell.met_after}/{sum(cell.after.values())}",
                )
                for cell in changed
            ],
        ),
        (
            "New anomalies",
            ("campaign", "cell", "anomaly", "runs"),
            [(each.campaign, each.cell, each.anomaly, str(each.runs)) for each in found.new],
        ),
        (
            "Anomalies that are gone",
            ("campaign", "cell", "anomaly", "runs"),
            [(each.campaign, each.cell, each.anomaly, str(each.runs)) for each in found.gone],
        ),
        (
            "Figures of runs that passed as expected",
            ("campaign", "figure", "runs", "before", "after", "change", "significant"),
            [_figure(each) for each in found.figures],
        ),
        (
            "Settings that differ",
            ("campaign", "cell", "key", "before", "after"),
            [(each.campaign, each.cell, each.key, _value(each.before), _value(each.after)) for each in found.settings],
        ),
        ("Cells before only", ("cell",), [(name,) for name in found.only_before]),
        ("Cells after only", ("cell",), [(name,) for name in found.only_after]),
    ):
        if rows:
            yield title, heads, rows
    if not changed and found.cells:
        yield (
            "Verdicts",
            ("cells",),
            [(f"no verdict differs in {len(found.cells)} cell{'s' if len(found.cells) > 1 else ''}",)],
        )


def _side(name: str, side: Side) -> tuple[str, ...]:
    versions = "; ".join(f"{key} {' and '.join(values)}" for key, values in side.versions.items())
    return f"{name}: {side.path}", str(side.runs), str(side.met), _counts(side.verdicts), versions or "unknown"


def _figure(change: FigureChange) -> tuple[str, ...]:
    word = {None: "not decided", True: "worse", False: "no"}[change.worse]
    return (
        change.campaign,
        change.figure,
        f"{change.runs_before}, {change.runs_after}",
        *("not measured" if each is None else f"{each:,.4g} {change.unit}" for each in (change.before, change.after)),
        percent(change),
        word,
    )


def _counts(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items())) or "none"


def _value(value: object) -> str:
    return "not set" if value is None else written(value)
