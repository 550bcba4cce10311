"""`brownout serve`: a store's pages and the invocation that is under way, in a browser."""

import argparse
import asyncio
import contextlib
import secrets
import signal
import sys
from pathlib import Path
from typing import Final

from installation.files import default_store
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import store_option
from orchestrator.errors import STOPPING, UsageError
from orchestrator.printing import say
from orchestrator.store.directories import Store

_PORT: Final = 8470
_MOST_PORT: Final = 65535


def main(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C; returns 0. Raises `UsageError` for a store that is missing and an address that cannot be
    bound."""
    store = Store(options.store or default_store())
    if not store.root.is_dir():
        raise UsageError(f"{store.named} is not a directory; give the directory of runs with --store")
    from orchestrator.serving.server import is_loopback

    token = "" if is_loopback(options.address) else secrets.token_urlsafe(24)
    try:
        asyncio.run(_serve(store.root, options.address, options.port, token))
    except (OSError, UnicodeError) as error:  # the latter: not the form of a host name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(
            f"{options.address}:{options.port} cannot be bound: {reason}; give another --port or --address"
        ) from error
    return 0


async def _serve(store: Path, address: str, port: int, token: str) -> None:
    from orchestrator.serving.server import serve

    def ready(bound: int) -> None:
        host = f"[{address}]" if ":" in address else address
        suffix = f"?token={token}" if token else ""
        say(f"all runs:   http://{host}:{bound}/{suffix}")
        say(f"under way:  http://{host}:{bound}/live{suffix}")
        say("Ctrl-C ends the server; runs are not affected")
        sys.stdout.flush()  # another program may wait for the addresses

    serving = asyncio.ensure_future(serve(store, address, port, token, ready))
    for number in STOPPING:
        asyncio.get_running_loop().add_signal_handler(signal.Signals(number), serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


def _address(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the address is empty: give an address or name of this machine, or 0.0.0.0")
    return text


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _MOST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give 0 (any free port) to {_MOST_PORT}")
    return int(text)


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--address",
        type=_address,
        default="127.0.0.1",
        metavar="ADDRESS",
        help="listen on this address (default: 127.0.0.1)",
    )
    command.add_argument(
        "--port",
        type=_port,
        default=_PORT,
        metavar="N",
        help=f"the port, 0 for a free one (default: {_PORT})",
    )
    store_option(command)


COMMAND: Final = Command(
    name="serve",
    place=46,
    summary="the store's pages and the running invocation, in a browser",
    description="""\
Serves the store over HTTP: the index of all runs, their reports, and a live page of the invocation that is under
way: phase, faults in force, rate and latency per second, verdicts so far, newest lines of the nodes' logs.

  brownout serve                        on this machine only: http://127.0.0.1:8470/
  brownout serve --address 0.0.0.0      for other machines; the printed addresses contain a token

The server changes nothing in the store. It stays after a run ends. On an address other than
loopback every request needs the token, which is new at each start. The connection is not encrypted: use it in a
network that you trust, or through an SSH tunnel.
""",
    options=_options,
    main=main,
)
