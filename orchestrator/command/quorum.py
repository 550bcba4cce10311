"""`brownout quorum describe`: prints the same as `kafka-metadata-quorum describe`."""

import argparse
import json
from typing import Final

from orchestrator.command.shared.declaration import Command, actions_of, add
from orchestrator.command.shared.options import json_option
from orchestrator.errors import UsageError
from orchestrator.printing import say


def main(options: argparse.Namespace) -> int:
    """Describe the quorum; returns the exit code. Raises `UsageError` for an unusable address."""
    from systems.kafka_protocol import observer

    addresses = [_address(text) for text in options.bootstrap_server.split(",")]
    state = observer.describe_quorum(addresses, timeout_s=options.timeout)
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


def _options(command: argparse.ArgumentParser) -> None:
    actions = actions_of(command)
    describe = add(
        actions,
        "describe",
        "status and replication of the quorum",
        "Prints the same as `kafka-metadata-quorum describe` (KIP-595).\n\n"
        "  brownout quorum describe --bootstrap-server 127.0.0.1:9092 --replication",
    )
    describe.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="one or more brokers of the cluster"
    )
    describe.add_argument("--replication", action="store_true", help="one line per replica instead of the status")
    describe.add_argument("--status", action="store_true", help="the status (the default)")
    describe.add_argument("--timeout", type=float, default=10.0, metavar="S", help="the timeout (default: 10 s)")
    json_option(describe)


COMMAND: Final = Command(
    name="quorum",
    place=170,
    summary="inspect a metadata quorum",
    description="Inspects the metadata quorum of a running cluster.",
    options=_options,
    main=main,
)
