"""`brownout install-packages`: installs Debian packages."""

import argparse
from typing import Final

from orchestrator.command.shared.declaration import Command
from orchestrator.machine import packages


def main(options: argparse.Namespace) -> int:
    """Install the packages; returns the exit code. Raises `UsageError` when the script cannot be run."""
    return packages.install(options.names)


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("names", nargs="+", metavar="NAME", help="a Debian package, or `java` for a suitable runtime")


COMMAND: Final = Command(
    name="install-packages",
    place=140,
    summary="install system packages (root, Debian)",
    description="""\
Installs Debian packages with apt-get, without recommended packages and without starting their services.
`brownout doctor` lists the missing ones.
""",
    options=_options,
    main=main,
)
