"""`brownout quorum describe` and `brownout log dump`: print the same as Kafka's own tools."""

from __future__ import annotations

import argparse
import json

from orchestrator.command.printing import say
from orchestrator.errors import UsageError


def main(options: argparse.Namespace) -> int:
    """Run the action; returns the exit code. Raises `UsageError` for an unusable address or directory."""
    if options.command == "quorum":
        return _quorum(options)
    return _log(options)


def _quorum(options: argparse.Namespace) -> int:
    from systems.kafka_protocol import quorum_describe

    addresses = [_address(text) for text in options.bootstrap_server.split(",")]
    state = quorum_describe.describe(addresses, timeout_s=options.timeout)
    if options.json:
        print(json.dumps(state.to_json(), indent=1))
    else:
        say("\n".join(state.replication_lines() if options.replication else state.status_lines()))
    return 0


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        raise UsageError(f"--bootstrap-server: {text!r} is not of the form host:port")
    return host, int(port)


def _log(options: argparse.Namespace) -> int:
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
