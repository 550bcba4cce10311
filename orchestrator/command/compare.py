"""`brownout compare`: two campaigns or stores side by side, as text, Markdown, JSON or a page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from history.regular_files import replace_text
from history.strict_toml import written
from installation.files import default_store
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import json_option, store_option
from orchestrator.errors import UsageError
from orchestrator.gate.reports import escaped, table
from orchestrator.printing import say, show
from orchestrator.store.directories import Store

if TYPE_CHECKING:
    from orchestrator.store.side_by_side import FigureChange, Side, SideBySide


def main(options: argparse.Namespace) -> int:
    """Print the comparison; returns 0. Raises `UsageError` for a path that is not a campaign, store or directory of
    tables, and for a page that cannot be written."""
    from orchestrator.store.side_by_side import side_by_side  # imports pyarrow

    store = Store(options.store or default_store())
    comparison = side_by_side(store.find(options.before), store.find(options.after))
    if options.page is not None:
        try:
            write_page(options.page, comparison)
        except OSError as error:
            raise UsageError(f"--page {options.page}: {error.strerror}; give a file that can be written") from error
    if options.json:
        print(json.dumps(comparison.to_json(), indent=1))
        return 0
    if options.markdown:
        print(in_markdown(comparison))
        return 0
    for title, heads, rows in sections(comparison):
        show(title, [dict(zip(heads, row, strict=True)) for row in rows], heads)
    for note in comparison.notes:
        say(note)
    if options.page is not None:
        say(f"page: {options.page}")
    return 0


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "before", metavar="A", help="a campaign's directory, a store, or a copy of its .tables: before"
    )
    command.add_argument("after", metavar="B", help="the same: after")
    command.add_argument("--page", type=Path, metavar="FILE", help="also write the comparison as an HTML page")
    store_option(command)
    form = command.add_mutually_exclusive_group()
    json_option(form)
    form.add_argument("--markdown", action="store_true", help="print Markdown, for a pull request")


Rows = Sequence[tuple[str, ...]]
Section = tuple[str, tuple[str, ...], Rows]
"""A title, the heads of the columns, and the rows."""


def in_markdown(comparison: SideBySide) -> str:
    """A heading, the two sides, and a table for each kind of difference."""
    lines = [f"## {escaped(comparison.before.path)} and {escaped(comparison.after.path)}", ""]
    for title, heads, rows in sections(comparison):
        lines += [f"### {title}", "", *table(heads, rows)]
    lines += [f"- {escaped(note)}" for note in comparison.notes]
    return "\n".join(lines) + "\n"


def write_page(path: Path, comparison: SideBySide) -> Path:
    """Write the comparison as a page; returns its path. Raises `OSError`."""
    from analysis.report import page_of  # imports the templates, which only this function needs

    replace_text(path, page_of("compare.html", data={}, found=comparison, sections=list(sections(comparison))))
    return path


def sections(comparison: SideBySide) -> Iterator[Section]:
    """What the comparison found, as tables of text; without tables that would be empty."""
    yield (
        "Sides",
        ("", "runs", "as expected", "verdicts", "versions"),
        [_side("before", comparison.before), _side("after", comparison.after)],
    )
    changed = [cell for cell in comparison.cells if cell.has_changed]
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
            [(row.campaign, row.cell, row.anomaly, str(row.runs)) for row in comparison.new],
        ),
        (
            "Anomalies that are gone",
            ("campaign", "cell", "anomaly", "runs"),
            [(row.campaign, row.cell, row.anomaly, str(row.runs)) for row in comparison.gone],
        ),
        (
            "Figures of runs that passed as expected",
            ("campaign", "figure", "runs", "before", "after", "change", "significant"),
            [_figure(row) for row in comparison.figures],
        ),
        (
            "Settings that differ",
            ("campaign", "cell", "key", "before", "after"),
            [(row.campaign, row.cell, row.key, _value(row.before), _value(row.after)) for row in comparison.settings],
        ),
        ("Cells before only", ("cell",), [(name,) for name in comparison.only_before]),
        ("Cells after only", ("cell",), [(name,) for name in comparison.only_after]),
    ):
        if rows:
            yield title, heads, rows
    if not changed and comparison.cells:
        yield (
            "Verdicts",
            ("cells",),
            [(f"no verdict differs in {len(comparison.cells)} cell{'s' if len(comparison.cells) > 1 else ''}",)],
        )


def _side(name: str, side: Side) -> tuple[str, ...]:
    versions = "; ".join(f"{key} {' and '.join(values)}" for key, values in side.versions.items())
    return f"{name}: {side.path}", str(side.runs), str(side.met), _counts(side.verdicts), versions or "unknown"


def _figure(change: FigureChange) -> tuple[str, ...]:
    from orchestrator.store.side_by_side import percent

    judgement = {None: "not decided", True: "worse", False: "no"}[change.worse]
    return (
        change.campaign,
        change.figure,
        f"{change.runs_before}, {change.runs_after}",
        *(
            "not measured" if figure is None else f"{figure:,.4g} {change.unit}"
            for figure in (change.before, change.after)
        ),
        percent(change),
        judgement,
    )


def _counts(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items())) or "none"


def _value(value: object) -> str:
    return "not set" if value is None else written(value)


COMMAND: Final = Command(
    name="compare",
    place=47,
    summary="two campaigns or stores side by side",
    description="""\
Compares verdicts, anomalies, figures and settings of two campaigns, or of all campaigns of two stores.

  brownout compare store/demo /baseline/demo       a campaign, before and after
  brownout compare old-store store --page d.html   two stores, as a page
  brownout compare old-store store --markdown      for a pull request
  brownout compare baseline/.tables store          a baseline: a copy of the tables alone

A store is read as `brownout list` reads it. A copy of its .tables/runs.parquet can take its place; it is compared as
it is (docs/tables.md).

Figures are those of runs that passed as expected. A change has a 95 % interval. It is called worse if it is worse
by more than 10 % and a permutation test over the runs of each cell, corrected for the number of figures and
campaigns, gives p <= 0.05; few runs cannot show a difference, and the output says so.

The exit code is 0 whatever differs: a baseline in gate.toml makes `brownout gate` decide.
""",
    options=_options,
    main=main,
)
