"""`brownout log dump`: prints the same as `kafka-dump-log`."""

import argparse
import json
from pathlib import Path
from typing import Final

from orchestrator.command.shared.declaration import Command, actions_of, add
from orchestrator.command.shared.options import json_option
from orchestrator.printing import say


def main(options: argparse.Namespace) -> int:
    """Print the batches; returns the exit code. Raises `UsageError` for an unusable directory."""
    from systems.kafka_protocol import log_dump

    if options.json:
        print(
            json.dumps(
                [
                    log_dump.to_json(segment, records=options.records)
                    for segment in log_dump.segments(options.directory)
                ],
                indent=1,
            )
        )
        return 0
    for segment in log_dump.segments(options.directory):
        for line in log_dump.lines(segment, records=options.records):
            say(line)
    return 0


def _options(command: argparse.ArgumentParser) -> None:
    actions = actions_of(command)
    dump = add(
        actions,
        "dump",
        "print the batches of a partition's files",
        "Prints the same as `kafka-dump-log`: one line per batch, and with --records one line per record.\n\n"
        "  brownout log dump store/latest/nodes/n1/data/log-0 --records",
    )
    dump.add_argument("directory", type=Path, metavar="DIR", help="a partition's directory, or one segment file")
    dump.add_argument("--records", action="store_true", help="print the records, too")
    json_option(dump)


COMMAND: Final = Command(
    name="log",
    place=180,
    summary="inspect log files",
    description="Inspects the log directories that brokers write.",
    options=_options,
    main=main,
)
