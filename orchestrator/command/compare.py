"""`brownout compare`: two campaigns or stores side by side."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from installation.files import default_store
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import json_option, store_option
from orchestrator.errors import UsageError
from orchestrator.printing import say, show
from orchestrator.store.directories import Store


def main(options: argparse.Namespace) -> int:
    """Print the comparison; returns 0. Raises `UsageError` for a path that is not a campaign, store or directory of
    tables, and for a page that cannot be written."""
    from orchestrator.gate.comparison_texts import in_markdown, sections, write_page  # import pyarrow
    from orchestrator.store.side_by_side import side_by_side

    store = Store(options.store or default_store())
    found = side_by_side(store.find(options.before), store.find(options.after))
    if options.page is not None:
        try:
            write_page(options.page, found)
        except OSError as error:
            raise UsageError(f"--page {options.page}: {error.strerror}; give a file that can be written") from error
    if options.json:
        print(json.dumps(found.to_json(), indent=1))
        return 0
    if options.markdown:
        print(in_markdown(found))
        return 0
    for title, heads, rows in sections(found):
        show(title, [dict(zip(heads, row, strict=True)) for row in rows], heads)
    for note in found.notes:
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
