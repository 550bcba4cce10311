"""`brownout list`: the campaigns and runs of a store, and its page `index.html`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from analysis.run_row import RunRow
from installation.files import default_store
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import json_option, positive, store_option
from orchestrator.errors import UsageError
from orchestrator.printing import say, show
from orchestrator.running.engine import IN_PROCESS, LOCAL, Engine, choose_engine, engine_asked
from orchestrator.store.directories import Store
from orchestrator.store.index import campaign_directories, ordered, read_index
from orchestrator.store.index_page import TrendPoint, trends, write_index
from systems.toml_tables import suggestion

_COLUMNS: Final = ("campaign", "run", "verdict", "expected", "length", "world", "system", "anomalies")
_TREND_COLUMNS: Final = ("campaign", "made", "version", "world", "met", "latency_p99_ms", "longest_outage_s")
_MOST: Final = 50


def main(options: argparse.Namespace) -> int:
    """Print the rows and write the page; returns 0. Raises `UsageError` for a store that cannot be read."""
    if options.master is not None and not options.tables:
        raise UsageError("--master: its workers write tables; add --tables, or leave out --master")
    store = Store(options.store or default_store())
    try:
        if options.tables:
            store.root.stat()  # a missing store is an error of --store, not of the tables
            _write_tables(store, options.master)
        campaigns = read_index(store.root)
        _require_campaigns(options.campaign, store)
    except OSError as error:
        raise UsageError(
            f"{store.named}: {error.strerror}; give the directory of runs with --store, or make runs with "
            "`brownout run`"
        ) from error
    if options.trends:
        points = trends(row for campaign in campaigns for row in campaign.runs)
        chosen = [point for point in points if not options.campaign or point.campaign in options.campaign]
        _print_trends(chosen, as_json=options.json)
        return 0
    rows = [row for row in ordered(campaigns) if _is_wanted(row, options)]
    page = None
    try:
        page = write_index(store.root, campaigns)
    except OSError as error:
        say(f"{store.root}: the page was not written: {error.strerror}", file=sys.stderr)
    if options.json:
        print(json.dumps([row.to_json() for row in rows], indent=1))
        return 0
    _print(rows, options.most, page)
    return 0


def _require_campaigns(names: Sequence[str], store: Store) -> None:
    """Raises `UsageError` for a campaign that the store does not have, and `OSError`."""
    known = [path.name for path in campaign_directories(store.root)]
    for name in names:
        if name not in known:
            raise UsageError(f"--campaign {name}: {store.named} has no such campaign; {suggestion(name, known)}")


def _print_trends(points: list[TrendPoint], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([point.to_json() for point in points], indent=1))
        return
    rows = [
        {
            **{name: "-" if value is None else value for name, value in point.to_json().items()},
            "met": f"{point.met}/{point.runs}",
        }
        for point in points
    ]
    show(f"{len(points):,} invocation{'' if len(points) == 1 else 's'}", rows, _TREND_COLUMNS)


def _write_tables(store: Store, master: str | None) -> None:
    from analysis.engines.spark_address import without_secrets
    from analysis.engines.task_map import in_sequence
    from orchestrator.store.tables import write_tables

    kind, _ = choose_engine(engine_asked(None if master else IN_PROCESS, master), master=master)
    engine = Engine(kind, master or LOCAL)
    try:
        if master is not None:
            engine.require_visible([store.root])
        folder, left_out = write_tables(store, in_sequence if master is None else engine.tasks().of("list --tables"))
    except RuntimeError as error:
        raise UsageError(f"--master {without_secrets(master or '')}: {error}; the tables were not written") from error
    except OSError as error:
        raise UsageError(f"{error.filename or store.root}: {error.strerror}; the tables were not written") from error
    finally:
        engine.stop()
    for sentence in left_out:
        say(sentence, file=sys.stderr)
    say(f"tables: {folder}", file=sys.stderr)


def _is_wanted(row: RunRow, options: argparse.Namespace) -> bool:
    text = " ".join((row.campaign, row.run, row.world, row.system, *row.anomalies, *row.reasons, row.drawn)).lower()
    return (
        (not options.campaign or row.campaign in options.campaign)
        and (not options.verdict or row.verdict in options.verdict)
        and (not options.unexpected or row.is_unexpected)
        and all(word in text for words in options.search for word in words.lower().split())
    )


def _print(rows: list[RunRow], limit: int, page: Path | None) -> None:
    shown = [
        {
            **row.to_json(),
            "verdict": row.verdict + ("" if row.counts else " (does not count)"),
            "expected": row.expected + ("" if row.met or not row.counts else " - NOT MET"),
            "length": f"{row.duration_s:.0f} s" if row.duration_s else "-",
        }
        for row in rows[:limit]
    ]
    show(f"{len(rows):,} run{'' if len(rows) == 1 else 's'}", shown, _COLUMNS)
    if len(rows) > limit:
        say(f"and {len(rows) - limit:,} more; --most N, --search TEXT and --json show others")
    if page is not None:
        say(f"page: {page}")


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--campaign", action="append", default=[], metavar="NAME", help="only runs of this campaign (repeatable)"
    )
    command.add_argument(
        "--verdict",
        action="append",
        default=[],
        choices=("pass", "fail", "unknown"),
        help="only runs with this verdict (repeatable)",
    )
    command.add_argument("--unexpected", action="store_true", help="only runs that did not meet their expectation")
    command.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="TEXT",
        help="only rows with each of these words, in the names, the world, the system, the anomalies, the reasons or "
        "what a seed drew",
    )
    command.add_argument(
        "--trends", action="store_true", help="a row per invocation in place of runs: share met, latency, outages"
    )
    command.add_argument(
        "--most", type=positive, default=_MOST, metavar="N", help=f"print at most N rows (default: {_MOST})"
    )
    command.add_argument(
        "--tables",
        action="store_true",
        help="also write .tables/*.parquet, for queries (docs/tables.md)",
    )
    command.add_argument(
        "--master",
        metavar="URL",
        help="the Spark master whose workers write the tables, such as spark://host:7077, or a Spark Connect server, "
        "sc://host:15002 (default: this process does)",
    )
    store_option(command)
    json_option(command)


COMMAND: Final = Command(
    name="list",
    place=45,
    summary="list the runs of a store and write its page index.html",
    description="""\
Lists every run in the store: runs that missed their expectation first, then the newest first. Also writes
index.html into the store: the same rows with search and filters, for a browser. --trends writes no page.

  brownout list                               all runs
  brownout list --unexpected                  runs that missed their expectation
  brownout list --search 'etcd stale-read'    rows with both words
  brownout list --trends --campaign demo      results of each invocation, by version
  brownout list --json                        all rows for another program
  brownout list --tables                      also tables of runs, checks, faults, anomalies and seconds

The rows repeat the decisions that were made last, and no evidence is examined: `brownout gate` decides. A run
whose verdict is missing, or newer than its campaign's summary, is listed as unknown.
""",
    options=_options,
    main=main,
)
