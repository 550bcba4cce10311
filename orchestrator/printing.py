"""Prints tables and verdicts on standard output; plain text where it is not a terminal."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from installation.sanitize import visible

_MARKS = {"pass": ("✔", "bold green"), "fail": ("✘", "bold red"), "unknown": ("?", "bold yellow")}


def say(text: str, file: TextIO | None = None) -> None:
    """Print a line that may contain text of a user or another program: control characters are made visible."""
    print(visible(text), file=sys.stdout if file is None else file)


def show(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows as a table; lists are joined, other values are printed with `str`."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(visible(title)), title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(_cell(row.get(column, "")))) for column in columns))
    console = Console()
    # Piped into a file or another program, a table must not be folded to the width of a terminal.
    console = console if console.is_terminal else Console(width=200)
    console.print(table, markup=False)


def show_runs(campaign: str, runs: Sequence[Mapping[str, Any]]) -> None:
    """Print one row per run of a campaign: verdict, expectation, faults."""
    rows = [
        {
            **run,
            "met": "yes" if run["met"] else "NO",
            "faults": f"{run['faults_confirmed']}/{run['faults']} confirmed",
            "acknowledged": f"{run['acknowledged']:,}",
        }
        for run in runs
    ]
    show(campaign, rows, ("run", "verdict", "expected", "met", "anomalies", "faults", "acknowledged"))


def verdict_line(verdict: str, reason: str) -> None:
    """Print the final line: sign, verdict, reason. Sign and word carry the same information as the colour."""
    from rich.console import Console
    from rich.text import Text

    mark, style = _MARKS[verdict]
    Console(soft_wrap=True).print(Text(f"{mark} {verdict}", style=style) + Text(f": {visible(reason)}"))


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    return str(value)
